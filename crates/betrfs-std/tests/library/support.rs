//! Volumes for the tests.

use std::path::PathBuf;

use betrfs_std::{Error, Fs};
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
