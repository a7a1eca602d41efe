//! A counter that is only ever added to costs its readers as much as the tree is high, not as often as it was
//! added to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use betree::{Cut, Env, Geometry, Options, Upsert};
use betree_platform::Device;
use betree_sim::{Counts, MemDevice, Rng, Setup};

use super::{D, MIB, commit, cost};

const SMALL: Setup = Setup {
    geometry: Geometry {
        node_bytes: 32 << 10,
        basement_bytes: 4 << 10,
        fanout_max: 8,
        log_bytes: 1 << 20,
        dicts: 1,
    },
    cache_bytes: MIB,
    volume_bytes: 64 << 20,
    seeks: false,
};
const PUTS_EACH: u32 = 4;
/// So many times are added between two gets.
const GET_EACH: u32 = 100;

/// Adds numbers, and counts how often.
struct Sum {
    applied: AtomicU64,
    combines: bool,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl Upsert for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        self.applied.fetch_add(1, Ordering::Relaxed);
        Some((number(old.unwrap_or_default()) + number(delta)).to_le_bytes().to_vec())
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.combines.then(|| (number(older) + number(newer)).to_le_bytes().to_vec())
    }
}

/// Where counters lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counters {
    /// One among the keys that are put.
    Among,
    /// One among keys that were put once, before it.
    Apart,
    /// This many among keys that are put.
    Many(u32),
}

struct Load {
    /// The most deltas that a get of a counter applied.
    applied: u64,
    levels: u64,
    written: Counts,
}

fn counter(counters: Counters, number: u32) -> Vec<u8> {
    let (prefix, number) = match counters {
        Counters::Among => (b'm', 1 << 31),
        Counters::Apart => (b'a', 1 << 31),
        Counters::Many(count) => (b'm', number % count * (u32::MAX / count)),
    };
    [&[prefix][..], &number.to_be_bytes()].concat()
}

/// Adds one to a counter that often, with some puts of random keys between every two and a get now and then.
fn count_up(counters: Counters, times: u32, combines: bool) -> Load {
    let sum = Arc::new(Sum { applied: AtomicU64::new(0), combines });
    let device = Arc::new(MemDevice::new(SMALL.volume_bytes).which_seeks(SMALL.seeks));
    Env::format(device.clone() as Arc<dyn Device>, &SMALL.geometry, [1; 16]).unwrap();
    let options = Options::new(SMALL.cache_bytes, sum.clone() as Arc<dyn Upsert>);
    let env = Env::open(device.clone() as Arc<dyn Device>, options).unwrap();
    let mut rng = Rng::new(1);
    let mut put = |prefix: u8| {
        let key = [&[prefix][..], &rng.next_u64().to_be_bytes()].concat();
        commit(&env, |batch| batch.put(D, &key, &[7; 60]));
        while env.run_due_work().unwrap() {}
    };
    (0..5000).for_each(|_| put(b'a'));
    let mut applied = 0;
    let written = cost(&device, || {
        for number in 0..times {
            // In no order of the keys.
            let key = counter(counters, number.wrapping_mul(0x9e37_79b1));
            commit(&env, |batch| batch.upsert(D, &key, &1_u64.to_le_bytes()));
            (0..PUTS_EACH).for_each(|_| put(b'm'));
            if number % GET_EACH == 0 {
                let before = sum.applied.load(Ordering::Relaxed);
                env.get(D, &key).unwrap();
                applied = applied.max(sum.applied.load(Ordering::Relaxed) - before);
            }
        }
        env.checkpoint().unwrap();
    });
    let mut all = env.cursor(D, Cut::LOW, Cut::HIGH);
    let mut counted = 0;
    while let Some((_, value)) = all.next().unwrap() {
        counted += number(value);
    }
    assert_eq!(counted, u64::from(times), "{counters:?}");
    Load { applied, levels: env.stats().height, written }
}

#[test]
fn a_get_of_a_counter_applies_a_few_deltas_a_level_however_often_it_was_added_to() {
    for counters in [Counters::Among, Counters::Many(100)] {
        for times in [3000, 12_000] {
            let Load { applied, levels, .. } = count_up(counters, times, true);
            assert!(applied <= 5 * levels, "{counters:?}, {times} times: {applied} of {levels} levels");
        }
    }
}

/// Nothing moves down where it waits. It has at most twelve runs, each of what came between two checkpoints.
#[test]
fn a_counter_that_never_moves_down_has_as_many_deltas_however_often_it_was_added_to() {
    for times in [12_000, 24_000] {
        let Load { applied, .. } = count_up(Counters::Apart, times, true);
        assert!(applied <= 96, "{times} times: {applied}");
    }
}

#[test]
fn deltas_that_are_combined_are_fewer_bytes_to_write() {
    let written = |combines| count_up(Counters::Many(100), 12_000, combines).written.write_bytes;
    let [combined, one_by_one] = [true, false].map(written);
    assert!(combined * 100 < one_by_one * 97, "{combined} of {one_by_one}");
}
