//! Volumes for the tests.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use betrfs_std::{Error, Fs};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use tempfile::TempDir;

pub const VOLUME_BYTES: u64 = 64 << 20;

/// A volume in a folder of its own.
pub struct Scratch {
    pub folder: TempDir,
    pub fs: Fs,
}

impl Scratch {
    pub fn new() -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        let fs = Fs::create(folder.path().join("volume"), VOLUME_BYTES).unwrap();
        Scratch { folder, fs }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    /// Closes the volume and opens it again.
    pub fn reopened(self) -> Scratch {
        let path = self.path();
        self.fs.close().unwrap();
        Scratch { folder: self.folder, fs: Fs::open(path).unwrap() }
    }
}

/// The system's number of a failure; 0 is success.
pub fn errno<T>(result: Result<T, Error>) -> i32 {
    result.err().map_or(0, |error| error.errno().raw_os_error())
}

/// Fails with the problems that a check finds.
pub fn assert_sound(fs: &Fs) {
    assert_eq!(fs.volume().check(&mut |_, _| ()).unwrap(), Default::default());
}

/// Sets a time of the system's file by its path, which `std` does by opening it.
pub fn set_modified(path: &Path, time: SystemTime) -> io::Result<()> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let modified = Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() };
    let stays = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: stays, last_modification: modified };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}
