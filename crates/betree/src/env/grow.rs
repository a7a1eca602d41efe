//! Growth of a volume while it is used.
//!
//! First the device is made long enough, durably; then a checkpoint stores the new size; only then are blocks
//! behind the old end handed out, and changes accepted that need them. So a crash at any moment leaves a
//! volume of the old size on a device that is long enough, or of the new size; and no log ever holds more
//! than the volume that it is replayed on.
//!
//! A volume with a limit grows by itself: a checkpoint that finds space short takes a step, before any view
//! has to end for want of room, and so does a writer that finds no room (`make_room`).

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::Ordering;

use super::Env;
use crate::engine::checkpoint::Committed;
use crate::error::{Error, Result};
use crate::format::superblock::{VOLUME_BYTES_MAX, growth_limit};
use crate::format::tail::TaggedTail;
use crate::planted;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A volume that grows by itself does so by one part in this many of its size, within these bounds.
const STEP_SHARE: u64 = 4;
const STEP_BYTES_MIN: u64 = 16 << 20;
const STEP_BYTES_MAX: u64 = 1 << 30;

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
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        self.writable_now()?;
        let volume_bytes = committed.superblock.volume_bytes;
        let bytes = match growth {
            Growth::To(bytes) => bytes,
            Growth::By(bytes) => volume_bytes.saturating_add(bytes),
            // It was never shorter than the volume.
            Growth::ToDevice => self.engine.store.disk.grow(0)?.max(volume_bytes),
        };
        let bytes = bytes / BLOCK * BLOCK;
        if bytes < volume_bytes {
            return Err(Error::CannotShrink { bytes, volume_bytes });
        }
        if bytes > volume_bytes {
            self.begin_growth(bytes)?;
            self.checkpoint_as(false, &mut committed)?;
        }
        Ok(bytes)
    }

    /// The size up to which the volume grows by itself where space gets short, in bytes; 0 if it does not, or
    /// was made larger than that.
    pub fn growth_limit_bytes(&self) -> u64 {
        let limit = self.growth_limit_bytes.load(Ordering::Relaxed);
        if limit < self.volume_bytes() { 0 } else { limit }
    }

    /// Lets the volume grow by itself up to this many bytes, in steps, where space gets short. It is durable
    /// when this returns. The device has to be one that can grow.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// env.set_growth_limit(1 << 30)?;
    /// assert_eq!(env.space().growth_bytes, (1 << 30) - env.volume_bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLarge`], and those of [`checkpoint`](Env::checkpoint); the limit stays as it was.
    pub fn set_growth_limit(&self, bytes: u64) -> Result<()> {
        self.refuse_if_forked()?;
        Env::check_growth_limit(bytes)?;
        let mut committed = self.checkpoint.lock();
        self.writable_now()?;
        self.growth_limit_bytes.store(bytes, Ordering::Relaxed);
        let done = self.checkpoint_as(false, &mut committed);
        let stored_bytes = growth_limit::of(&committed.superblock.tail);
        self.growth_limit_bytes.store(stored_bytes, Ordering::Relaxed);
        done
    }

    /// Whether a volume can have this size or this limit: for a look before one is made.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn check_growth_limit(bytes: u64) -> Result<()> {
        match bytes > VOLUME_BYTES_MAX {
            true => Err(Error::TooLarge { what: "a volume", bytes, limit_bytes: VOLUME_BYTES_MAX }),
            false => Ok(()),
        }
    }

    /// A superblock's tail with the limit.
    pub(super) fn tail_with_growth_limit(&self, tail: TaggedTail) -> Result<TaggedTail> {
        let bytes = self.growth_limit_bytes();
        if bytes == growth_limit::of(&tail) {
            return Ok(tail);
        }
        let full = Error::BadIdentity("values of later versions leave no room in the superblock");
        growth_limit::put(bytes, &tail).ok_or(full)
    }

    /// Makes the device long enough for the size that the next superblock is to store.
    fn begin_growth(&self, bytes: u64) -> Result<()> {
        Env::check_growth_limit(bytes)?;
        let device_bytes = self.engine.store.disk.grow(bytes)?;
        if device_bytes < bytes {
            return Err(Error::DeviceTooSmall { bytes, device_bytes });
        }
        if !planted::is(planted::Bug::GrownSizeNotStored) {
            self.volume_bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Begins a step of growth within a checkpoint if space is short and the volume may grow by itself.
    /// Whether the checkpoint will store a larger size. A device that refuses leaves the volume as it is.
    pub(super) fn begin_growth_if_short(&self, clean: bool, committed: &Committed) -> bool {
        let has_bytes = committed.superblock.volume_bytes;
        if self.volume_bytes() > has_bytes {
            return true;
        }
        let wanted = self.next_size(has_bytes).filter(|_| !clean && self.engine.room().wants_growth());
        wanted.is_some_and(|bytes| self.may_begin_growth(bytes))
    }

    /// Begins a step of growth, if the device lets it.
    fn may_begin_growth(&self, bytes: u64) -> bool {
        let begun = self.begin_growth(bytes);
        if let Err(error) = &begun {
            self.engine.store.disk.health.note_failed_work(error);
        }
        begun.is_ok()
    }

    /// Hands out the blocks of a size that a checkpoint has made durable.
    pub(super) fn end_growth(&self, committed: &Committed) {
        let space = &self.engine.store.space;
        let end_blocks = committed.superblock.volume_bytes / BLOCK;
        space.grow(end_blocks.saturating_sub(space.end_block()));
    }

    /// Lets the volume grow by a step for what found no room, unless it has room once other checkpoints are
    /// done. `false` if the volume has its largest size, or the device refuses.
    ///
    /// # Errors
    /// Those of [`checkpoint`](Env::checkpoint).
    pub(super) fn grow_a_step(&self, has_room: impl Fn() -> bool) -> Result<bool> {
        self.refuse_if_forked()?;
        let mut committed = self.checkpoint.lock();
        if has_room() {
            return Ok(true);
        }
        let Some(bytes) = self.next_size(committed.superblock.volume_bytes) else { return Ok(false) };
        self.writable_now()?;
        if !self.may_begin_growth(bytes) {
            return Ok(false);
        }
        self.checkpoint_as(false, &mut committed)?;
        Ok(true)
    }

    /// The size of a volume of this size after its next step, if it may grow by itself.
    fn next_size(&self, has_bytes: u64) -> Option<u64> {
        let step_bytes = (has_bytes / STEP_SHARE).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        let bytes = has_bytes.saturating_add(step_bytes).min(self.growth_limit_bytes()) / BLOCK * BLOCK;
        (bytes > has_bytes).then_some(bytes)
    }
}
