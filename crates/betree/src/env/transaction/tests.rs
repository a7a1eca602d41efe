mod clones;

use alloc::format;
use alloc::string::String;

use super::*;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, Options};
use crate::upsert::Append;

const D: DictId = DictId(0);
const OTHER: DictId = DictId(1);
const BOTH: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];
use Isolation::{Serializable, Snapshot};

fn env() -> Arc<Env> {
    let geometry =
        Geometry { node_bytes: 4 << 10, basement_bytes: 1024, fanout_max: 8, log_bytes: 1 << 20, dicts: 2 };
    let device = MemDevice::new(4096);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let env = Arc::new(Env::open(device, Options::new(512 << 10, Arc::new(Append))).unwrap());
    for number in 0..10 {
        put(&env, &key(number), b"old");
    }
    env
}

fn key(number: u32) -> Vec<u8> {
    format!("k{number:02}").into_bytes()
}

fn put(env: &Env, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(D, key, value);
    env.commit(&batch).unwrap();
}

fn value(env: &Env, key: &[u8]) -> Option<String> {
    env.get(D, key).unwrap().map(|value| String::from_utf8(value).unwrap())
}

/// Whether a transaction commits; where not, the key of the conflict is `key`.
fn commits(transaction: Transaction, key: &[u8]) -> bool {
    match transaction.commit().unwrap() {
        Outcome::Committed(_) => true,
        Outcome::Conflict(conflict) => {
            assert_eq!((conflict.dict, conflict.key.as_slice()), (D, key));
            false
        }
    }
}

#[test]
fn keys_that_are_read_together_count_each_as_read_but_for_own_ones() {
    for (changed, commits_then) in [(3, false), (7, true), (50, false), (9, true)] {
        let env = env();
        let mut transaction = env.begin(Serializable);
        transaction.put(D, &key(7), b"own").unwrap();
        let keys = [key(50), key(3), key(7), key(3)];
        let old = Some(b"old".to_vec());
        let found = transaction.get_many(D, &keys).unwrap();
        assert_eq!(found, [None, old.clone(), Some(b"own".to_vec()), old]);
        put(&env, &key(changed), b"new");
        assert_eq!(commits(transaction, &key(changed)), commits_then, "{changed}");
    }
}

/// What others may do between the beginning of a transaction and its commit.
type Interlude = fn(&Env);

/// Runs an interlude, and brings what it changed from the memtables to the tree, or not.
fn after(interlude: Interlude, env: &Env, arrives: bool) {
    interlude(env);
    if arrives {
        env.checkpoint().unwrap();
    }
}

/// Tries each isolation, with the change of others still in a memtable and already in the tree.
fn tried(outcomes: [bool; 2], conflict: &[u8], body: impl Fn(&mut Transaction), interlude: Interlude) {
    for (isolation, commits_in_it) in BOTH.into_iter().zip(outcomes) {
        for arrives in [false, true] {
            let env = env();
            let mut transaction = env.begin(isolation);
            body(&mut transaction);
            after(interlude, &env, arrives);
            assert_eq!(commits(transaction, conflict), commits_in_it, "{isolation:?}, arrived: {arrives}");
        }
    }
}

#[test]
fn a_transaction_sees_its_own_changes_and_nobody_else_does_before_the_commit() {
    for isolation in BOTH {
        let env = env();
        let mut transaction = env.begin(isolation);
        transaction.put(D, &key(20), b"new").unwrap();
        transaction.upsert(D, &key(1), b"er").unwrap();
        transaction.upsert_blind(D, &key(30), b"first").unwrap();
        transaction.delete(D, &key(2)).unwrap();
        transaction.delete_range(D, &Cut::before(key(4)), &Cut::before(key(9))).unwrap();
        transaction.put(D, &key(5), b"again").unwrap();
        put(&env, &key(40), b"not seen");
        let mut seen = Vec::new();
        let mut cursor = transaction.cursor(D, Cut::LOW, Cut::HIGH);
        while let Some((key, value)) = cursor.next().unwrap() {
            seen.push((key.to_vec(), value.to_vec()));
        }
        let mut backward = Vec::new();
        while let Some((key, value)) = cursor.prev().unwrap() {
            backward.insert(0, (key.to_vec(), value.to_vec()));
        }
        assert_eq!(seen, backward);
        drop(cursor);
        let should =
            [(0, "old"), (1, "older"), (3, "old"), (5, "again"), (9, "old"), (20, "new"), (30, "first")];
        let should: Vec<_> = should.map(|(number, value)| (key(number), value.as_bytes().to_vec())).to_vec();
        assert_eq!(seen, should);
        for (key, value) in &should {
            assert_eq!(transaction.get(D, key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(transaction.get(D, &key(4)).unwrap(), None);
        assert_eq!((value(&env, &key(20)), value(&env, &key(1))), (None, Some("old".into())));
        drop(transaction);
        assert_eq!(value(&env, &key(20)), None, "it was dropped");
    }
}

#[test]
fn the_changes_of_a_transaction_are_one_batch() {
    let env = env();
    let mut transaction = env.begin(Serializable);
    transaction.put(D, b"here", b"1").unwrap();
    transaction.put(OTHER, b"there", b"2").unwrap();
    let before = env.stats();
    let Outcome::Committed(last) = transaction.commit().unwrap() else { panic!("a conflict") };
    let after = env.stats();
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(after.device_reads, before.device_reads);
    let view = env.view();
    assert_eq!(view.last_change(), last);
    assert_eq!(view.get(OTHER, b"there").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn of_two_writers_of_a_key_the_first_committer_wins() {
    let write = |t: &mut Transaction| t.put(D, &key(1), b"mine").unwrap();
    tried([false, true], &key(1), write, |env| put(env, &key(1), b"theirs"));
    let delete = |t: &mut Transaction| t.delete(D, &key(1)).unwrap();
    tried([false, true], &key(1), delete, |env| put(env, &key(1), b"theirs"));
    let upsert = |t: &mut Transaction| t.upsert(D, &key(1), b"+").unwrap();
    tried([false, true], &key(1), upsert, |env| put(env, &key(1), b"theirs"));
    let other_key = |t: &mut Transaction| t.put(D, &key(2), b"mine").unwrap();
    tried([true, true], b"", other_key, |env| put(env, &key(1), b"theirs"));
}

#[test]
fn blind_upserts_of_one_key_all_count() {
    let upsert = |t: &mut Transaction| t.upsert_blind(D, &key(1), b"+").unwrap();
    tried([true, true], b"", upsert, |env| put(env, &key(1), b"theirs"));
    let env = env();
    let mut all: Vec<_> = (0..4).map(|_| env.begin(Snapshot)).collect();
    all.iter_mut().for_each(|t| t.upsert_blind(D, &key(1), b"+").unwrap());
    all.into_iter().for_each(|t| assert!(commits(t, b"")));
    assert_eq!(value(&env, &key(1)), Some("old++++".into()));
}

#[test]
fn write_skew_passes_snapshot_isolation_and_not_serializability() {
    for (isolation, both) in [(Snapshot, true), (Serializable, false)] {
        let env = env();
        let (mut one, mut other) = (env.begin(isolation), env.begin(isolation));
        for (transaction, from, to) in [(&mut one, 1, 2), (&mut other, 2, 1)] {
            let read = transaction.get(D, &key(from)).unwrap().unwrap();
            transaction.put(D, &key(to), &[read.as_slice(), b"!"].concat()).unwrap();
        }
        assert!(commits(one, b""));
        assert_eq!(commits(other, &key(2)), both);
    }
}

#[test]
fn reads_of_absent_keys_and_of_ranges_conflict_with_insertions_into_them() {
    let absent = |t: &mut Transaction| {
        assert_eq!(t.get(D, b"k03x").unwrap(), None);
        t.put(D, b"mine", b"1").unwrap();
    };
    tried([true, false], b"k03x", absent, |env| put(env, b"k03x", b"theirs"));
    let scan = |t: &mut Transaction| {
        let mut cursor = t.cursor(D, Cut::before(key(3)), Cut::before(key(7)));
        while cursor.next().unwrap().is_some() {}
        drop(cursor);
        t.put(D, b"mine", b"1").unwrap();
    };
    let interludes: [(Interlude, &[u8]); 4] = [
        (|env| put(env, b"k03a", b"between"), b"k03a"),
        (|env| put(env, b"k06a", b"behind the last"), b"k06a"),
        (|env| put(env, b"k03", b"the first"), b"k03"),
        (
            |env| {
                let mut batch = Batch::new();
                batch.delete_range(D, &Cut::before(*b"k05"), &Cut::before(*b"k08"));
                env.commit(&batch).unwrap();
            },
            b"k05",
        ),
    ];
    for (interlude, conflict) in interludes {
        tried([true, false], conflict, scan, interlude);
    }
    tried([true, true], b"", scan, |env| put(env, b"k07", b"outside"));
    tried([true, true], b"", scan, |env| put(env, b"k02z", b"outside"));
}

#[test]
fn a_scan_that_was_given_up_depends_on_what_it_passed_over() {
    let scan = |t: &mut Transaction| {
        let mut cursor = t.cursor(D, Cut::LOW, Cut::HIGH);
        (0..3).for_each(|_| assert!(cursor.next().unwrap().is_some()));
        drop(cursor);
        t.put(D, b"mine", b"1").unwrap();
    };
    tried([true, true], b"", scan, |env| put(env, b"k02a", b"behind the third"));
    tried([true, false], b"k01a", scan, |env| put(env, b"k01a", b"before the third"));
    let backward = |t: &mut Transaction| {
        let mut cursor = t.cursor(D, Cut::LOW, Cut::HIGH);
        cursor.seek(&Cut::HIGH);
        (0..3).for_each(|_| assert!(cursor.prev().unwrap().is_some()));
        drop(cursor);
        t.put(D, b"mine", b"1").unwrap();
    };
    tried([true, true], b"", backward, |env| put(env, b"k06a", b"before the third from the end"));
    tried([true, false], b"k08a", backward, |env| put(env, b"k08a", b"after it"));
}

#[test]
fn clones_and_deletes_of_ranges_by_others_are_changes() {
    let read = |t: &mut Transaction| {
        t.get(D, b"to/1").unwrap();
        t.put(D, b"mine", b"1").unwrap();
    };
    // Too small to share nodes: its pairs are copied.
    tried([true, false], b"to/1", read, |env| {
        let mut batch = Batch::new();
        batch.clone_range(D, b"k0", b"to/");
        env.commit(&batch).unwrap();
    });
    let write = |t: &mut Transaction| t.put(D, b"to/1", b"mine").unwrap();
    tried([false, true], b"to/1", write, |env| {
        let mut batch = Batch::new();
        batch.clone_range(D, b"k0", b"to/");
        env.commit(&batch).unwrap();
    });
    let delete = |t: &mut Transaction| t.delete_range(D, &Cut::before(key(3)), &Cut::before(key(5))).unwrap();
    tried([false, true], b"k04", delete, |env| put(env, b"k04", b"theirs"));
}

#[test]
fn own_writes_are_no_reads() {
    let own = |t: &mut Transaction| {
        t.put(D, &key(1), b"mine").unwrap();
        assert_eq!(t.get(D, &key(1)).unwrap().as_deref(), Some(&b"mine"[..]));
    };
    tried([false, true], &key(1), own, |env| put(env, &key(1), b"theirs"));
}

#[test]
fn rolling_back_drops_changes_and_keeps_reads() {
    for isolation in BOTH {
        let env = env();
        let mut transaction = env.begin(isolation);
        transaction.put(D, &key(1), b"one").unwrap();
        let first = transaction.savepoint();
        transaction.put(D, &key(1), b"two").unwrap();
        transaction.put(D, &key(2), b"two").unwrap();
        let second = transaction.savepoint();
        transaction.delete_range(D, &Cut::LOW, &Cut::HIGH).unwrap();
        assert_eq!(transaction.get(D, &key(1)).unwrap(), None);
        transaction.roll_back(second);
        assert_eq!(transaction.get(D, &key(1)).unwrap().as_deref(), Some(&b"two"[..]));
        transaction.roll_back(first);
        assert_eq!(transaction.get(D, &key(1)).unwrap().as_deref(), Some(&b"one"[..]));
        // What is rolled back conflicts with nothing.
        put(&env, &key(2), b"theirs");
        transaction.put(D, &key(3), b"three").unwrap();
        assert!(commits(transaction, b""));
        assert_eq!(value(&env, &key(1)), Some("one".into()));
        assert_eq!(value(&env, &key(2)), Some("theirs".into()));
        assert_eq!(value(&env, &key(3)), Some("three".into()));
        assert_eq!(value(&env, &key(4)), Some("old".into()));
    }
    let env = env();
    let mut transaction = env.begin(Serializable);
    let start = transaction.savepoint();
    transaction.get(D, &key(2)).unwrap();
    transaction.roll_back(start);
    transaction.put(D, b"mine", b"1").unwrap();
    put(&env, &key(2), b"theirs");
    assert!(!commits(transaction, &key(2)));
}

#[test]
fn an_expectation_conflicts_only_where_it_no_longer_holds() {
    for (theirs, passes) in [("older", true), ("new", false)] {
        for arrives in [false, true] {
            let env = env();
            let mut transaction = env.begin(Serializable);
            let is_old = |value: Option<&[u8]>| value.is_some_and(|value| value.starts_with(b"old"));
            assert!(transaction.expect(D, &key(1), is_old).unwrap());
            assert!(!transaction.expect(D, b"absent", is_old).unwrap());
            transaction.put(D, b"mine", b"1").unwrap();
            put(&env, &key(1), theirs.as_bytes());
            if arrives {
                env.checkpoint().unwrap();
            }
            assert_eq!(commits(transaction, &key(1)), passes, "{theirs}");
        }
    }
}

#[test]
fn a_transaction_older_than_the_memory_of_changes_ends_as_a_younger_one() {
    for (theirs, outcome) in [(key(1), false), (key(2), true)] {
        let env = env();
        let mut transaction = env.begin(Serializable);
        transaction.get(D, &key(1)).unwrap();
        let mut cursor = transaction.cursor(D, Cut::before(*b"k05"), Cut::before(*b"k09"));
        while cursor.next().unwrap().is_some() {}
        drop(cursor);
        transaction.put(D, b"mine", b"1").unwrap();
        put(&env, &theirs, b"theirs");
        // More keys than are remembered.
        for number in 0..20_000u32 {
            put(&env, &[b"z".as_slice(), &number.to_be_bytes()].concat(), b"");
            env.run_due_work().unwrap();
        }
        env.checkpoint().unwrap();
        assert!(matches!(env.engine.recent.lock().since(&Footprint::default(), 1), Since::Unknown));
        assert_eq!(commits(transaction, &key(1)), outcome);
    }
}

#[test]
fn a_transaction_whose_view_has_ended_does_not_commit_over_a_change() {
    for isolation in BOTH {
        let env = env();
        let mut transaction = env.begin(isolation);
        transaction.get(D, &key(3)).unwrap();
        transaction.put(D, &key(3), b"mine").unwrap();
        put(&env, &key(3), b"other's");
        env.checkpoint().unwrap();
        // As where space is short.
        let live = env.engine.views.lock().oldest().unwrap();
        live.has_ended.store(true, Ordering::Release);
        env.engine.end_view(&live);
        assert_eq!(transaction.commit(), Err(Error::ViewEnded), "{isolation:?}");
        assert_eq!(value(&env, &key(3)).as_deref(), Some("other's"));
    }
}

#[test]
fn nothing_is_remembered_once_no_transaction_is_older() {
    let env = env();
    let transaction = env.begin(Snapshot);
    put(&env, b"x", b"y");
    env.checkpoint().unwrap();
    assert!(!env.engine.recent.lock().is_empty());
    drop(transaction);
    assert!(env.engine.recent.lock().is_empty());
    assert!(env.engine.dicts.iter().all(|dict| dict.state.read().history.is_empty()));
}

#[test]
fn a_transaction_that_is_too_large_is_refused_before_it_grows() {
    let env = env();
    let mut transaction = env.begin(Snapshot);
    let large = alloc::vec![7; 20 << 10];
    transaction.put(D, b"a", &large).unwrap();
    assert!(matches!(transaction.put(D, b"b", &large), Err(Error::TooLarge { .. })));
    assert!(matches!(transaction.put(DictId(9), b"b", b""), Err(Error::NoSuchDictionary { .. })));
    assert!(commits(transaction, b""));
    assert_eq!(env.get(D, b"b").unwrap(), None);
}

#[test]
fn counters_of_many_threads_are_exact_and_all_end() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 40;
    for isolation in BOTH {
        let env = env();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let env = &env;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let key = key(((thread + round) % 4) as u32);
                        env.run(isolation, |transaction| {
                            let old = transaction.get(D, &key)?.unwrap_or_default();
                            let count: u32 =
                                core::str::from_utf8(&old).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
                            transaction.put(D, &key, format!("{}", count + 1).as_bytes())
                        })
                        .unwrap();
                    }
                });
            }
        });
        let sum: u32 = (0..4).map(|n| value(&env, &key(n)).unwrap().parse::<u32>().unwrap()).sum();
        assert_eq!(sum as usize, THREADS * ROUNDS);
    }
}
