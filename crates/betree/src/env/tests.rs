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
