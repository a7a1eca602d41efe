//! Quotas of directories: setting, showing and removing them. `charge.rs` counts changes, `measure.rs` whole
//! trees.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree::{Batch, Cut};

use crate::error::{Error, Result};
use crate::names::{DirPath, Exclusive, Inode, Place};
use crate::op::{Op, OpKind, refuse_in_snapshot};
use crate::schema::{DATA, LINKS, META, QUOTAS, Stored, key};
use crate::types::{InodeId, Quota, QuotaLimits, StatFs};
use crate::volume::Volume;
use crate::volume::attributes::with_atime;
use crate::volume::charge::stored_use;
use crate::volume::measure::Measuring;

impl Volume {
    /// Gives a directory a quota, or its quota other limits. From then on everything below it counts, and
    /// what would grow over a limit is refused with [`Error::QuotaExceeded`]; a limit below what is used
    /// refuses growth alone. What is in the directory already is counted first, while others go on.
    ///
    /// Nothing moves between two quotas: renames and links give [`Error::OtherQuota`]. A clone counts in full
    /// where it is made, and a clone of a directory with a quota has one of its own. Snapshots do not count.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{Error, InodeId, QuotaLimits};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// volume.set_quota(dir, QuotaLimits { bytes: Some(8192), objects: None })?;
    /// let file = volume.create_with(dir, b"file", &new_file, &[7; 8192])?.node;
    /// assert_eq!(volume.write(file, 8192, b"more"), Err(Error::QuotaExceeded));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::InSnapshot`]; [`Error::LinkedOutside`] if a file in it has a name
    /// outside of it too; [`Error::Uncounted`] if it changes too much to be counted, or a file in it has a
    /// name in a tree whose removal is under way.
    pub fn set_quota(&self, node: InodeId, limits: QuotaLimits) -> Result<()> {
        self.set_quota_while(node, limits, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`set_quota`](Volume::set_quota). Calls `go_on` now and then with the number of records that were
    /// read to count what is there; if it breaks, nothing is set.
    ///
    /// # Errors
    /// As there; [`betree::Error::Interrupted`] by `go_on`.
    pub fn set_quota_while(
        &self,
        node: InodeId,
        limits: QuotaLimits,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        self.measured_while(go_on, |measuring| self.limit(node, limits, measuring))
    }

    fn limit(&self, node: InodeId, limits: QuotaLimits, measuring: &Measuring<'_>) -> Result<()> {
        let op = self.update(OpKind::Quota, 0)?;
        let exclusive = self.exclusive(&op, &[node], &[]);
        let dir = self.live_dir(&exclusive, &op, node)?;
        let path = op.dir_path(&dir)?;
        let own = key::own(&path.bytes);
        let mut record = with_atime(&dir, &dir.state.read());
        let counter = dir.quota();
        let content = measuring.content(&op, &dir)?;
        let measured = measuring.of(&dir);
        if let (None, Some(measured)) = (&counter, measured) {
            if let Some(name) = measured.outside.clone() {
                return Err(Error::LinkedOutside { name });
            }
            // Its names that can be seen could not be told from the others.
            if measured.is_leaving {
                return Err(Error::Uncounted);
            }
        }
        if !record.set_quota(Some(limits)) {
            return Err(Error::RangeTooSmall);
        }
        let mut batch = Batch::new();
        batch.put(META, &own, &record.encode());
        if counter.is_none() {
            // First, so that no program without knowledge of quotas finds one.
            self.numbers.need_feature(&op, QUOTAS)?;
            batch.put(DATA, &key::quota_use(&own), &content.removed.encode());
        }
        batch.mark_replacing();
        op.commit(&batch)?;
        dir.state.write().record = record.into();
        match counter {
            Some(counter) => counter.set_limits(limits),
            None => {
                self.quotas.begin();
                self.paths_change(&exclusive);
                dir.set_counter(Some(limits));
                for oid in measured.into_iter().flat_map(|measured| measured.names.keys()) {
                    self.move_home(&op, *oid, &path, &dir);
                }
            }
        }
        Ok(())
    }

    /// Takes a directory's quota away.
    ///
    /// # Errors
    /// [`Error::NoData`] if it has none; [`Error::NotADirectory`]; [`Error::InSnapshot`].
    pub fn clear_quota(&self, node: InodeId) -> Result<()> {
        let op = self.update(OpKind::Quota, 0)?;
        let exclusive = self.exclusive(&op, &[node], &[]);
        let dir = self.live_dir(&exclusive, &op, node)?;
        let path = op.dir_path(&dir)?;
        let own = key::own(&path.bytes);
        let mut record = with_atime(&dir, &dir.state.read());
        if record.quota().is_none() || !record.set_quota(None) {
            return Err(Error::NoData);
        }
        let linked = self.linked_in_memory(&exclusive, &op, &path.bytes)?;
        let mut batch = Batch::new();
        batch.put(META, &own, &record.encode());
        batch.delete(DATA, &key::quota_use(&own));
        batch.mark_freeing(0);
        op.commit(&batch)?;
        dir.state.write().record = record.into();
        self.paths_change(&exclusive);
        dir.set_counter(None);
        let outer = dir.dir_path()?.home();
        for inode in linked {
            if matches!(inode.place(), Place::Object { home: Some(home), .. } if Arc::ptr_eq(&home, &dir)) {
                inode.set_home(outer.clone());
            }
        }
        Ok(())
    }

    /// The quota that a directory is in: its own, or else the nearest above; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotFound`] if it was removed; the engine's.
    pub fn quota(&self, node: InodeId) -> Result<Option<Quota>> {
        let op = self.query(OpKind::Quota);
        op.without_waiting(|| {
            let shared = self.namespace.shared();
            let dir = self.inode(node)?;
            dir.state.read().dir()?;
            if self.is_removed(&shared, &dir) {
                return Err(Error::NotFound);
            }
            nearest(&op, &op.dir_path(&dir)?)
        })
    }

    /// The directories below a directory that have quotas, itself too, by their paths relative to it, in the
    /// order of their keys: the first ones behind the path `after` (from the first one on without it), `most`
    /// at most. This reads all records below the directory, a part of them in each call, without a lock.
    ///
    /// # Errors
    /// As [`Volume::quota`]; [`Error::StateGivenUp`] if space is too short for a view.
    pub fn quotas_below(
        &self,
        node: InodeId,
        after: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, Quota)>> {
        let (path, own, view) = {
            let op = self.query(OpKind::Quota);
            let shared = self.namespace.shared();
            let dir = self.inode(node)?;
            dir.state.read().dir()?;
            if self.is_removed(&shared, &dir) {
                return Err(Error::NotFound);
            }
            let path = op.dir_path(&dir)?.bytes;
            let own = dir.state.read().record.quota().map(|limits| (Vec::new(), limits));
            (path, own, self.env.view())
        };
        let mut found: Vec<(Vec<u8>, QuotaLimits)> = own.filter(|_| after.is_none()).into_iter().collect();
        let op = self.query(OpKind::Quota).reading(&view);
        let (mut lo, hi) = key::subtree(&path);
        if let Some(after) = after.filter(|after| !after.is_empty()) {
            let mut last = path.clone();
            for name in after.split(|byte| *byte == b'/') {
                last = key::child_path(&last, name);
            }
            lo = Cut::after(key::own(&last));
        }
        if self.quotas.are_in_use() {
            let mut pairs = op.scan(META, (lo, hi));
            while found.len() < most {
                let Some((at, bytes)) = pairs.next()? else { break };
                if let Ok(Stored::Inode(record)) = Stored::decode(at, bytes)
                    && let (Some(limits), Some((above, name))) = (record.quota(), key::split_entry(at))
                {
                    let below = above.get(path.len()..).unwrap_or_default();
                    let names = below.split(|byte| *byte == 0).skip(1).chain([name]);
                    found.push((names.collect::<Vec<_>>().join(&b'/'), limits));
                }
            }
        }
        let mut quotas = Vec::with_capacity(found.len());
        for (relative, limits) in found {
            let mut of = path.clone();
            for name in relative.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                of = key::child_path(&of, name);
            }
            let used = stored_use(&op, &key::quota_use(&key::own(&of)))?.shown();
            quotas.push((relative, Quota { limits, used, levels_up: 0 }));
        }
        Ok(quotas)
    }

    /// The room in a directory: that of the volume or, if it is less, that of the nearest quota above, which
    /// then also gives the capacity.
    ///
    /// # Errors
    /// [`Error::Stale`]; the engine's.
    pub fn statfs_at(&self, node: InodeId) -> Result<StatFs> {
        let room = self.statfs()?;
        if !self.quotas.are_in_use() {
            return Ok(room);
        }
        let op = self.query(OpKind::Quota);
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let path = match inode.place() {
            Place::Root => op.dir_path(&inode),
            Place::Named { .. } if inode.state.read().record.is_dir() => op.dir_path(&inode),
            Place::Named { parent, .. } | Place::Object { home: Some(parent), .. } => op.dir_path(&parent),
            _ => return Ok(room),
        };
        // An object without a path has no quota above it.
        let Ok(path) = path else { return Ok(room) };
        Ok(nearest(&op, &path)?.map_or(room, |quota| within(room, &quota)))
    }

    /// The files with several names below a directory that are in memory.
    fn linked_in_memory(&self, _: &Exclusive<'_>, op: &Op<'_>, path: &[u8]) -> Result<Vec<Arc<Inode>>> {
        let mut linked = Vec::new();
        let mut links = op.scan(LINKS, key::subtree(path));
        while let Some((_, oid)) = links.next()? {
            op.visit(1);
            let oid = oid.try_into().map(u64::from_be_bytes);
            linked.extend(oid.ok().and_then(|oid| self.table.object(oid)));
        }
        Ok(linked)
    }

    /// Gives a file with several names a new nearest quota, that of the directory `to` at `path`, unless it
    /// has a nearer one.
    fn move_home(&self, op: &Op<'_>, oid: u64, path: &DirPath, to: &Arc<Inode>) {
        op.visit(1);
        let Some(inode) = self.table.object(oid) else { return };
        let is_nearer = match inode.place() {
            Place::Object { home: Some(home), .. } => {
                op.dir_path(&home).is_ok_and(|home| key::is_below(&path.bytes, &home.bytes))
            }
            _ => false,
        };
        if !is_nearer {
            inode.set_home(Some(to.clone()));
        }
    }

    /// Refuses what users may not do in a quota because it does not count there.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; [`Error::InSnapshot`].
    pub(super) fn refuse_in_quota(&self, op: &Op<'_>, dir: &Inode) -> Result<()> {
        refuse_in_snapshot(op, dir, &dir.state.read().record)?;
        if op.dir_path(dir)?.quota().is_some() { Err(Error::QuotaExceeded) } else { Ok(()) }
    }
}

/// The nearest quota on a path.
fn nearest(op: &Op<'_>, path: &DirPath) -> Result<Option<Quota>> {
    let of = |above: &&crate::names::CountingAbove| above.counting.quota.is_some();
    let Some(above) = path.counting.iter().find(of) else { return Ok(None) };
    let Some(counter) = &above.counting.quota else { return Ok(None) };
    let dir = path.bytes.get(..above.path_bytes).unwrap_or_default();
    let used = counter.used(|| stored_use(op, &key::quota_use(&key::own(dir))))?.shown();
    let below = path.bytes.get(above.path_bytes..).unwrap_or_default();
    let levels_up = below.iter().filter(|byte| **byte == 0).count() as u64;
    Ok(Some(Quota { limits: counter.limits(), used, levels_up }))
}

/// The room on a volume within a quota.
fn within(room: StatFs, quota: &Quota) -> StatFs {
    let mut room = room;
    if let Some(bytes) = quota.limits.bytes {
        let left = bytes.saturating_sub(quota.used.bytes);
        room.total_bytes = room.total_bytes.min(bytes);
        room.available_bytes = room.available_bytes.min(left);
        room.free_bytes = room.free_bytes.min(left).max(room.available_bytes);
    }
    if let Some(objects) = quota.limits.objects {
        room.files = room.files.min(objects);
        room.files_free = room.files_free.min(objects.saturating_sub(quota.used.objects));
    }
    room
}
