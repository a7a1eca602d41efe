//! Between fuser's types and the library's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use betrfs::{Attr, FileType, TimeSet};
use fuser::{FileAttr, INodeNo, TimeOrNow};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The unit that `stat` recommends for I/O.
const BLOCK_BYTES: u32 = 4096;

/// An error number as fuser wants it.
pub fn to_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Attributes as fuser wants them, of the object that the kernel knows by `number`.
pub fn to_file_attr(number: u64, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attr.size,
        blocks: attr.blocks_512,
        atime: to_time(attr.atime_ns),
        mtime: to_time(attr.mtime_ns),
        ctime: to_time(attr.ctime_ns),
        crtime: to_time(attr.crtime_ns),
        kind: to_kind(attr.file_type),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// What the kernel is told of `.` and `..` in a listing with attributes: it looks at nothing but
/// number and type.
pub fn to_dot_attr(number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::Directory,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// A file type as fuser wants it.
pub fn to_kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// The type in a mode's upper bits; none for what mknod(2) does not make.
pub fn from_mode(mode: u32) -> Option<FileType> {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => Some(FileType::Regular),
        rustix::fs::FileType::Fifo => Some(FileType::Fifo),
        rustix::fs::FileType::CharacterDevice => Some(FileType::CharDevice),
        rustix::fs::FileType::BlockDevice => Some(FileType::BlockDevice),
        rustix::fs::FileType::Socket => Some(FileType::Socket),
        // mknod(2) takes no type at all for a regular file.
        _ if mode >> 12 == 0 => Some(FileType::Regular),
        _ => None,
    }
}

fn to_time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// A time that came by fuser, in nanoseconds since 1970; what does not fit becomes the nearest that does.
pub fn from_time(time: SystemTime) -> i64 {
    let ns = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        // fuser counts the nanoseconds of a time before 1970 backwards too, where the kernel's
        // seconds count backwards and its nanoseconds forwards.
        Err(before) => {
            let before = before.duration();
            i128::from(before.subsec_nanos()) - i128::from(before.as_secs()) * 1_000_000_000
        }
    };
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

/// A time to set.
pub fn from_time_or_now(time: TimeOrNow) -> TimeSet {
    match time {
        TimeOrNow::Now => TimeSet::Now,
        TimeOrNow::SpecificTime(time) => TimeSet::At(from_time(time)),
    }
}

/// lseek(2)'s place in a file, where the kernel asks for one.
pub fn from_whence(offset: i64, whence: i32) -> Option<SeekFrom> {
    /// The kernel's SEEK_DATA and SEEK_HOLE.
    const DATA: i32 = 3;
    const HOLE: i32 = 4;
    let offset = u64::try_from(offset).ok()?;
    match whence {
        DATA => Some(SeekFrom::Data(offset)),
        HOLE => Some(SeekFrom::Hole(offset)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_out() {
        for ns in [0, 1, 1_700_000_000_123_456_789, -1, -1_500_000_000, i64::MAX, i64::MIN] {
            let time = to_time(ns);
            let back = match time.duration_since(UNIX_EPOCH) {
                Ok(since) => since.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            };
            assert_eq!(back, i128::from(ns));
        }
    }

    #[test]
    fn times_before_1970_come_in_as_the_kernel_meant_them() {
        // The kernel's (-2 s, 800,000,000 ns) is -1.2 s; fuser makes it 2.8 s before 1970.
        assert_eq!(from_time(UNIX_EPOCH - Duration::new(2, 800_000_000)), -1_200_000_000);
        assert_eq!(from_time(UNIX_EPOCH + Duration::new(2, 800_000_000)), 2_800_000_000);
        assert_eq!(from_time(UNIX_EPOCH + Duration::from_secs(1 << 40)), i64::MAX);
        assert_eq!(from_time(UNIX_EPOCH - Duration::from_secs(1 << 40)), i64::MIN);
    }

    #[test]
    fn mknod_makes_no_directories_or_symlinks() {
        assert_eq!(from_mode(0o644), Some(FileType::Regular));
        assert_eq!(from_mode(0o100_644), Some(FileType::Regular));
        assert_eq!(from_mode(0o010_644), Some(FileType::Fifo));
        assert_eq!(from_mode(0o040_755), None);
        assert_eq!(from_mode(0o120_777), None);
    }
}
