//! Inode ids and object ids, none of which is used twice.
//!
//! They are reserved in chunks: the volume's record names the end of the chunk, and is committed before the
//! first id of the chunk is used. So no crash can keep a use and lose its reservation.

use betree::Batch;
use betree_platform::sync::Mutex;

use crate::error::Result;
use crate::op::Op;
use crate::planted::{self, Bug};
use crate::schema::{FIRST_OID, META, NUMBERS_MAX, QUOTAS, VolumeRecord, damaged, key};
use crate::volume::ROOT_ID;

const CHUNK: u64 = 4096;

/// The counters of a volume.
pub(crate) struct IdAllocator {
    next: Mutex<Next>,
}

struct Next {
    id: u64,
    oid: u64,
    reserved: VolumeRecord,
}

impl IdAllocator {
    /// Continues behind the last reservation of the earlier mount.
    pub fn new(stored: VolumeRecord) -> IdAllocator {
        IdAllocator { next: Mutex::new(Next { id: stored.ids, oid: stored.oids, reserved: stored }) }
    }

    /// A new inode id.
    pub fn id(&self, op: &Op<'_>) -> Result<u64> {
        let mut next = self.next.lock();
        if next.id == next.reserved.ids {
            let more = VolumeRecord { ids: end_of_chunk(next.id)?, ..next.reserved };
            next.reserve(op, more)?;
        }
        next.id += 1;
        Ok(next.id - 1)
    }

    /// Notes in the volume's record that a program has to know a feature to open the volume.
    pub fn need_feature(&self, op: &Op<'_>, feature: u64) -> Result<()> {
        let mut next = self.next.lock();
        let features = next.reserved.features | feature;
        if features == next.reserved.features {
            return Ok(());
        }
        let with_it = VolumeRecord { features, ..next.reserved };
        next.reserve(op, with_it)
    }

    /// Cancels the reservation of unused ids.
    pub fn give_back(&self, op: &Op<'_>) -> Result<()> {
        let mut next = self.next.lock();
        let less = VolumeRecord { ids: next.id, oids: next.oid, ..next.reserved };
        if less == next.reserved { Ok(()) } else { next.reserve(op, less) }
    }

    /// The inode ids given so far are below this.
    pub fn ids_end(&self) -> u64 {
        self.next.lock().id
    }

    /// Number of inode ids used, or skipped after a crash.
    pub fn ids_given(&self) -> u64 {
        self.next.lock().id.saturating_sub(ROOT_ID)
    }

    /// A new object id.
    pub fn oid(&self, op: &Op<'_>) -> Result<u64> {
        let mut next = self.next.lock();
        if next.oid == next.reserved.oids {
            let more = VolumeRecord { oids: end_of_chunk(next.oid)?, ..next.reserved };
            next.reserve(op, more)?;
        }
        next.oid += 1;
        Ok(next.oid - 1)
    }
}

/// The record of a volume whose own is lost, after at most this many changes: each chunk of numbers was
/// reserved by one of them, so the numbers from the record's on were never given. Of its features it has all
/// that this version knows, for nothing tells which the volume needs. `None` if there may be no numbers left.
pub(crate) fn behind_all_given(changes_max: u64) -> Option<VolumeRecord> {
    let given_max = changes_max.checked_mul(CHUNK)?;
    let (ids, oids) = (given_max.checked_add(ROOT_ID + 1)?, given_max.checked_add(FIRST_OID)?);
    let record = VolumeRecord { features: QUOTAS, ids, oids, ..VolumeRecord::default() };
    (ids.max(oids) < NUMBERS_MAX).then_some(record)
}

/// The end of the chunk that begins with `first`. An id over the limit is not written, because it could not
/// be read back.
fn end_of_chunk(first: u64) -> Result<u64> {
    let end = first.checked_add(CHUNK).filter(|end| *end <= NUMBERS_MAX);
    end.ok_or_else(|| damaged(&key::VOLUME_KEY, "it has no numbers left"))
}

impl Next {
    fn reserve(&mut self, op: &Op<'_>, reserved: VolumeRecord) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(META, &key::VOLUME_KEY, &reserved.encode());
        // A file could not be unlinked while open without a number.
        batch.mark_freeing(0);
        if !planted::is(Bug::NumbersNotReserved) {
            op.commit_aside(&batch)?;
        }
        self.reserved = reserved;
        Ok(())
    }
}
