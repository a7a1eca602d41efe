//! Requests about a directory as a whole: a token for what is to be copied, the filling of a copy, and
//! the emptying of what is to go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree_platform::Platform;
use betree_std::StdPlatform;
use betrfs::{Held, InodeId, SnapshotsBelow};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};
use crate::mount_info::MountEntry;

/// How many sources are remembered; the oldest is forgotten first.
const SOURCES_MAX: usize = 1024;

/// The sources that tokens were given out for.
#[derive(Default)]
pub struct Sources(Mutex<VecDeque<Source>>);

struct Source {
    token: u64,
    node: InodeId,
    written_back: Arc<AtomicBool>,
}

/// A source that was taken on.
pub struct Offered {
    /// What [`fill`](Server::fill) knows it by.
    pub token: u64,
    /// Files in it that processes may have mapped.
    pub files: Vec<InodeId>,
    /// To be set when what was written to mappings of these has come.
    pub written_back: Arc<AtomicBool>,
}

impl Server {
    /// IOCTL: takes a source on.
    pub fn offer(&self, node: InodeId, caller: Caller) -> Answer<Offered> {
        may_do_all(caller)?;
        let files = self.volume.open_files_in(node).answer()?;
        let (token, written_back) = (StdPlatform::new().random_u64(), Arc::new(AtomicBool::new(false)));
        let mut sources = self.sources.0.lock();
        sources.truncate(SOURCES_MAX - 1);
        sources.push_front(Source { token, node, written_back: Arc::clone(&written_back) });
        Ok(Offered { token, files, written_back })
    }

    /// IOCTL: EAGAIN until what was written to mappings before a source was taken on has come; nobody
    /// waits for it here.
    pub fn await_written_back(&self, token: u64) -> Answer<()> {
        let sources = self.sources.0.lock();
        let source = sources.iter().find(|source| source.token == token).ok_or(Errno::STALE)?;
        if source.written_back.load(Ordering::Acquire) { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// IOCTL: makes an empty file or directory a copy of a source.
    pub fn fill(&self, node: InodeId, token: u64, caller: Caller) -> Answer<()> {
        may_do_all(caller)?;
        self.may_change()?;
        let known = self.sources.0.lock().iter().find(|source| source.token == token).map(|s| s.node);
        let source = known.ok_or(Errno::STALE)?;
        self.volume.clone_onto(source, node).answer()
    }

    /// IOCTL: the stored bytes of a file or directory, and those that its removal would free.
    pub fn usage(&self, node: InodeId, caller: Caller) -> Answer<[u64; 2]> {
        may_do_all(caller)?;
        let usage = self.volume.usage(node).answer()?;
        Ok([usage.stored_bytes, usage.exclusive_bytes])
    }

    /// IOCTL: removes all that is below a directory; the nodes whose attributes the kernel no longer knows.
    pub fn empty(&self, node: InodeId, snapshots: SnapshotsBelow, caller: Caller) -> Answer<Vec<InodeId>> {
        may_do_all(caller)?;
        self.may_change()?;
        self.volume.remove_below(node, snapshots).answer()
    }

    /// IOCTL: the snapshots that hold a directory.
    pub fn held(&self, node: InodeId, caller: Caller) -> Answer<Held> {
        may_do_all(caller)?;
        self.volume.snapshots_below(node).answer()
    }

    /// Whether a caller may make or remove what is in a directory: a snapshot pins programs that bear another
    /// user's rights, and its removal is that of a tree.
    pub(super) fn may_change_in(&self, parent: InodeId, caller: Caller) -> Answer<()> {
        if self.volume.holds_snapshots(parent).answer()? { may_do_all(caller) } else { Ok(()) }
    }

    /// What an ioctl does the kernel does not know.
    fn may_change(&self) -> Answer<()> {
        let mounts = MountEntry::all().unwrap_or_default();
        let ours = mounts.iter().rfind(|mount| mount.is_betrfs() && mount.path == self.identity.mount_point);
        // A remount changes it, and no server is told of that.
        let read_only = ours.map_or(self.read_only, MountEntry::is_read_only);
        if read_only { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// Nobody can look at the owner and the permissions of all that is below a directory at a cost that
/// does not depend on how much that is. So whoever treats it as one must be somebody who may do all.
fn may_do_all(caller: Caller) -> Answer<()> {
    if caller.is_trusted() { Ok(()) } else { Err(Errno::PERM) }
}
