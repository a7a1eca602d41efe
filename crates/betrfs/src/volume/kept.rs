//! What was in a directory before it went back to a snapshot, on its way to becoming a snapshot itself.
//!
//! If many of its names lead to files with several, these are not gone through while all others wait: the
//! batch that brings the directory back also copies what is there to a detached tree (`detached.rs`). After
//! that its names are led to new files, and it gets its name as a snapshot, in one batch. A crash in between
//! leaves a marker with the directory's inode number and that name, by which the next opening goes on; the
//! directory may have been moved meanwhile. Until then nobody else can take the name.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::{Exclusive, Inode};
use crate::op::{Op, OpKind};
use crate::schema::{
    Amount, DATA, Detached, Flags, KeptAs, LINKS, META, Marker, Record, Stored, damaged, key,
};
use crate::types::{Finished, InodeId, SNAPSHOTS_NAME};
use crate::volume::Volume;
use crate::volume::charge::stored_use;
use crate::volume::clone::{Ahead, Copy};
use crate::volume::detached::{DetachedCopy, LostFiles, copy_below};

/// A detached tree that becomes a snapshot.
#[derive(Clone)]
pub(super) struct Kept {
    pub number: u64,
    pub kept_as: KeptAs,
}

impl Volume {
    /// Whether more names below a directory lead to files with several than are gone through while others
    /// wait.
    pub(super) fn has_many_links(&self, op: &Op<'_>, path: &[u8]) -> Result<bool> {
        let mut links = op.scan_of_whole(LINKS, key::subtree(path), None, self.links_alone_max + 1);
        for _ in 0..=self.links_alone_max {
            if links.next()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds to a batch the copy of a directory that becomes a snapshot with this record, and of what is used
    /// of its quota. The caller has moved the blocks of unlinked files away from below it.
    pub(super) fn begin_kept(
        &self,
        op: &Op<'_>,
        batch: &mut Batch,
        dir: &Arc<Inode>,
        (record, used): (&Record, Option<Amount>),
        name: &[u8],
    ) -> Result<Kept> {
        let number = self.numbers.oid(op)?;
        let kept_as = KeptAs { of: dir.id.0, name: name.to_vec() };
        let own = key::detached_own(number);
        batch.put(META, &key::marker(number), &Marker::Kept(kept_as.clone()).encode());
        batch.put(META, &own, &record.encode());
        if let Some(used) = used {
            batch.put(DATA, &key::quota_use(&own), &used.encode());
        }
        copy_below(op, batch, number, record, (&op.own_key(dir)?, &op.dir_path(dir)?.bytes))?;
        Ok(Kept { number, kept_as })
    }

    /// Notes a committed one: from now on its name is taken. The caller holds the namespace alone.
    pub(super) fn note_kept(&self, _: &Exclusive<'_>, kept: Kept) {
        self.unfinished.left.lock().kept.push(kept);
    }

    /// Whether a snapshot of a directory will get this name.
    pub(super) fn is_kept_name(&self, of: &Inode, name: &[u8]) -> bool {
        let left = self.unfinished.left.lock();
        left.kept.iter().any(|kept| kept.kept_as.of == of.id.0 && kept.kept_as.name == name)
    }

    /// Makes snapshots of all detached trees that are to become such, whoever has begun with them. What fails
    /// is left for the next time. The caller holds no other lock than that of who makes them.
    pub(super) fn make_kept(&self, finished: &mut Finished) {
        let Some(_going) = self.own_changes.begin() else { return };
        let all: Vec<Kept> = self.unfinished.left.lock().kept.clone();
        for kept in all {
            match self.make_one_kept(&kept) {
                Ok(snapshots) => finished.snapshots.push((snapshots, Arc::from(kept.kept_as.name))),
                // Its directory is gone, and its snapshots with it.
                Err(Error::NotFound | Error::Stale) => {
                    finished.changed.extend(self.clear_or_put_off(kept.number, Detached::Copy));
                }
                Err(_) => continue,
            }
            self.unfinished.left.lock().kept.retain(|other| other.number != kept.number);
        }
    }

    /// Makes a snapshot of a detached tree. Returns the entry of the directory's snapshots.
    ///
    /// # Errors
    /// The engine's; [`Error::NotFound`] or [`Error::Stale`] if the directory is gone.
    fn make_one_kept(&self, kept: &Kept) -> Result<InodeId> {
        self.lead_to_new_files(kept.number, Flags::READ_ONLY, LostFiles::KeepNames)?;
        let of = self.find_inode(InodeId(kept.kept_as.of))?.node;
        let made = self.lookup(of, SNAPSHOTS_NAME).and_then(|snapshots| {
            let made = self.attach_kept(of, snapshots.node, kept);
            self.forget(snapshots.node, 1);
            made.map(|()| snapshots.node)
        });
        self.forget(of, 1);
        made
    }

    fn attach_kept(&self, of: InodeId, snapshots: InodeId, kept: &Kept) -> Result<()> {
        let Kept { number, kept_as: KeptAs { name, .. } } = kept;
        let op = self.update(OpKind::Clone, 0)?;
        op.without_waiting(|| {
            let exclusive = self.exclusive(&op, &[of, snapshots], &[(snapshots, name)]);
            let (of, snapshots) = (self.inode(of)?, self.inode(snapshots)?);
            if self.is_removed(&exclusive, &of) {
                return Err(Error::NotFound);
            }
            let own = key::detached_own(*number);
            let bytes = op.get(META, &own)?.ok_or_else(|| damaged(&own, "its record is lost"))?;
            let Stored::Inode(record) = Stored::decode(&own, &bytes)? else {
                return Err(damaged(&own, "it is not the record of a directory"));
            };
            let used = match record.quota() {
                Some(_) => Some(stored_use(&op, &key::quota_use(&own))?),
                None => None,
            };
            let copy = DetachedCopy { number: *number, record: record.clone(), more: None, used };
            let path = op.dir_path(&snapshots)?.bytes;
            let copy = Copy {
                to_key: &key::entry(&path, name),
                to_path: &key::child_path(&path, name),
                flags: Flags::READ_ONLY,
                used,
                ahead: Ahead::Made(&copy),
            };
            self.put_snapshot(&exclusive, &op, (&snapshots, &of), name, &copy, record).map(drop)
        })
    }
}
