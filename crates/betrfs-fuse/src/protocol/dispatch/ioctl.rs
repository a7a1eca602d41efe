//! Requests about a file or directory as a whole, by number: those that change something by an extended
//! attribute, the others by IOCTL.

use std::sync::Arc;

use betrfs::{FileType, InodeFlags, InodeId, RemovedBelow, SnapshotsBelow};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::{Dispatch, Request};
use crate::planted::{self, Bug};
use crate::protocol::kernel_cache::{Pages, forget_inode};
use crate::server::{Answer, Caller};
use crate::wire::change::{Requires, change_of, requires};
use crate::wire::ioctl::{
    EMPTY, EMPTY_WITH_SNAPSHOTS, FILL, FOREIGN, GET_FLAGS, GET_VERSION, GET_XATTR, HELD, MAY_RESTORE, PERMIT,
    PathBytes, RESTORE, SET_FLAGS, SET_XATTR, SOURCE, TRIM, USAGE, WRITTEN_BACK, held_bytes, of_xflags,
    restore_of, xflags_of,
};
use crate::wire::properties::{GET_PROPERTIES, SET_PROPERTIES, properties_bytes, set_properties_of};
use crate::wire::quota::{CLEAR_QUOTA, GET_QUOTA, NEXT_QUOTA, NextQuota, QuotaBytes, path_bytes, path_of};
use crate::wire::recompress::{CHECKPOINT, RECOMPRESS, RecompressBytes};
use crate::wire::{self, Fsxattr};

impl Dispatch {
    pub(super) fn ioctl(&self, node: InodeId, mut r: Request<'_, '_>) -> Answer<usize> {
        let server = &*self.server;
        let (ioctl, data) = r.body.split::<wire::IoctlIn>()?;
        match requires(ioctl.cmd).ok_or(Errno::NOTTY)? {
            // The kernel has not checked the caller's mount.
            Requires::Change => return Err(Errno::OPNOTSUPP),
            Requires::Administration if !r.caller().is_trusted() => return Err(Errno::PERM),
            _ => {}
        }
        match ioctl.cmd {
            SOURCE => {
                let offered = server.offer(node, r.caller())?;
                self.notifier.write_back(offered.files, offered.written_back)?;
                r.reply_done(offered.token.as_bytes())
            }
            WRITTEN_BACK => {
                let (token, _) = u64::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                server.await_written_back(token)?;
                r.reply_done(&[])
            }
            USAGE => {
                let usage = server.usage(node, r.caller())?;
                r.reply_done(usage.as_bytes())
            }
            TRIM => {
                let (range, _) = <[u64; 3]>::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                r.reply_done(server.trim(range, r.caller())?.as_bytes())
            }
            GET_QUOTA => r.reply_done(QuotaBytes::from(server.quota(node)?).as_bytes()),
            NEXT_QUOTA => {
                let (mut next, _) = NextQuota::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                let after = (next.has_last != 0).then(|| path_of(&next.path));
                let (path, quota) = server.next_quota(node, after, r.caller())?;
                next.path = path_bytes(&path).ok_or(Errno::NAMETOOLONG)?;
                next.quota = quota.into();
                r.reply_done(next.as_bytes())
            }
            HELD => {
                let held = held_bytes(&server.held(node, r.caller())?);
                r.reply_done(&held)
            }
            FOREIGN => {
                let mut bytes: PathBytes = [0; size_of::<PathBytes>()];
                let path = server.foreign(node, r.caller())?;
                bytes.iter_mut().zip(path).for_each(|(to, byte)| *to = byte);
                r.reply_done(&bytes)
            }
            MAY_RESTORE => {
                let (_, name, keep_as) = restore_of(data).ok_or(Errno::INVAL)?;
                server.may_restore(node, (name, keep_as), r.caller())?;
                r.reply_done(&[])
            }
            GET_FLAGS => {
                let (flags, _) = server.inode_flags(node)?;
                r.reply_done(flags.bits().as_bytes())
            }
            GET_VERSION => {
                let generation = server.generation(node)?;
                r.reply_done(generation.as_bytes())
            }
            SET_FLAGS => {
                let (bits, _) = u32::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                self.set_flags(node, InodeFlags::from_bits(bits), None, &mut r)
            }
            GET_XATTR => {
                let (flags, project) = server.inode_flags(node)?;
                let found = Fsxattr { xflags: xflags_of(flags), project, ..Fsxattr::default() };
                r.reply_done(found.as_bytes())
            }
            SET_XATTR => {
                let (set, _) = Fsxattr::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                let flags = of_xflags(set.xflags).ok_or(Errno::OPNOTSUPP)?;
                // Flags without a bit there stay.
                let others = server.inode_flags(node)?.0.without(InodeFlags::KNOWN);
                self.set_flags(node, flags.union(others), Some(set.project), &mut r)
            }
            GET_PROPERTIES => r.reply_done(&properties_bytes(&server.properties(node)?)),
            RECOMPRESS => {
                let (argument, _) = RecompressBytes::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                let argument = argument.parts().ok_or(Errno::INVAL)?;
                // The file's bytes and attributes stay as they are: the kernel need not be told.
                let found = server.recompress(node, argument, r.caller())?;
                r.reply_done(RecompressBytes::answer(&found).as_bytes())
            }
            CHECKPOINT => {
                server.checkpoint(node, r.caller())?;
                r.reply_done(&[])
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// A change, by an extended attribute: the kernel has checked that the caller's mount is one for writing.
    pub(super) fn change(&self, node: InodeId, value: &[u8], caller: Caller<'_>) -> Answer<()> {
        let server = &*self.server;
        let (cmd, data) = change_of(value).ok_or(Errno::INVAL)?;
        match cmd {
            PERMIT => {
                let (token, _) = u64::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                server.permit(node, token, caller)
            }
            FILL => {
                let (token, _) = u64::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                server.fill(node, token, caller)?;
                // It was empty: the kernel has a listing at most, and no dirty page to write back first.
                if !planted::is(Bug::FillNotTold) {
                    let is_dir = server.getattr(node)?.file_type == FileType::Directory;
                    forget_inode(&*self.sink, node.0, if is_dir { Pages::All } else { Pages::None });
                }
                Ok(())
            }
            EMPTY | EMPTY_WITH_SNAPSHOTS => {
                let with_them = cmd == EMPTY_WITH_SNAPSHOTS;
                let snapshots = if with_them { SnapshotsBelow::Go } else { SnapshotsBelow::Hold };
                let RemovedBelow { changed, names } = server.empty(node, snapshots, caller)?;
                if !planted::is(Bug::EmptyNotTold) {
                    forget_inode(&*self.sink, node.0, Pages::All);
                    // The directory itself may stay: its removal is another request, which may fail or never
                    // come.
                    self.notifier.drop_names(names, Arc::default())?;
                }
                self.tell_removed(changed)
            }
            RESTORE => {
                let (token, name, keep_as) = restore_of(data).ok_or(Errno::INVAL)?;
                let (restored, told) = server.restore(node, token, (name, keep_as), caller)?;
                forget_inode(&*self.sink, node.0, Pages::All);
                forget_inode(&*self.sink, restored.snapshots.0, Pages::All);
                self.tell_removed(restored.changed)?;
                let mut names: Vec<_> = restored.names.into_iter().map(|name| (node, name)).collect();
                if planted::is(Bug::RestoredNamesNotTold) {
                    names.clear();
                }
                names.extend(restored.made);
                self.notifier.drop_names(names, told)
            }
            CLEAR_QUOTA => server.clear_quota(node, caller),
            SET_PROPERTIES => {
                let set = set_properties_of(data).ok_or(Errno::INVAL)?;
                server.set_properties(node, &set, caller)?;
                // The ctime has changed.
                forget_inode(&*self.sink, node.0, Pages::None);
                Ok(())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn set_flags(
        &self,
        node: InodeId,
        flags: InodeFlags,
        project: Option<u32>,
        r: &mut Request<'_, '_>,
    ) -> Answer<usize> {
        let setter = r.caller().flag_setter(self.owners_are_asked_for).ok_or(Errno::PERM)?;
        if let Some(written_back) = self.server.set_inode_flags(node, flags, project, setter)? {
            self.notifier.write_back(vec![node], written_back)?;
        }
        // The ctime has changed.
        if !planted::is(Bug::FlagsNotTold) {
            forget_inode(&*self.sink, node.0, Pages::None);
        }
        r.reply_done(&[])
    }
}

impl Request<'_, '_> {
    /// A reply of success with this result.
    fn reply_done(&mut self, result: &[u8]) -> Answer<usize> {
        self.reply_bytes(&[wire::IoctlOut::default().as_bytes(), result].concat())
    }
}
