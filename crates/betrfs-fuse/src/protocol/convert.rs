//! Conversions between the protocol's structures and the library's types.

use betrfs::{Attr, Entry, FileType, SetAttr, StatFs, TimeSet};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::server::Answer;
use crate::wire::{self, fattr};

/// How long the kernel may cache entries and attributes: nobody else changes the volume.
pub const LIFETIME_SECONDS: u64 = 24 * 60 * 60;

/// The unit that `stat` recommends for I/O.
pub const BLOCK_BYTES: u32 = 4096;

/// The bits of `statx` that are always answered: all basic ones, and the time of creation.
const STATX_MASK: u32 = 0xfff;
const SECOND_NS: i64 = 1_000_000_000;

/// The reply about an object that the kernel looked up.
pub fn to_entry(entry: &Entry) -> wire::EntryOut {
    wire::EntryOut {
        nodeid: entry.node.0,
        generation: u64::from(entry.generation),
        entry_valid: LIFETIME_SECONDS,
        attr_valid: LIFETIME_SECONDS,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: to_attr(&entry.attr),
    }
}

/// Attributes in the kernel's form.
pub fn to_attr(attr: &Attr) -> wire::Attr {
    let ((atime, atime_nsec), (mtime, mtime_nsec), (ctime, ctime_nsec)) =
        (to_time(attr.atime_ns), to_time(attr.mtime_ns), to_time(attr.ctime_ns));
    wire::Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks_512,
        atime,
        mtime,
        ctime,
        atime_nsec,
        mtime_nsec,
        ctime_nsec,
        mode: to_mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Attributes with the time of creation.
pub fn to_statx(attr: &Attr) -> wire::Statx {
    let time = |ns| {
        let (seconds, nanoseconds) = to_time(ns);
        wire::StatxTime { seconds, nanoseconds, reserved: 0 }
    };
    let rdev = u64::from(attr.rdev);
    wire::Statx {
        mask: STATX_MASK,
        blksize: BLOCK_BYTES,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: to_mode(attr) as u16,
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks_512,
        atime: time(attr.atime_ns),
        btime: time(attr.crtime_ns),
        ctime: time(attr.ctime_ns),
        mtime: time(attr.mtime_ns),
        rdev_major: rustix::fs::major(rdev),
        rdev_minor: rustix::fs::minor(rdev),
        ..wire::Statx::default()
    }
}

fn to_mode(attr: &Attr) -> u32 {
    to_dirent_kind(attr.file_type) << 12 | u32::from(attr.perm)
}

/// A file type in the form of listings: the upper bits of a mode.
pub fn to_dirent_kind(file_type: FileType) -> u32 {
    let file_type = match file_type {
        FileType::Regular => rustix::fs::FileType::RegularFile,
        FileType::Directory => rustix::fs::FileType::Directory,
        FileType::Symlink => rustix::fs::FileType::Symlink,
        FileType::Fifo => rustix::fs::FileType::Fifo,
        FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
        FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
        FileType::Socket => rustix::fs::FileType::Socket,
    };
    file_type.as_raw_mode() >> 12
}

/// The type in a mode's upper bits; `None` for types that mknod(2) does not make.
pub fn from_mode(mode: u32) -> Option<FileType> {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => Some(FileType::Regular),
        rustix::fs::FileType::Fifo => Some(FileType::Fifo),
        rustix::fs::FileType::CharacterDevice => Some(FileType::CharDevice),
        rustix::fs::FileType::BlockDevice => Some(FileType::BlockDevice),
        rustix::fs::FileType::Socket => Some(FileType::Socket),
        // mknod(2) takes type 0 for a regular file.
        _ if mode >> 12 == 0 => Some(FileType::Regular),
        _ => None,
    }
}

/// Seconds, rounded down, and the nanoseconds after them.
fn to_time(ns: i64) -> (i64, u32) {
    (ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS) as u32)
}

/// A time in nanoseconds since 1970, clamped to the range of i64.
pub fn from_time(seconds: i64, nanoseconds: u32) -> i64 {
    let ns = i128::from(seconds) * i128::from(SECOND_NS) + i128::from(nanoseconds);
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

/// The changes that a SETATTR asks for.
pub fn from_setattr(set: &wire::SetattrIn) -> SetAttr {
    let has = |flag| set.valid & flag != 0;
    let time = |flag, now, seconds, nanoseconds| {
        let given = || if has(now) { TimeSet::Now } else { TimeSet::At(from_time(seconds, nanoseconds)) };
        has(flag).then(given)
    };
    SetAttr {
        perm: has(fattr::MODE).then_some((set.mode & 0o7777) as u16),
        uid: has(fattr::UID).then_some(set.uid),
        gid: has(fattr::GID).then_some(set.gid),
        size: has(fattr::SIZE).then_some(set.size),
        atime_ns: time(fattr::ATIME, fattr::ATIME_NOW, set.atime, set.atime_nsec),
        mtime_ns: time(fattr::MTIME, fattr::MTIME_NOW, set.mtime, set.mtime_nsec),
        ctime_ns: has(fattr::CTIME).then(|| from_time(set.ctime, set.ctime_nsec)),
        kill_set_id: has(fattr::KILL_SUIDGID),
        // The request does not say.
        outside_group: false,
    }
}

/// The room on the volume in the kernel's form.
pub fn to_statfs(stat: &StatFs) -> wire::StatfsOut {
    let unit = u64::from(stat.block_bytes.max(1));
    wire::StatfsOut {
        blocks: stat.total_bytes / unit,
        bfree: stat.free_bytes / unit,
        bavail: stat.available_bytes / unit,
        files: stat.files,
        ffree: stat.files_free,
        bsize: BLOCK_BYTES,
        namelen: stat.name_bytes_max,
        frsize: stat.block_bytes,
        ..wire::StatfsOut::default()
    }
}

/// The offset that lseek(2) starts from, for data and holes: `ENXIO` for a negative offset.
pub fn from_whence(offset: u64, whence: u32) -> Answer<SeekFrom> {
    /// The kernel's SEEK_DATA and SEEK_HOLE.
    const DATA: u32 = 3;
    const HOLE: u32 = 4;
    let place = || i64::try_from(offset).map(i64::cast_unsigned).map_err(|_| Errno::NXIO);
    match whence {
        DATA => Ok(SeekFrom::Data(place()?)),
        HOLE => Ok(SeekFrom::Hole(place()?)),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_out_and_in() {
        for ns in [0, 1, 1_700_000_000_123_456_789, -1, -1_500_000_000, i64::MAX, i64::MIN] {
            let (seconds, nanoseconds) = to_time(ns);
            assert_eq!(from_time(seconds, nanoseconds), ns);
        }
        assert_eq!(to_time(-1_200_000_000), (-2, 800_000_000));
        assert_eq!(from_time(1 << 40, 0), i64::MAX);
        assert_eq!(from_time(-(1 << 40), 0), i64::MIN);
    }

    #[test]
    fn mknod_makes_no_directories_or_symlinks() {
        assert_eq!(from_mode(0o644), Some(FileType::Regular));
        assert_eq!(from_mode(0o100_644), Some(FileType::Regular));
        assert_eq!(from_mode(0o010_644), Some(FileType::Fifo));
        assert_eq!(from_mode(0o040_755), None);
        assert_eq!(from_mode(0o120_777), None);
        for file_type in [FileType::Fifo, FileType::Socket, FileType::BlockDevice, FileType::CharDevice] {
            assert_eq!(from_mode(to_dirent_kind(file_type) << 12), Some(file_type));
        }
    }

    #[test]
    fn seeking_is_for_data_and_holes_only() {
        assert_eq!(from_whence(5, 3), Ok(SeekFrom::Data(5)));
        assert_eq!(from_whence(5, 4), Ok(SeekFrom::Hole(5)));
        assert_eq!(from_whence(5, 0), Err(Errno::INVAL));
        for whence in [3, 4] {
            assert_eq!(from_whence(u64::MAX, whence), Err(Errno::NXIO));
            assert_eq!(from_whence(i64::MIN.cast_unsigned(), whence), Err(Errno::NXIO));
        }
    }
}
