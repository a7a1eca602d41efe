//! Times of access.
//!
//! They are kept as Linux keeps them with `lazytime`: an access changes the inode in memory and puts nothing.
//! The time is put with the next change of the record, or when the file or the volume is synced, when the
//! inode leaves memory, and when the volume is closed. A crash may lose it.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use betree::Batch;

use crate::error::Result;
use crate::names::{Inode, State};
use crate::op::OpKind;
use crate::rules::access_counts;
use crate::schema::{Flags, META};
use crate::types::{Access, AccessTimes, InodeFlags, InodeId};
use crate::volume::Volume;

/// Number of leaving inodes that one operation releases at most.
const LEAVING_AT_ONCE: usize = 64;

/// Which accesses count. It may change while others use the volume.
pub(super) struct AccessPolicy {
    takes_changes: bool,
    /// The place of the policy in [`ALL`].
    times: AtomicUsize,
    listings_count: AtomicBool,
}

const ALL: [AccessTimes; 3] = [AccessTimes::Never, AccessTimes::Relative, AccessTimes::Always];

impl AccessPolicy {
    /// A policy; no access counts in a volume that takes no changes.
    pub fn new(takes_changes: bool, times: AccessTimes, listings_count: bool) -> AccessPolicy {
        let (all, listings) = (AtomicUsize::new(0), AtomicBool::new(false));
        let policy = AccessPolicy { takes_changes, times: all, listings_count: listings };
        policy.set(times, listings_count);
        policy
    }

    fn set(&self, times: AccessTimes, listings_count: bool) {
        let times = if self.takes_changes { times } else { AccessTimes::Never };
        self.times.store(ALL.iter().position(|one| *one == times).unwrap_or(0), Relaxed);
        self.listings_count.store(listings_count, Relaxed);
    }

    fn times(&self) -> AccessTimes {
        ALL.get(self.times.load(Relaxed)).copied().unwrap_or_default()
    }

    /// Whether listing a directory counts as other accesses do.
    pub fn listings_count(&self) -> bool {
        self.listings_count.load(Relaxed)
    }
}

impl Volume {
    /// Which accesses count for times of access, and whether listing a directory counts too.
    pub fn access_times(&self) -> (AccessTimes, bool) {
        (self.access_policy.times(), self.access_policy.listings_count())
    }

    /// Changes which accesses count from now on; none of a volume that is opened for reading. Times that were
    /// moved already stay.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{AccessTimes, InodeId};
    ///
    /// volume.set_access_times(AccessTimes::Never, true);
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// assert!(!volume.note_access(file)?);
    /// volume.set_access_times(AccessTimes::Relative, true);
    /// assert!(volume.note_access(file)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_access_times(&self, times: AccessTimes, listings_count: bool) {
        self.access_policy.set(times, listings_count);
    }

    /// Counts an access to a file that is not a read. Returns whether its time of access moved.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// // With `relatime`, only the first access after a change moves the time.
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// assert!(volume.note_access(file)?);
    /// assert!(!volume.note_access(file)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`](crate::Error::Stale).
    pub fn note_access(&self, node: InodeId) -> Result<bool> {
        let inode = self.inode(node)?;
        let state = inode.state.read();
        Ok(self.was_accessed(&inode, &state, Access::Counts))
    }

    /// Counts an access to the object with this state, if its kind counts; returns whether the time moved.
    pub(super) fn was_accessed(&self, inode: &Inode, state: &State, access: Access) -> bool {
        if access == Access::Unnoticed || state.record.rare().flags.has(InodeFlags::NOATIME) {
            return false;
        }
        let atime_ns = inode.atime_ns.load(Relaxed);
        let now_ns = self.platform.now_ns();
        let is_due = access_counts(self.access_policy.times(), &state.record, atime_ns, now_ns);
        if !is_due || state.record.flags.has(Flags::READ_ONLY) || inode.is_below_snapshots(&[]).0 {
            return false;
        }
        // Only a time that is due is worth the way up.
        if inode.effective_properties(&state.record).noatime == Some(true) {
            return false;
        }
        inode.atime_ns.store(now_ns, Relaxed);
        let is_marked = |node| self.table.get(node).is_some_and(|inode| inode.accessed.load(Relaxed));
        self.accessed.add(inode, || self.table.len(), is_marked);
        true
    }

    /// Puts the times of access of all accessed inodes, until the volume refuses a change; none during a
    /// freeze.
    pub(super) fn put_access_times(&self) {
        let Some(_going) = self.own_changes.begin() else { return };
        let mut nodes = self.accessed.take();
        while let Some(node) = nodes.pop() {
            let Some(inode) = self.table.get(node) else { continue };
            if self.put_access_time(&inode).is_err() {
                // The next call tries again.
                nodes.push(node);
                return self.accessed.give_back(nodes);
            }
        }
    }

    /// Puts an inode's time of access if it differs from the record's. The caller holds no lock.
    pub(super) fn put_access_time(&self, inode: &Inode) -> Result<()> {
        if !inode.accessed.load(Relaxed) {
            return Ok(());
        }
        self.env.throttle(super::CHANGE_BYTES)?;
        let op = self.query(OpKind::Internal);
        let _shared = self.namespace.shared();
        let mut state = inode.state.write();
        let atime_ns = inode.atime_ns.load(Relaxed);
        // The record of an inode that is unlinked, or below a removed directory, has no key: it is in memory
        // only.
        if atime_ns != state.record.atime_ns
            && !inode.is_unlinked()
            && let Ok(own) = inode.own_key()
        {
            let mut record = state.record.clone();
            record.atime_ns = atime_ns;
            let mut batch = Batch::new();
            batch.put(META, &own, &record.encode());
            // The record replaces one of the same length.
            batch.mark_freeing(0);
            op.commit(&batch)?;
            inode.last_change.stamp(&self.epochs);
        }
        state.record.set_atime(atime_ns);
        inode.accessed.store(false, Relaxed);
        Ok(())
    }

    /// Puts the times of access of inodes that are to leave memory, so that they can. The caller holds no
    /// lock.
    pub(super) fn release_leaving(&self) {
        if !self.table.has_leaving() {
            return;
        }
        // During a freeze they stay.
        let Some(_going) = self.own_changes.begin() else { return };
        for node in self.table.take_leaving(LEAVING_AT_ONCE) {
            let Some(inode) = self.table.get(node) else { continue };
            if self.put_access_time(&inode).is_err() {
                // A volume that takes no more changes drops the time, because memory has its bounds.
                inode.accessed.store(false, Relaxed);
            }
        }
    }
}
