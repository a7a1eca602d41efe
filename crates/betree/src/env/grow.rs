//! Growth of a volume while it is used.
//!
//! First the device is made long enough, durably; then a checkpoint stores the new size; only then are blocks
//! behind the old end handed out, and changes accepted that need them. So a crash at any moment leaves a
//! volume of the old size on a device that is long enough, or of the new size; and no log ever holds more
//! than the volume that it is replayed on.

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::Ordering;

use super::Env;
use crate::error::{Error, Result};
use crate::format::superblock::VOLUME_BYTES_MAX;
use crate::planted;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The size that a volume is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// This many bytes, rounded down to whole blocks.
    To(u64),
    /// This many bytes more than it has, rounded down to whole blocks.
    By(u64),
    /// All of the device. A device whose size can be chosen, as a file's, stays as long as it is.
    ToDevice,
}

impl Env {
    /// The size of the volume in bytes, with superblocks and log.
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes.load(Ordering::Relaxed)
    }

    /// Makes the volume larger, and the device if it can grow; returns the new size in bytes, which is
    /// durable. Readers and writers go on meanwhile. The sizes of nodes and log stay as they were made.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use betree::Growth;
    ///
    /// let before = env.space();
    /// env.grow(Growth::By(1 << 20))?;
    /// assert_eq!(env.space().total_bytes, before.total_bytes + (1 << 20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotShrink`], [`Error::DeviceTooSmall`], [`Error::TooLarge`], and those of
    /// [`checkpoint`](Env::checkpoint); the volume's size is as it was then. A device that had grown by then
    /// stays so.
    pub fn grow(&self, growth: Growth) -> Result<u64> {
        let mut committed = self.checkpoint.lock();
        self.writable(&self.commit.lock())?;
        let disk = &self.engine.store.disk;
        let volume_bytes = committed.superblock.volume_bytes;
        let bytes = match growth {
            Growth::To(bytes) => bytes,
            Growth::By(bytes) => volume_bytes.saturating_add(bytes),
            // It was never shorter than the volume.
            Growth::ToDevice => disk.grow(0)?.max(volume_bytes),
        };
        let bytes = bytes / BLOCK * BLOCK;
        if bytes < volume_bytes {
            return Err(Error::CannotShrink { bytes, volume_bytes });
        }
        if bytes > VOLUME_BYTES_MAX {
            return Err(Error::TooLarge { what: "a volume", bytes, limit_bytes: VOLUME_BYTES_MAX });
        }
        if bytes == volume_bytes {
            return Ok(bytes);
        }
        let device_bytes = disk.grow(bytes)?;
        if device_bytes < bytes {
            return Err(Error::DeviceTooSmall { bytes, device_bytes });
        }
        if !planted::is(planted::Bug::GrownSizeNotStored) {
            self.volume_bytes.store(bytes, Ordering::Relaxed);
        }
        let done = self.checkpoint_as(false, &mut committed);
        if let Err(error) = done {
            self.volume_bytes.store(committed.superblock.volume_bytes, Ordering::Relaxed);
            return Err(error);
        }
        self.engine.store.space.grow((bytes - volume_bytes) / BLOCK);
        // Those who wait for room look again.
        self.scheduler.tell_done(None);
        Ok(bytes)
    }
}
