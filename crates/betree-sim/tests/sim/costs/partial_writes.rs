//! On a device that does not seek, nodes are written in part.

use std::collections::BTreeMap;

use betree::Cut;
use betree_sim::{Rng, Setup};

use super::{
    D, KEYS, MIB, SETUP, VALUE_BYTES, commit, cost, key, large_volume_of, new_volume, open, value, value_of,
};

/// The load of a file server: files of 32 KiB are written anew all over the volume.
#[test]
fn where_nothing_seeks_leaves_are_written_in_part() {
    let load = |seeks: bool| {
        let setup = Setup { cache_bytes: 8 * MIB, seeks, ..SETUP };
        let device = large_volume_of(&setup);
        let env = open(&device, &setup);
        let mut rng = Rng::new(3);
        let mut expected: Vec<u32> = (0..KEYS).collect();
        let cost = cost(&device, || {
            for round in 1..1500 {
                let first = rng.below(KEYS as usize / 8) as u32 * 8;
                commit(&env, |batch| {
                    for number in first..first + 8 {
                        expected[number as usize] = number + round * KEYS;
                        batch.put(D, &key(number), &value(expected[number as usize]));
                    }
                });
                while env.run_due_work().unwrap() {}
            }
            env.checkpoint().unwrap();
        });
        let kept_bytes = env.stats().kept_bytes;
        env.check(&mut |found| panic!("{found:?}"), &mut |_, _| ()).unwrap();
        let used_bytes = env.space().used_bytes;
        env.close().unwrap();
        // Opened again, from the node table.
        let env = open(&device, &SETUP);
        let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
        for number in 0..KEYS {
            let (found, bytes) = all.next().unwrap().unwrap();
            assert_eq!((found, bytes), (&key(number)[..], &value(expected[number as usize])[..]));
        }
        assert_eq!(all.next().unwrap(), None);
        (cost, kept_bytes, used_bytes)
    };
    let (whole, none_kept, whole_bytes) = load(true);
    let (part, kept_bytes, part_bytes) = load(false);
    assert_eq!(none_kept, 0);
    assert!(kept_bytes > part.write_bytes, "{kept_bytes} bytes stayed, {part:?}");
    assert!(part.write_bytes * 2 < whole.write_bytes, "{part:?}, whole: {whole:?}");
    assert!(part.read_bytes * 2 < whole.read_bytes, "{part:?}, whole: {whole:?}");
    assert!(
        part_bytes < whole_bytes / 8 * 9,
        "{part_bytes} bytes used, {whole_bytes} where all is in one place"
    );
}

/// Small updates all over a volume, with a checkpoint after every hundred: each goes to partitions of the
/// root that the last checkpoint has written.
#[test]
fn where_nothing_seeks_new_messages_of_a_partition_are_written_alone() {
    const ROUNDS: u32 = 40;
    const UPDATES: u32 = 100;
    let load = |seeks: bool| {
        let setup = Setup { seeks, ..SETUP };
        let device = large_volume_of(&setup);
        let env = open(&device, &setup);
        let mut rng = Rng::new(5);
        let mut expected: Vec<(usize, u32)> = (0..KEYS).map(|number| (VALUE_BYTES, number)).collect();
        let cost = cost(&device, || {
            for round in 1..=ROUNDS {
                for _ in 0..UPDATES {
                    let number = rng.below(KEYS as usize) as u32;
                    let (len, seed) = (50, number + round * KEYS);
                    expected[number as usize] = (len, seed);
                    commit(&env, |batch| batch.put(D, &key(number), &value(seed)[..len]));
                }
                env.checkpoint().unwrap();
            }
        });
        env.check(&mut |found| panic!("{found:?}"), &mut |_, _| ()).unwrap();
        env.close().unwrap();
        let env = open(&device, &SETUP);
        for (number, (len, seed)) in (0..KEYS).zip(expected) {
            assert_eq!(env.get(D, &key(number)).unwrap().unwrap(), &value(seed)[..len], "of {number}");
        }
        cost
    };
    let (whole, alone) = (load(true), load(false));
    assert!(alone.write_bytes * 2 < whole.write_bytes, "{alone:?}, whole: {whole:?}");
    assert!(alone.read_bytes <= whole.read_bytes, "{alone:?}, whole: {whole:?}");
}

/// Small pairs go at random to existing leaves, whose own pairs are not read for them.
#[test]
fn where_nothing_seeks_new_pairs_of_a_leaf_are_written_alone() {
    const PAIRS: u32 = 80_000;
    const SMALL_BYTES: usize = 200;
    let load = |seeks: bool| {
        let setup = Setup { cache_bytes: 4 * MIB, seeks, ..SETUP };
        let (device, env) = new_volume(&setup);
        let mut rng = Rng::new(7);
        let mut expected = BTreeMap::new();
        let cost = cost(&device, || {
            for number in 0..PAIRS {
                let (new, value) = (rng.next_u64().to_be_bytes(), value_of(number, SMALL_BYTES));
                commit(&env, |batch| batch.put(D, &new, &value));
                expected.insert(new, value);
                while env.run_due_work().unwrap() {}
            }
            env.checkpoint().unwrap();
        });
        env.check(&mut |found| panic!("{found:?}"), &mut |_, _| ()).unwrap();
        env.close().unwrap();
        let env = open(&device, &SETUP);
        let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
        for (key, value) in &expected {
            assert_eq!(all.next().unwrap().unwrap(), (&key[..], &value[..]));
        }
        assert_eq!(all.next().unwrap(), None);
        cost
    };
    let (whole, alone) = (load(true), load(false));
    assert!(alone.write_bytes * 2 < whole.write_bytes, "{alone:?}, whole: {whole:?}");
    assert!(alone.read_bytes * 2 < whole.read_bytes, "{alone:?}, whole: {whole:?}");
}

/// Values overwritten again and again stay in their partition, although it has several runs of them.
#[test]
fn values_overwritten_again_and_again_go_no_further_down() {
    const ROUNDS: u32 = 50;
    let setup = Setup { seeks: false, ..SETUP };
    let device = large_volume_of(&setup);
    let env = open(&device, &setup);
    let mut read_bytes = 0;
    for round in 1..=ROUNDS {
        let cost = cost(&device, || {
            // A hundred kilobytes; a node has room for 256.
            for number in (0..KEYS).step_by(KEYS as usize / 25) {
                commit(&env, |batch| batch.put(D, &key(number), &value(number + round * KEYS)));
            }
            while env.run_due_work().unwrap() {}
            env.checkpoint().unwrap();
        });
        // The first round reads pages of the node table.
        read_bytes += if round > 1 { cost.read_bytes } else { 0 };
    }
    // Every round flushes a memtable to the root.
    assert_eq!(env.stats().flushes, u64::from(ROUNDS));
    assert_eq!(read_bytes, 0);
    assert_eq!(env.get(D, &key(0)).unwrap().unwrap(), value(ROUNDS * KEYS));
}

/// Messages for a partition that is not in memory do not wait for a read of it.
#[test]
fn messages_for_a_partition_on_the_device_do_not_read_it() {
    let setup = Setup { seeks: false, cache_bytes: 4 * MIB, ..SETUP };
    let device = large_volume_of(&setup);
    let env = open(&device, &setup);
    let put_all_over = |round: u32| {
        for number in (0..KEYS).step_by(64) {
            commit(&env, |batch| batch.put(D, &key(number), &value(round)[..50]));
        }
        env.checkpoint().unwrap();
    };
    put_all_over(1);
    // Sixteen times the size of the cache goes through it.
    let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
    while all.next().unwrap().is_some() {}
    drop(all);
    assert_eq!(cost(&device, || put_all_over(2)).reads, 0);
    let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
    for number in 0..KEYS {
        let (len, seed) = if number % 64 == 0 { (50, 2) } else { (VALUE_BYTES, number) };
        assert_eq!(all.next().unwrap(), Some((&key(number)[..], &value(seed)[..len])));
    }
}
