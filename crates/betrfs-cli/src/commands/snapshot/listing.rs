//! The snapshots of a directory, with the times of their making.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;

use jiff::Timestamp;
use rustix::fs::{AtFlags, StatxFlags};

/// A snapshot of a directory.
pub struct Snapshot {
    /// Its name.
    pub name: OsString,
    /// When it was made.
    pub made: Timestamp,
}

/// All snapshots in the opened directory that holds them, in the order of their names.
pub fn snapshots(snapshots: &File) -> io::Result<Vec<Snapshot>> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(snapshots)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let stat = match rustix::fs::statx(snapshots, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME) {
            // Another has removed it since.
            Err(rustix::io::Errno::NOENT) => continue,
            stat => stat?,
        };
        // A snapshot never changes; its directory was made with it.
        let made =
            if stat.stx_mask & StatxFlags::BTIME.bits() != 0 { stat.stx_btime } else { stat.stx_ctime };
        let nanoseconds = i32::try_from(made.tv_nsec).unwrap_or(0);
        let made = Timestamp::new(made.tv_sec, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH);
        found.push(Snapshot { name: name.to_owned(), made });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}
