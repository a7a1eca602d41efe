//! A regular file or a block device as the engine's disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use betree_sys::{BLOCK_BYTES, Device, DeviceError, DeviceOp};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::aligned::{AlignedBuf, is_aligned};
use crate::motion::Motion;
use crate::open_error::OpenError;

/// The most that is copied through a bounce buffer at once.
const BOUNCE_BYTES_MAX: usize = 1 << 20;
/// How often [`FileDevice::open_waiting`] tries again.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// What [`FileDevice::create`] does with a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leaves it alone and fails.
    Refuse,
    /// Empties it.
    Overwrite,
}

/// A regular file or a block device, read and written past the page cache where that is possible.
///
/// It is locked exclusively (`flock`) until it is [released](FileDevice::release), or this value is dropped.
#[derive(Debug)]
pub struct FileDevice {
    /// `None` once it was released.
    file: RwLock<Option<Locked>>,
    /// The right to a block device that only one can have: a mount, or this.
    claim: Mutex<Option<File>>,
    path: PathBuf,
    len: u64,
    direct: bool,
    motion: Motion,
}

impl FileDevice {
    /// Makes a sparse file of `len` bytes (rounded down to whole blocks) in an existing directory.
    ///
    /// # Errors
    /// [`OpenError::Exists`] unless told to overwrite, [`OpenError::InUse`], or the system's own.
    pub fn create(path: &Path, len: u64, existing: Existing) -> Result<FileDevice, OpenError> {
        let failed = |doing, source| OpenError::Io { doing, path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match existing {
            Existing::Refuse => options.create_new(true),
            Existing::Overwrite => options.create(true).truncate(false),
        };
        let file = options.open(path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => OpenError::Exists { path: path.to_owned() },
            _ => failed("create", source),
        })?;
        let kind = file.metadata().map_err(|e| failed("examine", e))?.file_type();
        if !kind.is_file() {
            return Err(OpenError::WrongKind { path: path.to_owned(), what: name_of(kind) });
        }
        // Only the holder of the lock may empty the file: it could be a mounted volume.
        let file = Locked::new(file, path)?;
        file.set_len(0).and_then(|()| file.set_len(whole_blocks(len))).map_err(|e| failed("size", e))?;
        file.sync_all().and_then(|()| sync_parent(path)).map_err(|e| failed("sync", e))?;
        drop(file);
        FileDevice::open(path)
    }

    /// Opens a file or a block device.
    ///
    /// # Errors
    /// [`OpenError::InUse`] where someone else has it, [`OpenError::WrongKind`], or the system's own.
    pub fn open(path: &Path) -> Result<FileDevice, OpenError> {
        let failed = |doing, source| OpenError::Io { doing, path: path.to_owned(), source };
        let kind = fs::metadata(path).map_err(|e| failed("open", e))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::WrongKind { path: path.to_owned(), what: name_of(kind) });
        }
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags.bits().cast_signed());
            options.open(path).map_err(|source| match source.raw_os_error() {
                Some(errno) if errno == Errno::BUSY.raw_os_error() => {
                    OpenError::InUse { path: path.to_owned() }
                }
                _ => failed("open", source),
            })
        };
        // On a block device O_EXCL (without O_CREAT) fails while the kernel has it mounted.
        let claim = if kind.is_block_device() { Some(open(OFlags::EXCL)?) } else { None };
        let direct_file = match open(OFlags::DIRECT) {
            Ok(file) => Some(file).filter(takes_direct_io),
            Err(OpenError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        let direct = direct_file.is_some();
        let file = Locked::new(direct_file.map_or_else(|| open(OFlags::empty()), Ok)?, path)?;
        // The end of a block device is its size, where its metadata says 0.
        let len = whole_blocks((&*file).seek(SeekFrom::End(0)).map_err(|e| failed("measure", e))?);
        let motion = Motion::of(&file);
        let (file, claim) = (RwLock::new(Some(file)), Mutex::new(claim));
        Ok(FileDevice { file, claim, path: path.to_owned(), len, direct, motion })
    }

    /// Lets the kernel mount a block device, which only one can claim. It stays locked.
    pub fn let_mount(&self) {
        *self.claim.lock() = None;
    }

    /// Gives up the lock and the file: from now on others may open it, and every call fails.
    pub fn release(&self) {
        *self.file.write() = None;
        self.let_mount();
    }

    /// A descriptor of the same file, whether it is a block device is told as well.
    ///
    /// # Errors
    /// The system's; that it was released.
    pub fn descriptor(&self) -> io::Result<(OwnedFd, bool)> {
        let file = self.file()?;
        Ok((file.try_clone()?.into(), file.metadata()?.file_type().is_block_device()))
    }

    fn file(&self) -> io::Result<MappedRwLockReadGuard<'_, Locked>> {
        let released = |_| io::Error::from(Errno::SHUTDOWN);
        RwLockReadGuard::try_map(self.file.read(), Option::as_ref).map_err(released)
    }

    /// Like [`open`](FileDevice::open), but waits up to `timeout` for whoever has it open.
    ///
    /// # Errors
    /// As `open`; [`OpenError::InUse`] after the timeout.
    pub fn open_waiting(path: &Path, timeout: Duration) -> Result<FileDevice, OpenError> {
        let start = Instant::now();
        loop {
            match FileDevice::open(path) {
                Err(OpenError::InUse { .. }) if start.elapsed() < timeout => {
                    std::thread::sleep(RETRY_EVERY.min(timeout.saturating_sub(start.elapsed())));
                }
                result => return result,
            }
        }
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn check_range(&self, op: DeviceOp, offset: u64, len: usize, past_end: Errno) -> Result<(), DeviceError> {
        let block = BLOCK_BYTES as u64;
        let errno = if !offset.is_multiple_of(block) || !(len as u64).is_multiple_of(block) {
            Errno::INVAL
        } else if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            past_end
        } else {
            return Ok(());
        };
        Err(device_error(op, offset, len as u64, &errno.into()))
    }

    fn read_aligned(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (file, mut done) = (self.file()?, 0);
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += retry(|| file.read_at(rest, offset + done as u64)).and_then(progress)?;
        }
        Ok(())
    }

    fn write_aligned(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let (file, mut done) = (self.file()?, 0);
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            done += retry(|| file.write_at(rest, offset + done as u64)).and_then(progress)?;
        }
        Ok(())
    }
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check_range(DeviceOp::Read, offset, buf.len(), Errno::INVAL)?;
        let (len, began) = (buf.len() as u64, Instant::now());
        let mut read = || {
            if !self.direct || is_aligned(buf) {
                return self.read_aligned(offset, buf);
            }
            let mut bounce =
                AlignedBuf::of_bytes(buf.len().min(BOUNCE_BYTES_MAX)).map_err(io::Error::other)?;
            let mut at = offset;
            for chunk in buf.chunks_mut(BOUNCE_BYTES_MAX) {
                let (part, _) = bounce.bytes_mut().split_at_mut(chunk.len());
                self.read_aligned(at, part)?;
                chunk.copy_from_slice(part);
                at += chunk.len() as u64;
            }
            Ok(())
        };
        read().map_err(|e| device_error(DeviceOp::Read, offset, len, &e))?;
        self.motion.was_read(offset, len as usize, began.elapsed());
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check_range(DeviceOp::Write, offset, buf.len(), Errno::NOSPC)?;
        let write = || {
            if !self.direct || is_aligned(buf) {
                return self.write_aligned(offset, buf);
            }
            let mut bounce =
                AlignedBuf::of_bytes(buf.len().min(BOUNCE_BYTES_MAX)).map_err(io::Error::other)?;
            let mut at = offset;
            for chunk in buf.chunks(BOUNCE_BYTES_MAX) {
                let (part, _) = bounce.bytes_mut().split_at_mut(chunk.len());
                part.copy_from_slice(chunk);
                self.write_aligned(at, part)?;
                at += chunk.len() as u64;
            }
            Ok(())
        };
        write().map_err(|e| device_error(DeviceOp::Write, offset, buf.len() as u64, &e))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        // Not retried on EINTR by hand: after any failed sync nothing is known of the writes.
        self.file()
            .and_then(|file| file.sync_data())
            .map_err(|e| device_error(DeviceOp::Sync, 0, self.len, &e))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn seeks(&self) -> bool {
        self.motion.seeks()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let len_usize = usize::try_from(len).unwrap_or(usize::MAX);
        self.check_range(DeviceOp::Discard, offset, len_usize, Errno::INVAL)?;
        if len == 0 {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let file = self.file().map_err(|e| device_error(DeviceOp::Discard, offset, len, &e))?;
        match rustix::fs::fallocate(&**file, punch, offset, len) {
            // A medium that cannot forget keeps the bytes: nobody asked for more.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(()),
            Err(e) => Err(device_error(DeviceOp::Discard, offset, len, &e.into())),
        }
    }
}

/// A file that nobody else may lock. The lock ends with this value even where a child that is being
/// started still has the file, as every child has until it runs its own program.
#[derive(Debug)]
struct Locked(File);

impl Locked {
    fn new(file: File, path: &Path) -> Result<Locked, OpenError> {
        match file.try_lock() {
            Ok(()) => Ok(Locked(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => {
                Err(OpenError::Io { doing: "lock", path: path.to_owned(), source })
            }
        }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it does the same, a little later at worst.
        let _ = self.0.unlock();
    }
}

/// Whether a direct read works: some file systems take the flag and refuse the reads.
fn takes_direct_io(file: &File) -> bool {
    let Ok(mut buf) = AlignedBuf::of_bytes(BLOCK_BYTES) else { return false };
    let read = retry(|| file.read_at(buf.bytes_mut(), 0));
    !read.is_err_and(|e| e.raw_os_error() == Some(Errno::INVAL.raw_os_error()))
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// How far a read or write got, in whole blocks: the next direct one must begin at a boundary.
fn progress(moved: usize) -> io::Result<usize> {
    match moved - moved % BLOCK_BYTES {
        0 => Err(Errno::IO.into()),
        whole => Ok(whole),
    }
}

fn device_error(op: DeviceOp, offset: u64, len: u64, error: &io::Error) -> DeviceError {
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    DeviceError { op, offset, len, errno }
}

fn whole_blocks(len: u64) -> u64 {
    len - len % BLOCK_BYTES as u64
}

/// A new file is there after a crash only when its directory has been synced too.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn name_of(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "something else"
    }
}

#[cfg(test)]
mod tests;
