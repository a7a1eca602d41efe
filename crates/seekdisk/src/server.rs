//! The FUSE server of an emulated disk: the files `disk`, `stats` and `pace` of one directory.
//!
//! The bytes move at once, to and from a sparse file; only the answer takes the drive's time.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::FallocateFlags;
use rustix::mount::UnmountFlags;

use crate::drive::{self, Drive};
use crate::image::Image;
use crate::{DISK, FAST_FORWARD, PACE, READY, STATS};

const DISK_INODE: INodeNo = INodeNo(2);
const STATS_INODE: INodeNo = INodeNo(3);
const PACE_INODE: INodeNo = INodeNo(4);
/// How long the kernel may cache attributes: nobody else changes them.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Requests that the kernel may have in flight: as many as a drive queues, and some more.
const BACKGROUND_MAX: u16 = 64;
/// The largest request in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Threads that read requests; none of them waits for the drive.
const THREADS: usize = 2;

struct Server {
    image: Image,
    drive: Drive,
}

impl Server {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            DISK_INODE => (FileType::RegularFile, 0o600, self.image.size_bytes()),
            STATS_INODE => (FileType::RegularFile, 0o400, 0),
            PACE_INODE => (FileType::RegularFile, 0o200, 0),
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
            blksize: 4096,
            flags: 0,
        })
    }

    /// The part of a range that is on the disk.
    fn on_disk(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.image.size_bytes());
        offset.min(end)..end
    }

    fn stats(&self) -> Result<Vec<u8>, Errno> {
        serde_json::to_vec(&self.drive.counters()).map_err(|_| Errno::EIO)
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let unknown = |what| io::Error::other(format!("the kernel cannot {what}"));
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| unknown("send requests at once"))?;
        config.set_max_write(REQUEST_BYTES_MAX).map_err(|_| unknown("send requests so large"))?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| unknown("send so many requests"))?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inode = match name.to_str() {
            Some(DISK) if parent == INodeNo::ROOT => DISK_INODE,
            Some(STATS) if parent == INodeNo::ROOT => STATS_INODE,
            Some(PACE) if parent == INodeNo::ROOT => PACE_INODE,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(inode) {
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
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode == STATS_INODE {
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            return match self.stats() {
                Ok(stats) => {
                    let rest = stats.get(from..).unwrap_or_default();
                    reply.data(rest.get(..size as usize).unwrap_or(rest));
                }
                Err(errno) => reply.error(errno),
            };
        }
        let arrival = self.drive.arrival();
        let range = self.on_disk(offset, u64::from(size));
        match self.image.read(&range) {
            Ok(data) => {
                let answer = Box::new(move || reply.data(data.bytes()));
                self.drive.ask(arrival, drive::Request::Read(range), answer);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if inode == PACE_INODE {
            self.drive.set_fast_forward(data == FAST_FORWARD);
            return reply.written(data.len() as u32);
        }
        let arrival = self.drive.arrival();
        let range = self.on_disk(offset, data.len() as u64);
        if inode != DISK_INODE || range.end - range.start != data.len() as u64 {
            return reply.error(Errno::ENOSPC);
        }
        match self.image.write(data, offset) {
            Ok(()) => {
                let len = data.len() as u32;
                self.drive.ask(arrival, drive::Request::Write(range), Box::new(move || reply.written(len)));
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let arrival = self.drive.arrival();
        self.drive.ask(arrival, drive::Request::Flush, Box::new(move || reply.ok()));
    }

    /// Punching holes discards data: a real disk has no such request, but a new round on this one frees its
    /// blocks so.
    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if inode != DISK_INODE || u32::try_from(mode) != Ok(punch.bits()) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.image.discard(offset, length) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}

/// Serves an image as an emulated disk in a directory until standard input ends; prints [`READY`] once the
/// disk is there. Calls `warn` with the causes that make the disk less exact.
///
/// # Errors
/// The image cannot be opened, the directory cannot be mounted on, or the connection to the kernel breaks.
pub fn serve(image: &Path, dir: &Path, warn: &dyn Fn(&str)) -> io::Result<()> {
    // On a busy machine answers would be late. The server needs little CPU time.
    if let Err(error) = rustix::process::nice(-20) {
        warn(&format!("the emulated disk has no precedence: {error}"));
    }
    let context =
        |what: String| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let image = Image::open(image).map_err(context(format!("cannot open {}", image.display())))?;
    let drive = Drive::new()?;
    if let Some(error) = drive.clock_error() {
        warn(&format!("the emulated disk's clock is coarse: {error}"));
    }
    let server = Server { image, drive };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("seekdisk".into()), MountOption::NoAtime];
    config.n_threads = Some(THREADS);
    let mounted = Session::new(server, dir, &config);
    let session = mounted.map_err(context(format!("cannot mount on {}", dir.display())))?;
    end_with_standard_input(dir.to_owned())?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush())?;
    session.run().map_err(context("the emulated disk's connection to the kernel".to_owned()))
}

/// Ends the process, and the mount, once standard input ends: then the program that wanted the disk is gone.
fn end_with_standard_input(dir: PathBuf) -> io::Result<()> {
    let ended = move || {
        // An error ends it too.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        // Fails if nothing is mounted any more, which is no error.
        let _ = rustix::mount::unmount(&dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        std::process::exit(0);
    };
    std::thread::Builder::new().name("parent".into()).spawn(ended).map(drop)
}
