//! A served disk, for the program that uses it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::{Counters, DISK, FAST_FORWARD, PACE, REAL_TIME, STATS};

/// The directory of a served disk.
#[derive(Clone, Debug)]
pub struct Client {
    dir: PathBuf,
}

impl Client {
    /// The disk that [`serve`](crate::serve) serves in a directory.
    pub fn new(dir: &Path) -> Client {
        Client { dir: dir.to_owned() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that is the disk.
    pub fn disk(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// The drive's counters.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn counters(&self) -> io::Result<Counters> {
        Ok(serde_json::from_slice(&std::fs::read(self.dir.join(STATS))?)?)
    }

    /// Starts or ends fast-forward, for work that is not measured.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn set_fast_forward(&self, on: bool) -> io::Result<()> {
        let mut pace = File::options().write(true).open(self.dir.join(PACE))?;
        pace.write_all(if on { FAST_FORWARD } else { REAL_TIME })
    }

    /// Discards the contents of the disk, which frees the blocks of its image.
    ///
    /// # Errors
    /// The server does not answer, or the image cannot have holes.
    pub fn discard_all(&self, size_bytes: u64) -> io::Result<()> {
        let disk = File::options().write(true).open(self.disk())?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(disk, punch, 0, size_bytes)?)
    }
}
