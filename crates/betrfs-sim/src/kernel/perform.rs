//! Operations as requests.

use betrfs::{Attr, SNAPSHOTS_NAME, SnapshotsBelow, Usage, XattrMode};
use betrfs_fuse::Errno;
use betrfs_fuse::wire::{self, Opcode, change, ioctl};
use zerocopy::{FromBytes, IntoBytes};

use super::cache::{is_dir, stale};
use super::listings::file_type_of;
use super::names::{
    ended,
    libc_flags::{RDONLY, WRONLY},
};
use super::{Held, Kernel};
use crate::at::At;
use crate::client::Failed;
use crate::compare::NOT_TOLD_NS;
use crate::op::{Op, Owner};
use crate::perform::Answer;

/// How often a program asks whether dirty pages have been written back.
const ASKS_MAX: usize = 2;

impl Kernel {
    pub(super) fn do_requests(&mut self, op: &Op, cookie: u64) -> Result<Answer, Failed> {
        let made = |attr: wire::Attr| Ok(Answer::Made(attr_of(&attr, None)?));
        match op {
            Op::Create { at, file_type, owner, rdev } => made(self.make(at, *file_type, *owner, *rdev)?),
            Op::Symlink { at, target, uid, gid } => made(self.symlink(at, target, *uid, *gid)?),
            Op::CreateUnnamed { dir, owner, slot } => self.make_unnamed(dir, *owner, *slot),
            Op::Link { from, to } => made(self.link(from, to)?),
            Op::Unlink { at } => done(self.remove(at, Opcode::Unlink)),
            Op::Rmdir { at } => done(self.remove(at, Opcode::Rmdir)),
            Op::RemoveBelow { at, snapshots } => done(self.empty(at, *snapshots)),
            Op::Rename { from, to, flags } => done(self.rename(from, to, *flags)),
            Op::Write { at, offset, data } => Ok(Answer::Written(self.write(at, *offset, &data.bytes())?)),
            Op::Fallocate { at, mode, offset, len } => done(self.fallocate(at, *mode, *offset, *len)),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                Ok(Answer::Written(self.copy_range((from, *from_offset), (to, *to_offset), *len)?))
            }
            Op::SetAttr { at, set } => Ok(Answer::Attr(attr_of(&self.set_attributes(at, set)?, None)?)),
            Op::SetXattr { at, name, value, mode } => done(self.set_xattr(at, name, &value.bytes(), *mode)),
            Op::RemoveXattr { at, name } => {
                let node = self.walk(at)?;
                self.send(Opcode::Removexattr, node, &[0_u8; 0], &ended(name))?;
                self.caches.lock().mark(node, stale::CTIME);
                Ok(Answer::Done)
            }
            Op::SetFlags { at, flags, project } => {
                let node = self.walk(at)?;
                let xflags = ioctl::xflags_of(*flags);
                match project {
                    Some(project) => {
                        let set = wire::Fsxattr { xflags, project: *project, ..wire::Fsxattr::default() };
                        self.ioctl(node, ioctl::SET_XATTR, set.as_bytes())?;
                    }
                    None => drop(self.ioctl(node, ioctl::SET_FLAGS, flags.bits().as_bytes())?),
                }
                Ok(Answer::Done)
            }
            Op::CloneOnto { from, to } => done(self.fill_copy(from, to)),
            Op::Snapshot { of, name } => {
                let dir = self.walk(&of.child(SNAPSHOTS_NAME))?;
                let mkdir = wire::MkdirIn { mode: 0o40_700, umask: 0 };
                let reply = self.send(Opcode::Mkdir, dir, &mkdir, &ended(name))?;
                let entry: wire::EntryOut = Self::parse(&reply)?;
                self.entered(dir, name, &entry)?;
                self.caches.lock().dir_changed(dir);
                self.look_at(dir)?;
                made(entry.attr)
            }
            Op::RemoveSnapshot { of, name } => {
                self.remove(&of.child(SNAPSHOTS_NAME).child(name), Opcode::Rmdir)?;
                self.look_at(self.walk(&of.child(SNAPSHOTS_NAME))?)?;
                Ok(Answer::Done)
            }
            Op::Restore { of, name, keep_as } => {
                self.restore(of, name, keep_as)?;
                self.look_at(self.walk(&of.child(SNAPSHOTS_NAME))?)?;
                Ok(Answer::Done)
            }
            Op::Open { at, slot } | Op::Hold { at, slot } => {
                if at.names.is_empty() && at.base != crate::at::Base::Root {
                    return Err(Errno::INVAL.into());
                }
                let node = self.walk(at)?;
                let flags = if self.manner.opens_to_write { WRONLY } else { RDONLY };
                let open = if matches!(op, Op::Open { .. }) { Some(self.open(node, flags)?) } else { None };
                self.held.insert(*slot, Held { node, open });
                Ok(Answer::Done)
            }
            Op::OpenHeld { slot } => {
                let node = self.held_node(&At::slot(*slot))?;
                let open = self.open(node, RDONLY)?;
                self.held.insert(*slot, Held { node, open: Some(open) });
                Ok(Answer::Done)
            }
            // How it is closed depends on whether it is open.
            Op::Close { .. } => Ok(Answer::Done),
            Op::Stat { at } => {
                let (attr, crtime_ns) = self.stat(at)?;
                Ok(Answer::Attr(attr_of(&attr, crtime_ns)?))
            }
            Op::Read { at, offset, len } => Ok(Answer::Bytes(self.read(at, *offset, *len)?)),
            Op::Seek { at, offset, what } => Ok(Answer::Place(self.seek(at, *offset, *what)?)),
            Op::List { at, chunk, .. } => Ok(Answer::Entries(self.list_all(at, *chunk)?)),
            Op::ListOn { slot, count, .. } => {
                let dir = self.held_node(&At::slot(*slot))?;
                Ok(Answer::Entries(self.list_on(dir, cookie, *count)?))
            }
            Op::SnapshotsBelow { at } => {
                let bytes = self.ioctl(self.walk(at)?, ioctl::HELD, b"")?;
                let (bytes, _) = ioctl::HeldBytes::read_from_prefix(&bytes).map_err(|_| short())?;
                Ok(Answer::Snapshots(ioctl::held_of(&bytes).ok_or_else(short)?))
            }
            Op::Usage { at } => {
                let bytes = self.ioctl(self.walk(at)?, ioctl::USAGE, b"")?;
                let ([stored_bytes, exclusive_bytes], _) =
                    <[u64; 2]>::read_from_prefix(&bytes).map_err(|_| short())?;
                Ok(Answer::Usage(Usage { stored_bytes, exclusive_bytes }))
            }
            Op::StatFs => {
                let reply = self.send(Opcode::Statfs, super::cache::ROOT_NODE, &[0_u8; 0], b"")?;
                let room: wire::StatfsOut = Self::parse(&reply)?;
                let fits = room.bavail <= room.bfree && room.bfree <= room.blocks;
                if fits { Ok(Answer::Done) } else { Err(Failed::Wrong(format!("{room:?}"))) }
            }
            Op::Fsync { at } => done(self.fsync(at)),
            Op::Sync => {
                self.send(Opcode::Syncfs, super::cache::ROOT_NODE, &[0_u8; 8], b"")?;
                Ok(Answer::Done)
            }
            Op::CreateWith { .. }
            | Op::Append { .. }
            | Op::Clone { .. }
            | Op::OpenFilesIn { .. }
            | Op::SetProperties { .. }
            | Op::SetQuota { .. } => Err(Failed::Wrong("the kernel has no such operation".into())),
        }
    }

    /// Asks for the attributes of a directory, as a program may that has it open.
    fn look_at(&self, dir: u64) -> Result<(), Failed> {
        if self.manner.is_old { self.attributes(dir).map(drop) } else { Ok(()) }
    }

    fn make_unnamed(&mut self, dir: &At, owner: Owner, slot: crate::at::SlotId) -> Result<Answer, Failed> {
        let dir = self.walk(dir)?;
        let mode = u32::from(owner.perm) | 0o100_000;
        let create = wire::CreateIn { flags: WRONLY as u32, mode, ..wire::CreateIn::default() };
        let reply = self.send_as(Opcode::Tmpfile, dir, owner, &create, &ended(b"#1"))?;
        let out: wire::CreateOut = Self::parse(&reply)?;
        let now_ns = self.now_ns();
        self.caches.lock().take(&out.entry, now_ns).map_err(Failed::Wrong)?;
        let node = out.entry.nodeid;
        self.held.insert(slot, Held { node, open: Some(super::Open::of(node, &out.open, WRONLY as u32)) });
        Ok(Answer::Attr(attr_of(&out.entry.attr, None)?))
    }

    fn set_xattr(&self, at: &At, name: &[u8], value: &[u8], mode: XattrMode) -> Result<(), Failed> {
        let node = self.walk(at)?;
        let flags = match mode {
            XattrMode::Any => 0,
            XattrMode::Create => 1,
            XattrMode::Replace => 2,
        };
        let set = wire::SetxattrIn { size: value.len() as u32, flags };
        let set = wire::SetxattrWhole { set, ..wire::SetxattrWhole::default() };
        self.send(Opcode::Setxattr, node, &set, &[&ended(name), value].concat())?;
        self.caches.lock().mark(node, stale::CTIME);
        let get = wire::GetxattrIn { size: value.len() as u32 + 1, padding: 0 };
        if self.send(Opcode::Getxattr, node, &get, &ended(name))? != value {
            return Err(Failed::Wrong("GETXATTR returns another value than was set".into()));
        }
        if !value.is_empty() {
            let get = wire::GetxattrIn { size: value.len() as u32 - 1, padding: 0 };
            let right = if get.size == 0 { Ok(Errno::RANGE) } else { Err(Errno::RANGE) };
            match (self.send(Opcode::Getxattr, node, &get, &ended(name)), right) {
                (Err(Failed::Request(Errno::RANGE)), Err(_)) | (Ok(_), Ok(_)) => {}
                (answer, _) => {
                    return Err(Failed::Wrong(format!("GETXATTR with too little room: {answer:?}")));
                }
            }
        }
        Ok(())
    }

    /// Removes everything below a directory. A kernel keeps names below it until the directory itself is
    /// removed, which is what `betrfs rm-tree` does next: so they are forgotten here.
    fn empty(&self, at: &At, snapshots: SnapshotsBelow) -> Result<(), Failed> {
        let node = self.walk(at)?;
        let command = match snapshots {
            SnapshotsBelow::Hold => ioctl::EMPTY,
            SnapshotsBelow::Go => ioctl::EMPTY_WITH_SNAPSHOTS,
        };
        self.change(node, command, b"")?;
        self.caches.lock().prune(node);
        Ok(())
    }

    /// Makes an empty object a copy of another.
    fn fill_copy(&self, from: &At, to: &At) -> Result<(), Failed> {
        let (source, target) = (self.walk(from)?, self.walk(to)?);
        if self.manner.is_old {
            // Others may look into the copy while it is empty.
            for name in [b"a", b"b", b"c"] {
                let _ = self.look_up(target, name);
            }
        }
        let token = self.written_back(source)?;
        self.change(target, ioctl::FILL, &token)
    }

    /// Brings a directory back to a snapshot.
    fn restore(&self, of: &At, name: &[u8], keep_as: &[u8]) -> Result<(), Failed> {
        let dir = self.walk(of)?;
        // Others look for names that are there or not.
        for name in [b"a", b"b", b"c"] {
            let _ = self.look_up(dir, name);
        }
        let argument = |token| ioctl::restore_bytes(token, name, keep_as).ok_or_else(short);
        let may = self.ioctl(dir, ioctl::MAY_RESTORE, &argument(0)?);
        let token = self.written_back(dir)?;
        let number = u64::from_le_bytes(*token.first_chunk().ok_or_else(short)?);
        let restored = self.change(dir, ioctl::RESTORE, &argument(number)?);
        // A disk that fails in between says nothing of the question.
        let of_disk = matches!(&restored, Err(Failed::Request(Errno::IO | Errno::NOSPC | Errno::ROFS)));
        if may.is_ok() != restored.is_ok() && !of_disk {
            return Err(Failed::Wrong(format!("MAY_RESTORE says {may:?}, and RESTORE {restored:?}")));
        }
        restored?;
        self.wait_told(dir, &token)
    }

    /// Registers a source, and has the kernel write back what it holds of it; returns its token.
    fn written_back(&self, source: u64) -> Result<Vec<u8>, Failed> {
        let token = self.ioctl(source, ioctl::SOURCE, b"")?;
        self.wait_told(source, &token)?;
        Ok(token)
    }

    /// Waits until the kernel has followed the notices about a source.
    fn wait_told(&self, source: u64, token: &[u8]) -> Result<(), Failed> {
        for asked in 0.. {
            match self.ioctl(source, ioctl::WRITTEN_BACK, token) {
                Ok(_) => break,
                Err(Failed::Request(Errno::AGAIN)) if asked < ASKS_MAX => self.connection.send_late_notices(),
                Err(failed) => return Err(failed),
            }
        }
        Ok(())
    }

    /// Changes something by the attribute for that, as a process does.
    fn change(&self, node: u64, cmd: u32, argument: &[u8]) -> Result<(), Failed> {
        let value = change::change_bytes(cmd, argument);
        let set = wire::SetxattrIn { size: value.len() as u32, flags: 3 };
        let set = wire::SetxattrWhole { set, ..wire::SetxattrWhole::default() };
        self.send(Opcode::Setxattr, node, &set, &[&ended(change::CHANGE), &value[..]].concat())?;
        Ok(())
    }

    /// Sends an IOCTL; returns its result.
    pub(super) fn ioctl(&self, node: u64, cmd: u32, argument: &[u8]) -> Result<Vec<u8>, Failed> {
        let is_dir = self.caches.lock().inodes.get(&node).is_some_and(|inode| is_dir(&inode.attr));
        let flags = if is_dir { wire::IOCTL_DIR } else { 0 };
        let in_size = argument.len() as u32;
        let ioctl = wire::IoctlIn { cmd, flags, in_size, out_size: 4096, ..wire::IoctlIn::default() };
        let reply = self.send(Opcode::Ioctl, node, &ioctl, argument)?;
        let (out, result) = wire::IoctlOut::read_from_prefix(&reply).map_err(|_| short())?;
        if out.result == 0 { Ok(result.to_vec()) } else { Err(Failed::Wrong(format!("{out:?}"))) }
    }
}

fn short() -> Failed {
    Failed::Wrong("a reply is too short".into())
}

fn done(result: Result<(), Failed>) -> Result<Answer, Failed> {
    result.map(|()| Answer::Done)
}

/// Attributes as the library has them. Most replies lack the time of creation.
pub(super) fn attr_of(attr: &wire::Attr, crtime_ns: Option<i64>) -> Result<Attr, Failed> {
    Ok(Attr {
        ino: attr.ino,
        file_type: file_type_of(attr.mode >> 12)?,
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        blocks_512: attr.blocks,
        atime_ns: time_ns(attr.atime, attr.atime_nsec),
        mtime_ns: time_ns(attr.mtime, attr.mtime_nsec),
        ctime_ns: time_ns(attr.ctime, attr.ctime_nsec),
        crtime_ns: crtime_ns.unwrap_or(NOT_TOLD_NS),
    })
}

pub(super) fn time_ns(seconds: i64, nanoseconds: u32) -> i64 {
    seconds * 1_000_000_000 + i64::from(nanoseconds)
}
