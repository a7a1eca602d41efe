use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use betree_platform::{Device, DeviceError, DeviceOp};

use crate::batch::Batch;
use crate::env::Env;
use crate::error::Error;
use crate::format::superblock::slots;
use crate::health::State;
use crate::io::Disk;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, Geometry, Options};
use crate::upsert::Replace;

const GEOMETRY: Geometry =
    Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 4, log_bytes: 128 << 10, dicts: 1 };
const BLOCKS: usize = 512;
const LONG: Duration = Duration::from_secs(10);

fn open(device: Arc<dyn Device>) -> Arc<Env> {
    Arc::new(Env::open(device, Options::new(1 << 20, Arc::new(Replace))).unwrap())
}

fn made() -> (Arc<MemDevice>, Arc<Env>) {
    let device = MemDevice::new(BLOCKS);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = open(device.clone());
    (device, env)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn put(env: &Env, number: u32) {
    let mut batch = Batch::new();
    batch.put(DictId(0), &key(number), &[number as u8; 100]);
    env.commit(&batch).unwrap();
}

fn has(env: &Env, number: u32) -> bool {
    env.get(DictId(0), &key(number)).unwrap().is_some()
}

fn is_clean(bytes: &[u8]) -> bool {
    let disk = Disk::new(MemDevice::holding(bytes.to_vec()));
    slots::load(&disk).unwrap().superblock.clean
}

/// Opens a copy; returns it if it is whole.
fn whole(bytes: Vec<u8>) -> Arc<Env> {
    let env = open(MemDevice::holding(bytes));
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    env
}

/// What others do while the volume stands still waits or writes nothing, and is done once afterwards.
#[test]
fn nothing_is_written_while_it_stands_still_and_all_that_waited_is_done_afterwards() {
    const WRITERS: u32 = 8;
    let (device, env) = made();
    (0..200).for_each(|number| put(&env, number));
    let (begin, begun) = mpsc::channel::<()>();
    let begun = Mutex::new(begun);
    let (ended, has_ended) = mpsc::channel();
    let before = env.changes_made_max();
    let waits = || begun.lock().unwrap().recv().unwrap();
    thread::scope(|scope| {
        // Dropped where this fails, so that nobody waits for it any more.
        let begin = begin;
        for writer in 0..WRITERS {
            let (env, waits, ended) = (&env, &waits, ended.clone());
            scope.spawn(move || {
                waits();
                put(env, 1000 + writer);
                ended.send(()).unwrap();
            });
        }
        let others: [fn(&Arc<Env>); 5] = [
            |env| {
                let mut batch = Batch::new();
                batch.delete_range(DictId(0), &Cut::before(key(0)), &Cut::before(key(4)));
                batch.put(DictId(0), &key(2000), b"value");
                env.commit(&batch).unwrap();
            },
            |env| {
                let pairs = (5000..7000u32).map(|number| Ok::<_, Error>((key(number), [7; 64])));
                env.ingest(DictId(0), pairs).unwrap();
            },
            |env| env.checkpoint().unwrap(),
            |env| env.set_label("later").unwrap(),
            |env| assert!(env.trim().unwrap() > 0),
        ];
        for other in others {
            let (env, waits, ended) = (&env, &waits, ended.clone());
            scope.spawn(move || {
                waits();
                other(env);
                ended.send(()).unwrap();
            });
        }
        let frozen = env.freeze(|| {
            assert!(env.is_frozen());
            let (bytes, stats) = (device.bytes(), env.stats());
            for _ in 0..WRITERS + 5 {
                begin.send(()).unwrap();
            }
            // None of them comes to its end, however long it is waited for.
            assert_eq!(
                has_ended.recv_timeout(Duration::from_millis(200)),
                Err(mpsc::RecvTimeoutError::Timeout)
            );
            // What has nothing to do does not wait.
            env.sync().unwrap();
            env.reclaim().unwrap();
            assert!(!env.run_due_work().unwrap());
            assert!((0..200).all(|number| has(&env, number)) && !has(&env, 1000));
            assert_eq!(env.cursor(DictId(0), Cut::LOW, Cut::HIGH).next().unwrap().unwrap().0, key(0));
            assert_eq!(env.stats().device_writes, stats.device_writes);
            assert_eq!(env.changes_made_max(), before);
            assert!(device.bytes() == bytes, "the device has changed");
            bytes
        });
        let bytes = frozen.unwrap().unwrap();
        assert!(!env.is_frozen());
        for _ in 0..WRITERS + 5 {
            has_ended.recv_timeout(LONG).unwrap();
        }
        assert!(is_clean(&bytes));
        let copy = whole(bytes);
        assert_eq!(copy.replayed_batches(), 0);
        assert!((0..200).all(|number| has(&copy, number)) && !has(&copy, 1000));
    });
    assert!((1000..1000 + WRITERS).all(|number| has(&env, number)));
    assert!(!has(&env, 0) && has(&env, 2000) && has(&env, 6999));
    // A put each, two changes of the batch, and the ingest's one: each of them once.
    assert_eq!(env.changes_made_max() - before, u64::from(WRITERS) + 2 + 1);
    assert_eq!(env.identity().label, "later");
    env.abandon();
}

/// A device that remembers, for each call that changes something, what a crash just after it leaves at least
/// and at most.
struct Recorded {
    device: Arc<MemDevice>,
    left: Mutex<Vec<Vec<u8>>>,
}

impl Recorded {
    fn note(&self) {
        let mut left = self.left.lock().unwrap();
        left.extend([self.device.durable_bytes(), self.device.bytes()]);
    }
}

impl Device for Recorded {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write_at(offset, buf)?;
        self.note();
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()?;
        self.note();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn seeks(&self) -> bool {
        self.device.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.device.discard(offset, len)
    }
}

#[test]
fn a_crash_at_each_write_of_a_freeze_and_of_its_end_loses_nothing_that_was_durable() {
    let (device, env) = made();
    drop(env);
    let recorded = Arc::new(Recorded { device: device.clone(), left: Mutex::default() });
    let env = open(recorded.clone());
    let take = || core::mem::take(&mut *recorded.left.lock().unwrap());
    for round in 0..2u32 {
        let synced = round * 100..round * 100 + 50;
        synced.clone().for_each(|number| put(&env, number));
        env.sync().unwrap();
        take();
        let frozen = env.freeze(take).unwrap().unwrap();
        let thawed = take();
        // Nodes, node table and superblock; the two copies of the superblock, each with a sync.
        assert!(frozen.len() > 8, "{}", frozen.len());
        assert_eq!(thawed.len(), 2 * 4);
        for left in frozen.into_iter().chain(thawed) {
            assert!(synced.clone().all(|number| has(&whole(left.clone()), number)));
        }
        // The log counts again: that is the reason for the second superblock.
        put(&env, 1000 + round);
        env.sync().unwrap();
        let after = whole(device.durable_bytes());
        assert!(after.replayed_batches() > 0 && has(&after, 1000 + round));
    }
    env.abandon();
}

#[test]
fn a_freeze_that_cannot_be_made_leaves_nothing_frozen() {
    let (device, env) = made();
    put(&env, 1);
    // Another thread has the checkpoint.
    let committed = env.checkpoint.lock();
    assert_eq!(env.freeze(|| unreachable!("it is not frozen")).unwrap(), None::<()>);
    drop(committed);
    assert!(!env.is_frozen());
    // No room on the disk below.
    device.fill_up(true);
    let refused = env.freeze(|| unreachable!("it is not frozen")).map(|done: Option<()>| done);
    assert!(matches!(refused, Err(Error::DeviceFull(_))), "{refused:?}");
    assert!(!env.is_frozen());
    device.fill_up(false);
    put(&env, 2);
    env.sync().unwrap();
    assert_eq!(env.freeze(|| 7).unwrap(), Some(7));
    env.close().unwrap();
    let refused = env.freeze(|| unreachable!("it is closed")).map(|done: Option<()>| done);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
}

/// Nothing may come to the log of a volume that seems closed.
#[test]
fn changes_are_refused_if_the_end_of_a_freeze_cannot_be_written() {
    for at in [DeviceOp::Write, DeviceOp::Sync] {
        let (device, env) = made();
        put(&env, 1);
        let failed = env.freeze(|| match at {
            DeviceOp::Sync => device.fail_syncs(true),
            _ => device.fail_writes(true),
        });
        assert!(matches!(failed, Err(Error::Device(_))), "{failed:?}");
        device.fail_writes(false);
        device.fail_syncs(false);
        assert!(matches!(env.state(), State::ReadOnly(_)) && !env.is_frozen());
        let mut batch = Batch::new();
        batch.put(DictId(0), &key(2), b"value");
        assert!(matches!(env.commit(&batch), Err(Error::ReadOnly { .. })));
        env.abandon();
        assert!(has(&whole(device.durable_bytes()), 1));
    }
}

/// A batch with a clone holds the trees' structures when it meets a freeze, which needs them to begin.
#[test]
fn clones_and_ingests_beside_freezes_come_to_their_end() {
    const ROUNDS: u32 = 40;
    let (device, env) = made();
    (0..20).for_each(|number| put(&env, number));
    thread::scope(|scope| {
        let cloner = scope.spawn(|| {
            for round in 1..=ROUNDS {
                let mut batch = Batch::new();
                let prefix = |number: u32| [b"copy/".as_slice(), &key(number)].concat();
                batch.put(DictId(0), &prefix(round), b"value");
                batch.clone_range(DictId(0), b"copy/", b"twin/");
                env.commit(&batch).unwrap();
            }
        });
        let ingester = scope.spawn(|| {
            for round in 0..ROUNDS / 4 {
                let pairs =
                    (0..100u32).map(|number| Ok::<_, Error>((key(10_000 + 200 * round + number), [7; 64])));
                env.ingest(DictId(0), pairs).unwrap();
            }
        });
        let mut frozen = 0;
        let begun = Instant::now();
        while frozen < 15 || !cloner.is_finished() || !ingester.is_finished() {
            assert!(begun.elapsed() < LONG * 30, "{frozen} freezes, and not all have come to their end");
            let copy = env.freeze(|| device.bytes()).unwrap();
            if let Some(bytes) = copy {
                frozen += 1;
                assert!(is_clean(&bytes));
                let copy = open(MemDevice::holding(bytes));
                assert!((0..20).all(|number| has(&copy, number)));
            }
        }
    });
    assert!(has(&env, 10_000 + 200 * (ROUNDS / 4 - 1) + 99));
    drop(env);
}
