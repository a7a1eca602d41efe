use alloc::format;
use core::sync::atomic::{AtomicI64, Ordering};

use betree_platform::Platform;

use super::*;
use crate::batch::Batch;
use crate::env::View;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, Options};
use crate::upsert::Upsert;

const D: DictId = DictId(0);
const GEOMETRY: Geometry =
    Geometry { node_bytes: 4 << 10, basement_bytes: 1024, fanout_max: 8, log_bytes: 1 << 20, dicts: 1 };

/// A clock that a test sets.
#[derive(Default)]
struct Times(AtomicI64);

impl Platform for Times {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn random_u64(&self) -> u64 {
        0
    }
}

/// Values that begin with the time at which they expire, and with 0 if they do not. Deltas begin with the
/// time at which they were made, and are put behind a value.
struct Timed;

fn time_of(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(0, |time| i64::from_be_bytes(*time))
}

fn timed(time: i64, rest: &[u8]) -> Vec<u8> {
    [&time.to_be_bytes(), rest].concat()
}

impl Upsert for Timed {
    fn name(&self) -> &str {
        "timed"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let made = time_of(delta);
        let old = old.filter(|old| self.expires_at_ns(old).is_none_or(|at| at > made));
        Some([old.unwrap_or(&[0; 8]), delta.get(8..).unwrap_or_default()].concat())
    }

    fn expires_at_ns(&self, value: &[u8]) -> Option<i64> {
        Some(time_of(value)).filter(|time| *time > 0)
    }

    fn left_of_expired(&self, value: &[u8]) -> Option<Vec<u8>> {
        value.get(..8).map(<[u8]>::to_vec)
    }
}

struct Volume {
    device: Arc<MemDevice>,
    times: Arc<Times>,
    env: Arc<Env>,
}

fn open(device: &Arc<MemDevice>, times: &Arc<Times>) -> Arc<Env> {
    let mut options = Options::new(512 << 10, Arc::new(Timed));
    options.clock = Some(times.clone());
    Arc::new(Env::open(device.clone(), options).unwrap())
}

fn volume() -> Volume {
    let (device, times) = (MemDevice::new(4096), Arc::new(Times::default()));
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = open(&device, &times);
    Volume { device, times, env }
}

impl Volume {
    fn set_time(&self, time: i64) {
        self.times.0.store(time, Ordering::Relaxed);
    }

    fn commit(&self, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        fill(&mut batch);
        self.env.commit(&batch).unwrap();
    }

    /// Puts pairs that expire at a time.
    fn put_until(&self, numbers: core::ops::Range<u32>, time: i64) {
        self.commit(|batch| numbers.for_each(|number| batch.put(D, &key(number), &timed(time, &[7; 40]))));
    }

    /// Brings all messages to the leaves.
    fn to_leaves(&self) {
        self.env.engine.absorb_all().unwrap();
        self.env.engine.drain(&mut crate::tree::Drain::default()).unwrap();
        self.env.checkpoint().unwrap();
    }

    /// The number of pairs in the tree, those that have expired too, and the bytes of their values.
    fn stored(&self) -> (usize, usize) {
        let view = self.env.view();
        let mut cursor = view.cursor_with_expired(D, Cut::LOW, Cut::HIGH);
        let (mut pairs, mut bytes) = (0, 0);
        while let Some((_, value)) = cursor.next().unwrap() {
            (pairs, bytes) = (pairs + 1, bytes + value.len());
        }
        (pairs, bytes)
    }

    fn seen(&self) -> usize {
        let mut cursor = self.env.cursor(D, Cut::LOW, Cut::HIGH);
        core::iter::from_fn(|| cursor.next().unwrap().map(|_| ())).count()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("k{number:04}").into_bytes()
}

fn seen_in(view: &View) -> usize {
    let mut cursor = view.cursor(D, Cut::LOW, Cut::HIGH);
    core::iter::from_fn(|| cursor.next().unwrap().map(|_| ())).count()
}

#[test]
fn every_reader_hides_by_its_own_time() {
    for in_leaves in [false, true] {
        let volume = volume();
        volume.put_until(0..10, 5);
        volume.put_until(10..20, 0);
        if in_leaves {
            volume.to_leaves();
        }
        let (view, transaction) = (volume.env.view(), volume.env.begin(Isolation::Serializable));
        let plain = volume.env.cursor(D, Cut::LOW, Cut::HIGH);
        volume.set_time(5);
        let later = volume.env.view();
        assert_eq!((volume.seen(), seen_in(&view), seen_in(&later)), (10, 20, 10));
        assert_eq!(volume.env.get(D, &key(3)).unwrap(), None);
        assert_eq!(volume.env.get_many(D, &[key(3), key(10)]).unwrap()[0], None);
        assert!(view.get(D, &key(3)).unwrap().is_some() && view.get_many(D, &[key(3)]).unwrap()[0].is_some());
        assert_eq!(later.get(D, &key(3)).unwrap(), None);
        assert!(transaction.get(D, &key(3)).unwrap().is_some());
        // An iterator of no view reads by the time of each step that reads.
        let mut plain = plain;
        assert_eq!(plain.next().unwrap().unwrap().0, key(10));
        assert_eq!(plain.prev().unwrap().unwrap().0, key(10));
        assert!(plain.prev().unwrap().is_none());
    }
}

#[test]
fn expiry_is_no_change_for_a_transaction_and_a_put_is() {
    for (time, puts, commits) in [(5, false, true), (5, true, false)] {
        let volume = volume();
        volume.put_until(0..10, 5);
        let mut transaction = volume.env.begin(Isolation::Serializable);
        assert!(transaction.get(D, &key(3)).unwrap().is_some());
        transaction.put(D, b"own", &timed(0, b"")).unwrap();
        volume.set_time(time);
        if puts {
            volume.put_until(3..4, 9);
        }
        assert_eq!(matches!(transaction.commit().unwrap(), Outcome::Committed(_)), commits);
    }
}

#[test]
fn a_leaf_that_is_written_anew_drops_the_values_that_no_view_sees_and_reads_nothing_for_it() {
    let volume = volume();
    volume.put_until(0..40, 5);
    volume.to_leaves();
    assert_eq!(volume.stored(), (40, 40 * 48));
    let view = volume.env.view();
    volume.set_time(5);
    // A delete makes each basement merge what comes with its pairs.
    let touch = || {
        volume.commit(|batch| (0..40).step_by(3).for_each(|number| batch.delete(D, &key(number))));
        volume.to_leaves();
    };
    touch();
    assert_eq!(seen_in(&view), 40);
    assert_eq!(volume.stored().1, 26 * 48, "a view sees them");
    drop(view);
    let reads = volume.env.stats().device_reads;
    touch();
    assert_eq!(volume.env.stats().device_reads, reads);
    assert_eq!(volume.stored(), (26, 26 * 8));
    assert_eq!(volume.seen(), 0);
}

#[test]
fn deltas_find_what_there_was_when_they_were_made() {
    let volume = volume();
    volume.put_until(0..2, 5);
    volume.to_leaves();
    // Made while the value was there, and still above the leaf when that drops it.
    volume.set_time(4);
    volume.commit(|batch| batch.upsert(D, &key(0), &timed(4, b"early")));
    volume.set_time(6);
    volume.commit(|batch| batch.upsert(D, &key(1), &timed(6, b"late")));
    let found = || [0, 1].map(|number| volume.env.get(D, &key(number)).unwrap());
    let expected = [None, Some(timed(0, b"late"))];
    assert_eq!(found(), expected);
    volume.to_leaves();
    assert_eq!(found(), expected);
    volume.commit(|batch| batch.upsert(D, &key(0), &timed(6, b"new")));
    assert_eq!(volume.env.get(D, &key(0)).unwrap(), Some(timed(0, b"new")));
}

#[test]
fn a_sweep_removes_all_that_has_expired_in_steps() {
    let volume = volume();
    volume.put_until(0..100, 5);
    volume.put_until(100..200, 0);
    volume.to_leaves();
    volume.set_time(4);
    let whole = |bytes_max| {
        let (mut lo, mut steps, mut removed) = (Cut::LOW, 0, 0);
        loop {
            let swept = volume.env.remove_expired(D, &lo, &Cut::HIGH, bytes_max).unwrap();
            (steps, removed) = (steps + 1, removed + swept.removed);
            match swept.next {
                Some(next) => lo = next,
                None => return (steps, removed),
            }
        }
    };
    assert_eq!(whole(usize::MAX), (1, 0));
    let earliest_ns = || {
        let swept = volume.env.remove_expired(D, &Cut::LOW, &Cut::HIGH, usize::MAX).unwrap();
        swept.earliest_ns
    };
    assert_eq!(earliest_ns(), Some(5));
    volume.set_time(5);
    // Each pair has 53 bytes.
    let (steps, removed) = whole(530);
    assert_eq!(removed, 100);
    assert!((20..=21).contains(&steps), "{steps} steps");
    assert_eq!(volume.stored().0, 100);
    assert_eq!(volume.seen(), 100);
    let Volume { device, times, env } = volume;
    env.close().unwrap();
    drop(env);
    assert_eq!(open(&device, &times).view().last_change(), 300);
}

#[test]
fn without_a_clock_nothing_expires() {
    let Volume { device, env, times } = volume();
    times.0.store(9, Ordering::Relaxed);
    env.close().unwrap();
    let env = Arc::new(Env::open(device, Options::new(512 << 10, Arc::new(Timed))).unwrap());
    let mut batch = Batch::new();
    batch.put(D, b"key", &timed(5, b""));
    env.commit(&batch).unwrap();
    assert!(env.get(D, b"key").unwrap().is_some());
    assert_eq!((env.now_ns(), env.view().time_ns()), (None, None));
    let swept = env.remove_expired(D, &Cut::LOW, &Cut::HIGH, usize::MAX).unwrap();
    assert_eq!(swept, Swept { next: None, removed: 0, earliest_ns: None });
}
