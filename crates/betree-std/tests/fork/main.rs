//! A fork of a process with an open volume: it is refused, and changes nothing for its parent.
#![allow(clippy::unwrap_used, clippy::panic)]

mod child;

use std::sync::Arc;
use std::time::Duration;

use betree::{Batch, Cut, DictId, Env, Error, Geometry, Options, Replace};
use betree_platform::{BLOCK_BYTES, Device};
use betree_std::{FileDevice, OpenError, Workers, WorkersOptions};

use child::in_a_fork;

const DICT: DictId = DictId(0);

fn put(env: &Env, key: &[u8], value: &[u8]) -> betree::Result<()> {
    let mut batch = Batch::new();
    batch.put(DICT, key, value);
    env.commit(&batch)
}

fn open(device: Arc<FileDevice>) -> Arc<Env> {
    Arc::new(Env::open(device, Options::new(4 << 20, Arc::new(Replace))).unwrap())
}

#[test]
fn a_fork_is_refused_and_leaves_the_volume_to_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let device = Arc::new(FileDevice::create(&path, 64 << 20).unwrap());
    Env::format(device.clone(), &Geometry::for_volume(64 << 20, 1), [7; 16]).unwrap();
    let env = open(device.clone());
    let never = Duration::from_secs(1 << 30);
    let workers = WorkersOptions { sync_every: never, checkpoint_every: never, ..WorkersOptions::default() };
    let workers = Workers::start(env.clone(), workers).unwrap();
    put(&env, b"before", b"1").unwrap();
    env.sync().unwrap();
    // In the parent's memory, and so in the fork's.
    put(&env, b"pending", b"2").unwrap();
    let view = env.view();
    let before = std::fs::read(&path).unwrap();
    let _kept = (env.clone(), device.clone());

    let parent = std::process::id();
    let code = in_a_fork(|| {
        let forked = Err(Error::Forked { opened_by: parent });
        let calls: [(i32, betree::Result<()>); 10] = [
            (1, put(&env, b"child", b"3")),
            (2, env.sync()),
            (3, env.checkpoint()),
            (4, env.close()),
            (5, env.trim().map(drop)),
            (6, env.get(DICT, b"before").map(drop)),
            (7, env.get_many(DICT, &[b"before"]).map(drop)),
            (8, env.cursor(DICT, Cut::LOW, Cut::HIGH).next().map(drop)),
            (9, view.get(DICT, b"before").map(drop)),
            (10, env.throttle(1)),
        ];
        if let Some((number, _)) = calls.iter().find(|(_, told)| *told != forked) {
            return *number;
        }
        let block = [0; BLOCK_BYTES];
        if device.write_at(0, &block).is_ok() || device.sync().is_ok() || device.discard(0, 1 << 20).is_ok() {
            return 11;
        }
        device.release();
        drop((view, workers, env, device));
        0
    });
    assert_eq!(code, 0, "the number of the call that was not refused");
    assert!(std::fs::read(&path).unwrap() == before, "the fork has written");
}

/// The child drops what it inherits, so each has its own names of it.
#[test]
fn a_parent_goes_on_after_its_fork_has_dropped_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let device = Arc::new(FileDevice::create(&path, 64 << 20).unwrap());
    Env::format(device.clone(), &Geometry::for_volume(64 << 20, 1), [7; 16]).unwrap();
    let mut all = Some((open(device.clone()), device));
    let mut workers = Workers::start(all.as_ref().unwrap().0.clone(), WorkersOptions::default()).ok();
    put(&all.as_ref().unwrap().0, b"before", b"1").unwrap();
    let code = in_a_fork(|| {
        drop((workers.take(), all.take()));
        0
    });
    assert_eq!(code, 0);
    let (env, device) = all.take().unwrap();
    assert!(matches!(FileDevice::open(&path), Err(OpenError::InUse { .. })), "the lock is the parent's");
    for number in 0..50u8 {
        put(&env, &[number], b"parent").unwrap();
    }
    env.sync().unwrap();
    // As a crash would.
    env.abandon();
    drop((workers.take(), env));
    device.release();
    drop(device);
    let env = open(Arc::new(FileDevice::open(&path).unwrap()));
    assert!((0..50u8).all(|number| env.get(DICT, &[number]).unwrap().as_deref() == Some(b"parent")));
    env.close().unwrap();
}
