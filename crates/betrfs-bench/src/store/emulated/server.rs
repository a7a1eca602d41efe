//! The emulated disk as a file: `disk` in a directory that holds nothing else but `stats` and `pace`.
//!
//! The bytes are moved at once, to and from a sparse file; what takes the drive's time is the answer.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::FallocateFlags;

use super::drive::{self, Drive};
use super::image::Image;
use super::{DISK, HASTE, PACE, READY, STATS};
use crate::output::tell;
use crate::teardown::detach;

const DISK_INODE: INodeNo = INodeNo(2);
const STATS_INODE: INodeNo = INodeNo(3);
const PACE_INODE: INodeNo = INodeNo(4);
/// Nobody else changes anything.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Requests that the kernel may have waiting at once: as many as a drive queues, and some more.
const BACKGROUND_MAX: u16 = 64;
/// The largest request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Threads that take requests; none of them waits for the drive.
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
        let came = self.drive.receives();
        let range = self.on_disk(offset, u64::from(size));
        match self.image.read(&range) {
            Ok(data) => {
                self.drive.ask(came, drive::Request::Read(range), Box::new(move || reply.data(data.bytes())));
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
            self.drive.set_in_haste(data == HASTE);
            return reply.written(data.len() as u32);
        }
        let came = self.drive.receives();
        let range = self.on_disk(offset, data.len() as u64);
        if inode != DISK_INODE || range.end - range.start != data.len() as u64 {
            return reply.error(Errno::ENOSPC);
        }
        match self.image.write(data, offset) {
            Ok(()) => {
                let len = data.len() as u32;
                self.drive.ask(came, drive::Request::Write(range), Box::new(move || reply.written(len)));
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let came = self.drive.receives();
        self.drive.ask(came, drive::Request::Flush, Box::new(move || reply.ok()));
    }

    /// A disk forgets nothing; but whoever begins anew with the emulated one gives its room back.
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
        match self.image.forget(offset, length) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}

/// Serves an image as an emulated disk in a directory until standard input ends.
pub fn serve(image: &Path, dir: &Path) -> Result<()> {
    // On a busy machine answers would be late. It hardly works.
    if let Err(error) = rustix::process::nice(-20) {
        tell(format_args!("betrfs-bench: the emulated disk has no precedence: {error}"));
    }
    let image = Image::open(image).with_context(|| format!("cannot open {}", image.display()))?;
    let server = Server { image, drive: Drive::new()? };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("betrfs-bench".into()), MountOption::NoAtime];
    config.n_threads = Some(THREADS);
    let session =
        Session::new(server, dir, &config).with_context(|| format!("cannot mount on {}", dir.display()))?;
    end_with_standard_input(dir.to_owned())?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush())?;
    session.run().context("the emulated disk's connection to the kernel")
}

fn end_with_standard_input(dir: PathBuf) -> Result<()> {
    std::thread::Builder::new().name("parent".into()).spawn(move || {
        // Whatever ends it: whoever wanted the disk is gone.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        detach(&dir);
        std::process::exit(0);
    })?;
    Ok(())
}
