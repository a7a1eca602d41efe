//! Reads of many keys at once ask the device together for what they need.

use betree::{Env, Error};
use betree_platform::DeviceOp;
use betree_sim::{EIO, Fault, Setup};

use super::{D, KEYS, MIB, SETUP, key, large_volume, large_volume_of, open, value};

/// Keys far from each other, in no order, few of them near those of [`warm`]; `count` is no multiple of 37.
fn spread(count: u32) -> Vec<u32> {
    (0..count).map(|at| at * 37 % count * (KEYS / count) + KEYS / count / 2 + 100).collect()
}

/// Reads keys at once, and compares their values. Returns the numbers of rounds and of reads.
fn rounds_and_reads(env: &Env, numbers: &[u32]) -> (u64, u64) {
    let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
    let before = env.stats();
    let found = env.get_many(D, &keys).unwrap();
    let after = env.stats();
    assert_eq!(found.len(), keys.len());
    for (number, found) in numbers.iter().zip(found) {
        assert!(found == Some(value(*number)), "{number}");
    }
    (after.device_read_rounds - before.device_read_rounds, after.device_reads - before.device_reads)
}

/// Brings the interior nodes to memory, and a few leaves.
fn warm(env: &Env) {
    (256..KEYS).step_by(256).for_each(|number| assert!(env.get(D, &key(number)).unwrap().is_some()));
}

#[test]
fn however_many_keys_take_a_round_for_headers_and_one_for_pairs() {
    // On a disk that seeks, gaps are read too.
    let device = large_volume_of(&Setup { seeks: false, ..SETUP });
    for count in [2, 20, 100, 400] {
        let env = open(&device, &SETUP);
        warm(&env);
        let (rounds, reads) = rounds_and_reads(&env, &spread(count));
        assert_eq!(rounds, 2, "{count} keys");
        // The leaf's header and a basement; neighbours are read together.
        assert!(reads <= 2 * u64::from(count) && reads >= 2, "{reads} reads for {count} keys");
        // Everything is in memory now.
        assert_eq!(rounds_and_reads(&env, &spread(count)), (0, 0));
    }
}

#[test]
fn with_nothing_in_memory_there_is_a_round_for_each_level_and_one_more() {
    let env = open(&large_volume(), &SETUP);
    let height = env.stats().height;
    assert!(height >= 3, "{height} levels");
    let (rounds, _) = rounds_and_reads(&env, &spread(100));
    assert!(rounds <= height + 1, "{rounds} rounds in a tree of {height} levels");
}

#[test]
fn doubled_keys_are_read_once() {
    let device = large_volume();
    let cost = |times: usize| {
        let env = open(&device, &SETUP);
        warm(&env);
        let before = env.stats().point_queries;
        let cost = rounds_and_reads(&env, &spread(50).repeat(times));
        assert_eq!(env.stats().point_queries - before, 50);
        cost
    };
    assert_eq!(cost(1), cost(3));
}

#[test]
fn more_keys_than_half_of_the_cache_holds_take_more_rounds_and_no_more_memory() {
    let setup = Setup { cache_bytes: 2 * MIB, ..SETUP };
    let env = open(&large_volume(), &setup);
    warm(&env);
    let (rounds, reads) = rounds_and_reads(&env, &spread(1000));
    // 1,000 basements of 16 KiB, 64 of them in half of the cache.
    let least = 1000 * u64::from(setup.geometry.basement_bytes) / MIB as u64;
    assert!(rounds >= least && rounds <= 4 * least, "{rounds} rounds");
    assert!(reads <= 2 * 1000 + 2 * rounds, "{reads} reads");
    let cache_bytes = env.stats().cache_bytes;
    assert!(cache_bytes <= 3 * MIB as u64, "{cache_bytes} bytes");
}

#[test]
fn a_read_that_fails_is_made_again_for_its_key_alone() {
    let device = large_volume();
    let env = open(&device, &SETUP);
    warm(&env);
    let keys: Vec<_> = spread(20).into_iter().map(key).collect();
    let all = |found: Vec<Option<Vec<u8>>>| found.iter().all(Option::is_some);
    let fail = |at_call, lasting| {
        device.set_fault(Some(Fault { at_call, op: Some(DeviceOp::Read), errno: EIO, lasting }));
    };
    // The first read is of a header, the 25th of a basement.
    for at_call in [1, 25] {
        let env = open(&device, &SETUP);
        warm(&env);
        let failed = device.counts().failed;
        fail(at_call, false);
        assert!(all(env.get_many(D, &keys).unwrap()), "call {at_call}");
        assert_eq!(device.counts().failed - failed, 1);
        let env = open(&device, &SETUP);
        fail(at_call, true);
        assert!(matches!(env.get_many(D, &keys), Err(Error::Device(_))), "call {at_call}");
        device.set_fault(None);
        assert!(all(env.get_many(D, &keys).unwrap()), "call {at_call}");
    }
}
