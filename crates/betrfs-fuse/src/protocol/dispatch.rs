//! Dispatch: decodes each kind of request, calls the server, encodes its answer.

mod effect;
mod ioctl;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use betrfs::{Entry, FileType, Finished, InodeId, NewNode, SNAPSHOTS_NAME, SetGroupId};
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::convert::{
    LIFETIME_SECONDS, from_mode, from_setattr, from_whence, to_attr, to_dirent_kind, to_entry, to_statfs,
    to_statx,
};
use super::fetch_file::{FetchFile, NOTIFY_REPLY};
use super::init::Agreement;
use super::kernel_cache::{Pages, forget_inode};
use super::notify::{LateNotices, Notifier};
use super::panics::answering;
use super::{Answerer, NotifySink, Outcome};
use crate::control::SOCKET_ATTRIBUTE;
use crate::planted::{self, Bug};
use crate::server::{Answer, Caller, Found, Server, Tasks, error_log};
use crate::wire::{self, Body, InHeader, Listing, Opcode, fopen, init};

/// Files keep their pages between opens.
const OPENED_FILE: u32 = fopen::KEEP_CACHE;
/// The longest reply other than data, listings and extended attributes.
pub const SHORT_REPLY_BYTES_MAX: usize = size_of::<wire::StatxOut>();
/// The handle of all open files but those written past the kernel's pages: the node id says the rest.
const HANDLE: u64 = 0;
/// The handle of a file written past the kernel's pages.
const HANDLE_PAST_PAGES: u64 = 1;
/// Flag of a write that must be durable. In `OFlags` this name has the bits of O_SYNC.
const O_DSYNC: u32 = libc::O_DSYNC.cast_unsigned();

/// Answers requests, however they travel.
pub struct Dispatch {
    server: Arc<Server>,
    sink: Arc<dyn NotifySink>,
    notifier: Notifier,
    /// Whether a file may be written past the kernel's pages.
    past_pages: bool,
    /// Whether the kernel lets only owners set an inode's flags.
    owners_are_asked_for: bool,
    /// Whether the kernel says what becomes of the set-group-id bit when it sends an access control list.
    setxattr_has_more: bool,
    fetch_file: Option<FetchFile>,
}

/// One request and the room for its reply.
struct Request<'a, 'o> {
    header: &'a InHeader,
    body: Body<'a>,
    out: &'o mut [u8],
    tasks: &'a dyn Tasks,
}

impl Answerer for Dispatch {
    fn answer(&self, header: &InHeader, body: Body<'_>, out: &mut [u8]) -> Outcome {
        if header.opcode == NOTIFY_REPLY {
            return Outcome::Silent;
        }
        let Some(opcode) = Opcode::of(header.opcode) else {
            tracing::debug!("unknown kernel request {}", header.opcode);
            return Outcome::Reply(Err(Errno::NOSYS));
        };
        let counters = self.server.counters();
        counters.arrived(opcode);
        let _passed = self.server.freezer().pass(effect::of(opcode, body));
        let began = Instant::now();
        let request = Request { header, body, out, tasks: self.server.tasks() };
        let (answer, failure) =
            error_log::of_request(|| answering(opcode.name(), || self.compute(opcode, request)));
        if let Some(failure) = failure {
            let has_name = matches!(opcode, Opcode::Lookup | Opcode::Unlink | Opcode::Rmdir);
            let name = if has_name { wire::name(body.rest()).ok() } else { None };
            self.server.tell_failure(InodeId(header.nodeid), name.map(|(name, _)| name), &failure);
        }
        counters.answered(opcode, began.elapsed(), &answer);
        match opcode {
            Opcode::Forget | Opcode::BatchForget => Outcome::Silent,
            _ => Outcome::Reply(answer),
        }
    }

    fn ended(&self) {
        // Threads that wait for the end of a freeze hold the mount's end up.
        self.server.freezer().end_for_good();
    }
}

impl Dispatch {
    /// Answers by a server. Invalidations go through `sink`; those that may start write-back go through a
    /// thread of their own, because they block.
    ///
    /// # Errors
    /// The operating system's: a thread is started.
    pub fn start(server: Arc<Server>, sink: Arc<dyn NotifySink>, agreed: Agreement) -> io::Result<Dispatch> {
        let (dispatch, late) = Dispatch::new(server, sink, agreed);
        late.start()?;
        Ok(dispatch)
    }

    /// As [`start`](Dispatch::start), with the notices that block left to the caller.
    pub fn new(server: Arc<Server>, sink: Arc<dyn NotifySink>, agreed: Agreement) -> (Dispatch, LateNotices) {
        let (notifier, late) = Notifier::new(Arc::clone(&sink));
        let dispatch = Dispatch {
            server,
            sink,
            notifier,
            past_pages: agreed.minor >= wire::MINOR_COHERENT_DIRECT_IO,
            owners_are_asked_for: agreed.minor >= wire::MINOR_OWNERS_ASKED_FOR,
            setxattr_has_more: agreed.has(init::SETXATTR_EXT),
            fetch_file: None,
        };
        (dispatch, late)
    }

    /// The same, with a file that makes the kernel send requests.
    #[must_use]
    pub fn with_fetch_file(self, fetch_file: FetchFile) -> Dispatch {
        Dispatch { fetch_file: Some(fetch_file), ..self }
    }

    fn compute(&self, opcode: Opcode, mut r: Request<'_, '_>) -> Answer<usize> {
        let server = &*self.server;
        let node = InodeId(r.header.nodeid);
        match opcode {
            Opcode::Lookup => {
                let name = r.only_name()?;
                if let Some(found) = self.fetch_file.as_ref().and_then(|file| file.found(node, name)) {
                    return r.reply(&found);
                }
                // By these the kernel comes from a handle to an object, and from there up to the root.
                let found = match name {
                    b"." => Found::Object(server.find_inode(node)?),
                    b".." => Found::Object(server.parent(node)?),
                    _ => server.lookup(node, name, r.header.pid)?,
                };
                let entry = match found {
                    Found::Object(entry) => Some(entry),
                    Found::Lost(entry) => {
                        // Whoever wants the attributes asks for them, and gets the error.
                        return r.reply(&wire::EntryOut { attr_valid: 0, ..to_entry(&entry) });
                    }
                    Found::Nothing => None,
                };
                // Node 0: the kernel remembers that the name is absent.
                let mut reply = entry.as_ref().map_or_else(no_entry, to_entry);
                if entry.is_none() && server.may_gain_names(node) {
                    reply.entry_valid = 0;
                }
                let is_above = |entry: &Entry| name == b".." && server.holds_snapshots(entry.node);
                let is_told = planted::is(Bug::SnapshotsRemembered);
                if (name == SNAPSHOTS_NAME || entry.as_ref().is_some_and(is_above)) && !is_told {
                    // The lookup makes it, and its attributes follow its directory's.
                    (reply.entry_valid, reply.attr_valid) = (0, 0);
                }
                if let Some(entry) = entry.filter(|entry| entry.attr.file_type == FileType::Directory)
                    && planted::is(Bug::LookupNotCounted)
                {
                    server.forget(entry.node, 1);
                }
                r.reply(&reply)
            }
            Opcode::Forget => {
                let (forget, _) = r.body.split::<wire::ForgetIn>()?;
                let kept = u64::from(planted::is(Bug::ForgetOffByOne));
                server.forget(node, forget.lookups.saturating_sub(kept));
                Ok(0)
            }
            Opcode::BatchForget => {
                let (batch, mut rest) = r.body.split::<wire::BatchForgetIn>()?;
                for _ in 0..batch.count {
                    let (one, after) = wire::ForgetOne::read_from_prefix(rest).map_err(|_| Errno::INVAL)?;
                    server.forget(InodeId(one.nodeid), one.lookups);
                    rest = after;
                }
                Ok(0)
            }
            Opcode::Getattr => r.reply_attr(&server.getattr(node)?, self.attr_seconds(node)),
            Opcode::Setattr => {
                let (set, _) = r.body.split::<wire::SetattrIn>()?;
                let mut change = from_setattr(&set);
                if change.kill_set_id {
                    self.kill_set_id(node, r.caller(), || false)?;
                    // Of a special file they are cleared together with the change of the owner.
                    change.outside_group = r.caller().is_outside_group(&server.getattr(node)?);
                }
                r.reply_attr(&server.setattr(node, &change)?, self.attr_seconds(node))
            }
            Opcode::Statx => {
                let attr = server.getattr(node)?;
                r.reply(&wire::StatxOut {
                    attr_valid: self.attr_seconds(node),
                    stat: to_statx(&attr),
                    ..wire::StatxOut::default()
                })
            }
            Opcode::Readlink => r.reply_bytes(&server.readlink(node)?),
            Opcode::Symlink => {
                let (name, rest) = wire::name(r.body.rest())?;
                let (target, _) = wire::name(rest)?;
                r.reply_entry(&server.symlink(node, name, target, r.caller())?)
            }
            Opcode::Mknod => {
                let (mknod, rest) = r.body.split::<wire::MknodIn>()?;
                let file_type = from_mode(mknod.mode).ok_or(Errno::INVAL)?;
                let new = r.new_node(file_type, (mknod.mode, mknod.umask), mknod.rdev);
                r.reply_entry(&server.make(node, wire::name(rest)?.0, &new, r.caller())?)
            }
            Opcode::Mkdir => {
                let (mkdir, rest) = r.body.split::<wire::MkdirIn>()?;
                let new = r.new_node(FileType::Directory, (mkdir.mode, mkdir.umask), 0);
                r.reply_entry(&server.make(node, wire::name(rest)?.0, &new, r.caller())?)
            }
            Opcode::Unlink => server.unlink(node, r.only_name()?).map(|()| 0),
            Opcode::Rmdir => {
                self.tell_removed(server.rmdir(node, r.only_name()?, r.caller())?)?;
                Ok(0)
            }
            Opcode::Rename => {
                let (rename, names) = r.body.split::<wire::RenameIn>()?;
                self.rename(node, InodeId(rename.newdir), names, 0)
            }
            Opcode::Rename2 => {
                let (rename, names) = r.body.split::<wire::Rename2In>()?;
                self.rename(node, InodeId(rename.newdir), names, rename.flags)
            }
            Opcode::Link => {
                let (link, rest) = r.body.split::<wire::LinkIn>()?;
                r.reply_entry(&server.link(InodeId(link.oldnodeid), node, wire::name(rest)?.0)?)
            }
            Opcode::Create => {
                let (create, rest) = r.body.split::<wire::CreateIn>()?;
                let new = r.new_node(FileType::Regular, (create.mode, create.umask), 0);
                let flags = OFlags::from_bits_retain(create.flags);
                let entry = server.create(node, wire::name(rest)?.0, &new, flags)?;
                r.reply(&wire::CreateOut { entry: to_entry(&entry), open: created(flags, self.past_pages) })
            }
            Opcode::Tmpfile => {
                let (create, _) = r.body.split::<wire::CreateIn>()?;
                let new = r.new_node(FileType::Regular, (create.mode, create.umask), 0);
                let flags = OFlags::from_bits_retain(create.flags);
                let entry = server.tmpfile(node, &new, flags)?;
                r.reply(&wire::CreateOut { entry: to_entry(&entry), open: opened(flags) })
            }
            Opcode::Open => {
                let (open, _) = r.body.split::<wire::OpenIn>()?;
                let flags = OFlags::from_bits_retain(open.flags);
                if open.open_flags & wire::OPEN_KILL_SUIDGID != 0 {
                    self.kill_set_id(node, r.caller(), || false)?;
                }
                if server.open(node, flags)? {
                    forget_inode(&*self.sink, node.0, Pages::None);
                }
                // A file opened past the pages cannot be mapped writable: the kernel would let a mapping
                // overwrite it.
                let writes = flags & OFlags::ACCMODE != OFlags::RDONLY;
                let past_pages = self.past_pages && writes && server.is_append_only(node);
                r.reply(&if past_pages { opened_past_pages() } else { opened(flags) })
            }
            Opcode::Release => {
                let (release, _) = r.body.split::<wire::ReleaseIn>()?;
                server.release(node, OFlags::from_bits_retain(release.flags));
                Ok(0)
            }
            Opcode::Read => {
                let (read, _) = r.body.split::<wire::ReadIn>()?;
                let out = r.out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
                server.read(node, read.offset, out, OFlags::from_bits_retain(read.flags))
            }
            Opcode::Write => {
                let (write, data) = r.body.split::<wire::WriteIn>()?;
                let all = data;
                let data = all.get(..write.size as usize).ok_or(Errno::INVAL)?;
                let data = if planted::is(Bug::WriteSizeIgnored) { all } else { data };
                if write.write_flags & wire::WRITE_KILL_SUIDGID != 0 {
                    self.kill_set_id(node, r.caller(), || false)?;
                }
                if write.fh != HANDLE_PAST_PAGES {
                    server.writes_pages(node);
                }
                let written = self.write(node, &write, data)?;
                if write.fh == HANDLE_PAST_PAGES && write.flags & O_DSYNC != 0 {
                    // Only after a write to its pages does the kernel send an FSYNC of its own.
                    server.fsync(node)?;
                }
                // At most the size of the request, which is a u32.
                r.reply(&wire::WriteOut { size: written as u32, padding: 0 })
            }
            // ENOSYS tells the kernel to send no FLUSH. It still writes back the pages of mappings when a
            // file is closed that may have some, and close(2) returns the error of a write-back.
            Opcode::Flush => Err(Errno::NOSYS),
            Opcode::Fsync if planted::is(Bug::FsyncNotDone) => Ok(0),
            Opcode::Fsync => server.fsync(node).map(|()| 0),
            Opcode::Fsyncdir => server.fsyncdir(node).map(|()| 0),
            Opcode::Syncfs => {
                let Finished { changed, snapshots } = server.syncfs()?;
                self.tell_removed(changed)?;
                snapshots.iter().for_each(|(entry, _)| forget_inode(&*self.sink, entry.0, Pages::All));
                self.notifier.drop_names(snapshots, Arc::default())?;
                Ok(0)
            }
            Opcode::Statfs => r.reply(&to_statfs(&server.statfs(node)?)),
            // Opening a directory needs no request: the kernel sends no more of them, and keeps listings
            // until it changes the directory itself.
            Opcode::Opendir => Err(Errno::NOSYS),
            Opcode::Readdir => self.list(node, false, r),
            Opcode::Readdirplus => self.list(node, true, r),
            Opcode::Setxattr => self.setxattr(node, &r),
            Opcode::Getxattr => {
                let (get, rest) = r.body.split::<wire::GetxattrIn>()?;
                let (name, _) = wire::name(rest)?;
                if name == SOCKET_ATTRIBUTE {
                    return r.reply_sized(get.size, server.socket_name()?);
                }
                r.reply_sized(get.size, &server.getxattr(node, name)?)
            }
            Opcode::Listxattr => {
                let (get, _) = r.body.split::<wire::GetxattrIn>()?;
                r.reply_sized(get.size, &server.listxattr(node, r.caller())?)
            }
            Opcode::Removexattr => server.removexattr(node, r.only_name()?).map(|()| 0),
            Opcode::Fallocate => {
                let (f, _) = r.body.split::<wire::FallocateIn>()?;
                let caller = r.caller();
                self.kill_set_id(node, caller, || caller.keeps_set_id())?;
                server.fallocate(node, f.mode, f.offset, f.length).map(|()| 0)
            }
            Opcode::Lseek => {
                let (seek, _) = r.body.split::<wire::LseekIn>()?;
                let to = from_whence(seek.offset, seek.whence)?;
                r.reply(&wire::LseekOut { offset: server.lseek(node, to)? })
            }
            Opcode::CopyFileRange => {
                let size = u32::try_from(self.copy(node, &r)?).map_err(|_| Errno::OVERFLOW)?;
                r.reply(&wire::WriteOut { size, padding: 0 })
            }
            Opcode::CopyFileRange64 => {
                let bytes_copied = self.copy(node, &r)?;
                r.reply(&wire::CopyFileRangeOut { bytes_copied })
            }
            Opcode::Ioctl => self.ioctl(node, r),
            Opcode::Destroy => {
                server.destroy();
                Ok(0)
            }
            // INIT comes once, before. ENOSYS tells the kernel to send no INTERRUPT.
            Opcode::Init | Opcode::Interrupt => Err(Errno::NOSYS),
        }
    }

    /// How long the kernel may cache a node's attributes: those of the entry with a directory's snapshots
    /// follow the directory's.
    fn attr_seconds(&self, node: InodeId) -> u64 {
        let follows = self.server.holds_snapshots(node) && !planted::is(Bug::SnapshotsRemembered);
        if follows { 0 } else { LIFETIME_SECONDS }
    }

    fn write(&self, node: InodeId, write: &wire::WriteIn, data: &[u8]) -> Answer<usize> {
        if write.write_flags & wire::WRITE_CACHE == 0 {
            return self.server.write(node, write.offset, data);
        }
        let written = self.server.write_mapped(node, write.offset, data);
        if written == Err(Errno::PERM) {
            // Readers must not find the refused bytes in the kernel's pages.
            self.notifier.write_back(vec![node], Arc::default())?;
        }
        written
    }

    fn setxattr(&self, node: InodeId, r: &Request<'_, '_>) -> Answer<usize> {
        let (set, more, rest) = if self.setxattr_has_more {
            let (wire::SetxattrWhole { set, more }, rest) = r.body.split()?;
            (set, Some(more), rest)
        } else {
            let (set, rest) = r.body.split::<wire::SetxattrIn>()?;
            (set, None, rest)
        };
        let (name, value) = wire::name(rest)?;
        let value = value.get(..set.size as usize).ok_or(Errno::INVAL)?;
        if name == wire::change::CHANGE {
            return self.change(node, value, r.caller()).map(|()| 0);
        }
        let flags = XattrFlags::from_bits_retain(set.flags);
        let set_group_id = || {
            let is_cleared = match more {
                Some(more) => more.setxattr_flags & wire::SETXATTR_ACL_KILL_SGID != 0,
                // The kernel does not say; nor are the caller's groups known.
                None => !r.caller().keeps_set_id(),
            };
            if is_cleared { SetGroupId::Cleared } else { SetGroupId::Kept }
        };
        self.server.setxattr(node, name, value, flags, set_group_id).map(|()| 0)
    }

    /// Clears the set-id bits of a file whose contents are about to change, unless they may stay.
    fn kill_set_id(&self, node: InodeId, caller: Caller<'_>, may_stay: impl FnOnce() -> bool) -> Answer<()> {
        if planted::is(Bug::SetIdKept) {
            return Ok(());
        }
        if self.server.kill_set_id(node, caller, may_stay)? && !planted::is(Bug::SetIdNotTold) {
            forget_inode(&*self.sink, node.0, Pages::None);
        }
        Ok(())
    }

    /// Tells the kernel of a removal that it did not see itself. Attributes are invalidated before the reply,
    /// so that the caller sees the new counts of names; listings of removed directories may follow later,
    /// with pages to write back.
    fn tell_removed(&self, nodes: Vec<InodeId>) -> Answer<()> {
        if planted::is(Bug::RemovalNotTold) {
            return Ok(());
        }
        nodes.iter().for_each(|node| forget_inode(&*self.sink, node.0, Pages::None));
        self.notifier.write_back(nodes, Arc::default())
    }

    fn rename(&self, from: InodeId, to: InodeId, names: &[u8], flags: u32) -> Answer<usize> {
        let (old, rest) = wire::name(names)?;
        let (new, _) = wire::name(rest)?;
        self.server.rename((from, old), (to, new), flags).map(|()| 0)
    }

    fn copy(&self, from: InodeId, r: &Request<'_, '_>) -> Answer<u64> {
        let (c, _) = r.body.split::<wire::CopyFileRangeIn>()?;
        let caller = r.caller();
        self.kill_set_id(InodeId(c.nodeid_out), caller, || caller.keeps_set_id())?;
        self.server.copy_file_range((from, c.offset_in), (InodeId(c.nodeid_out), c.offset_out), c.len)
    }

    fn list(&self, dir: InodeId, plus: bool, r: Request<'_, '_>) -> Answer<usize> {
        let (read, _) = r.body.split::<wire::ReadIn>()?;
        let room = r.out.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let mut listing = Listing::new(room);
        let mut without_room = None;
        self.server.readdir(dir, read.offset, plus.then_some(r.header.pid), &mut |found| {
            // An entry without its object has zeros here: the kernel then learns the name alone.
            let entry = plus.then(|| found.entry.as_ref().map_or_else(wire::EntryOut::default, to_entry));
            let kind = to_dirent_kind(found.file_type);
            let dirent = wire::Dirent { ino: found.ino, cookie: found.cookie, name_len: 0, kind };
            let has_room = listing.add(entry.as_ref(), dirent, found.name);
            if !has_room && planted::is(Bug::ListedWithoutRoom) && found.entry.is_some() {
                without_room = Some(found.name.to_vec());
            }
            has_room
        })?;
        if let Some(name) = without_room {
            let _ = self.server.lookup(dir, &name, 0)?;
        }
        Ok(listing.bytes())
    }
}

impl<'a> Request<'a, '_> {
    fn caller(&self) -> Caller<'a> {
        let InHeader { uid, gid, pid, .. } = *self.header;
        Caller { uid, gid, task: pid, tasks: self.tasks }
    }

    /// An object to be made with a mode less a umask.
    fn new_node(&self, file_type: FileType, (mode, umask): (u32, u32), rdev: u32) -> NewNode {
        let InHeader { uid, gid, .. } = *self.header;
        let (perm, umask) = ((mode & 0o7777) as u16, (umask & 0o777) as u16);
        NewNode { file_type, perm, uid, gid, rdev, umask }
    }

    /// The name, in a body without a structure.
    fn only_name(&self) -> Answer<&[u8]> {
        Ok(wire::name(self.body.rest())?.0)
    }

    fn reply<T: IntoBytes + zerocopy::Immutable>(&mut self, reply: &T) -> Answer<usize> {
        self.reply_bytes(reply.as_bytes())
    }

    fn reply_bytes(&mut self, bytes: &[u8]) -> Answer<usize> {
        self.out.get_mut(..bytes.len()).ok_or(Errno::IO)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn reply_entry(&mut self, entry: &Entry) -> Answer<usize> {
        self.reply(&to_entry(entry))
    }

    fn reply_attr(&mut self, attr: &betrfs::Attr, attr_valid: u64) -> Answer<usize> {
        let attr = to_attr(attr);
        self.reply(&wire::AttrOut { attr_valid, attr_valid_nsec: 0, dummy: 0, attr })
    }

    /// Replies with an attribute's value or list, or with its length if the caller gave no buffer.
    fn reply_sized(&mut self, room: u32, value: &[u8]) -> Answer<usize> {
        if room == 0 {
            let size = u32::try_from(value.len()).map_err(|_| Errno::RANGE)?;
            return self.reply(&wire::GetxattrOut { size, padding: 0 });
        }
        if value.len() > room as usize {
            return Err(Errno::RANGE);
        }
        self.reply_bytes(value)
    }
}

fn no_entry() -> wire::EntryOut {
    wire::EntryOut { entry_valid: LIFETIME_SECONDS, ..wire::EntryOut::default() }
}

/// The open flags of a file. Only a descriptor for reading and writing can have a writable mapping: another
/// one has nothing to write back when it is closed.
fn opened(flags: OFlags) -> wire::OpenOut {
    let is_mapped = flags & OFlags::ACCMODE == OFlags::RDWR;
    let open_flags = if is_mapped { OPENED_FILE } else { OPENED_FILE | fopen::NOFLUSH };
    wire::OpenOut { fh: HANDLE, open_flags, backing_id: 0 }
}

/// The open flags of a new file. A file created for writing alone goes past the kernel's pages: its
/// descriptor does not read; pages of a small file would not serve a later reader either (the kernel does not
/// keep a page written in part); large data is copied once less; and before the first write through pages the
/// kernel asks for the file's capabilities, one more request for each file.
fn created(flags: OFlags, past_pages: bool) -> wire::OpenOut {
    if past_pages && flags & OFlags::ACCMODE == OFlags::WRONLY {
        return opened_past_pages();
    }
    opened(flags)
}

fn opened_past_pages() -> wire::OpenOut {
    let open_flags = OPENED_FILE | fopen::NOFLUSH | fopen::DIRECT_IO;
    wire::OpenOut { fh: HANDLE_PAST_PAGES, open_flags, backing_id: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_written_past_the_pages_where_the_kernel_then_forgets_them() {
        let is_direct = |flags, past_pages| {
            let open = created(flags, past_pages);
            assert_eq!(open.fh == HANDLE_PAST_PAGES, open.open_flags & fopen::DIRECT_IO != 0);
            assert_eq!(open.open_flags & OPENED_FILE, OPENED_FILE);
            let is_mapped = flags & OFlags::ACCMODE == OFlags::RDWR;
            assert_eq!(open.open_flags & fopen::NOFLUSH == 0, is_mapped, "{flags:?}");
            open.fh == HANDLE_PAST_PAGES
        };
        assert!(is_direct(OFlags::WRONLY | OFlags::CREATE, true));
        assert!(!is_direct(OFlags::WRONLY | OFlags::CREATE, false));
        assert!(!is_direct(OFlags::RDWR | OFlags::CREATE, true));
        assert!(!is_direct(OFlags::RDONLY | OFlags::CREATE, true));
    }
}
