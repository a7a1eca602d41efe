//! What is known of an object beside its contents.

use std::time::{Duration, SystemTime};

use betrfs::{Attr, FileType};

/// The attributes of a file, a directory or another object, as they were when they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attr);

impl Metadata {
    pub(crate) fn new(attr: Attr) -> Metadata {
        Metadata(attr)
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.file_type == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.file_type == FileType::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.file_type == FileType::Symlink
    }

    /// The size in bytes.
    #[allow(clippy::len_without_is_empty)] // As std::fs::Metadata has it.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// The permissions with the set-id and sticky bits (07777).
    pub fn mode(&self) -> u32 {
        u32::from(self.0.perm)
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The inode number, the same for all names of a file.
    pub fn ino(&self) -> u64 {
        self.0.ino
    }

    /// The number of names; of a directory 2 and its subdirectories.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// The device number, of device files.
    pub fn rdev(&self) -> u32 {
        self.0.rdev
    }

    /// The units of 512 bytes in use.
    pub fn blocks(&self) -> u64 {
        self.0.blocks_512
    }

    /// The time of the last access, kept as with the mount options `relatime,lazytime`.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.atime_ns)
    }

    /// The time of the last change of the contents.
    pub fn modified(&self) -> SystemTime {
        time(self.0.mtime_ns)
    }

    /// The time of the last change of contents or attributes.
    pub fn changed(&self) -> SystemTime {
        time(self.0.ctime_ns)
    }

    /// The time at which it was made.
    pub fn created(&self) -> SystemTime {
        time(self.0.crtime_ns)
    }
}

/// The time of a number of nanoseconds since 1970.
fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = match ns {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The nanoseconds since 1970 at a time; those before 1677 or after 2262 are that far away.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    let ns = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => ns(since),
        Err(before) => -ns(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        for ns in [0, 1, -1, 1_764_000_000_123_456_789, -62_000_000_000_000_001, i64::MAX, -i64::MAX] {
            assert_eq!(nanoseconds(time(ns)), ns);
        }
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(nanoseconds(far), i64::MAX);
    }
}
