//! Estimates of pairs: how near they are, and how little is read for them.

use std::sync::Arc;

use betree::{Cut, Env, PairEstimate};
use betree_sim::{MemDevice, Rng};

use super::{D, KEYS, MIB, SETUP, VALUE_BYTES, commit, cost, key, large_volume, new_volume, open, value_of};

/// What an estimate may read beside headers of nodes.
const PIECES_MAX: u64 = 40;

fn estimate(env: &Arc<Env>, from: u32, to: u32) -> PairEstimate {
    env.view().estimate_pairs(D, &Cut::before(key(from)), &Cut::before(key(to))).unwrap()
}

/// As a user may rely on it.
fn assert_near(found: PairEstimate, pairs: u32, what: &str) {
    let (found, pairs) = (found.pairs as f64, f64::from(pairs));
    assert!(found < pairs * 1.5 && found * 1.5 > pairs, "{what}: {found} of {pairs}");
}

/// Of what is stored, what waits and a twentieth of what was reckoned may be wrong.
fn assert_exact(found: PairEstimate, pairs: u32, what: &str) {
    let slack = found.waiting + found.reckoned / 20;
    assert!(found.pairs.abs_diff(u64::from(pairs)) <= slack, "{what}: {found:?} of {pairs}");
}

/// Estimates when all headers are in memory, and asserts what it reads.
fn assert_cheap(device: &MemDevice, env: &Arc<Env>, from: u32, to: u32) -> PairEstimate {
    env.view().usage(D, &Cut::LOW, &Cut::HIGH).unwrap();
    let mut found = PairEstimate::default();
    let read = cost(device, || found = estimate(env, from, to));
    assert!(read.reads <= PIECES_MAX, "{read:?} for {from} to {to}");
    assert_eq!((read.writes, read.syncs), (0, 0));
    let piece_bytes = u64::from(SETUP.geometry.node_bytes) / 4;
    assert!(read.read_bytes < PIECES_MAX * piece_bytes, "{read:?} for {from} to {to}");
    found
}

#[test]
fn pairs_are_estimated_by_headers_and_a_few_pieces() {
    let device = large_volume();
    for (from, to) in [(0, KEYS), (1000, 5000), (7, KEYS - 7), (500, 1501), (500, 501), (10, 10)] {
        let env = Arc::new(open(&device, &SETUP));
        let found = assert_cheap(&device, &env, from, to);
        assert_exact(found, to - from, "on the device");
        assert!(found.waiting < u64::from(KEYS / 8), "{found:?}");
        if to - from >= 1000 {
            assert_near(found, to - from, "on the device");
        }
        // Without any header in memory, still nothing beside them.
        let env = Arc::new(open(&device, &SETUP));
        let read = cost(&device, || _ = estimate(&env, from, to));
        let data_bytes = u64::from(KEYS) * VALUE_BYTES as u64;
        assert!(read.read_bytes < data_bytes / 20, "{read:?} for {from} to {to}");
    }
}

#[test]
fn pairs_that_wait_count_and_deleted_ranges_do_not() {
    let device = large_volume();
    let env = Arc::new(open(&device, &SETUP));
    let before = estimate(&env, 2000, 3000);
    commit(&env, |batch| {
        (0..100).for_each(|number| batch.put(D, &[&key(2000)[..], &[number]].concat(), b""))
    });
    let after = estimate(&env, 2000, 3000);
    assert_eq!((after.pairs, after.waiting), (before.pairs + 100, before.waiting + 100));
    commit(&env, |batch| batch.delete_range(D, &Cut::before(key(2500)), &Cut::before(key(3000))));
    assert_exact(estimate(&env, 2000, 3000), 600, "a range was deleted");
    assert_eq!(estimate(&env, 2500, 3000).pairs, 0);
}

#[test]
fn values_of_other_sizes_further_on_do_not_mislead() {
    let (device, env) = new_volume(&SETUP);
    // Eight MB of each.
    for (number, bytes) in (0..22_000).map(|at| (at, if at < 20_000 { 400 } else { 4096 })) {
        commit(&env, |batch| batch.put(D, &key(number), &value_of(number, bytes)));
    }
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    let env = Arc::new(open(&device, &SETUP));
    let found = assert_cheap(&device, &env, 0, 22_000);
    // By the first basement's mean it would be 40,000.
    assert_near(found, 22_000, "of two sizes");
    let env = Arc::new(open(&device, &SETUP));
    let all = env.view().estimate_pairs(D, &Cut::LOW, &Cut::HIGH).unwrap();
    assert_near(all, 22_000, "with nothing cut, and nothing in memory");
}

/// Random puts of uniform pairs, half of them again: messages wait at many nodes.
#[test]
fn after_puts_in_random_order_it_is_near_too() {
    let (device, env) = new_volume(&SETUP);
    let mut numbers: Vec<u32> = (0..40_000).collect();
    let mut rng = Rng::new(3);
    (1..numbers.len()).rev().for_each(|at| numbers.swap(at, rng.below(at + 1)));
    for number in numbers {
        commit(&env, |batch| batch.put(D, &key(number), &value_of(number, 400)));
    }
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    let env = Arc::new(open(&device, &SETUP));
    for (from, to) in [(0, 40_000), (3000, 4000), (20_000, 39_000)] {
        let found = assert_cheap(&device, &env, from, to);
        assert_near(found, to - from, "put in random order");
    }
}

/// A hundred clones, each of all before it: more pairs than a number holds, and as many ways to them.
#[test]
fn clones_of_clones_take_no_longer_than_their_nodes() {
    let (device, env) = new_volume(&SETUP);
    for number in 0..4000 {
        commit(&env, |batch| batch.put(D, &[b"c", &key(number)[..]].concat(), &value_of(number, 400)));
    }
    let env = Arc::new(env);
    for level in 1..100_u8 {
        let (from, to) = (vec![b'c'; level.into()], vec![b'c'; usize::from(level) + 1]);
        commit(&env, |batch| {
            batch.clone_range(D, &from, &[b"d", &to[..]].concat());
            batch.rename_range(D, &from, &to);
            batch.rename_range(D, &[b"d", &to[..]].concat(), &[&from[..], b"d"].concat());
        });
    }
    let read = cost(&device, || {
        let found = env.view().estimate_pairs(D, &Cut::LOW, &Cut::HIGH).unwrap();
        assert!(found.pairs > 0, "{found:?}");
    });
    assert!(read.read_bytes < MIB as u64, "{read:?}");
}
