//! What directories in memory count: the use of their quotas, and the changes below them while a part of the
//! volume is measured ([`Tally`]).
//!
//! A path that is climbed ([`DirPath`](super::DirPath)) brings along what counts on the way up, so that a
//! change finds its quotas without a walk of its own.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicBool;

use crate::error::{Error, Result};
use crate::names::{DirPath, Inode};
use crate::schema::Amount;
use crate::types::QuotaLimits;

/// Number of changed files with several names that a tally remembers.
const OBJECTS_MAX: usize = 4096;

/// The quota of a directory in memory.
pub(crate) struct Counter {
    state: Mutex<Counted>,
}

struct Counted {
    limits: QuotaLimits,
    /// `None` until it was needed: nothing is read for a quota below which nothing changes.
    used: Option<Amount>,
    /// What files take that have no name there any more, or none yet, and are open.
    held: Amount,
    /// The directory.
    dir: Weak<Inode>,
}

impl Counter {
    /// A counter that reads its use when that is needed first.
    pub fn new(limits: QuotaLimits) -> Counter {
        Counter {
            state: Mutex::new(Counted { limits, used: None, held: Amount::default(), dir: Weak::new() }),
        }
    }

    pub fn limits(&self) -> QuotaLimits {
        self.state.lock().limits
    }

    pub fn set_limits(&self, limits: QuotaLimits) {
        self.state.lock().limits = limits;
    }

    /// Its directory.
    pub fn dir(&self) -> Option<Arc<Inode>> {
        self.state.lock().dir.upgrade()
    }

    /// What is used; `load` reads it the first time. Others that change the use wait for that, so none is
    /// missed.
    pub fn used(&self, load: impl FnOnce() -> Result<Amount>) -> Result<Amount> {
        self.state.lock().loaded(load).copied()
    }

    /// Adds to what is used. What is held counts for the limits too.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] if it would grow over a limit; those of `load`.
    pub fn add(&self, more: Amount, load: impl FnOnce() -> Result<Amount>) -> Result<()> {
        let mut state = self.state.lock();
        let used = *state.loaded(load)?;
        refuse_over(state.limits, used + state.held, more)?;
        state.used = Some(used + more);
        Ok(())
    }

    /// Adds to what is held, as [`add`](Counter::add) for a use that was read. That is in memory alone: after
    /// a crash nothing is held.
    fn hold(&self, more: Amount) -> Result<()> {
        let mut state = self.state.lock();
        refuse_over(state.limits, state.used.unwrap_or_default() + state.held, more)?;
        state.held = state.held + more;
        Ok(())
    }

    /// Adds to what is held, whatever the limits are.
    fn hold_at_once(&self, more: Amount) {
        let mut state = self.state.lock();
        state.held = state.held + more;
    }

    /// Takes back what was added for a change that was not made.
    pub fn take_back(&self, more: Amount) {
        if let Some(used) = &mut self.state.lock().used {
            *used = *used - more;
        }
    }
}

/// Refuses to grow over a limit.
fn refuse_over(limits: QuotaLimits, before: Amount, more: Amount) -> Result<()> {
    let sum = before + more;
    let is_over = |more: i64, sum: i64, limit: Option<u64>| {
        more > 0 && limit.is_some_and(|limit| u64::try_from(sum).is_ok_and(|sum| sum > limit))
    };
    if is_over(more.bytes, sum.bytes, limits.bytes) || is_over(more.objects, sum.objects, limits.objects) {
        return Err(Error::QuotaExceeded);
    }
    Ok(())
}

/// What a file without a name holds of quotas, until this is dropped.
#[derive(Default)]
pub(crate) struct Held {
    quotas: Vec<Arc<Counter>>,
    amount: Amount,
    /// The directory of the nearest quota: as long as it stays in memory, those above do, with their
    /// counters.
    _home: Option<Arc<Inode>>,
}

impl Held {
    /// Holds this much of these quotas, whatever their limits are.
    pub fn at_once(quotas: Vec<Arc<Counter>>, amount: Amount) -> Held {
        quotas.iter().for_each(|quota| quota.hold_at_once(amount));
        let home = quotas.first().and_then(|quota| quota.dir());
        Held { quotas, amount, _home: home }
    }

    /// Holds this much of the quotas above a place without more there.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; those of `load`, which is called with the length of a quota's path.
    pub fn of(path: &DirPath, amount: Amount, mut load: impl FnMut(usize) -> Result<Amount>) -> Result<Held> {
        let mut held = Held { quotas: Vec::new(), amount, _home: path.home() };
        for above in &path.counting {
            if let Some(quota) = &above.counting.quota {
                quota.used(|| load(above.path_bytes))?;
                quota.hold(amount)?;
                held.quotas.push(quota.clone());
            }
        }
        Ok(held)
    }

    /// Holds nothing any more; returns the quotas.
    pub fn let_go(self) -> Vec<Arc<Counter>> {
        self.quotas.clone()
    }

    /// Holds more, or less.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]: nothing has changed then.
    pub fn change(&mut self, more: Amount) -> Result<()> {
        for (at, quota) in self.quotas.iter().enumerate() {
            if let Err(error) = quota.hold(more) {
                self.quotas.iter().take(at).for_each(|quota| quota.hold_at_once(-more));
                return Err(error);
            }
        }
        self.amount = self.amount + more;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.quotas.iter().for_each(|quota| quota.hold_at_once(-self.amount));
    }
}

impl Counted {
    fn loaded(&mut self, load: impl FnOnce() -> Result<Amount>) -> Result<&mut Amount> {
        if self.used.is_none() {
            self.used = Some(load()?);
        }
        // It was just set.
        Ok(self.used.get_or_insert_default())
    }
}

/// What changes below a directory while it is measured, in a view of the moment when the tally began.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Changes>);

#[derive(Default)]
struct Changes {
    sum: Amount,
    /// Something came or went whose amount is not known.
    is_spoiled: bool,
    /// Files with several names that have changed, anywhere on the volume: which directories they are in is
    /// not known.
    objects: BTreeSet<u64>,
}

impl Tally {
    /// Adds a difference.
    pub fn add(&self, more: Amount) {
        let mut changes = self.0.lock();
        changes.sum = changes.sum + more;
    }

    /// Notes that it can no longer be told what is in the directory.
    pub fn spoil(&self) {
        self.0.lock().is_spoiled = true;
    }

    /// Notes changes of files with several names.
    pub fn note_objects<'a>(&self, oids: impl IntoIterator<Item = &'a u64>) {
        let mut changes = self.0.lock();
        for oid in oids {
            if changes.objects.len() >= OBJECTS_MAX {
                changes.is_spoiled = true;
                return;
            }
            changes.objects.insert(*oid);
        }
    }

    /// The sum of all changes; `None` if it cannot be told. `is_measured` says which files with several names
    /// were measured.
    pub fn sum(&self, is_measured: impl Fn(u64) -> bool) -> Option<Amount> {
        let changes = self.0.lock();
        let is_known = !changes.is_spoiled && !changes.objects.iter().any(|oid| is_measured(*oid));
        is_known.then_some(changes.sum)
    }
}

/// What one directory counts.
#[derive(Clone, Default)]
pub(crate) struct Counting {
    pub quota: Option<Arc<Counter>>,
    pub tallies: Vec<Arc<Tally>>,
}

/// What a directory on a path counts.
#[derive(Clone)]
pub(crate) struct CountingAbove {
    pub counting: Counting,
    /// The length of the directory's path, with which the whole path begins.
    pub path_bytes: usize,
}

/// The place of a directory for what it counts: of nearly all directories nothing.
#[derive(Default)]
pub(super) struct MayCount {
    /// Whether it counts anything, readable without the lock.
    counts: AtomicBool,
    /// Boxed: nearly all directories should not have room for it.
    counting: Mutex<Option<Box<Counting>>>,
}

impl MayCount {
    /// The place of a directory with these limits.
    pub fn with(limits: Option<QuotaLimits>) -> MayCount {
        let may_count = MayCount::default();
        if let Some(limits) = limits {
            may_count.change(|counting| counting.quota = Some(Arc::new(Counter::new(limits))));
        }
        may_count
    }

    fn get(&self) -> Option<Counting> {
        if self.counts.load(Relaxed) { self.counting.lock().as_deref().cloned() } else { None }
    }

    fn change(&self, change: impl FnOnce(&mut Counting)) {
        let mut counting = self.counting.lock();
        change(counting.get_or_insert_default());
        counting.take_if(|counting| counting.quota.is_none() && counting.tallies.is_empty());
        self.counts.store(counting.is_some(), Relaxed);
    }
}

impl Inode {
    /// What a directory counts, if anything.
    pub fn counting(&self) -> Option<Counting> {
        self.of_dir.as_ref()?.may_count.get()
    }

    /// The quota of a directory.
    pub fn quota(&self) -> Option<Arc<Counter>> {
        self.counting()?.quota
    }

    /// Gives a directory this quota, or takes it away. The caller holds the namespace alone, and has counted
    /// a change of paths.
    pub fn set_counter(self: &Arc<Self>, limits: Option<QuotaLimits>) {
        if let Some(of_dir) = &self.of_dir {
            let quota = limits.map(|limits| Arc::new(Counter::new(limits)));
            of_dir.may_count.change(|counting| counting.quota = quota);
            self.bind_quota();
        }
    }

    /// Tells the quota of a directory its directory.
    pub fn bind_quota(self: &Arc<Self>) {
        if let Some(quota) = self.quota() {
            quota.state.lock().dir = Arc::downgrade(self);
        }
    }

    /// Begins to count the changes below a directory. The caller holds the namespace alone, and has counted a
    /// change of paths.
    pub fn add_tally(&self, tally: &Arc<Tally>) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.may_count.change(|counting| counting.tallies.push(tally.clone()));
        }
    }

    /// Ends that.
    pub fn end_tally(&self, tally: &Arc<Tally>) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.may_count.change(|counting| counting.tallies.retain(|other| !Arc::ptr_eq(other, tally)));
        }
    }
}
