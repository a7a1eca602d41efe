//! Requests about a file or directory as a whole: a token for the source of a copy, filling the copy, sizes,
//! and emptying a directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree_platform::{BLOCK_BYTES, Platform};
use betree_std::StdPlatform;
use betrfs::{Held, InodeId, RemovedBelow, Restored, SnapshotsBelow};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::owners::Rights;
use super::{Answer, Caller, IntoAnswer, Server};
use crate::control::shares::Shares;
use crate::file_map::MapExtent;
use crate::mount_info::MountEntry;
use crate::planted::{self, Bug};

/// How many sources are remembered; of the user who has most the oldest is forgotten first.
const SOURCES_MAX: usize = 1024;

/// Sources with a token, and permits.
pub struct Sources(Mutex<Shares<Source>>);

impl Default for Sources {
    fn default() -> Sources {
        Sources(Mutex::new(Shares::new(SOURCES_MAX)))
    }
}

struct Source {
    token: u64,
    node: InodeId,
    written_back: Arc<AtomicBool>,
    /// Whether the kernel has let its caller change the object.
    may_change: bool,
}

/// A source with its new token.
pub struct Offered {
    /// The token, for [`fill`](Server::fill).
    pub token: u64,
    /// Files in it that processes may have mapped.
    pub files: Vec<InodeId>,
    /// To be set when the kernel has written back dirty pages of these files.
    pub written_back: Arc<AtomicBool>,
}

impl Server {
    /// IOCTL: registers a source and returns its token.
    pub fn offer(&self, node: InodeId, caller: Caller<'_>) -> Answer<Offered> {
        if let Rights::Owner(user) = self.rights(caller)?
            && self.volume.getattr(node).answer()?.uid != user.uid
        {
            return Err(Errno::PERM);
        }
        let files = self.volume.open_files_in(node).answer()?;
        let (token, written_back) = (StdPlatform::new().random_u64(), Arc::new(AtomicBool::new(false)));
        let written = Arc::clone(&written_back);
        let source = Source { token, node, written_back: written, may_change: false };
        self.sources.0.lock().push(holder(caller), source);
        Ok(Offered { token, files, written_back })
    }

    /// IOCTL: EAGAIN until the data written to mappings before the source was registered has arrived; does
    /// not wait.
    pub fn await_written_back(&self, token: u64) -> Answer<()> {
        let sources = self.sources.0.lock();
        let source = sources.iter().find(|source| source.token == token).ok_or(Errno::STALE)?;
        if source.written_back.load(Ordering::Acquire) { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// A change: lets requests with a token change an object. The token may be that of a source.
    pub fn permit(&self, node: InodeId, token: u64, caller: Caller<'_>) -> Answer<()> {
        self.may_change()?;
        let mut sources = self.sources.0.lock();
        if let Some(source) = sources.iter_mut().find(|source| source.token == token) {
            if source.node != node {
                return Err(Errno::STALE);
            }
            source.may_change = true;
            return Ok(());
        }
        let written_back = Arc::new(AtomicBool::new(true));
        sources.push(holder(caller), Source { token, node, written_back, may_change: true });
        Ok(())
    }

    /// `ESTALE` without a permit for an object.
    pub(super) fn must_be_permitted(&self, node: InodeId, token: u64) -> Answer<()> {
        let sources = self.sources.0.lock();
        let permit = sources.iter().find(|source| source.token == token && source.node == node);
        if permit.is_some_and(|permit| permit.may_change) { Ok(()) } else { Err(Errno::STALE) }
    }

    /// A change: makes an empty file or directory a copy of a source.
    pub fn fill(&self, node: InodeId, token: u64, caller: Caller<'_>) -> Answer<()> {
        let rights = self.rights(caller)?;
        self.may_change()?;
        let known = self.sources.0.lock().iter().find(|source| source.token == token).map(|s| s.node);
        let source = known.ok_or(Errno::STALE)?;
        match rights {
            Rights::All => self.volume.clone_onto(source, node).answer(),
            Rights::Owner(user) => {
                self.as_owner(source, &user, |owned| self.volume.clone_onto_as(owned, node))
            }
        }
    }

    /// Where the bytes of a source lie, of `len` from `offset` on.
    ///
    /// # Errors
    /// The volume's; [`betrfs::Error::Invalid`] for a token that is not known, or no longer.
    pub fn map(&self, token: u64, offset: u64, len: u64) -> betrfs::Result<Vec<MapExtent>> {
        let node = self.source(token)?;
        Ok(self.volume.map(node, offset, len)?.into_iter().map(MapExtent::from).collect())
    }

    /// The node of a source.
    pub(super) fn source(&self, token: u64) -> betrfs::Result<InodeId> {
        let known = self.sources.0.lock().iter().find(|source| source.token == token).map(|s| s.node);
        known.ok_or(betrfs::Error::Invalid("its token was forgotten: ask again"))
    }

    /// IOCTL: the stored bytes of a file or directory, and the bytes that its removal would free.
    pub fn usage(&self, node: InodeId, caller: Caller<'_>) -> Answer<[u64; 2]> {
        may_do_all(caller)?;
        let usage = self.volume.usage(node).answer()?;
        Ok([usage.stored_bytes, usage.exclusive_bytes])
    }

    /// IOCTL: discards the free space in `len` bytes of the volume from `start` on, where at least `len_min`
    /// bytes in a row are free. The second number of the answer is that of the discarded bytes.
    pub fn trim(&self, [start, len, len_min]: [u64; 3], caller: Caller<'_>) -> Answer<[u64; 3]> {
        may_do_all(caller)?;
        self.may_change()?;
        let env = self.volume.env();
        let volume_bytes = env.volume_bytes();
        // As on ext4 and Btrfs.
        if start >= volume_bytes || len < BLOCK_BYTES as u64 {
            return Err(Errno::INVAL);
        }
        let range = start..start.saturating_add(len).min(volume_bytes);
        let told_bytes = env.trim_range(range, len_min).map_err(betrfs::Error::from).answer()?;
        Ok([start, told_bytes, len_min])
    }

    /// A change: removes everything below a directory.
    pub fn empty(
        &self,
        node: InodeId,
        snapshots: SnapshotsBelow,
        caller: Caller<'_>,
    ) -> Answer<RemovedBelow> {
        let rights = self.rights(caller)?;
        self.may_change()?;
        match rights {
            Rights::All => self.volume.remove_below(node, snapshots).answer(),
            Rights::Owner(_) if snapshots == SnapshotsBelow::Go => Err(Errno::PERM),
            Rights::Owner(user) => {
                self.refuse_mounts_below(node)?;
                self.as_owner(node, &user, |owned| self.volume.remove_below_as(owned))
            }
        }
    }

    /// A change: brings a directory back to the first of two names of snapshots, and keeps its present state
    /// under the second. The token is that of the directory as a source. Returns the flag to be set when the
    /// kernel has dropped the names that were there.
    pub fn restore(
        &self,
        node: InodeId,
        token: u64,
        (name, keep_as): (&[u8], &[u8]),
        caller: Caller<'_>,
    ) -> Answer<(Restored, Arc<AtomicBool>)> {
        may_do_all(caller)?;
        self.may_change()?;
        let told = {
            let sources = self.sources.0.lock();
            let source = sources.iter().find(|source| source.token == token && source.node == node);
            Arc::clone(&source.ok_or(Errno::STALE)?.written_back)
        };
        let restored = self.volume.restore_snapshot(node, name, keep_as).answer()?;
        told.store(false, Ordering::Release);
        Ok((restored, told))
    }

    /// IOCTL: whether [`restore`](Server::restore) would succeed.
    pub fn may_restore(
        &self,
        node: InodeId,
        (name, keep_as): (&[u8], &[u8]),
        caller: Caller<'_>,
    ) -> Answer<()> {
        may_do_all(caller)?;
        self.may_change()?;
        self.volume.may_restore_snapshot(node, name, keep_as).answer()
    }

    /// IOCTL: the snapshots that hold a directory.
    pub fn held(&self, node: InodeId, caller: Caller<'_>) -> Answer<Held> {
        if let Rights::Owner(user) = self.rights(caller)? {
            self.as_owner(node, &user, |_| Ok(()))?;
        }
        self.volume.snapshots_below(node).answer()
    }

    /// Who makes or removes a directory in this one: with all rights outside of snapshots. A snapshot keeps
    /// set-id programs of other users, and its removal is that of a tree.
    pub(super) fn rights_in(&self, parent: InodeId, caller: Caller<'_>) -> Answer<Rights> {
        let is_among_snapshots = self.volume.holds_snapshots(parent).answer()?;
        if is_among_snapshots && !planted::is(Bug::SnapshotsForAll) {
            self.rights(caller)
        } else {
            Ok(Rights::All)
        }
    }

    /// `EROFS` if the whole mount is read-only: for what comes by no request that the kernel has checked.
    pub(super) fn may_change(&self) -> Answer<()> {
        let mounts = MountEntry::all().unwrap_or_default();
        let ours = mounts.iter().rfind(|mount| mount.is_betrfs() && mount.path == self.identity.mount_point);
        // A remount changes the flag, and the kernel does not tell the server.
        let read_only = ours.map_or(self.read_only, MountEntry::is_read_only);
        if read_only { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// The user whose share of the sources a caller's are.
fn holder(caller: Caller<'_>) -> u32 {
    caller.user().unwrap_or(caller.uid)
}

/// `EPERM` for callers that are not trusted. Checking owner and permissions of everything below a directory
/// would cost time in proportion to its size, so only a caller who may do everything may treat it as one.
fn may_do_all(caller: Caller<'_>) -> Answer<()> {
    if caller.is_trusted() { Ok(()) } else { Err(Errno::PERM) }
}
