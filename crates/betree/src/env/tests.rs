use alloc::sync::Arc;

use super::*;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, Options};
use crate::upsert::Replace;

/// Threads that each found room in the log may together take more than there is.
#[test]
fn a_sync_that_finds_no_room_in_the_log_makes_a_checkpoint() {
    let geometry = Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4096,
        fanout_max: 4,
        log_bytes: 128 << 10,
        dicts: 1,
    };
    let device = MemDevice::new(2048);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let env = Env::open(device, Options::new(1 << 20, Arc::new(Replace))).unwrap();
    let before = env.stats();
    for number in 0..40u8 {
        let mut batch = Batch::new();
        batch.put(DictId(0), &[number], &[number; 6000]);
        // As one who found room before the others took it.
        let mut commit = env.commit.lock();
        env.log.append(commit.next_msn, 1, batch.record()).unwrap();
        env.engine.take(commit.next_msn, batch.record()).unwrap();
        commit.next_msn += 1;
        drop(commit);
        env.sync().unwrap();
    }
    let now = env.stats();
    let (logged, checkpoints) = (now.log_writes - before.log_writes, now.checkpoints - before.checkpoints);
    assert!(logged > 30 && checkpoints > 0, "{logged} segments, {checkpoints} checkpoints");
}

/// An environment of several dictionaries on a device of so many blocks.
fn env_of(dicts: u8, blocks: usize, cache_bytes: usize) -> Env {
    let geometry =
        Geometry { node_bytes: 16 << 10, basement_bytes: 4096, fanout_max: 4, log_bytes: 128 << 10, dicts };
    let device = MemDevice::new(blocks);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    Env::open(device, Options::new(cache_bytes, Arc::new(Replace))).unwrap()
}

#[test]
fn background_work_passes_over_a_dictionary_that_is_busy() {
    let env = env_of(3, 2048, 1 << 20);
    // The first is busy and has nothing to do, the second is busy and full, the third is full.
    for (number, dict) in [1, 2].into_iter().flat_map(|dict| (0..20u8).map(move |n| (n, dict))) {
        let mut batch = Batch::new();
        batch.put(DictId(dict), &[number], &[number; 1000]);
        env.commit(&batch).unwrap();
    }
    let frozen = |dict: usize| env.engine.dicts[dict].state.read().frozen.len();
    assert_eq!([0, 1, 2].map(frozen), [0, 1, 1]);
    let busy = [0, 1].map(|dict| env.engine.dicts[dict].structure.lock());
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        let env = &env;
        scope.spawn(move || done.send(env.pump()));
        let seen = is_done.recv_timeout(std::time::Duration::from_secs(10));
        drop(busy);
        assert_eq!(seen, Ok(Ok(true)), "it did what could be done");
    });
    assert_eq!([0, 1, 2].map(frozen), [0, 1, 0]);
    assert!(env.pump().unwrap());
    assert_eq!(frozen(1), 0);
}
