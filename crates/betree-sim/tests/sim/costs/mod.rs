//! The costs of operations, as counts of device calls and bytes, which do not depend on the machine.
#![allow(clippy::unwrap_used)]

mod estimates;
mod many_reads;
mod partial_writes;
mod point_reads;
mod scans;
mod seeks;
mod space;
mod upserts;
mod views;
mod writes;

use std::sync::Arc;
use std::thread;

use betree::{Batch, DictId, Env, Geometry};
use betree_platform::Device;
use betree_sim::harness::guarded;
use betree_sim::{Counts, MemDevice, Rng, Setup, format_env, open_env};

const D: DictId = DictId(0);
const MIB: usize = 1 << 20;
/// Nodes of a real shape, at a sixteenth of the size.
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 256 << 10,
        basement_bytes: 16 << 10,
        fanout_max: 16,
        log_bytes: 16 << 20,
        dicts: 3,
    },
    cache_bytes: 32 * MIB,
    volume_bytes: 512 << 20,
    seeks: true,
};
/// Number of keys in the volume that is larger than its cache, and size of their values.
const KEYS: u32 = 16 << 10;
const VALUE_BYTES: usize = 4096;

fn new_volume(setup: &Setup) -> (Arc<MemDevice>, Env) {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), setup).unwrap();
    let env = open(&device, setup);
    (device, env)
}

fn open(device: &Arc<MemDevice>, setup: &Setup) -> Env {
    open_env(&(Arc::clone(device) as Arc<dyn Device>), setup).unwrap()
}

fn commit(env: &Env, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    env.throttle(batch.bytes()).unwrap();
    env.commit(&batch).unwrap();
}

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"/dir/...0000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u32) -> Vec<u8> {
    value_of(number, VALUE_BYTES)
}

fn value_of(number: u32, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number));
    (0..len / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// A closed volume with 64 MiB, put in the order of keys.
fn large_volume() -> Arc<MemDevice> {
    large_volume_of(&SETUP)
}

fn large_volume_of(setup: &Setup) -> Arc<MemDevice> {
    let (device, env) = new_volume(setup);
    for number in 0..KEYS {
        commit(&env, |batch| batch.put(D, &key(number), &value(number)));
    }
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    device
}

fn cost(device: &MemDevice, body: impl FnOnce()) -> Counts {
    let before = device.counts();
    body();
    device.counts().since(&before)
}

/// Runs `body` while other threads read ahead.
fn helped(env: &Env, body: impl FnOnce()) {
    thread::scope(|scope| {
        let helpers = [(); 2].map(|()| scope.spawn(|| env.run_readahead()));
        // The helpers have to end, also after a failure.
        let done = guarded("what is helped", || {
            body();
            Ok(())
        });
        env.stop();
        helpers.into_iter().for_each(|helper| helper.join().unwrap());
        done.unwrap();
    });
}
