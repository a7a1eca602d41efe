//! Open files.

mod io;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use betrfs::{Attr, Error as VolumeError, FallocateMode, InodeId, SeekWhat, SetAttr};
use parking_lot::Mutex;

use crate::dir::Dir;
use crate::error::{Context, ErrorKind, Kinded, Result};
use crate::metadata::Metadata;
use crate::opened::{Found, Opened};
use crate::permission::set_by_writer;

/// How much is read at once where a whole file is read, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// An open file. It lives until this is dropped, though its names are removed meanwhile.
///
/// It is read, written and sought as `std::fs::File` is, by a shared reference too: many threads can use one
/// file.
pub struct File {
    dir: Dir,
    found: Found,
    access: Access,
    /// Where the next read or write begins.
    position: Mutex<u64>,
    /// As the caller gave it.
    path: Box<Path>,
}

/// What a file is open for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub reads: bool,
    pub writes: bool,
    pub appends: bool,
}

impl File {
    pub(crate) fn new(dir: &Dir, path: &Path, found: Found, access: Access) -> Kinded<File> {
        dir.opened().volume()?.open_inode(found.id())?;
        Ok(File { dir: dir.clone(), found, access, position: Mutex::new(0), path: path.into() })
    }

    fn opened(&self) -> &Arc<Opened> {
        self.dir.opened()
    }

    pub(crate) fn id(&self) -> InodeId {
        self.found.id()
    }

    pub(crate) fn attr(&self) -> Kinded<Attr> {
        Ok(self.opened().volume()?.getattr(self.id())?)
    }

    /// The file as it is now.
    pub(crate) fn found(&self) -> Kinded<Found> {
        Ok(Found { node: Arc::clone(&self.found.node), attr: self.attr()? })
    }

    fn read_some(&self, offset: u64, buffer: &mut [u8]) -> Kinded<usize> {
        if !self.access.reads {
            return Err(ErrorKind::NotOpenForThat);
        }
        Ok(self.opened().volume()?.read_into(self.id(), offset, buffer, betrfs::Access::Counts)?)
    }

    /// Appends all from an offset on to a buffer.
    pub(crate) fn append_rest(&self, offset: u64, out: &mut Vec<u8>) -> Kinded<usize> {
        let begin = out.len();
        let expected = usize::try_from(self.attr()?.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let no_memory = |bytes: usize| VolumeError::from(betree::Error::NoMemory { bytes: bytes as u64 });
        // One byte more meets the end.
        out.try_reserve(expected.saturating_add(1)).map_err(|_| no_memory(expected))?;
        loop {
            let filled = out.len();
            let piece = (out.capacity() - filled).clamp(1, PIECE_BYTES);
            out.try_reserve(piece).map_err(|_| no_memory(piece))?;
            out.resize(filled + piece, 0);
            let at = offset.saturating_add((filled - begin) as u64);
            let read = self.read_some(at, out.get_mut(filled..).unwrap_or_default());
            out.truncate(filled + read.as_ref().map_or(0, |read| *read));
            if read? == 0 {
                return Ok(out.len() - begin);
            }
        }
    }

    fn write_some(&self, offset: u64, bytes: &[u8]) -> Kinded<usize> {
        self.may_write()?;
        self.kill_set_id()?;
        Ok(self.opened().volume()?.write(self.id(), offset, bytes)?)
    }

    /// Writes at the end; returns where, and how much.
    fn append_some(&self, bytes: &[u8]) -> Kinded<(u64, usize)> {
        self.may_write()?;
        self.kill_set_id()?;
        Ok(self.opened().volume()?.append(self.id(), bytes)?)
    }

    pub(crate) fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Kinded<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let written = self.write_some(at, rest)?;
            (at, rest) = (at.saturating_add(written as u64), rest.get(written..).unwrap_or_default());
        }
        Ok(())
    }

    pub(crate) fn append_all(&self, bytes: &[u8]) -> Kinded<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (_, written) = self.append_some(rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn may_write(&self) -> Kinded<()> {
        if self.access.writes { Ok(()) } else { Err(ErrorKind::NotOpenForThat) }
    }

    /// Takes the set-id bits from a file whose contents a user without privilege is about to change.
    fn kill_set_id(&self) -> Kinded<()> {
        if self.dir.caller().is_root() {
            return Ok(());
        }
        let set = set_by_writer(self.dir.caller(), &self.attr()?);
        if set.kill_set_id {
            self.opened().volume()?.setattr(self.id(), &set)?;
        }
        Ok(())
    }

    /// Reads from an offset on; returns the number of bytes, fewer than there is room for only at the end.
    /// The position stays.
    ///
    /// # Errors
    /// `EBADF` if it is not open for reading; `EISDIR`; the volume's.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_some(offset, buffer).of("read", &self.path)
    }

    /// Writes at an offset; returns the number of bytes, of which a call that begins there writes more. The
    /// position stays. A file that is open to be appended to is written at its end, as by pwrite(2).
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing; `EFBIG`, `ENOSPC`: nothing was written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let written = if self.access.appends {
            self.append_some(bytes).map(|(_, written)| written)
        } else {
            self.write_some(offset, bytes)
        };
        written.of("write", &self.path)
    }

    /// Cuts the file, or lengthens it by a hole.
    ///
    /// # Errors
    /// `EINVAL` if it is not open for writing; `EFBIG`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let set = || {
            if !self.access.writes {
                // As ftruncate(2) has it.
                return Err(ErrorKind::from(VolumeError::Invalid("the file is not open for writing")));
            }
            let set = SetAttr { size: Some(size), ..set_by_writer(self.dir.caller(), &self.attr()?) };
            self.opened().volume()?.setattr(self.id(), &set)?;
            Ok(())
        };
        set().of("set the size of", &self.path)
    }

    /// Makes the file durable, and with it all that was changed on the volume before.
    ///
    /// # Errors
    /// The volume's: of what was not durable before, nothing is known then.
    pub fn sync_all(&self) -> Result<()> {
        self.opened().volume().and_then(|volume| volume.fsync(self.id())).of("sync", &self.path)
    }

    /// The same as [`sync_all`](File::sync_all): contents and attributes are one log.
    ///
    /// # Errors
    /// As there.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// The attributes, also of a file that has no name any more.
    ///
    /// # Errors
    /// The volume's.
    pub fn metadata(&self) -> Result<Metadata> {
        self.attr().map(Metadata::new).of("examine", &self.path)
    }

    /// Sets the permissions with the set-id and sticky bits (07777).
    ///
    /// # Errors
    /// `EPERM` unless the caller owns it or is root.
    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        let set = || self.dir.set_perm(&self.found()?, mode);
        set().of("set the permissions of", &self.path)
    }

    /// Sets the times of the last access and of the last change of the contents; what is `None` stays.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns it or is root.
    pub fn set_times(&self, accessed: Option<SystemTime>, modified: Option<SystemTime>) -> Result<()> {
        let set = || self.dir.set_times_of(&self.found()?, accessed, modified);
        set().of("set the times of", &self.path)
    }

    /// Makes sure that there is room to write a range, and lengthens the file to its end. The room is kept
    /// until it is written, or the volume is closed.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EBADF`; `EINVAL` for an empty range.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size: false }, offset, len).of("allocate", &self.path)
    }

    /// Makes a range a hole, which reads as zeros and takes no room; the size stays.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for an empty range.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(FallocateMode::PunchHole, offset, len).of("punch a hole into", &self.path)
    }

    fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Kinded<()> {
        self.may_write()?;
        self.kill_set_id()?;
        Ok(self.opened().volume()?.fallocate(self.id(), mode, offset, len)?)
    }

    /// The first byte at or behind an offset that is in no hole; `None` if there is none before the end.
    ///
    /// # Errors
    /// The volume's.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_what(offset, SeekWhat::Data)
    }

    /// The first byte at or behind an offset that is in a hole; the end of the file is one. `None` if the
    /// offset is not before the end.
    ///
    /// # Errors
    /// The volume's.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_what(offset, SeekWhat::Hole)
    }

    fn seek_what(&self, offset: u64, what: SeekWhat) -> Result<Option<u64>> {
        match self.opened().volume().and_then(|volume| volume.seek(self.id(), offset, what)) {
            Err(VolumeError::NoSuchPlace) => Ok(None),
            place => place.map(Some).of("seek in", &self.path),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Ok(volume) = self.opened().volume() {
            volume.release_node(self.id());
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).field("access", &self.access).finish_non_exhaustive()
    }
}
