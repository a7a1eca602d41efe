//! Counting of changes for the quotas above them.
//!
//! A change finds what counts on the way from its directory up to the root ([`DirPath::counting`]), adds the
//! difference to the counters in memory, nearest first, before anything has changed, and puts the same
//! difference into its batch for each. So it is refused as a whole or counted as a whole, on the disk too.
//! Changes of one directory's quota at the same time wait for each other for an addition, not for a commit.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};

use betree::Batch;
use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, AtomicUsize};

use crate::error::{Error, Result};
use crate::names::{Counter, DirPath, Held, Inode, Place, Tally};
use crate::op::Op;
use crate::schema::{Amount, DATA, block, key};
use crate::volume::Volume;

/// What a volume knows of its quotas as a whole.
pub(super) struct Quotas {
    /// Whether any directory has ever had one.
    in_use: AtomicBool,
    /// The measurements under way.
    tallies: Mutex<Vec<Arc<Tally>>>,
    /// Their number, readable without the lock.
    measuring: AtomicUsize,
    /// The removed trees whose files with several names go one after the other.
    leaving: Mutex<Vec<Leaving>>,
    /// Their number, readable without the lock.
    trees_leaving: AtomicUsize,
}

/// Files with several names that count no longer, and go with a detached tree.
pub(super) struct Leaving {
    /// The tree's number. Files with higher ones were made later.
    pub number: u64,
    pub files: LeavingFiles,
    /// Those of them that have got other names since, and count again, each with the directory of its new
    /// quota.
    pub stay: BTreeMap<u64, Option<Arc<Inode>>>,
}

/// Which files these are.
#[derive(Clone)]
pub(super) enum LeavingFiles {
    /// Those of these numbers.
    These(Arc<BTreeSet<u64>>),
    /// All whose quota is that of the removed directory, or was below it.
    OfQuota(Arc<Inode>),
}

impl Quotas {
    pub fn new(in_use: bool) -> Quotas {
        Quotas {
            in_use: AtomicBool::new(in_use),
            tallies: Mutex::default(),
            measuring: AtomicUsize::new(0),
            leaving: Mutex::default(),
            trees_leaving: AtomicUsize::new(0),
        }
    }

    /// Notes files that count no longer. The caller holds the namespace alone, and has committed that.
    pub fn leave(&self, leaving: Leaving) {
        let mut all = self.leaving.lock();
        all.push(leaving);
        self.trees_leaving.store(all.len(), Release);
    }

    /// Those that went with this tree are gone.
    pub fn have_left(&self, number: u64) {
        let mut all = self.leaving.lock();
        all.retain(|leaving| leaving.number != number);
        self.trees_leaving.store(all.len(), Release);
    }

    /// Whether a file whose quota is that of the directory `home` counts no longer.
    pub fn is_leaving(&self, oid: u64, home: &Arc<Inode>) -> bool {
        let leaves = |leaving: &Leaving| {
            let is_one = match &leaving.files {
                LeavingFiles::These(files) => files.contains(&oid),
                LeavingFiles::OfQuota(dir) => {
                    oid < leaving.number && (Arc::ptr_eq(home, dir) || home.is_cut_off())
                }
            };
            is_one && !leaving.stay.contains_key(&oid)
        };
        self.trees_leaving.load(Acquire) > 0 && self.leaving.lock().iter().any(leaves)
    }

    /// A file that was leaving counts again, in the quota of this directory.
    pub fn stays(&self, oid: u64, home: &Option<Arc<Inode>>) {
        for leaving in self.leaving.lock().iter_mut() {
            leaving.stay.insert(oid, home.clone());
        }
    }

    /// The directory of the quota in which a file counts again that was leaving with this tree.
    pub fn home_of_stayed(&self, number: u64, oid: u64) -> Option<Arc<Inode>> {
        let all = self.leaving.lock();
        all.iter().find(|leaving| leaving.number == number)?.stay.get(&oid)?.clone()
    }

    /// Notes that a directory gets one.
    pub fn begin(&self) {
        self.in_use.store(true, Release);
    }

    /// Whether there may be any.
    pub fn are_in_use(&self) -> bool {
        self.in_use.load(Acquire)
    }

    /// Whether a change may have to be counted.
    fn may_count(&self) -> bool {
        self.are_in_use() || self.measuring.load(Acquire) > 0
    }

    pub fn add_tally(&self, tally: &Arc<Tally>) {
        let mut tallies = self.tallies.lock();
        tallies.push(tally.clone());
        self.measuring.store(tallies.len(), Release);
    }

    pub fn end_tally(&self, tally: &Arc<Tally>) {
        let mut tallies = self.tallies.lock();
        tallies.retain(|other| !Arc::ptr_eq(other, tally));
        self.measuring.store(tallies.len(), Release);
    }

    /// Tells all measurements of a change of a file that has or had several names.
    pub fn note_object(&self, inode: &Inode) {
        if self.measuring.load(Acquire) > 0
            && let Place::Object { oid, .. } = inode.place()
        {
            self.tallies.lock().iter().for_each(|tally| tally.note_object(oid));
        }
    }
}

/// What was added for a change that is about to be committed: taken back when it is dropped, unless the
/// change was made.
#[must_use]
#[derive(Default)]
pub(super) struct Charge {
    more: Amount,
    quotas: Vec<Arc<Counter>>,
    tallies: Vec<Arc<Tally>>,
}

impl Charge {
    /// The change was committed.
    pub fn keep(mut self) {
        self.quotas.clear();
        self.tallies.iter().for_each(|tally| tally.add(self.more));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quotas.iter().for_each(|quota| quota.take_back(self.more));
    }
}

impl Volume {
    /// Counts a difference in a directory for all that counts there and above, and adds it to the batch. The
    /// caller holds the namespace until the batch was committed and the charge kept.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; the engine's, if a use was not read yet.
    pub(super) fn charge(
        &self,
        op: &Op<'_>,
        path: &DirPath,
        more: Amount,
        batch: &mut Batch,
    ) -> Result<Charge> {
        let mut charge = Charge { more, quotas: Vec::new(), tallies: Vec::new() };
        if more.is_zero() {
            return Ok(charge);
        }
        for above in &path.counting {
            charge.tallies.extend(above.counting.tallies.iter().cloned());
            let Some(quota) = &above.counting.quota else { continue };
            let dir = path.bytes.get(..above.path_bytes).unwrap_or_default();
            let at = key::quota_use(&key::own(dir));
            quota.add(more, || stored_use(op, &at))?;
            charge.quotas.push(quota.clone());
            batch.upsert(DATA, &at, &block::add(more));
        }
        Ok(charge)
    }

    /// Has a file without a name hold an amount of the quotas above a directory.
    ///
    /// # Errors
    /// As [`charge`](Volume::charge).
    pub(super) fn hold(&self, op: &Op<'_>, path: &DirPath, amount: Amount) -> Result<Held> {
        Held::of(path, amount, |path_bytes| {
            let dir = path.bytes.get(..path_bytes).unwrap_or_default();
            stored_use(op, &key::quota_use(&key::own(dir)))
        })
    }

    /// Counts a difference of an object's own size, as [`charge`](Volume::charge).
    pub(super) fn charge_inode(
        &self,
        op: &Op<'_>,
        inode: &Inode,
        more: Amount,
        batch: &mut Batch,
    ) -> Result<Charge> {
        if more.is_zero() || !self.quotas.may_count() {
            return Ok(Charge::default());
        }
        self.quotas.note_object(inode);
        match self.counted_path(op, inode)? {
            Some(path) => self.charge(op, &path, more, batch),
            None => Ok(Charge::default()),
        }
    }

    /// The path of the directory that an object's size counts in. A file that may have several names counts
    /// in the directory of their quota: what is measured between the two is told by
    /// [`Quotas::note_object`].
    pub(super) fn counted_path(&self, op: &Op<'_>, inode: &Inode) -> Result<Option<DirPath>> {
        let (dir, has_names) = match inode.place() {
            Place::Named { parent, .. } => (parent, false),
            Place::Object { oid, home: Some(home) } if !self.quotas.is_leaving(oid, &home) => (home, true),
            _ => return Ok(None),
        };
        let mut path = op.dir_path(&dir)?;
        if has_names {
            path.counting.iter_mut().for_each(|above| above.counting.tallies.clear());
        }
        Ok(Some(path))
    }
}

/// The stored use of a quota. One that was lost counts as nothing: a check finds that.
pub(super) fn stored_use(op: &Op<'_>, at: &[u8]) -> Result<Amount> {
    match op.get(DATA, at) {
        Ok(value) => Ok(value.as_deref().and_then(Amount::decode).unwrap_or_default()),
        Err(Error::Engine(betree::Error::KnownDamage { .. })) => Ok(Amount::default()),
        Err(error) => Err(error),
    }
}

/// Tells the measurements of a directory, and of those above it, with the operation's commit, that something
/// comes or goes there whose amount they cannot know.
pub(super) fn spoil(op: &Op<'_>, path: &DirPath) {
    op.spoils(path.counting.iter().flat_map(|above| above.counting.tallies.iter().cloned()));
}

/// Tells the measurements of only one of two directories, with the operation's commit, that something moves
/// between the two.
pub(super) fn spoil_between(op: &Op<'_>, from: &DirPath, to: &DirPath) {
    let tallies = |path: &DirPath| -> Vec<Arc<Tally>> {
        path.counting.iter().flat_map(|above| above.counting.tallies.iter().cloned()).collect()
    };
    let (from, to) = (tallies(from), tallies(to));
    let is_in = |all: &[Arc<Tally>], tally: &Arc<Tally>| all.iter().any(|other| Arc::ptr_eq(other, tally));
    op.spoils(from.iter().filter(|tally| !is_in(&to, tally)).cloned());
    op.spoils(to.iter().filter(|tally| !is_in(&from, tally)).cloned());
}

/// Refuses what would bring an object from one quota to another.
///
/// # Errors
/// [`Error::OtherQuota`].
pub(super) fn refuse_other_quota(from: Option<&Arc<Counter>>, to: Option<&Arc<Counter>>) -> Result<()> {
    let is_same = match (from, to) {
        (None, None) => true,
        (Some(from), Some(to)) => Arc::ptr_eq(from, to),
        _ => false,
    };
    if is_same { Ok(()) } else { Err(Error::OtherQuota) }
}
