//! Pending range deletes weigh much, even if nobody has read them since the volume was opened.

use super::*;
use crate::key::Cut;

/// The number of range deletes pending at the root's edges.
fn waiting(env: &Env) -> usize {
    root(&tree(env)).edges().iter().map(Edge::pending_ranges).sum()
}

/// The same number, counted by reading.
fn really_waiting(env: &Env) -> usize {
    let tree = tree(env);
    let ranges =
        |edge: &Edge| edge.partition.as_ref().map(|piece| tree.store.run(piece).unwrap().ranges().len());
    root(&tree).edges().iter().filter_map(ranges).sum()
}

fn delete_range(env: &Env, number: u32) {
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::before(key(number)), &Cut::before(key(number + 1)));
    env.commit(&batch).unwrap();
    to_root(env);
}

#[test]
fn pending_range_deletes_on_the_device_count_like_those_in_memory() {
    let device = volume();
    let env = open(&device);
    let before = waiting(&env);
    for number in [3, 700, 1400, 1404] {
        delete_range(&env, number);
    }
    let all = waiting(&env);
    assert!(all >= before + 3, "{before} and {all} wait");
    env.close().unwrap();
    let env = open(&device);
    assert_eq!(waiting(&env), all);
    assert_eq!(really_waiting(&env), all);
    assert_eq!(problems(&env), Vec::<String>::new());
}

#[test]
fn range_deletes_do_not_pile_up_over_many_openings() {
    let device = volume();
    let most = GEOMETRY.node_bytes as usize / GEOMETRY.range_weight_bytes();
    for number in 0..100 {
        let env = open(&device);
        delete_range(&env, number * 19);
        let now = really_waiting(&env);
        assert!(now <= most, "after {number} openings {now} are pending, over the limit of {most}");
        env.close().unwrap();
    }
    let env = open(&device);
    let found = (0..KEYS).filter(|number| env.get(D, &key(*number)).unwrap().is_some()).count();
    assert_eq!(found, KEYS as usize - 100);
}
