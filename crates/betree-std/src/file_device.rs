//! A regular file or a block device as the engine's disk.

mod locked;
mod loop_file;
mod waiting;
mod write_protected;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use betree_platform::aligned::is_aligned;
use betree_platform::{AlignedBuf, BLOCK_BYTES, Device, DeviceError, DeviceOp, Read};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use self::locked::Locked;
use self::write_protected::is_write_protected;
use crate::open_error::OpenError;
use crate::process_id::process_id;
use crate::seek_detector::SeekDetector;
use crate::side_by_side::side_by_side;

/// The most that is copied through a bounce buffer at once.
const BOUNCE_BYTES_MAX: usize = 1 << 20;
/// The most reads of one call that are in flight at the same time.
const READS_IN_FLIGHT_MAX: usize = 16;

/// The mode of a new volume file: a reader of it can read all files of all users in it.
const NEW_FILE_MODE: u32 = 0o600;

/// A regular file or a block device, read and written past the page cache where that is possible.
///
/// It is locked (`flock`), exclusively unless it is for reading, until it is [released](FileDevice::release)
/// or this value is dropped; one that is [only looked at](FileDevice::open_to_look) is not. With a loop
/// device that shows the whole of a file that file is locked too: the volume is the same by either name.
#[derive(Debug)]
pub struct FileDevice {
    /// `None` after the release.
    file: RwLock<Option<Locked>>,
    /// The exclusive claim on a block device, which a mount would need too.
    claim: Mutex<Option<File>>,
    path: PathBuf,
    len: AtomicU64,
    /// Whether the file may end before `len`: see [`Device::is_open_ended`].
    is_open_ended: AtomicBool,
    direct: bool,
    is_sparse: bool,
    seek_detector: SeekDetector,
    /// The process that may use it. A fork of that process has the same open file, and with it the same lock.
    opened_by: u32,
}

/// The use of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Alone.
    Changes,
    /// Alone, but for a dead mount, which claims a block device while anybody uses it.
    Replacing,
    /// With other readers.
    Reading,
    /// Without a lock, whatever others do.
    Looking,
}

impl Access {
    fn writes(self) -> bool {
        matches!(self, Access::Changes | Access::Replacing)
    }
}

impl FileDevice {
    /// Makes a sparse file of `len` bytes (rounded down to whole blocks) in an existing directory, with
    /// access for the owner alone, whatever the umask. A failure leaves no file.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if something has that name, or the system's own.
    pub fn create(path: &Path, len: u64) -> Result<FileDevice, OpenError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(NEW_FILE_MODE).open(path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => OpenError::Exists { path: path.to_owned() },
            _ => OpenError::Io { doing: "create", path: path.to_owned(), source },
        })?;
        let device = FileDevice::made(&file, path, len);
        if device.is_err() {
            remove(&file, path);
        }
        device
    }

    fn made(file: &File, path: &Path, len: u64) -> Result<FileDevice, OpenError> {
        let failed = |doing, source| OpenError::Io { doing, path: path.to_owned(), source };
        file.set_permissions(Permissions::from_mode(NEW_FILE_MODE)).map_err(|e| failed("protect", e))?;
        let mut device = FileDevice::of(file, path, Access::Changes)?;
        device.clear(len)?;
        sync_parent(path).map_err(|e| failed("sync", e))?;
        Ok(device)
    }

    /// Opens a file or a block device. The path is followed once: the file that is checked is the file that
    /// is opened, even if its names change meanwhile.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another process has it open, [`OpenError::WrongKind`], or the system's own.
    pub fn open(path: &Path) -> Result<FileDevice, OpenError> {
        FileDevice::of(&find(path)?, path, Access::Changes)
    }

    /// As [`open`](FileDevice::open), also while the kernel has a block device mounted: for the volume of a
    /// dead mount that is to be replaced. The lock is the only protection then.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_replacing(path: &Path) -> Result<FileDevice, OpenError> {
        FileDevice::of(&find(path)?, path, Access::Replacing)
    }

    /// Opens the file or block device of a descriptor, whatever its path leads to by now.
    ///
    /// # Errors
    /// As [`open`](FileDevice::open).
    pub fn open_again(descriptor: OwnedFd, path: &Path) -> Result<FileDevice, OpenError> {
        FileDevice::of(&File::from(descriptor), path, Access::Changes)
    }

    /// Opens a file or a block device for reading. Others may have it open for reading too.
    ///
    /// # Errors
    /// As [`open`](FileDevice::open); [`OpenError::InUse`] if another device has it open for changes.
    pub fn open_for_reading(path: &Path) -> Result<FileDevice, OpenError> {
        FileDevice::of(&find(path)?, path, Access::Reading)
    }

    /// Opens a file or a block device for reading without a lock: whoever has it open may change it between
    /// two reads. For what has a checksum of its own, as the superblocks have.
    ///
    /// # Errors
    /// As [`open`](FileDevice::open), but for [`OpenError::InUse`].
    pub fn open_to_look(path: &Path) -> Result<FileDevice, OpenError> {
        FileDevice::of(&find(path)?, path, Access::Looking)
    }

    /// Opens an open file again, and locks it unless it is only looked at.
    fn of(found: &File, path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        let failed = |doing, source| OpenError::Io { doing, path: path.to_owned(), source };
        let kind = found.metadata().map_err(|e| failed("examine", e))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::WrongKind { path: path.to_owned(), what: name_of(kind) });
        }
        if access.writes() && is_write_protected(found) {
            return Err(OpenError::WriteProtected { path: path.to_owned() });
        }
        let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(access.writes()).custom_flags(flags.bits().cast_signed());
            options.open(&itself).map_err(|source| match source.raw_os_error() {
                Some(errno) if errno == Errno::BUSY.raw_os_error() => OpenError::in_use(path),
                _ => failed("open", source),
            })
        };
        // On a block device O_EXCL (without O_CREAT) fails while the kernel has it mounted.
        let claim = if kind.is_block_device() && access == Access::Changes {
            Some(open(OFlags::EXCL)?)
        } else {
            None
        };
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
        let file = Locked::new(direct_file.map_or_else(|| open(OFlags::empty()), Ok)?, path, access)?;
        let len = AtomicU64::new(end_of(&file).map_err(|e| failed("measure", e))?);
        let seek_detector = SeekDetector::of(&file);
        let (is_sparse, opened_by) = (access.writes() && kind.is_file() && allocates(&file), process_id());
        let (file, claim, path) = (RwLock::new(Some(file)), Mutex::new(claim), path.to_owned());
        let is_open_ended = AtomicBool::new(false);
        Ok(FileDevice { file, claim, path, len, is_open_ended, direct, is_sparse, seek_detector, opened_by })
    }

    /// Gives up the claim on a block device, so that the kernel can mount it. It stays locked. Returns
    /// whether nobody else claims it, as a dead mount does that is still used.
    pub fn let_mount(&self) -> bool {
        if self.claim.lock().take().is_some() {
            return true;
        }
        let exclusive = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        self.file().is_ok_and(|file| {
            let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::open(itself, exclusive, Mode::empty()).is_ok()
        })
    }

    /// Releases the lock and the file: others may open it from now on, and every call here fails. In a fork
    /// of the process that opened it this does nothing: file and lock are the parent's.
    pub fn release(&self) {
        if self.forked_from().is_some() {
            return;
        }
        *self.file.write() = None;
        *self.claim.lock() = None;
    }

    /// A descriptor of the same file.
    ///
    /// # Errors
    /// The system's, or the device was released.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file()?.try_clone()?.into())
    }

    fn file(&self) -> io::Result<MappedRwLockReadGuard<'_, Locked>> {
        if self.forked_from().is_some() {
            return Err(Errno::BADF.into());
        }
        let released = |_| io::Error::from(Errno::SHUTDOWN);
        RwLockReadGuard::try_map(self.file.read(), Option::as_ref).map_err(released)
    }

    /// Empties a regular file and sets its size (rounded down to whole blocks). No other device has it open:
    /// it is locked.
    ///
    /// # Errors
    /// The system's own; the size of a block device is fixed.
    pub fn clear(&mut self, len: u64) -> Result<(), OpenError> {
        let failed = |doing, source| OpenError::Io { doing, path: self.path.clone(), source };
        let len = whole_blocks(len);
        let file = self.file().map_err(|e| failed("size", e))?;
        file.set_len(0).and_then(|()| file.set_len(len)).map_err(|e| failed("size", e))?;
        file.sync_all().map_err(|e| failed("sync", e))?;
        drop(file);
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the file of this device, if its path still leads to it.
    pub fn unmake(&self) {
        if let Ok(file) = self.file() {
            remove(&file, &self.path);
        }
    }

    /// Reads the first bytes, at most `len_max`.
    ///
    /// # Errors
    /// The system's own.
    pub fn head(&self, len_max: usize) -> io::Result<Vec<u8>> {
        let mut head = AlignedBuf::of_bytes(len_max).map_err(io::Error::other)?;
        let (file, mut len) = (self.file()?, 0);
        while let Some(rest) = head.bytes_mut().get_mut(len..).filter(|rest| !rest.is_empty()) {
            let read = retry(|| file.read_at(rest, len as u64))?;
            len += read;
            // A direct read that is not whole blocks has met the end.
            if read == 0 || !read.is_multiple_of(BLOCK_BYTES) {
                break;
            }
        }
        Ok(head.bytes_mut().get(..len).unwrap_or_default().to_vec())
    }

    /// The path with which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device, whose size is fixed.
    pub fn is_block_device(&self) -> bool {
        self.file().and_then(|file| file.metadata()).is_ok_and(|found| found.file_type().is_block_device())
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn check_range(&self, op: DeviceOp, offset: u64, len: usize, past_end: Errno) -> Result<(), DeviceError> {
        let block = BLOCK_BYTES as u64;
        let errno = if !offset.is_multiple_of(block) || !(len as u64).is_multiple_of(block) {
            Errno::INVAL
        } else if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            past_end
        } else {
            return Ok(());
        };
        Err(device_error(op, offset, len as u64, &errno.into()))
    }

    fn read_aligned(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (file, mut done) = (self.file()?, 0);
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match retry(|| file.read_at(rest, offset + done as u64))? {
                0 if self.is_open_ended() => {
                    rest.fill(0);
                    break;
                }
                read => done += progress(read)?,
            }
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

/// What is at a path. This has no effect: it does not rewind a tape, or wait for a pipe.
fn find(path: &Path) -> Result<File, OpenError> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let failed = |e: Errno| OpenError::Io { doing: "open", path: path.to_owned(), source: e.into() };
    found.map(File::from).map_err(failed)
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
        self.seek_detector.was_read(offset, len as usize, began.elapsed());
        Ok(())
    }

    fn read_many(&self, reads: &mut [Read<'_>]) {
        side_by_side(reads.iter_mut(), READS_IN_FLIGHT_MAX, |read| {
            read.result = self.read_at(read.offset, read.buf);
        });
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
        // Not retried on EINTR: after a failed sync the fate of the writes is unknown.
        self.file()
            .and_then(|file| file.sync_data())
            .map_err(|e| device_error(DeviceOp::Sync, 0, self.len(), &e))
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn len_in_bytes(&self) -> u64 {
        let now = self.file().and_then(|file| (&**file).seek(SeekFrom::End(0)));
        now.ok().filter(|now| whole_blocks(*now) == self.len()).unwrap_or_else(|| self.len())
    }

    fn grow(&self, len: u64) -> Result<u64, DeviceError> {
        let grow = || {
            let file = self.file()?;
            if len > end_of(&file)? && !self.is_block_device() {
                file.set_len(len)?;
                file.sync_all()?;
            }
            end_of(&file)
        };
        let found = grow().map_err(|e| device_error(DeviceOp::Grow, 0, len, &e))?;
        self.len.fetch_max(found, Ordering::Relaxed);
        Ok(self.len())
    }

    fn is_open_ended(&self) -> bool {
        self.is_open_ended.load(Ordering::Relaxed)
    }

    fn contents_len(&self) -> u64 {
        match self.is_open_ended() {
            true => self.file().and_then(|file| Ok(whole_blocks(file.metadata()?.len()))).unwrap_or(0),
            false => self.len(),
        }
    }

    fn open_end(&self, len: u64) {
        if !self.is_block_device() {
            self.len.fetch_max(whole_blocks(len), Ordering::Relaxed);
            self.is_open_ended.store(true, Ordering::Relaxed);
        }
    }

    fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let len_usize = usize::try_from(len).unwrap_or(usize::MAX);
        self.check_range(DeviceOp::Allocate, offset, len_usize, Errno::NOSPC)?;
        let allocate = || {
            let file = self.file()?;
            loop {
                match rustix::fs::fallocate(&**file, FallocateFlags::KEEP_SIZE, offset, len) {
                    Err(Errno::INTR) => {}
                    done => return Ok(done?),
                }
            }
        };
        allocate().map_err(|e: io::Error| device_error(DeviceOp::Allocate, offset, len, &e))
    }

    fn next_allocated(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let file = self.file().ok()?;
        let end = offset.checked_add(len)?.min(self.len());
        let seek = |from| rustix::fs::seek(&**file, from).ok();
        let mut from = offset;
        while from < end {
            let data = seek(rustix::fs::SeekFrom::Data(from))?;
            let hole = seek(rustix::fs::SeekFrom::Hole(data))?;
            let (first, last) = (data.next_multiple_of(BLOCK_BYTES as u64), whole_blocks(hole).min(end));
            if first < last {
                return Some((first, last - first));
            }
            from = hole.max(from + 1);
        }
        None
    }

    fn forked_from(&self) -> Option<u32> {
        Some(self.opened_by).filter(|opener| process_id() != *opener)
    }

    fn seeks(&self) -> bool {
        self.seek_detector.seeks()
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
            // A medium that cannot discard keeps the bytes, which is allowed.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(()),
            Err(e) => Err(device_error(DeviceOp::Discard, offset, len, &e.into())),
        }
    }
}

/// Whether the file system allocates storage ahead of writes. Asked of the first block, which a volume has.
fn allocates(file: &File) -> bool {
    rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, BLOCK_BYTES as u64).is_ok()
}

/// Whether a direct read works: some file systems accept the flag and refuse the reads.
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

/// The progress of a read or write in whole blocks: the next direct one must begin at a boundary.
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

/// The size of a file or block device in whole blocks. The metadata of a block device say 0; its end is its
/// size.
fn end_of(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0)).map(whole_blocks)
}

fn whole_blocks(len: u64) -> u64 {
    len - len % BLOCK_BYTES as u64
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs a directory: without that, a crash may lose the name of a new file.
fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(parent_of(path))?.sync_all()
}

/// Removes a file that was made here, if its path still leads to it. Callers ignore a failure: they already
/// have one to report.
fn remove(file: &File, path: &Path) {
    let removed = || {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent_of(path), flags, Mode::empty())?;
        let (made, found) =
            (rustix::fs::fstat(file)?, rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?);
        if (made.st_dev, made.st_ino) != (found.st_dev, found.st_ino) {
            return Err(Errno::STALE);
        }
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())
    };
    if let Err(errno) = removed() {
        tracing::warn!("cannot remove {}, in which no volume was made: {errno}", path.display());
    }
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
