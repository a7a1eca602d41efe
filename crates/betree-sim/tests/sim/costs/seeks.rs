//! A seek costs the way to its place, however much is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use betree::{Cursor, Cut, Env, Options, Upsert};
use betree_platform::Device;
use betree_sim::MemDevice;

use super::{D, SETUP, commit, key};

const PAIRS: u32 = 2000;

/// Appends deltas, and counts how often.
#[derive(Default)]
struct Counted(AtomicU64);

impl Upsert for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some([old.unwrap_or_default(), delta].concat())
    }
}

impl Counted {
    fn during(&self, run: impl FnOnce()) -> u64 {
        let before = self.0.load(Ordering::Relaxed);
        run();
        self.0.load(Ordering::Relaxed) - before
    }
}

fn new_env(upsert: Arc<dyn Upsert>) -> Env {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SETUP.volume_bytes));
    Env::format(Arc::clone(&device), &SETUP.geometry, [1; 16]).unwrap();
    Env::open(device, Options::new(SETUP.cache_bytes, upsert)).unwrap()
}

/// Scans from a cursor's place to the end. Returns how many pairs there were.
fn scan(cursor: &mut Cursor<'_>, is_forward: bool) -> u32 {
    let mut count = 0;
    while if is_forward { cursor.next() } else { cursor.prev() }.unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_seek_merges_the_pair_that_it_returns_and_a_scan_each_pair_once() {
    let counted = Arc::new(Counted::default());
    let env = new_env(Arc::clone(&counted) as Arc<dyn Upsert>);
    (0..PAIRS).for_each(|number| commit(&env, |batch| batch.put(D, &key(number), b"put")));
    env.checkpoint().unwrap();
    (0..PAIRS).for_each(|number| commit(&env, |batch| batch.upsert(D, &key(number), b", changed")));
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    let middle = Cut::before(key(PAIRS / 2));
    let forward = counted.during(|| {
        cursor.seek(&middle);
        assert_eq!(cursor.next().unwrap(), Some((&key(PAIRS / 2)[..], &b"put, changed"[..])));
    });
    let backward = counted.during(|| {
        cursor.seek(&middle);
        assert_eq!(cursor.prev().unwrap(), Some((&key(PAIRS / 2 - 1)[..], &b"put, changed"[..])));
    });
    assert_eq!([forward, backward], [1, 1]);
    for (is_forward, from) in [(true, Cut::LOW), (false, Cut::HIGH)] {
        cursor.seek(&from);
        let applied = counted.during(|| assert_eq!(scan(&mut cursor, is_forward), PAIRS));
        assert_eq!(applied, u64::from(PAIRS), "forward: {is_forward}");
    }
}

/// A memtable is copied while writers wait.
#[test]
fn a_seek_takes_few_messages_of_a_memtable_and_a_scan_twice_as_many_from_step_to_step() {
    // 8, 16, 32, 64, 128, and then 256 at a time.
    const CHUNKS: u64 = 5 + (PAIRS as u64 - 248).div_ceil(256);
    let env = new_env(Arc::new(Counted::default()));
    commit(&env, |batch| (0..PAIRS).for_each(|number| batch.put(D, &key(number), b"put")));
    let queries = |run: &mut dyn FnMut()| {
        let before = env.stats().range_queries;
        run();
        env.stats().range_queries - before
    };
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    for (is_forward, from) in [(true, Cut::LOW), (false, Cut::HIGH), (true, Cut::LOW)] {
        cursor.seek(&from);
        let mut step = || assert!(if is_forward { cursor.next() } else { cursor.prev() }.unwrap().is_some());
        assert_eq!(queries(&mut || (0..8).for_each(|_| step())), 1, "forward: {is_forward}");
        assert_eq!(queries(&mut step), 1, "forward: {is_forward}");
        cursor.seek(&from);
        let scanned = queries(&mut || assert_eq!(scan(&mut cursor, is_forward), PAIRS));
        assert_eq!(scanned, CHUNKS, "forward: {is_forward}");
    }
}
