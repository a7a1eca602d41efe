//! Scans read the pairs that they return, and little more.

use std::thread;
use std::time::Duration;

use betree::{Cut, Env};
use betree_sim::{Rng, Setup};

use super::{D, KEYS, MIB, SETUP, VALUE_BYTES, commit, cost, helped, key, large_volume, open, value};

#[test]
fn scans_skip_keys_hidden_by_a_range_delete_wherever_it_waits() {
    let device = large_volume();
    let env = open(&device, &SETUP);
    let (lo, hi) = (Cut::before(key(100)), Cut::before(key(KEYS - 100)));
    commit(&env, |batch| batch.delete_range(D, &lo, &hi));
    commit(&env, |batch| batch.put(D, &key(KEYS / 2), b"later"));
    for place in ["in the memtable", "at the root"] {
        let scanned = cost(&device, || {
            let mut cursor = env.cursor(D, lo.clone(), hi.clone());
            assert_eq!(cursor.next().unwrap(), Some((&key(KEYS / 2)[..], &b"later"[..])));
            assert_eq!(cursor.next().unwrap(), None);
            assert_eq!(cursor.prev().unwrap(), Some((&key(KEYS / 2)[..], &b"later"[..])));
            assert_eq!(cursor.prev().unwrap(), None);
        });
        assert!(scanned.read_bytes < MIB as u64, "{place}: {scanned:?}");
        env.checkpoint().unwrap();
    }
}

#[test]
fn a_full_scan_reads_the_data_and_little_more() {
    let device = large_volume();
    let env = open(&device, &SETUP);
    let space = env.space();
    let mut found = 0;
    let scan = cost(&device, || {
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        while let Some((found_key, found_value)) = cursor.next().unwrap() {
            assert_eq!(found_key, key(found));
            assert_eq!(found_value.len(), VALUE_BYTES);
            found += 1;
        }
    });
    assert_eq!(found, KEYS);
    let used = space.total_bytes - space.free_bytes;
    assert!(scan.read_bytes <= used + used / 10, "{scan:?} of {used} bytes in use");
    assert!(used as usize <= KEYS as usize * VALUE_BYTES * 3 / 2, "{used} bytes in use for 64 MiB");
}

#[test]
fn readahead_gives_a_scan_the_same_pairs_with_fewer_reads() {
    const KEYS_AT_A_TIME: u32 = 32;
    let device = large_volume();
    let scan = |env: &Env, pause: Duration| {
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        for number in 0..KEYS {
            let found = cursor.next().unwrap();
            assert!(found == Some((&key(number), &value(number))), "{number} is not what was put");
            if number.is_multiple_of(KEYS_AT_A_TIME) {
                thread::sleep(pause);
            }
        }
        assert!(cursor.next().unwrap().is_none());
    };
    let env = open(&device, &SETUP);
    let alone = cost(&device, || scan(&env, Duration::ZERO));
    drop(env);
    let env = open(&device, &SETUP);
    let helped = cost(&device, || {
        // Slow enough to measure the helpers and not the schedule.
        helped(&env, || scan(&env, Duration::from_millis(2)));
    });
    assert!(helped.read_bytes <= alone.read_bytes / 20 * 21, "{helped:?}, {alone:?} without");
    assert!(helped.reads < alone.reads / 3, "{helped:?}, {alone:?} without");
}

/// Readahead pays only for a scan that goes on.
#[test]
fn a_short_scan_reads_a_few_times_what_it_returns() {
    let device = large_volume();
    let env = open(&device, &Setup { cache_bytes: 4 * MIB, ..SETUP });
    // A volume's headers and roots are in memory after the first queries.
    for number in (0..KEYS).step_by(64) {
        env.get(D, &key(number)).unwrap();
    }
    let mut rng = Rng::new(3);
    const SCANS: u64 = 200;
    const PAIRS: u32 = 8;
    let scans = cost(&device, || {
        for _ in 0..SCANS {
            let from = rng.below((KEYS - PAIRS) as usize) as u32;
            let mut cursor = env.cursor(D, Cut::before(key(from)), Cut::before(key(from + PAIRS)));
            for number in from..from + PAIRS {
                assert_eq!(cursor.next().unwrap().map(|(k, _)| k.to_vec()), Some(key(number).to_vec()));
            }
        }
    });
    let given = SCANS * u64::from(PAIRS) * VALUE_BYTES as u64;
    assert!(scans.read_bytes < given * 4, "{} bytes were read to give {given}: {scans:?}", scans.read_bytes);
}
