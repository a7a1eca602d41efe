//! Requests about names: looking up, making, linking, removing, renaming.

use betrfs::{Entry, Error, FileType, InodeId, NewNode, RenameFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::owners::Rights;
use super::{Answer, Caller, IntoAnswer, Server};
use crate::planted::{self, Bug};
use crate::wire::ioctl::UNFINISHED;

/// renameat2's flags.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// What a name leads to.
pub enum Found {
    Object(Entry),
    /// A file that is lost. The kernel removes and renames only what it has looked up; the attributes mean
    /// nothing, and whatever else it asks of the node is an error.
    Lost(Entry),
    Nothing,
}

impl Server {
    /// LOOKUP by a task.
    pub fn lookup(&self, parent: InodeId, name: &[u8], task: u32) -> Answer<Found> {
        match self.volume.lookup(parent, name) {
            Ok(entry) => {
                if entry.attr.file_type != FileType::Directory {
                    self.readdirplus_policy.looks_up_a_file(task);
                }
                Ok(Found::Object(entry))
            }
            Err(Error::NotFound) => Ok(Found::Nothing),
            Err(error) => {
                // Logged in any case: it tells the name.
                let refused = Server::refuse(&error);
                self.volume.lookup_lost(parent, name).map(Found::Lost).map_err(|_| refused)
            }
        }
    }

    /// LOOKUP of `.`: a node by its number alone, which the kernel has from a handle.
    pub fn find_inode(&self, node: InodeId) -> Answer<Entry> {
        self.volume.find_inode(node).answer()
    }

    /// LOOKUP of `..`: the directory above one that the kernel has from a handle.
    pub fn parent(&self, dir: InodeId) -> Answer<Entry> {
        self.volume.parent(dir).answer()
    }

    /// Whether a node is the entry with a directory's snapshots.
    pub fn holds_snapshots(&self, node: InodeId) -> bool {
        self.volume.holds_snapshots(node).unwrap_or(false)
    }

    /// Whether names that a directory lacks may come without a request of the kernel that makes them: it is
    /// an unfinished copy, or has snapshots, to one of which it may be brought back.
    pub fn may_gain_names(&self, dir: InodeId) -> bool {
        let may_be_restored = || {
            self.volume.may_have_snapshots(dir).unwrap_or(false)
                && !planted::is(Bug::AbsentBesideSnapshotsRemembered)
        };
        self.is_unfinished(dir) && !planted::is(Bug::AbsentInCopyRemembered) || may_be_restored()
    }

    /// Whether a directory is an unfinished copy.
    fn is_unfinished(&self, dir: InodeId) -> bool {
        self.volume.name(dir).is_some_and(|name| name.starts_with(UNFINISHED.as_bytes()))
    }

    /// FORGET: the kernel drops `lookups` of its references to the node.
    pub fn forget(&self, node: InodeId, lookups: u64) {
        self.volume.forget(node, lookups);
    }

    /// MKNOD and MKDIR.
    pub fn make(&self, parent: InodeId, name: &[u8], new: &NewNode, caller: Caller<'_>) -> Answer<Entry> {
        if new.file_type == FileType::Directory
            && let Rights::Owner(user) = self.rights_in(parent, caller)?
        {
            let of = self.volume.snapshots_are_of(parent).answer()?.ok_or(Errno::PERM)?;
            return self.as_owner(of, &user, |owned| self.volume.snapshot_as(owned, parent, name));
        }
        self.volume.create(parent, name, new).answer()
    }

    /// CREATE: makes a file and opens it.
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewNode, flags: OFlags) -> Answer<Entry> {
        let entry = self.volume.create(parent, name, new).answer()?;
        self.open_new(entry, flags)
    }

    /// TMPFILE: makes a file without a name and opens it.
    pub fn tmpfile(&self, parent: InodeId, new: &NewNode, flags: OFlags) -> Answer<Entry> {
        let entry = self.volume.create_unnamed(parent, new).answer()?;
        self.open_new(entry, flags)
    }

    /// Opens a file that was just made.
    fn open_new(&self, entry: Entry, flags: OFlags) -> Answer<Entry> {
        match self.volume.open_inode(entry.node).answer() {
            Ok(()) => {
                self.mappings.opened(entry.node, flags);
                Ok(entry)
            }
            Err(errno) => {
                self.volume.forget(entry.node, 1);
                Err(errno)
            }
        }
    }

    /// SYMLINK
    pub fn symlink(&self, parent: InodeId, name: &[u8], target: &[u8], caller: Caller<'_>) -> Answer<Entry> {
        self.volume.symlink(parent, name, target, caller.uid, caller.gid).answer()
    }

    /// LINK
    pub fn link(&self, node: InodeId, parent: InodeId, name: &[u8]) -> Answer<Entry> {
        self.volume.link(node, parent, name).answer()
    }

    /// UNLINK
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Answer<()> {
        self.volume.unlink(parent, name).answer()
    }

    /// RMDIR; returns the nodes whose attributes changed unknown to the kernel, if the directory is a
    /// snapshot.
    pub fn rmdir(&self, parent: InodeId, name: &[u8], caller: Caller<'_>) -> Answer<Vec<InodeId>> {
        match self.rights_in(parent, caller)? {
            Rights::All => self.volume.rmdir(parent, name).answer(),
            Rights::Owner(user) => self.volume.remove_snapshot_as(user.uid, parent, name).answer(),
        }
    }

    /// RENAME and RENAME2; an unknown flag is refused, never ignored.
    pub fn rename(&self, from: (InodeId, &[u8]), to: (InodeId, &[u8]), flags: u32) -> Answer<()> {
        let known = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
        let flags = rename_flags(if planted::is(Bug::RenameFlagsIgnored) { flags & known } else { flags })?;
        self.volume.rename(from.0, from.1, to.0, to.1, flags).answer()
    }
}

fn rename_flags(bits: u32) -> Answer<RenameFlags> {
    let flags = RenameFlags {
        no_replace: bits & RENAME_NOREPLACE != 0,
        exchange: bits & RENAME_EXCHANGE != 0,
        whiteout: bits & RENAME_WHITEOUT != 0,
    };
    let known = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
    if bits & !known != 0 || (flags.exchange && (flags.no_replace || flags.whiteout)) {
        return Err(Errno::INVAL);
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_or_contradictory_rename_flags_are_refused() {
        assert!(rename_flags(0).is_ok_and(|f| !f.no_replace && !f.exchange && !f.whiteout));
        assert!(rename_flags(5).is_ok_and(|f| f.no_replace && !f.exchange && f.whiteout));
        assert!(rename_flags(2).is_ok_and(|f| f.exchange));
        for bad in [3, 6, 7, 8, 1 << 31] {
            assert_eq!(rename_flags(bad).err(), Some(Errno::INVAL), "{bad}");
        }
    }
}
