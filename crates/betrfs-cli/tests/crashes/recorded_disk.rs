//! A disk that records its calls: one file on a FUSE mount of this process, which the real server uses as its
//! volume. The bytes are in a [`SimDisk`], so that any moment of it can be crashed.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::SimDisk;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::FallocateFlags;
use rustix::mount::UnmountFlags;

use crate::disk_log::{DiskLog, Event, Note};

/// The name of the file that is the disk.
const DISK: &str = "disk";
const DISK_INODE: INodeNo = INodeNo(2);
/// How long the kernel may cache attributes: nobody else changes them.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
const REQUEST_BYTES_MAX: u32 = 1 << 20;
const SLOW_WRITE: Duration = Duration::from_millis(300);
const SLOW_READ_OF_1_MIB: Duration = Duration::from_millis(230);
const SLOW_DISCARD: Duration = Duration::from_millis(500);
/// Threads that answer requests: the server writes with several, and a disk may hold each.
const THREADS: usize = 16;

/// How the disk behaves from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It does what it says.
    Honest,
    /// It answers syncs and does nothing.
    LiesAboutSyncs,
    /// Every write is an error.
    FailsWrites,
    /// Every sync is an error, and nothing is synced.
    FailsSyncs,
    /// Every read is an error.
    FailsReads,
    /// Every write takes [`SLOW_WRITE`].
    WritesSlowly,
    /// Every discard takes [`SLOW_DISCARD`].
    DiscardsSlowly,
    /// No write returns until the manner changes.
    HoldsWrites,
    /// No sync returns until then.
    HoldsSyncs,
    /// No read returns until then.
    HoldsReads,
    /// Every read of what stands before this byte takes [`SLOW_READ_OF_1_MIB`] for each MiB.
    ReadsSlowlyBefore(u64),
}

struct Recording {
    /// The disk as it is.
    live: SimDisk,
    events: Vec<Event>,
    manner: Manner,
    /// Calls that are held now.
    held: usize,
}

/// What the calls of a disk share.
struct Shared {
    recording: Mutex<Recording>,
    /// The manner has changed.
    changed: Condvar,
}

impl Shared {
    /// Begins a call, once the disk does not hold calls of its kind.
    fn begin(&self, holds: Manner) -> MutexGuard<'_, Recording> {
        let mut recording = self.recording.lock();
        recording.held += 1;
        self.changed.wait_while(&mut recording, |recording| recording.manner == holds);
        recording.held -= 1;
        recording
    }
}

/// A recorded disk, mounted until it is dropped.
pub struct RecordedDisk {
    shared: Arc<Shared>,
    base: SimDisk,
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl RecordedDisk {
    /// Mounts a disk, all of which is synced, on a directory.
    pub fn serve(disk: SimDisk, dir: &Path) -> RecordedDisk {
        let base = disk.crash(0);
        let recording = Recording { live: disk, events: Vec::new(), manner: Manner::Honest, held: 0 };
        let shared = Arc::new(Shared { recording: Mutex::new(recording), changed: Condvar::new() });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("recorded-disk".into())];
        config.n_threads = Some(THREADS);
        let server = Server { shared: Arc::clone(&shared) };
        let session = fuser::spawn_mount(server, dir, &config).unwrap();
        RecordedDisk { shared, base, dir: dir.to_owned(), session: Some(session) }
    }

    /// The file that is the disk.
    pub fn file(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// Adds a note behind all calls so far.
    pub fn note(&self, note: Note) {
        self.shared.recording.lock().events.push(Event::Note(note));
    }

    /// The number of calls and notes so far.
    pub fn events(&self) -> usize {
        self.shared.recording.lock().events.len()
    }

    /// The number of syncs so far.
    pub fn syncs(&self) -> usize {
        self.shared.recording.lock().events.iter().filter(|event| matches!(event, Event::Sync)).count()
    }

    /// Changes how the disk behaves.
    pub fn set_manner(&self, manner: Manner) {
        self.shared.recording.lock().manner = manner;
        self.shared.changed.notify_all();
    }

    /// The number of calls that the disk holds.
    pub fn held(&self) -> usize {
        self.shared.recording.lock().held
    }

    /// Takes the calls so far.
    pub fn take_log(&self) -> DiskLog {
        let events = std::mem::take(&mut self.shared.recording.lock().events);
        DiskLog { base: self.base.crash(0), events }
    }
}

impl Drop for RecordedDisk {
    fn drop(&mut self) {
        // A server that still has it open, as in a test that failed, must not keep this process.
        self.set_manner(Manner::Honest);
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        drop(self.session.take());
    }
}

struct Server {
    shared: Arc<Shared>,
}

impl Server {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            DISK_INODE => (FileType::RegularFile, 0o600, self.shared.recording.lock().live.len()),
            _ => return None,
        };
        let time = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }

    /// Reads a range, cut at the end of the disk.
    fn bytes(&self, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let manner = self.shared.recording.lock().manner;
        if matches!(manner, Manner::ReadsSlowlyBefore(end) if offset < end) {
            std::thread::sleep(SLOW_READ_OF_1_MIB * (size >> 10) / 1024);
        }
        let recording = self.shared.begin(Manner::HoldsReads);
        if recording.manner == Manner::FailsReads {
            return Err(Errno::EIO);
        }
        let block = BLOCK_BYTES as u64;
        let end = offset.saturating_add(size.into()).min(recording.live.len());
        let from = offset.min(end) / block * block;
        let mut blocks = vec![0; (end.next_multiple_of(block) - from) as usize];
        recording.live.read_at(from, &mut blocks).map_err(|_| Errno::EIO)?;
        Ok(blocks[(offset.min(end) - from) as usize..(end - from) as usize].to_vec())
    }

    fn write_bytes(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let is_slow = self.shared.recording.lock().manner == Manner::WritesSlowly;
        if is_slow {
            std::thread::sleep(SLOW_WRITE);
        }
        let mut recording = self.shared.begin(Manner::HoldsWrites);
        if recording.manner == Manner::FailsWrites {
            return Err(Errno::EIO);
        }
        recording.live.write_at(offset, data).map_err(|_| Errno::EINVAL)?;
        recording.events.push(Event::Write(offset, data.to_vec()));
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        let mut recording = self.shared.begin(Manner::HoldsSyncs);
        match recording.manner {
            Manner::LiesAboutSyncs => return Ok(()),
            Manner::FailsSyncs => return Err(Errno::EIO),
            _ => {}
        }
        recording.live.sync().map_err(|_| Errno::EIO)?;
        recording.events.push(Event::Sync);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let is_slow = self.shared.recording.lock().manner == Manner::DiscardsSlowly;
        if is_slow {
            std::thread::sleep(SLOW_DISCARD);
        }
        let mut recording = self.shared.recording.lock();
        recording.live.discard(offset, len).map_err(|_| Errno::EINVAL)?;
        recording.events.push(Event::Discard { offset, len });
        Ok(())
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |_| io::Error::other("the kernel sends no requests so large");
        config.set_max_write(REQUEST_BYTES_MAX).map(drop).map_err(refused)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let is_disk = parent == INodeNo::ROOT && name == DISK;
        match self.attributes(DISK_INODE).filter(|_| is_disk) {
            Some(attributes) => reply.entry(&LIFETIME, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&LIFETIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.bytes(offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_bytes(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    /// Only syncs of data count: those of the server are of data, and a loop device's, which stands for the
    /// volume while it is mounted, are not. They must not hide a sync that the server forgot.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, is_of_data: bool, reply: ReplyEmpty) {
        match if is_of_data { self.sync() } else { Ok(()) } {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if u32::try_from(mode) != Ok(punch.bits()) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.discard(offset, len) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}
