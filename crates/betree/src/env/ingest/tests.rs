//! Ingests with threads that write, and while others wait.

use std::time::Duration;

use betree_platform::{Device, DeviceError};

use super::*;
use crate::batch::Batch;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, Options};
use crate::upsert::Replace;

const D: DictId = DictId(0);

const GEOMETRY: Geometry =
    Geometry { node_bytes: 8 << 10, basement_bytes: 1024, fanout_max: 4, log_bytes: 1 << 20, dicts: 1 };

fn env(blocks: usize) -> Arc<Env> {
    let device = MemDevice::new(blocks);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    Arc::new(Env::open(device, Options::new(256 << 10, Arc::new(Replace))).unwrap())
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Puts pairs in place as after eight rounds in which others were faster. Returns what that wrote.
fn put_alone(env: &Arc<Env>, numbers: impl Iterator<Item = u32>) -> Result<u64> {
    let (memory, place) = (env.memory_apart(), |encoded| env.place_with_room(encoded));
    let mut builder = TreeBuilder::new(env.engine.tree(D)?, &memory, &place);
    for number in numbers {
        builder.push(&key(number), &seeded::bytes(u64::from(number), 0, 100))?;
    }
    let built = builder.finish()?.unwrap();
    env.put_while_others_wait(D, &built)
}

fn count(env: &Env) -> usize {
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    core::iter::from_fn(|| cursor.next().unwrap().map(|_| ())).count()
}

#[test]
fn while_others_wait_it_is_put_over_what_they_put_before() {
    let env = env(4096);
    let mut batch = Batch::new();
    [3, 5000].iter().for_each(|number| batch.put(D, &key(*number), b"others'"));
    env.commit(&batch).unwrap();
    let view = env.view();
    assert!(put_alone(&env, (0..2000).map(|number| number * 2)).unwrap() > 2000 * 100);
    assert_eq!(count(&env), 2002);
    assert_eq!(env.get(D, &key(3)).unwrap().as_deref(), Some(&b"others'"[..]));
    assert_eq!(view.get(D, &key(4)).unwrap(), None, "a view from before");
    drop(view);
    assert_eq!(put_alone(&env, 10_000..12_000).unwrap(), 0, "nothing is there to merge");
    env.close().unwrap();
    assert_eq!(count(&env), 4002);
}

#[test]
fn while_others_wait_no_room_is_made() {
    // Room for the pairs, and none for them a second time.
    let env = env(1024);
    let mut batch = Batch::new();
    batch.put(D, &key(3), b"others'");
    env.commit(&batch).unwrap();
    env.checkpoint().unwrap();
    let before = env.engine.room().free_bytes();
    let refused = put_alone(&env, (0..14_000).map(|number| number * 2));
    assert_eq!(refused, Err(Error::NoSpace));
    assert_eq!((count(&env), env.engine.room().free_bytes()), (1, before));
}

/// A device that takes its time for each write, so that who builds nodes is faster than who writes them.
struct Slow(Arc<MemDevice>);

impl Device for Slow {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> core::result::Result<(), DeviceError> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> core::result::Result<(), DeviceError> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.write_at(offset, buf)
    }

    fn sync(&self) -> core::result::Result<(), DeviceError> {
        self.0.sync()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn seeks(&self) -> bool {
        true
    }

    fn discard(&self, offset: u64, len: u64) -> core::result::Result<(), DeviceError> {
        self.0.discard(offset, len)
    }
}

/// Ends the threads of an environment, also where a test fails: the scope waits for them.
struct Stop<'e>(&'e Env);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn beside_writing_threads_three_leaves_are_in_memory_and_each_is_written_once() {
    let device = MemDevice::new(4096);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let options = Options::new(256 << 10, Arc::new(Replace));
    let env = Arc::new(Env::open(Arc::new(Slow(device)), options).unwrap());
    std::thread::scope(|scope| {
        let _stop = Stop(&env);
        (0..2).for_each(|_| drop(scope.spawn(|| env.run_writeback())));
        // The threads count from their first look for work on.
        let begun = std::time::Instant::now();
        while !env.engine.store.writeback.is_served() {
            assert!(begun.elapsed().as_secs() < 60, "no thread serves");
            std::thread::yield_now();
        }
        let before = env.stats();
        let (memory, place) = (env.memory_apart(), |encoded| env.place_with_room(encoded));
        let mut builder = TreeBuilder::new(env.engine.tree(D).unwrap(), &memory, &place);
        let mut most_bytes = 0;
        for number in 0..3000 {
            builder.push(&key(number), &seeded::bytes(u64::from(number), 0, 100)).unwrap();
            most_bytes = most_bytes.max(memory.resident_bytes());
        }
        let built = builder.finish().unwrap().unwrap();
        let node_bytes = GEOMETRY.node_bytes as usize;
        assert!(most_bytes > 2 * node_bytes, "the threads are behind: {most_bytes} bytes");
        assert!(most_bytes < 4 * node_bytes, "three nodes and their headers: {most_bytes} bytes");
        assert_eq!(env.stats().device_write_bytes - before.device_write_bytes, built.written_bytes());
        assert!(built.written_bytes() > 3000 * 100);
        env.put_while_others_wait(D, &built).unwrap();
        drop(built);
        assert_eq!(count(&env), 3000);
    });
    env.close().unwrap();
}
