//! Requests about names, and what the kernel makes of them.

use betrfs::{FileType, RenameFlags};
use betrfs_fuse::wire::{self, CreateOut, EntryOut, Opcode};

use super::cache::{is_dir, stale};
use super::connection::Request;
use super::{Kernel, Open};
use crate::at::{At, Base};
use crate::client::Failed;
use crate::op::Owner;
use betrfs_fuse::Errno;
use zerocopy::IntoBytes;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Kernel {
    /// The node that a path leads to.
    pub(super) fn walk(&self, at: &At) -> Result<u64, Failed> {
        let mut node = match at.base {
            Base::Root => super::cache::ROOT_NODE,
            Base::Slot(slot) => self.held.get(&slot).ok_or(Errno::STALE)?.node,
        };
        for name in &at.names {
            node = self.look_up(node, name)?;
        }
        Ok(node)
    }

    /// The directory and the name at the end of a path.
    pub(super) fn place<'a>(&self, at: &'a At) -> Result<(u64, &'a [u8]), Failed> {
        let (above, _) = at.split().ok_or(Errno::INVAL)?;
        let name = at.names.last().ok_or(Errno::INVAL)?;
        Ok((self.walk(&above)?, name))
    }

    /// The node of a name, from memory if that is allowed.
    pub(super) fn look_up(&self, dir: u64, name: &[u8]) -> Result<u64, Failed> {
        let known = self.caches.lock().find(dir, name, self.now_ns());
        let node = match known {
            Some(node) => {
                self.caches.lock().counts.names += 1;
                node
            }
            None => {
                let reply = self.send(Opcode::Lookup, dir, &[0_u8; 0], &ended(name))?;
                let entry: EntryOut = Self::parse(&reply)?;
                self.entered(dir, name, &entry)?;
                entry.nodeid
            }
        };
        if node == 0 { Err(Errno::NOENT.into()) } else { Ok(node) }
    }

    /// Makes an object of any type but a symbolic link.
    pub(super) fn make(
        &mut self,
        at: &At,
        file_type: FileType,
        owner: Owner,
        rdev: u32,
    ) -> Result<wire::Attr, Failed> {
        let (dir, name) = self.place(at)?;
        let mode = u32::from(owner.perm) | type_bits(file_type);
        let is_written = self.made_is_written;
        if file_type == FileType::Regular && (is_written || !self.manner.is_old) {
            let flags = (libc_flags::WRONLY | libc_flags::CREAT | libc_flags::EXCL) as u32;
            let create = wire::CreateIn { flags, mode, ..wire::CreateIn::default() };
            let reply = self.send_as(Opcode::Create, dir, owner, &create, &ended(name))?;
            let out: CreateOut = Self::parse(&reply)?;
            self.entered(dir, name, &out.entry)?;
            self.caches.lock().dir_changed(dir);
            let open = Open::of(out.entry.nodeid, &out.open, flags);
            if is_written {
                self.made = Some(open);
            } else {
                self.release(open);
            }
            return Ok(out.entry.attr);
        }
        let reply = match file_type {
            FileType::Directory => {
                let mkdir = wire::MkdirIn { mode, umask: 0 };
                self.send_as(Opcode::Mkdir, dir, owner, &mkdir, &ended(name))?
            }
            _ => {
                let mknod = wire::MknodIn { mode, rdev, ..wire::MknodIn::default() };
                self.send_as(Opcode::Mknod, dir, owner, &mknod, &ended(name))?
            }
        };
        self.made_entry(dir, name, &reply)
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(&self, at: &At, target: &[u8], uid: u32, gid: u32) -> Result<wire::Attr, Failed> {
        let (dir, name) = self.place(at)?;
        let names = [ended(name), ended(target)].concat();
        let reply = self.send_as(Opcode::Symlink, dir, Owner { perm: 0, uid, gid }, &[0_u8; 0], &names)?;
        self.made_entry(dir, name, &reply)
    }

    /// Adds a name to an object.
    pub(super) fn link(&self, from: &At, to: &At) -> Result<wire::Attr, Failed> {
        let node = self.walk(from)?;
        let (dir, name) = self.place(to)?;
        let link = wire::LinkIn { oldnodeid: node };
        let reply = self.send(Opcode::Link, dir, &link, &ended(name))?;
        self.made_entry(dir, name, &reply)
    }

    fn made_entry(&self, dir: u64, name: &[u8], reply: &[u8]) -> Result<wire::Attr, Failed> {
        let entry: EntryOut = Self::parse(reply)?;
        if entry.nodeid == 0 {
            return Err(Failed::Wrong("what was made has no node".into()));
        }
        self.entered(dir, name, &entry)?;
        self.caches.lock().dir_changed(dir);
        Ok(entry.attr)
    }

    /// Removes a name, of a directory or of anything else.
    pub(super) fn remove(&self, at: &At, opcode: Opcode) -> Result<(), Failed> {
        let (dir, name) = self.place(at)?;
        // The kernel knows what it removes; where there is nothing, it sends no request. Here it does.
        let known = self.look_up(dir, name);
        self.send(opcode, dir, &[0_u8; 0], &ended(name))?;
        let node = known?;
        let mut caches = self.caches.lock();
        if opcode == Opcode::Rmdir {
            caches.prune(node);
        }
        caches.unlinked(dir, name);
        caches.dir_changed(dir);
        Ok(())
    }

    /// Renames.
    pub(super) fn rename(&self, from: &At, to: &At, flags: RenameFlags) -> Result<(), Failed> {
        let ((dir, name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        let (node, other) = (self.look_up(dir, name), self.look_up(to_dir, to_name));
        let bits = [
            (flags.no_replace, RENAME_NOREPLACE),
            (flags.exchange, RENAME_EXCHANGE),
            (flags.whiteout, RENAME_WHITEOUT),
        ];
        let bits = bits.iter().filter(|(is_set, _)| *is_set).fold(0, |bits, (_, bit)| bits | bit);
        let names = [ended(name), ended(to_name)].concat();
        if bits == 0 && self.manner.is_old {
            self.send(Opcode::Rename, dir, &wire::RenameIn { newdir: to_dir }, &names)?;
        } else {
            let rename = wire::Rename2In { newdir: to_dir, flags: bits, padding: 0 };
            self.send(Opcode::Rename2, dir, &rename, &names)?;
        }
        let node = node?;
        let mut caches = self.caches.lock();
        let is_same = other.as_ref().is_ok_and(|other| *other == node);
        if is_same {
            // Two names of one object: nothing happens, and the kernel sends no request.
            return Ok(());
        }
        let (from_key, to_key) = ((dir, name.to_vec()), (to_dir, to_name.to_vec()));
        caches.mark(node, stale::CTIME);
        if flags.exchange {
            caches.mark(other?, stale::CTIME);
            let (one, two) = (caches.names.remove(&from_key), caches.names.remove(&to_key));
            two.map(|dentry| caches.names.insert(from_key, dentry));
            one.map(|dentry| caches.names.insert(to_key, dentry));
        } else {
            if let Ok(replaced) = other {
                if caches.inodes.get(&replaced).is_some_and(|inode| is_dir(&inode.attr)) {
                    caches.prune(replaced);
                }
                caches.unlinked(to_dir, to_name);
            }
            let moved = caches.names.remove(&from_key);
            moved.map(|dentry| caches.names.insert(to_key, dentry));
        }
        caches.dir_changed(dir);
        caches.dir_changed(to_dir);
        Ok(())
    }

    /// Sends a request that makes something for an owner.
    pub(super) fn send_as<T: IntoBytes + zerocopy::Immutable>(
        &self,
        opcode: Opcode,
        nodeid: u64,
        owner: Owner,
        structure: &T,
        rest: &[u8],
    ) -> Result<Vec<u8>, Failed> {
        let mut request = Request::new(opcode, nodeid);
        (request.header.uid, request.header.gid) = (owner.uid, owner.gid);
        request.structure = structure.as_bytes().to_vec();
        request.rest = rest.to_vec();
        self.deliver(request)
    }
}

/// The flags of open(2) in use here, as Linux has them on all platforms of this program.
pub(super) mod libc_flags {
    pub const RDONLY: i32 = 0;
    pub const WRONLY: i32 = 1;
    pub const CREAT: i32 = 0o100;
    pub const EXCL: i32 = 0o200;
    pub const TRUNC: i32 = 0o1000;
    pub const APPEND: i32 = 0o2000;
}

/// A name with its end.
pub(super) fn ended(name: &[u8]) -> Vec<u8> {
    [name, b"\0"].concat()
}

/// The upper bits of a mode.
pub(super) fn type_bits(file_type: FileType) -> u32 {
    let kind = match file_type {
        FileType::Fifo => 1,
        FileType::CharDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::Regular => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
    };
    kind << 12
}
