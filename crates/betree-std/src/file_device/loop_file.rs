//! The files beneath block devices: a loop device shows a file or a part of one, and partitions and devices
//! of the device mapper may lie above it. What is written to such a device comes into the file.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, major, minor};
use rustix::io::Errno;

/// How many devices stand one above the other at most, as far as is looked.
const DEVICES_MAX: usize = 16;
/// The kernel's list of block devices.
const ALL: &str = "/sys/block";
/// The type of a mount by this project of a block device, as the kernel's list of mounts has it.
const FS_TYPE: &str = "fuseblk.betrfs";

/// A file beneath a block device.
#[derive(Debug)]
pub(super) struct Behind {
    pub file: File,
    /// Whether the device shows the whole of it and nothing else: the volume is the same by either name.
    pub is_whole: bool,
}

/// The files beneath a block device; none for anything else. Files that have no name here that this process
/// may read are left out.
pub(super) fn files_behind(device: &File) -> Vec<Behind> {
    let mut found = Vec::new();
    if let Some(shown) = shown_of(device) {
        collect(&shown, true, DEVICES_MAX, &mut found);
    }
    found
}

/// Whether the kernel uses a loop device that shows a part of a file, or all of it, while it is written by
/// another way: something else is mounted there, for example. `written` is the device that is written, or the
/// file itself.
pub(super) fn is_used_by_kernel(written: &File) -> bool {
    let files: Vec<(u64, u64)> = match shown_of(written) {
        Some(_) => files_behind(written).iter().filter_map(|behind| identity(&behind.file)).collect(),
        None => identity(written).into_iter().collect(),
    };
    if files.is_empty() {
        return false;
    }
    let own = shown_of(written).map(|shown| chain(&shown, DEVICES_MAX)).unwrap_or_default();
    let loops = fs::read_dir(ALL).into_iter().flatten().flatten().filter_map(|entry| {
        let shown = fs::canonicalize(entry.path()).ok()?;
        let backing = fs::metadata(word(&shown, "loop/backing_file")?).ok()?;
        files.contains(&(backing.dev(), backing.ino())).then(|| (shown, entry.file_name()))
    });
    let range = own.iter().find_map(|shown| range_of(shown));
    loops.into_iter().any(|(shown, name)| {
        let overlaps = match (range, range_of(&shown)) {
            (Some((from, to)), Some((other_from, other_to))) => from < other_to && other_from < to,
            _ => true,
        };
        let path = Path::new("/dev").join(name);
        overlaps && !own.contains(&shown) && is_claimed(&path) && !is_mount_of_volume(&path)
    })
}

/// The bytes of its file that a loop device shows.
fn range_of(shown: &Path) -> Option<(u64, u64)> {
    let number = |name: &str| word(shown, name)?.parse::<u64>().ok();
    let (from, sectors) = (number("loop/offset")?, number("size")?);
    Some((from, from.saturating_add(sectors.saturating_mul(512))))
}

/// Whether the kernel has a block device for itself.
fn is_claimed(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).is_err_and(|errno| errno == Errno::BUSY)
}

/// Whether a device is that of a mount by this project: the lock of its server is on the file, and is
/// released when the server dies, while its mount stays.
fn is_mount_of_volume(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split_once(" - ")).any(|(_, of_all)| {
        let mut fields = of_all.split(' ');
        fields.next() == Some(FS_TYPE) && fields.next().map(Path::new) == Some(path)
    })
}

fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// The directory in which the kernel shows an open block device; `None` for anything else.
fn shown_of(device: &File) -> Option<PathBuf> {
    let found = device.metadata().ok().filter(|found| found.file_type().is_block_device())?;
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(found.rdev()), minor(found.rdev()))).ok()
}

/// A line that the kernel shows.
fn word(shown: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(shown.join(name)).ok()?.trim_end_matches('\n').to_owned())
}

/// The devices on which one stands: the disk of a partition, the parts of what the device mapper makes.
fn below(shown: &Path) -> Vec<PathBuf> {
    let disk = shown.join("partition").exists().then(|| shown.parent()).flatten().map(Path::to_owned);
    let parts = fs::read_dir(shown.join("slaves")).into_iter().flatten().flatten().map(|part| part.path());
    disk.into_iter().chain(parts).filter_map(|device| fs::canonicalize(device).ok()).collect()
}

/// A device and all on which it stands.
fn chain(shown: &Path, devices_max: usize) -> Vec<PathBuf> {
    let Some(devices_max) = devices_max.checked_sub(1) else { return Vec::new() };
    let below = below(shown).into_iter().flat_map(|device| chain(&device, devices_max));
    std::iter::once(shown.to_owned()).chain(below).collect()
}

/// Adds the files beneath a device. `is_all`: what is asked about shows all of this device.
fn collect(shown: &Path, is_all: bool, devices_max: usize, found: &mut Vec<Behind>) {
    let Some(devices_max) = devices_max.checked_sub(1) else { return };
    if let Some(path) = word(shown, "loop/backing_file") {
        let is_zero = |name: &str| word(shown, name).is_some_and(|told| told == "0");
        let is_whole = is_all && is_zero("loop/offset") && is_zero("loop/sizelimit");
        let mut options = OpenOptions::new();
        // Whatever has the name by now: nothing but a file is used.
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = options.open(path).ok();
        let file = file.filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
        found.extend(file.map(|file| Behind { file, is_whole }));
    }
    below(shown).iter().for_each(|device| collect(device, false, devices_max, found));
}
