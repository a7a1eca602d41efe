//! Law: whichever read of an opening fails once, and wherever the power is cut in that opening, a later one
//! finds all that was stored, and a check then finds nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use betree::{Batch, DictId, Env, Geometry};
use betree_platform::{Device, DeviceError, DeviceOp};
use betree_sim::{EIO, SMALL_NODES, Setup, SimDisk, format_env, open_env, problems};

/// The node table has several pages.
const SETUP: Setup = Setup {
    geometry: Geometry { node_bytes: 4096, log_bytes: 64 << 10, dicts: 1, ..SMALL_NODES },
    cache_bytes: 256 << 10,
    volume_bytes: 8 << 20,
    seeks: false,
};
const PAIRS: u32 = 900;

/// A disk of which one read fails.
struct FailsOnce {
    disk: Arc<SimDisk>,
    /// Number of reads until then, including that one.
    left: AtomicU64,
}

impl Device for FailsOnce {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Relaxed) == 1 {
            let len = buf.len() as u64;
            return Err(DeviceError { op: DeviceOp::Read, offset, len, errno: EIO });
        }
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, buf)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn seeks(&self) -> bool {
        self.disk.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.disk.discard(offset, len)
    }
}

fn value(number: u32) -> Vec<u8> {
    seeded::bytes(u64::from(number), 0, 400)
}

fn put(env: &Env, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(DictId(0), &number.to_be_bytes(), &value(number));
        env.throttle(batch.bytes()).unwrap();
        env.commit(&batch).unwrap();
        while env.run_due_work().unwrap() {}
    }
}

/// A volume with pairs in nodes and in the log, after a crash.
fn volume() -> SimDisk {
    let disk = Arc::new(SimDisk::new(SETUP.volume_bytes));
    let device: Arc<dyn Device> = disk.clone();
    format_env(&device, &SETUP).unwrap();
    let env = open_env(&device, &SETUP).unwrap();
    put(&env, 0..PAIRS - 60);
    env.checkpoint().unwrap();
    put(&env, PAIRS - 60..PAIRS);
    env.sync().unwrap();
    env.abandon();
    disk.crash(1)
}

/// Opens a copy of the volume of which a read fails, with the power cut at a call, or not at all; returns
/// the disk after that, how many of the reads were left, and whether the power was cut.
fn tried(volume: &SimDisk, read: u64, cut_at: Option<u64>, seed: u64) -> (SimDisk, u64, bool) {
    let disk = Arc::new(volume.crash(0));
    if let Some(call) = cut_at {
        disk.cut_power_at(call);
    }
    let fails = Arc::new(FailsOnce { disk: disk.clone(), left: AtomicU64::new(read) });
    let device: Arc<dyn Device> = fails.clone();
    if let Ok(env) = open_env(&device, &SETUP) {
        env.abandon();
    }
    let left = fails.left.load(Relaxed);
    // Below zero once more were made.
    (disk.crash(seed), if left > read { 0 } else { left }, disk.is_cut())
}

#[test]
fn an_opening_with_a_failed_read_that_is_cut_off_leaves_nothing_damaged() {
    let volume = volume();
    let (mut reads, mut cuts) = (0, 0);
    for read in 1.. {
        let (_, left, _) = tried(&volume, read, None, 0);
        if left > 0 {
            break;
        }
        reads += 1;
        for call in 1.. {
            let mut is_cut = false;
            for seed in 0..4 {
                let (after, _, was_cut) = tried(&volume, read, Some(call), seed);
                is_cut |= was_cut;
                let device: Arc<dyn Device> = Arc::new(after);
                // It makes anew what the crash has torn.
                open_env(&device, &SETUP).unwrap().close().unwrap();
                let env = open_env(&device, &SETUP).unwrap();
                assert_eq!(problems(&env).unwrap(), Vec::<String>::new(), "read {read}, cut at call {call}");
                for number in [0, PAIRS / 2, PAIRS - 1] {
                    let found = env.get(DictId(0), &number.to_be_bytes()).unwrap();
                    assert_eq!(found, Some(value(number)), "read {read}, cut at call {call}");
                }
            }
            if !is_cut {
                break;
            }
            cuts += 1;
        }
    }
    println!("{reads} reads, {cuts} cuts");
    assert!(reads > 8 && cuts > 40, "{reads} reads, {cuts} cuts");
}
