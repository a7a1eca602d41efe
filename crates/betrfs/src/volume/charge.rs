//! Counting of changes for the quotas above them.
//!
//! A change finds what counts on the way from its directory up to the root ([`DirPath::counting`]), adds the
//! difference to the counters in memory, nearest first, before anything has changed, and puts the same
//! difference into its batch for each. So it is refused as a whole or counted as a whole, on the disk too.
//! Changes of one directory's quota at the same time wait for each other for an addition, not for a commit.

use alloc::collections::BTreeMap;
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
    /// The removed trees whose names are taken from their files one after the other.
    hidden: Mutex<Vec<HiddenNames>>,
    /// Their number, readable without the lock.
    trees_hidden: AtomicUsize,
}

/// Number of names that each of some files has below a directory.
pub(super) type NamesOfFiles = BTreeMap<u64, u32>;

/// Names that no path leads to any more, and that their files still have.
struct HiddenNames {
    /// The number of the detached tree.
    number: u64,
    /// The names of all files in it when it was detached; `None` if that was in no quota.
    names: Option<Arc<NamesOfFiles>>,
    /// Those of them that were taken from the files since.
    taken: NamesOfFiles,
}

/// How many of a file's names are hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden(u32);

impl Hidden {
    /// Whether a file with that many names in all counts for quotas: whether one of them can be seen.
    pub fn counts(self, nlink: u32) -> bool {
        nlink > self.0
    }
}

impl Quotas {
    pub fn new(in_use: bool) -> Quotas {
        Quotas {
            in_use: AtomicBool::new(in_use),
            tallies: Mutex::default(),
            measuring: AtomicUsize::new(0),
            hidden: Mutex::default(),
            trees_hidden: AtomicUsize::new(0),
        }
    }

    /// Notes that the names in a detached tree can be seen no longer. The caller holds the namespace alone,
    /// and has committed that.
    pub fn hide(&self, number: u64, names: Option<Arc<NamesOfFiles>>) {
        if self.measuring.load(Acquire) > 0 {
            let files = || names.iter().flat_map(|names| names.keys());
            self.tallies.lock().iter().for_each(|tally| tally.note_objects(files()));
        }
        let mut all = self.hidden.lock();
        all.push(HiddenNames { number, names, taken: NamesOfFiles::new() });
        self.trees_hidden.store(all.len(), Release);
    }

    /// Notes that names in this tree were taken from their files. The caller holds the namespace alone.
    pub fn have_taken(&self, number: u64, names: &NamesOfFiles) {
        for tree in self.hidden.lock().iter_mut().filter(|tree| tree.number == number && tree.names.is_some())
        {
            for (oid, names) in names {
                let taken = tree.taken.entry(*oid).or_default();
                *taken = taken.saturating_add(*names);
            }
        }
    }

    /// Nothing of this tree is left.
    pub fn is_cleared(&self, number: u64) {
        let mut all = self.hidden.lock();
        all.retain(|tree| tree.number != number);
        self.trees_hidden.store(all.len(), Release);
    }

    /// How many of the names of a file are hidden. Of a file outside of all quotas, that is not known.
    pub fn hidden(&self, oid: u64) -> Hidden {
        if self.trees_hidden.load(Acquire) == 0 {
            return Hidden::default();
        }
        let of = |names: &NamesOfFiles| names.get(&oid).copied().unwrap_or_default();
        let left = |tree: &HiddenNames| {
            tree.names.as_ref().map_or(0, |names| of(names).saturating_sub(of(&tree.taken)))
        };
        Hidden(self.hidden.lock().iter().fold(0, |sum, tree| sum.saturating_add(left(tree))))
    }

    /// The trees with hidden names, each with whether it was in a quota.
    pub fn hidden_trees(&self) -> Vec<(u64, bool)> {
        self.hidden.lock().iter().map(|tree| (tree.number, tree.names.is_some())).collect()
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
    pub fn note_inode(&self, inode: &Inode) {
        if let Place::Object { oid, .. } = inode.place() {
            self.note_object(oid);
        }
    }

    /// The same, of the file of this number.
    pub fn note_object(&self, oid: u64) {
        if self.measuring.load(Acquire) > 0 {
            self.tallies.lock().iter().for_each(|tally| tally.note_objects([&oid]));
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

    /// Counts a difference of the own size of an object with that many names, as [`charge`](Volume::charge).
    pub(super) fn charge_inode(
        &self,
        op: &Op<'_>,
        (inode, nlink): (&Inode, u32),
        more: Amount,
        batch: &mut Batch,
    ) -> Result<Charge> {
        if more.is_zero() || !self.quotas.may_count() {
            return Ok(Charge::default());
        }
        self.quotas.note_inode(inode);
        match self.counted_path(op, inode, nlink)? {
            Some(path) => self.charge(op, &path, more, batch),
            None => Ok(Charge::default()),
        }
    }

    /// The path of the directory that the size of an object with that many names counts in. A file that may
    /// have several names counts in the directory of their quota: what is measured between the two is told by
    /// [`Quotas::note_inode`].
    pub(super) fn counted_path(&self, op: &Op<'_>, inode: &Inode, nlink: u32) -> Result<Option<DirPath>> {
        let (dir, has_names) = match inode.place() {
            Place::Named { parent, .. } => (parent, false),
            Place::Object { oid, home: Some(home) } if self.quotas.hidden(oid).counts(nlink) => (home, true),
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
        Err(error) if error.is_known_damage() => Ok(Amount::default()),
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
