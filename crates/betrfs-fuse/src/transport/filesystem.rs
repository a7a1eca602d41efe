//! Each of fuser's callbacks: the request's parts taken out, the server asked, its answer sent.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use betrfs::{Entry, FileType, NewNode, NodeId, SetAttr};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

use super::convert::{
    from_mode, from_time, from_time_or_now, from_whence, to_dot_attr, to_errno, to_file_attr, to_kind,
};
use super::numbers::Numbers;
use super::panics::answering;
use crate::counters::Opcode;
use crate::server::{Answer, Caller, Server};

/// How long the kernel may believe what it was told: nobody else changes the volume.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Numbers are never given to another object while the kernel knows them.
const GENERATION: Generation = Generation(0);
/// Handles carry nothing: an inode's number says all.
const HANDLE: FileHandle = FileHandle(0);
/// Files keep their pages between opens, and closing them sends no FLUSH.
const OPENED_FILE: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);
/// The kernel keeps listings until it changes the directory itself.
const OPENED_DIR: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_CACHE_DIR);

thread_local! {
    /// What a READ is answered from; its room is used again by the next one.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A [`Server`] as fuser wants it.
pub struct Transport {
    server: Arc<Server>,
    numbers: Numbers,
}

fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

fn new_node(req: &Request, file_type: FileType, mode: u32, rdev: u32) -> NewNode {
    NewNode { file_type, perm: (mode & 0o7777) as u16, uid: req.uid(), gid: req.gid(), rdev }
}

impl Transport {
    /// Nothing is known to the kernel yet.
    pub fn new(server: Arc<Server>) -> Transport {
        Transport { server, numbers: Numbers::default() }
    }

    /// Counts a request and computes its answer.
    fn answer<T>(
        &self,
        opcode: Opcode,
        compute: impl FnOnce(&Server) -> Answer<T>,
    ) -> Result<T, fuser::Errno> {
        let counters = self.server.counters();
        counters.arrived(opcode);
        answering(opcode.name(), || compute(&self.server)).map_err(|errno| {
            counters.failed(opcode);
            to_errno(errno)
        })
    }

    /// As [`answer`](Transport::answer), of a request about one object.
    fn answer_on<T>(
        &self,
        opcode: Opcode,
        ino: INodeNo,
        compute: impl FnOnce(&Server, NodeId) -> Answer<T>,
    ) -> Result<T, fuser::Errno> {
        self.answer(opcode, |server| {
            let node = self.numbers.node(ino.0).ok_or(Errno::STALE)?;
            compute(server, node)
        })
    }

    fn enter(&self, entry: &Entry) -> FileAttr {
        to_file_attr(self.numbers.enter(entry), &entry.attr)
    }

    fn send_entry(&self, reply: ReplyEntry, answer: Result<Entry, fuser::Errno>) {
        match answer {
            Ok(entry) => reply.entry(&LIFETIME, &self.enter(&entry), GENERATION),
            Err(errno) => reply.error(errno),
        }
    }
}

fn send_empty(reply: ReplyEmpty, answer: Result<(), fuser::Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// An attribute's value or list: its length where the caller has no room at all.
fn send_sized(reply: ReplyXattr, room: u32, answer: Result<Vec<u8>, fuser::Errno>) {
    match answer {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= room as usize => reply.data(&value),
        Ok(_) => reply.error(to_errno(Errno::RANGE)),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Transport {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::configure(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.answer_on(Opcode::Lookup, parent, |server, parent| server.lookup(parent, name.as_bytes()))
        {
            Ok(Some(entry)) => reply.entry(&LIFETIME, &self.enter(&entry), GENERATION),
            // Inode number 0: the kernel remembers that there is no such name.
            Ok(None) => reply.entry(&LIFETIME, &to_dot_attr(0), GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        let node = self.numbers.forget(ino.0, lookups);
        // A FORGET has no reply, so an answer that is an error goes to the counters alone.
        let _ = self.answer(Opcode::Forget, |server| {
            node.into_iter().for_each(|node| server.forget(node, lookups));
            Ok(())
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.answer_on(Opcode::Getattr, ino, Server::getattr) {
            Ok(attr) => reply.attr(&LIFETIME, &to_file_attr(ino.0, &attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            perm: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            atime_ns: atime.map(from_time_or_now),
            mtime_ns: mtime.map(from_time_or_now),
            ctime_ns: ctime.map(from_time),
            ..SetAttr::default()
        };
        match self.answer_on(Opcode::Setattr, ino, |server, node| server.setattr(node, set, caller(req))) {
            Ok(attr) => reply.attr(&LIFETIME, &to_file_attr(ino.0, &attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.answer_on(Opcode::Readlink, ino, Server::readlink) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = self.answer_on(Opcode::Mknod, parent, |server, parent| {
            let file_type = from_mode(mode).ok_or(Errno::INVAL)?;
            server.make(parent, name.as_bytes(), &new_node(req, file_type, mode, rdev))
        });
        self.send_entry(reply, made);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = self.answer_on(Opcode::Mkdir, parent, |server, parent| {
            server.make(parent, name.as_bytes(), &new_node(req, FileType::Directory, mode, 0))
        });
        self.send_entry(reply, made);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send_empty(
            reply,
            self.answer_on(Opcode::Unlink, parent, |server, p| server.unlink(p, name.as_bytes())),
        );
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        send_empty(
            reply,
            self.answer_on(Opcode::Rmdir, parent, |server, p| server.rmdir(p, name.as_bytes())),
        );
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.answer_on(Opcode::Symlink, parent, |server, parent| {
            server.symlink(parent, name.as_bytes(), target.as_os_str().as_bytes(), caller(req))
        });
        self.send_entry(reply, made);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.answer_on(Opcode::Rename, parent, |server, parent| {
            let to = self.numbers.node(newparent.0).ok_or(Errno::STALE)?;
            server.rename((parent, name.as_bytes()), (to, newname.as_bytes()), flags.bits())
        });
        send_empty(reply, renamed);
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.answer_on(Opcode::Link, ino, |server, node| {
            let parent = self.numbers.node(newparent.0).ok_or(Errno::STALE)?;
            server.link(node, parent, newname.as_bytes())
        });
        self.send_entry(reply, linked);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.answer_on(Opcode::Create, parent, |server, parent| {
            server.create(parent, name.as_bytes(), &new_node(req, FileType::Regular, mode, 0))
        });
        match made {
            Ok(entry) => reply.created(&LIFETIME, &self.enter(&entry), GENERATION, HANDLE, OPENED_FILE),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        match self.answer_on(Opcode::Open, ino, |server, node| server.open(node, flags, caller(req))) {
            Ok(()) => reply.opened(HANDLE, OPENED_FILE),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            match self
                .answer_on(Opcode::Read, ino, |server, node| server.read(node, offset, size as usize, buffer))
            {
                Ok(()) => reply.data(buffer),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill_set_id = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.answer_on(Opcode::Write, ino, |server, node| server.write(node, offset, data, kill_set_id))
        {
            // A request is at most 1 MiB long.
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Only a kernel that does not know FOPEN_NOFLUSH sends it. Closing a file promises nothing.
        send_empty(reply, self.answer(Opcode::Flush, |_| Ok(())));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let released = self.answer_on(Opcode::Release, ino, |server, node| {
            server.release(node);
            Ok(())
        });
        send_empty(reply, released);
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        send_empty(reply, self.answer_on(Opcode::Fsync, ino, Server::fsync));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.answer_on(Opcode::Opendir, ino, Server::opendir) {
            Ok(()) => reply.opened(HANDLE, OPENED_DIR),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.answer_on(Opcode::Readdir, ino, |server, dir| {
            server.readdir(dir, offset, false, &mut |found| {
                let name = OsStr::from_bytes(found.name);
                !reply.add(INodeNo(found.ino), found.cookie, to_kind(found.file_type), name)
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.answer_on(Opcode::Readdirplus, ino, |server, dir| {
            server.readdir(dir, offset, true, &mut |found| {
                let attr = found.entry.as_ref().map_or(to_dot_attr(found.ino), |entry| self.enter(entry));
                let name = OsStr::from_bytes(found.name);
                let full = reply.add(attr.ino, found.cookie, name, &LIFETIME, &attr, GENERATION);
                if full && found.entry.is_some() {
                    self.numbers.forget(attr.ino.0, 1);
                }
                !full
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let released = self.answer_on(Opcode::Releasedir, ino, |server, node| {
            server.releasedir(node);
            Ok(())
        });
        send_empty(reply, released);
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        send_empty(reply, self.answer_on(Opcode::Fsyncdir, ino, Server::fsyncdir));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.answer(Opcode::Statfs, Server::statfs) {
            Ok(stat) => {
                let unit = u64::from(stat.block_bytes.max(1));
                reply.statfs(
                    stat.total_bytes / unit,
                    stat.free_bytes / unit,
                    stat.available_bytes / unit,
                    stat.files,
                    stat.files_free,
                    stat.block_bytes,
                    stat.name_bytes_max,
                    stat.block_bytes,
                );
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let set = self.answer_on(Opcode::Setxattr, ino, |server, node| {
            server.setxattr(node, name.as_bytes(), value, flags)
        });
        send_empty(reply, set);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value =
            self.answer_on(Opcode::Getxattr, ino, |server, node| server.getxattr(node, name.as_bytes()));
        send_sized(reply, size, value);
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        send_sized(reply, size, self.answer_on(Opcode::Listxattr, ino, Server::listxattr));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .answer_on(Opcode::Removexattr, ino, |server, node| server.removexattr(node, name.as_bytes()));
        send_empty(reply, removed);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.answer_on(Opcode::Fallocate, ino, |server, node| {
            server.fallocate(node, mode.cast_unsigned(), offset, length)
        });
        send_empty(reply, done);
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = self.answer_on(Opcode::Lseek, ino, |server, node| {
            let found = server.lseek(node, from_whence(offset, whence).ok_or(Errno::INVAL)?)?;
            i64::try_from(found).map_err(|_| Errno::OVERFLOW)
        });
        match found {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = self.answer_on(Opcode::CopyFileRange, ino_in, |server, from| {
            let to = self.numbers.node(ino_out.0).ok_or(Errno::STALE)?;
            let copied = server.copy_file_range((from, offset_in), (to, offset_out), len)?;
            u32::try_from(copied).map_err(|_| Errno::OVERFLOW)
        });
        match copied {
            Ok(bytes) => reply.written(bytes),
            Err(errno) => reply.error(errno),
        }
    }
}
