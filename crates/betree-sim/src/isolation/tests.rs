use super::*;
use Operation::{Append, Read, Scan, Write};

/// Transactions that all run at the same time, and commit.
fn together(transactions: &[&[Operation]]) -> Vec<Recorded> {
    let at = |number: usize, operations: &&[Operation]| Recorded {
        invoked: number as u64,
        returned: 1000 + number as u64,
        operations: operations.to_vec(),
        end: End::Committed,
    };
    transactions.iter().enumerate().map(|(number, operations)| at(number, operations)).collect()
}

/// The same one after the other.
fn in_turn(transactions: &[&[Operation]]) -> Vec<Recorded> {
    let mut history = together(transactions);
    for (number, one) in history.iter_mut().enumerate() {
        (one.invoked, one.returned) = (2 * number as u64, 2 * number as u64 + 1);
    }
    history
}

fn found(history: &[Recorded]) -> Vec<(Anomaly, bool)> {
    anomalies(history).into_iter().map(|found| (found.anomaly, found.is_real_time)).collect()
}

fn read(key: Key, elements: &[Element]) -> Operation {
    Read(key, elements.to_vec())
}

/// Reads a key that nobody else writes, so that nothing but the order of its writes is told.
fn last(lists: &[(Key, &[Element])]) -> Vec<Operation> {
    lists.iter().map(|(key, elements)| read(*key, elements)).collect()
}

#[test]
fn what_could_have_been_one_after_the_other_has_no_anomaly() {
    let history: &[&[Operation]] = &[
        &[Append(1, 1), Append(2, 2), Write(9, 3)],
        &[read(1, &[1]), Append(1, 4), read(1, &[1, 4]), read(9, &[3]), Write(9, 5), read(9, &[5])],
        &[Scan(0..3, vec![(1, vec![1, 4]), (2, vec![2])]), Append(2, 6)],
        &[Append(2, 7), read(2, &[2, 6, 7]), Scan(8..10, vec![(9, vec![5])])],
    ];
    assert_eq!(anomalies(&in_turn(history)), []);
    assert_eq!(anomalies(&together(history)), []);
    assert_eq!(anomalies(&[]), []);
}

#[test]
fn reads_that_nothing_explains_are_found() {
    let nobody = together(&[&[Append(1, 1)], &[read(1, &[2])]]);
    assert_eq!(found(&nobody), [(Anomaly::Garbage, false)]);
    let other_key = together(&[&[Append(1, 1)], &[read(2, &[1])]]);
    assert_eq!(found(&other_key), [(Anomaly::Garbage, false)]);
    let outside = together(&[&[Append(5, 1)], &[Scan(0..2, vec![(5, vec![1])])]]);
    assert_eq!(found(&outside), [(Anomaly::Garbage, false)]);
    let twice = together(&[&[Append(1, 1)], &[read(1, &[1, 1])]]);
    assert_eq!(found(&twice), [(Anomaly::Duplicate, false)]);
    let forks = together(&[&[Append(1, 1)], &[Append(1, 2)], &[read(1, &[1])], &[read(1, &[2])]]);
    assert_eq!(found(&forks)[0], (Anomaly::IncompatibleOrder, false));
}

#[test]
fn a_transaction_has_to_read_what_it_knows() {
    for operations in [
        [Append(1, 1), read(1, &[])],
        [Append(1, 1), read(1, &[1, 2])],
        [Write(3, 1), read(3, &[])],
        [read(1, &[]), read(1, &[2])],
        [read(1, &[]), Scan(0..2, vec![(1, vec![2])])],
    ] {
        let history = together(&[&operations, &[Append(1, 2)]]);
        assert!(
            found(&history).contains(&(Anomaly::Internal, false)),
            "{operations:?}: {:?}",
            found(&history)
        );
    }
}

#[test]
fn g1a_is_found() {
    let mut history = together(&[&[Append(1, 1), Write(3, 2)], &[read(1, &[1])], &[read(3, &[2])]]);
    history[0].end = End::Aborted;
    let what: Vec<_> = anomalies(&history).into_iter().map(|found| (found.anomaly, found.what)).collect();
    assert_eq!(what, [(Anomaly::G1a, "T1 read [1] of key 1; T0 aborted".into())]);
}

#[test]
fn g1b_is_found() {
    let list = together(&[&[Append(1, 1), Append(1, 2)], &[read(1, &[1])]]);
    assert_eq!(found(&list)[0], (Anomaly::G1b, false));
    let register = together(&[&[Write(3, 1), Write(3, 2)], &[read(3, &[1])]]);
    assert_eq!(found(&register)[0], (Anomaly::G1b, false));
}

#[test]
fn g0_is_found() {
    let orders = last(&[(1, &[1, 2]), (2, &[4, 3])]);
    let history = together(&[&[Append(1, 1), Append(2, 3)], &[Append(1, 2), Append(2, 4)], &orders]);
    assert_eq!(found(&history), [(Anomaly::G0, false)]);
    assert!(anomalies(&history)[0].what.contains("T0 -WriteOverWrite of key 1-> T1"));
    // The writes of a transaction do not lie together.
    let torn = together(&[&[Append(1, 1), Append(1, 3)], &[Append(1, 2)], &last(&[(1, &[1, 2, 3])])]);
    assert_eq!(found(&torn), [(Anomaly::G0, false)]);
}

#[test]
fn g1c_is_found() {
    let history = together(&[&[Append(1, 1), read(2, &[2])], &[Append(2, 2), read(1, &[1])]]);
    assert_eq!(found(&history), [(Anomaly::G1c, false)]);
}

#[test]
fn g_single_is_found() {
    let skewed = together(&[&[Append(1, 1), Append(2, 2)], &[read(1, &[1]), read(2, &[])]]);
    assert_eq!(found(&skewed), [(Anomaly::GSingle, false)]);
    let registers = together(&[&[Write(3, 1), Write(6, 2)], &[read(3, &[1]), read(6, &[])]]);
    assert_eq!(found(&registers), [(Anomaly::GSingle, false)]);
    let by_scan = together(&[&[Append(1, 1), Append(2, 2)], &[read(1, &[1]), Scan(2..3, vec![])]]);
    assert_eq!(found(&by_scan), [(Anomaly::GSingle, false)]);
}

#[test]
fn lost_updates_are_found() {
    let register = together(&[&[read(3, &[]), Write(3, 1)], &[read(3, &[]), Write(3, 2)]]);
    assert_eq!(found(&register), [(Anomaly::LostUpdate, false), (Anomaly::G2Item, false)]);
    let list = together(&[&[read(1, &[]), Append(1, 1)], &[read(1, &[]), Append(1, 2)], &[read(1, &[2])]]);
    assert_eq!(found(&list)[0], (Anomaly::LostUpdate, false));
    let in_order = together(&[&[read(3, &[]), Write(3, 1)], &[read(3, &[1]), Write(3, 2)]]);
    assert_eq!(found(&in_order), []);
}

#[test]
fn what_was_committed_is_not_read_later() {
    let list = in_turn(&[&[Append(1, 1)], &[Append(1, 2)], &[read(1, &[1])]]);
    assert_eq!(found(&list), [(Anomaly::GSingle, true)]);
    let register = in_turn(&[&[Write(3, 1)], &[read(3, &[])]]);
    assert_eq!(found(&register), [(Anomaly::GSingle, true)]);
    assert_eq!(found(&together(&[&[Write(3, 1)], &[read(3, &[])]])), []);
    // The order of writes is against that of time.
    let writes = in_turn(&[&[Append(1, 1)], &[Append(1, 2)], &last(&[(1, &[2, 1])])]);
    assert_eq!(found(&writes), [(Anomaly::G0, true)]);
}

#[test]
fn a_fork_of_moments_is_nonadjacent() {
    // Two readers see two independent writes in opposite orders.
    let history = together(&[
        &[Append(1, 1)],
        &[Append(2, 2)],
        &[read(1, &[1]), read(2, &[])],
        &[read(1, &[]), read(2, &[2])],
    ]);
    assert_eq!(found(&history), [(Anomaly::GNonadjacent, false)]);
}

#[test]
fn write_skew_is_g2_and_allowed_in_snapshots_alone() {
    let item = together(&[&[read(1, &[]), Append(2, 1)], &[read(2, &[]), Append(1, 2)]]);
    assert_eq!(found(&item), [(Anomaly::G2Item, false)]);
    let phantom = together(&[
        &[Scan(1..3, vec![]), Append(1, 1)],
        &[Scan(1..3, vec![]), Append(2, 2)],
        &[read(1, &[1]), read(2, &[2])],
    ]);
    assert_eq!(found(&phantom), [(Anomaly::G2, false)]);
    for history in [item, phantom] {
        assert_eq!(forbidden(&history, Isolation::Snapshot), []);
        assert_eq!(forbidden(&history, Isolation::Serializable).len(), 1);
    }
}

#[test]
fn an_order_of_time_that_others_are_between_is_kept() {
    let mut operations: Vec<Vec<Operation>> =
        (0..20).map(|key| vec![Append(100 + key, key.into())]).collect();
    operations[0] = vec![Append(1, 1000)];
    operations[19] = vec![read(1, &[])];
    let history: Vec<&[Operation]> = operations.iter().map(Vec::as_slice).collect();
    assert_eq!(found(&in_turn(&history)), [(Anomaly::GSingle, true)]);
}
