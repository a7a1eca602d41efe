//! Whether a disk seeks, by its own report and by its speed.
//!
//! Many virtual disks report rotation and do not rotate. Therefore a disk that reports it is measured: the
//! time of small reads far from all recent ones. A moving head is never quick at these; a busy machine makes
//! any disk slow sometimes.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The least distance of a jump in bytes: beyond the readahead of a drive.
const JUMP_BYTES: u64 = 16 << 20;
/// The number of recent read positions to remember; more than a drive's cache has segments.
const PLACES: usize = 16;
/// The largest read that is measured, in bytes: the time of a longer one says more about the rate.
const SMALL_BYTES: usize = 128 << 10;
/// The time of a quick jump, which no moving head reaches: half a turn of the platter alone takes 4 ms.
const QUICK: Duration = Duration::from_millis(1);
/// One quick jump in this many proves that there is no head.
const QUICK_PART: u64 = 16;
/// The number of jumps before they count.
const JUMPS_MIN: u64 = 16;
/// The number of jumps after which all counts are halved.
const JUMPS_MAX: u64 = 256;

/// The measurements of one disk.
#[derive(Debug)]
pub(crate) struct SeekDetector {
    says_so: bool,
    /// The ends of the last reads; a race between threads makes them a little less exact.
    places: [AtomicU64; PLACES],
    next: AtomicUsize,
    jumps: AtomicU64,
    quick: AtomicU64,
}

impl SeekDetector {
    /// The detector for the disk under an open file.
    pub fn of(file: &File) -> SeekDetector {
        SeekDetector::that_says(rotates(file))
    }

    fn that_says(says_so: bool) -> SeekDetector {
        let (places, next, jumps, quick) = Default::default();
        SeekDetector { says_so, places, next, jumps, quick }
    }

    /// Records the time of a read.
    pub fn was_read(&self, offset: u64, len: usize, took: Duration) {
        if !self.says_so {
            return;
        }
        let is_far = self.places.iter().all(|place| offset.abs_diff(place.load(Relaxed)) >= JUMP_BYTES);
        let next = self.next.fetch_add(1, Relaxed) % PLACES;
        if let Some(place) = self.places.get(next) {
            place.store(offset + len as u64, Relaxed);
        }
        if len > SMALL_BYTES || !is_far {
            return;
        }
        let is_quick = u64::from(took < QUICK);
        let quick = self.quick.fetch_add(is_quick, Relaxed) + is_quick;
        let jumps = self.jumps.fetch_add(1, Relaxed) + 1;
        if jumps >= JUMPS_MAX {
            // Two threads at once halve it twice: the ratio stays.
            self.jumps.store(jumps / 2, Relaxed);
            self.quick.store(quick / 2, Relaxed);
        }
    }

    /// Whether the disk seeks.
    pub fn seeks(&self) -> bool {
        let (jumps, quick) = (self.jumps.load(Relaxed), self.quick.load(Relaxed));
        self.says_so && (jumps < JUMPS_MIN || quick * QUICK_PART < jumps)
    }
}

/// Whether the disk under a file reports rotation; `true` without a report.
fn rotates(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else { return true };
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let dir = Path::new("/sys/dev/block").join(numbers);
    // A partition has the report of its disk.
    let told = ["queue/rotational", "../queue/rotational"];
    let told = told.iter().find_map(|name| fs::read_to_string(dir.join(name)).ok());
    told.is_none_or(|told| told.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes small reads all over a large disk, with times by `took`.
    fn jump(seek_detector: &SeekDetector, count: u64, took: impl Fn(u64) -> Duration) {
        for number in 0..count {
            // Far from the last sixteen, and never at the start, the first recorded position.
            let place = 1 + (number * 7) % 101;
            seek_detector.was_read(place * 2 * JUMP_BYTES, 4096, took(number));
        }
    }

    const FAST: Duration = Duration::from_micros(200);
    const SLOW: Duration = Duration::from_millis(8);

    #[test]
    fn a_disk_that_reports_rotation_seeks_until_it_shows_that_it_does_not() {
        let seek_detector = SeekDetector::that_says(false);
        jump(&seek_detector, 1000, |_| SLOW);
        assert!(!seek_detector.seeks(), "the report counts");

        let seek_detector = SeekDetector::that_says(true);
        jump(&seek_detector, JUMPS_MIN - 1, |_| FAST);
        assert!(seek_detector.seeks(), "too few");
        jump(&seek_detector, 100, |_| FAST);
        assert!(!seek_detector.seeks());
        jump(&seek_detector, 1000, |_| SLOW);
        assert!(seek_detector.seeks(), "it has become slow");
        jump(&seek_detector, 1000, |number| if number % 8 == 0 { FAST } else { SLOW });
        assert!(!seek_detector.seeks(), "a busy machine, and a disk without a head");
    }

    #[test]
    fn near_reads_and_long_reads_prove_nothing() {
        let seek_detector = SeekDetector::that_says(true);
        for number in 0..1000 {
            seek_detector.was_read(number * 4096, 4096, FAST);
            seek_detector.was_read(number * 2 * JUMP_BYTES, 1 << 20, FAST);
            seek_detector.was_read(number * 2 * JUMP_BYTES + (1 << 20), 4096, FAST);
            seek_detector.was_read(number * 4096, 4096, FAST);
        }
        assert!(seek_detector.seeks());
    }
}
