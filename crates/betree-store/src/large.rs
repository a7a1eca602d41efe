//! Transactions larger than memory: each works in clones of its dictionaries, which take their place when it
//! commits.
//!
//! Of each dictionary two clones are made at the beginning, under numbers that no name leads to: the *base*
//! stays as it is, and the *work* is changed by ordinary batches, which leave memory as any others do. At the
//! end, what others have changed in the dictionary since, which is where it differs from the base, is brought
//! into base and work; then one batch puts the work in the dictionary's place. The catalogue has a marker for
//! each of the clones, and the next opening removes those that a crash has left.

mod bring;

use std::collections::BTreeMap;
use std::sync::Arc;

use betree::Batch;

use crate::catalogue::{self, Entry};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expiring::TimeNs;
use crate::freeing::delete_range;
use crate::keys::{ENGINE_DICT, dict_cuts};
use crate::shared::{DictState, Shared};
use crate::store::Store;
use crate::transaction::{Conflict, Isolation, Outcome};
use bring::Brought;

/// How often what others have changed is brought in while they go on. What they change meanwhile is brought
/// in while they wait.
const ROUNDS: usize = 3;

/// A dictionary, as it was and as it will be.
#[derive(Clone)]
struct Branch {
    origin: Arc<DictState>,
    /// The number of the clone that is as the origin was.
    base: u32,
    work: Arc<DictState>,
}

/// Changes of any size, of dictionaries that it [begins](Store::begin_large) with, which nobody else sees
/// before [`commit`](LargeTransaction::commit). Dropping it drops the changes.
///
/// It changes dictionaries of its own, which are clones: see [`dict`](LargeTransaction::dict). So it has no
/// savepoints and no [`expect`](crate::Transaction::expect), and makes, renames and drops no dictionaries.
/// With [`Isolation::Snapshot`] a key is a conflict if both sides have another value of it than at the
/// beginning, and so is a change by others in a range that it has deleted or cloned as a whole. With
/// [`Isolation::Serializable`] all of its dictionaries count as read: any change of others is a conflict.
///
/// Beginning and dropping it cost the same whatever the dictionaries hold. The commit reads all pairs of the
/// dictionaries and of their bases, to find what others have changed. Small transactions that are open when
/// it commits meet a conflict in its dictionaries.
pub struct LargeTransaction {
    shared: Arc<Shared>,
    isolation: Isolation,
    /// In the order of the origins' numbers; none once it has ended.
    branches: Vec<Branch>,
}

impl Store {
    /// Begins a transaction of any size, in some dictionaries.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::{Isolation, Outcome};
    ///
    /// let numbers = store.dict("numbers")?;
    /// let import = store.begin_large(Isolation::Snapshot, &[&numbers])?;
    /// let work = import.dict(&numbers)?;
    /// for number in 0..1000_u32 {
    ///     work.put(number.to_be_bytes(), "imported")?;
    /// }
    /// assert!(numbers.is_empty()?);
    /// assert!(matches!(import.commit()?, Outcome::Committed(_)));
    /// assert_eq!(numbers.iter().count(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherStore`], [`Error::DictDropped`], [`Error::NoSuchDict`] for one that a transaction makes,
    /// and those of a commit.
    pub fn begin_large(&self, isolation: Isolation, dicts: &[&Dict]) -> Result<LargeTransaction> {
        let shared = &self.shared;
        let mut origins: BTreeMap<u32, Arc<DictState>> = BTreeMap::new();
        for dict in dicts {
            if !Arc::ptr_eq(shared, &dict.shared) {
                return Err(Error::OtherStore { dict: dict.name() });
            }
            origins.insert(dict.state.number, dict.state.clone());
        }
        let mut names = shared.catalogue.lock();
        // No value is half stored while it is cloned.
        let with_others: Vec<_> = origins.values().map(|origin| origin.changing.read()).collect();
        origins.values().try_for_each(|origin| origin.refuse_if_dropped())?;
        let mut branches = Vec::new();
        let mut batch = Batch::new();
        let mut next = names.next;
        for origin in origins.values() {
            let (base, work) = (next, next.checked_add(1).ok_or(Error::TooManyDicts)?);
            next = work.checked_add(1).ok_or(Error::TooManyDicts)?;
            for number in [base, work] {
                catalogue::put_marker(&mut batch, number);
                batch.clone_range(ENGINE_DICT, &origin.number.to_be_bytes(), &number.to_be_bytes());
            }
            let work = DictState::of_large(&origin.name(), Entry { number: work, ..origin.entry() });
            branches.push(Branch { origin: origin.clone(), base, work: Arc::new(work) });
        }
        catalogue::put_next(&mut batch, next);
        shared.commit(&batch)?;
        names.next = next;
        drop(with_others);
        Ok(LargeTransaction { shared: shared.clone(), isolation, branches })
    }
}

impl LargeTransaction {
    /// The clone of a dictionary that the transaction reads and changes, by all that a [`Dict`] can: batches,
    /// ranges, clones, values in parts. Its changes are not made durable one by one, whatever the store's
    /// [`Durability`](crate::Durability). It ends with the transaction, as if it were dropped.
    ///
    /// # Errors
    /// [`Error::NoSuchDict`] if the transaction did not begin with the dictionary.
    pub fn dict(&self, dict: &Dict) -> Result<Dict> {
        let found = self.branches.iter().find(|branch| Arc::ptr_eq(&branch.origin, &dict.state));
        let branch = found.ok_or_else(|| Error::NoSuchDict { name: dict.name() })?;
        Ok(Dict { shared: self.shared.clone(), state: branch.work.clone() })
    }

    /// Makes the changes seen, all or none.
    ///
    /// # Errors
    /// Those of a commit, of the device, and damage; a merge of the dictionary that fails. The changes are
    /// dropped.
    pub fn commit(mut self) -> Result<Outcome> {
        let (shared, branches) = (self.shared.clone(), self.branches.clone());
        for _ in 0..ROUNDS {
            let _alone: Vec<_> = branches.iter().map(|branch| branch.work.changing.write()).collect();
            match self.bring(&branches)? {
                Brought::Conflict(conflict) => return Ok(Outcome::Conflict(conflict)),
                Brought::Keys(0) => break,
                Brought::Keys(_) => {}
            }
        }
        // The locks are taken in the order of the numbers, as everywhere.
        let states: BTreeMap<u32, &DictState> = branches
            .iter()
            .flat_map(|Branch { origin, work, .. }| [origin, work].map(|state| (state.number, &**state)))
            .collect();
        let alone: Vec<_> = states.values().map(|state| state.changing.write()).collect();
        if let Some(dropped) = branches.iter().find(|branch| branch.origin.is_dropped()) {
            let by = shared.env.view().last_change();
            return Ok(Outcome::Conflict(Conflict { dict: dropped.origin.name(), key: None, by }));
        }
        if let Brought::Conflict(conflict) = self.bring(&branches)? {
            return Ok(Outcome::Conflict(conflict));
        }
        let mut batch = Batch::new();
        for Branch { origin, base, work } in &branches {
            batch.rename_range(ENGINE_DICT, &work.number.to_be_bytes(), &origin.number.to_be_bytes());
            delete_range(&mut batch, dict_cuts(*base));
            [*base, work.number].iter().for_each(|number| catalogue::delete_marker(&mut batch, *number));
            if work.has_parts() && !origin.has_parts() && !origin.is_of_large() {
                catalogue::put_entry(
                    &mut batch,
                    &origin.name(),
                    &Entry { has_parts: true, ..origin.entry() },
                );
            }
            work.wholes().iter().for_each(|keys| origin.note_whole(keys));
        }
        batch.mark_replacing();
        shared.commit(&batch)?;
        for Branch { origin, work, .. } in &branches {
            work.set_dropped(true);
            if work.has_parts() {
                origin.set_has_parts();
            }
            origin.note_expiry(TimeNs::MIN);
        }
        self.branches.clear();
        let last = shared.env.view().last_change();
        drop(alone);
        shared.settle()?;
        Ok(Outcome::Committed(last))
    }
}

impl Drop for LargeTransaction {
    fn drop(&mut self) {
        if self.branches.is_empty() || self.shared.refuse_if_forked().is_err() {
            return;
        }
        let alone: Vec<_> = self.branches.iter().map(|branch| branch.work.changing.write()).collect();
        let mut batch = Batch::new();
        for Branch { base, work, .. } in &self.branches {
            work.set_dropped(true);
            for number in [*base, work.number] {
                delete_range(&mut batch, dict_cuts(number));
                catalogue::delete_marker(&mut batch, number);
            }
        }
        match self.shared.commit(&batch) {
            Ok(()) | Err(Error::Closed { .. }) => {}
            Err(error) => tracing::warn!("what a large transaction leaves goes at the next opening: {error}"),
        }
        drop(alone);
    }
}

impl std::fmt::Debug for LargeTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.branches.iter().map(|branch| branch.origin.name()).collect();
        write!(f, "LargeTransaction({:?}, {names:?} of {:?})", self.isolation, self.shared.path)
    }
}

#[cfg(test)]
mod tests;
