//! Clones, renames and deletes of whole ranges, as counts: their costs, and their remains.
#![allow(clippy::unwrap_used)]

mod churn;
mod cost;
mod nesting;
mod space;

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry};
use betree_platform::Device;
use betree_sim::{MemDevice, Setup, format_env, open_env, problems};

const D: DictId = DictId(0);
/// Nodes so small that the largest directory makes a tree of several levels.
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 8 << 10,
        basement_bytes: 2 << 10,
        fanout_max: 8,
        log_bytes: 4 << 20,
        dicts: 1,
    },
    cache_bytes: 1 << 20,
    volume_bytes: 256 << 20,
    seeks: true,
};
/// The numbers of entries of the directories.
const SIZES: [u32; 3] = [10, 1_000, 100_000];

fn open(device: &Arc<MemDevice>) -> Env {
    open_env(&(Arc::clone(device) as Arc<dyn Device>), &SETUP).unwrap()
}

fn commit(env: &Env, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    env.throttle(batch.bytes()).unwrap();
    env.commit(&batch).unwrap();
}

fn dir(size: u32) -> Vec<u8> {
    format!("/dir{size}\0").into_bytes()
}

fn key(dir: &[u8], number: u32) -> Vec<u8> {
    [dir, format!("{number:08}").as_bytes()].concat()
}

/// A volume with the three directories.
fn volume() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(SETUP.volume_bytes));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), &SETUP).unwrap();
    let env = open(&device);
    for size in SIZES {
        let dir = dir(size);
        for number in 0..size {
            // In an order unlike the keys', so that partitions fill.
            let number = (u64::from(number) * 7919 % u64::from(size)) as u32;
            commit(&env, |batch| batch.put(D, &key(&dir, number), &number.to_be_bytes().repeat(6)));
        }
    }
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    device
}

fn count(env: &Env, dir: &[u8]) -> usize {
    let mut cursor = env.cursor(D, Cut::before(dir), Cut::after(dir));
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

fn assert_sound(env: &Env) {
    let problems = problems(env).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}
