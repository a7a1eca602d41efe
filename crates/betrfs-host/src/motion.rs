//! Whether a disk seeks: what it says of itself, and what it shows.
//!
//! Many a virtual disk says that it rotates and does not. So a disk that says so is watched: how long small
//! reads take that go far from where the last one was.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A read from further away than this is a jump, in bytes: further than a drive reads on.
const JUMP_BYTES: u64 = 16 << 20;
/// A longer read says more of the rate than of the way, in bytes.
const SMALL_BYTES: usize = 128 << 10;
/// A head that moves needs several times as long, half a turn of the platter alone being 4 ms.
const SEEK_MIN: Duration = Duration::from_millis(1);
/// So many jumps are watched before they count.
const JUMPS_MIN: u64 = 16;
/// After so many the older ones count half.
const JUMPS_MAX: u64 = 256;

/// What is known of one disk.
#[derive(Debug)]
pub(crate) struct Motion {
    says_so: bool,
    last_end: AtomicU64,
    jumps: AtomicU64,
    jumps_ns: AtomicU64,
}

impl Motion {
    /// Of the disk under an open file.
    pub fn of(file: &File) -> Motion {
        let (last_end, jumps, jumps_ns) = Default::default();
        Motion { says_so: rotates(file), last_end, jumps, jumps_ns }
    }

    /// A read took so long.
    pub fn was_read(&self, offset: u64, len: usize, took: Duration) {
        let last_end = self.last_end.swap(offset + len as u64, Relaxed);
        if !self.says_so || len > SMALL_BYTES || offset.abs_diff(last_end) < JUMP_BYTES {
            return;
        }
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 20);
        let sum_ns = self.jumps_ns.fetch_add(took_ns, Relaxed).saturating_add(took_ns);
        let jumps = self.jumps.fetch_add(1, Relaxed) + 1;
        if jumps >= JUMPS_MAX {
            // Two threads that do so at once halve it twice: the ratio stays.
            self.jumps.store(jumps / 2, Relaxed);
            self.jumps_ns.store(sum_ns / 2, Relaxed);
        }
    }

    /// Whether it takes long to go far.
    pub fn seeks(&self) -> bool {
        let (jumps, sum_ns) = (self.jumps.load(Relaxed), self.jumps_ns.load(Relaxed));
        self.says_so && (jumps < JUMPS_MIN || u128::from(sum_ns) > SEEK_MIN.as_nanos() * u128::from(jumps))
    }
}

/// Whether the disk under a file says that it rotates. Where nothing is said, it may.
fn rotates(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return true };
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let dir = Path::new("/sys/dev/block").join(numbers);
    // Of a partition its disk tells.
    let told = ["queue/rotational", "../queue/rotational"];
    let told = told.iter().find_map(|name| fs::read_to_string(dir.join(name)).ok());
    told.is_none_or(|told| told.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(says_so: bool, took: Duration, jumps: u64) -> Motion {
        let (last_end, jumps_before, jumps_ns) = Default::default();
        let motion = Motion { says_so, last_end, jumps: jumps_before, jumps_ns };
        for jump in 1..=jumps {
            motion.was_read(jump * 2 * JUMP_BYTES, 4096, took);
        }
        motion
    }

    #[test]
    fn a_disk_that_says_so_seeks_until_it_shows_that_it_does_not() {
        let (fast, slow) = (Duration::from_micros(200), Duration::from_millis(8));
        assert!(!watched(false, slow, 1000).seeks());
        assert!(watched(true, fast, JUMPS_MIN - 1).seeks());
        assert!(!watched(true, fast, JUMPS_MIN).seeks());
        assert!(watched(true, slow, 1000).seeks());
        // It may have become slow, or fast.
        let motion = watched(true, fast, 1000);
        (0..1000).for_each(|i| motion.was_read(i % 2 * 4 * JUMP_BYTES, 4096, slow));
        assert!(motion.seeks());
    }

    #[test]
    fn reads_in_order_and_long_ones_show_nothing() {
        let motion = watched(true, Duration::ZERO, 0);
        for i in 0..1000 {
            motion.was_read(i * 4096, 4096, Duration::ZERO);
            motion.was_read(i * 4096 + 4 * JUMP_BYTES, 1 << 20, Duration::ZERO);
            motion.was_read(i * 4096 + 4 * JUMP_BYTES + (1 << 20), 4096, Duration::ZERO);
            motion.was_read(i * 4096, 1 << 20, Duration::ZERO);
        }
        assert!(motion.seeks());
    }
}
