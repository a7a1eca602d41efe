//! The end of a transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::clones::unused_parts;
use super::{Changed, Conflict, Outcome, Renaming, Transaction};
use crate::dict::named;
use crate::error::Result;
use crate::expiring::TimeNs;
use crate::freeing::NODE_BYTES_MAX;
use crate::keys::{self, ENGINE_DICT, Keys, Meaning};
use crate::shared::{DictState, Shared};
use crate::value::Stored;

impl Transaction {
    /// Makes the changes seen, all or none.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), [`Error::Closed`](crate::Error::Closed),
    /// [`Error::ViewEnded`](crate::Error::ViewEnded); those of the device.
    /// [`Error::TransactionTooLarge`](crate::Error::TransactionTooLarge) if the parts of values that it
    /// replaces make it so.
    pub fn commit(self) -> Result<Outcome> {
        let shared = self.shared.clone();
        let outcome = self.commit_unsettled()?;
        if matches!(outcome, Outcome::Committed(_)) {
            shared.settle()?;
        }
        Ok(outcome)
    }

    /// As [`commit`](Transaction::commit), and waits for no disk.
    pub(super) fn commit_unsettled(self) -> Result<Outcome> {
        let Transaction { mut engine, shared, changes, renamings, expiring, .. } = self;
        shared.refuse_if_closed()?;
        let mut dicts: BTreeMap<u32, (&Arc<DictState>, bool)> = BTreeMap::new();
        for (state, _) in &changes {
            dicts.entry(state.number).or_insert((state, false));
        }
        for (state, _) in &renamings {
            dicts.insert(state.number, (state, true));
        }
        // The locks are taken in the order of the numbers, as everywhere.
        let mut catalogue = (!renamings.is_empty()).then(|| shared.catalogue.lock());
        let mut locks = (Vec::new(), Vec::new());
        for (state, is_renamed) in dicts.values() {
            let with_others = Some(state.changing.read()).filter(|_| !is_renamed && !state.has_parts());
            match with_others {
                Some(with_others) => locks.0.push(with_others),
                None => locks.1.push(state.changing.write()),
            }
        }
        if let Some((dropped, _)) = dicts.values().find(|(state, _)| state.is_dropped()) {
            let by = shared.env.view().last_change();
            return Ok(Outcome::Conflict(Conflict { dict: dropped.name(), key: None, by }));
        }
        // Clones that were made when there were no parts in the dictionary have left those that came since.
        let is_without = |(state, changed): &&(Arc<DictState>, Changed)| {
            matches!(changed, Changed::Cloned { with_parts: false }) && state.has_parts()
        };
        if let Some((state, _)) = changes.iter().find(is_without) {
            let by = shared.env.view().last_change();
            return Ok(Outcome::Conflict(Conflict { dict: state.name(), key: None, by }));
        }
        for (state, changed) in &changes {
            match changed {
                Changed::Range(keys) => state.note_whole(keys),
                Changed::Cloned { .. } => state.note_whole(&Keys::Prefix(Vec::new())),
                Changed::Put(_) | Changed::Delete(_) => {}
            }
        }
        for cuts in replaced_parts(&shared, &changes)? {
            let deleted = engine.delete_range(ENGINE_DICT, &cuts.0, &cuts.1);
            deleted.map_err(|error| shared.error(error))?;
        }
        let has_puts =
            changes.iter().any(|(_, changed)| matches!(changed, Changed::Put(_) | Changed::Cloned { .. }))
                || renamings
                    .iter()
                    .any(|(_, renaming)| matches!(renaming, Renaming::Made(_) | Renaming::Renamed { .. }));
        let deletes_ranges = changes.iter().any(|(_, changed)| matches!(changed, Changed::Range(_)));
        if !has_puts && (deletes_ranges || !renamings.is_empty()) {
            // As batches do: of a range nobody knows what it frees.
            engine.mark_freeing(NODE_BYTES_MAX as u64);
        }
        // Before it is done, so that a reader who meets it in part asks afterwards, and is told.
        let dropped = || renamings.iter().filter(|(_, renaming)| matches!(renaming, Renaming::Dropped(_)));
        let unmade: BTreeSet<u32> = renamings
            .iter()
            .map(|(state, _)| state)
            .filter(|state| state.is_unmade())
            .map(|s| s.number)
            .collect();
        let live = || dropped().map(|(state, _)| state).filter(|state| !unmade.contains(&state.number));
        live().for_each(|state| state.set_dropped(true));
        let committed = engine.commit();
        if !matches!(committed, Ok(betree::Outcome::Committed(_))) {
            live().for_each(|state| state.set_dropped(false));
        } else if let Some(catalogue) = &mut catalogue {
            for (state, renaming) in &renamings {
                match renaming {
                    Renaming::Made(name) => {
                        state.set_dropped(false);
                        catalogue.dicts.insert(name.clone(), state.clone());
                    }
                    Renaming::Renamed { from, to } => {
                        catalogue.dicts.remove(from);
                        catalogue.dicts.insert(to.clone(), state.clone());
                        state.set_name(to);
                    }
                    Renaming::Dropped(name) => {
                        catalogue.dicts.remove(name);
                        state.set_dropped(true);
                    }
                }
            }
        }
        drop(locks);
        drop(catalogue);
        let cloned = changes.iter().find(|(_, changed)| matches!(changed, Changed::Cloned { .. }));
        let committed = committed.map_err(|error| match cloned {
            Some((state, _)) => named(state, shared.error(error)),
            None => shared.error(error),
        });
        match committed? {
            betree::Outcome::Committed(last) => {
                expiring.iter().for_each(|(state, at_ns)| state.note_expiry(*at_ns));
                // Those of a clone are not known.
                let cloned = changes.iter().filter(|(_, changed)| matches!(changed, Changed::Cloned { .. }));
                cloned.for_each(|(state, _)| state.note_expiry(TimeNs::MIN));
                Ok(Outcome::Committed(last))
            }
            betree::Outcome::Conflict(conflict) => {
                let states = dicts.values().map(|(state, _)| *state);
                Ok(Outcome::Conflict(conflict_of(&shared, states, &conflict)))
            }
        }
    }
}

/// The parts that are of no use once the changes are made. The caller has the dictionaries alone that have
/// any.
fn replaced_parts(
    shared: &Shared,
    changes: &[(Arc<DictState>, Changed)],
) -> Result<Vec<(betree::Cut, betree::Cut)>> {
    let (mut replaced, mut seen) = (Vec::new(), BTreeSet::new());
    let cloned: BTreeMap<u32, &Arc<DictState>> = changes
        .iter()
        .filter(|(_, changed)| matches!(changed, Changed::Cloned { .. }))
        .map(|(state, _)| (state.number, state))
        .collect();
    for (number, state) in &cloned {
        let own = changes.iter().filter(|(state, _)| state.number == *number).map(|(_, changed)| changed);
        replaced.extend(unused_parts(state, own));
    }
    let with_parts = |state: &DictState| state.has_parts() && !cloned.contains_key(&state.number);
    for (state, changed) in changes.iter().filter(|(state, _)| with_parts(state)) {
        let number = state.number;
        match changed {
            Changed::Range(keys) => replaced.push(keys.parts(number)),
            Changed::Put(key) | Changed::Delete(key) if seen.insert((number, key)) => {
                let old = shared.env.get(ENGINE_DICT, &keys::pair_key(number, key));
                let old = old.map_err(|error| shared.error(error))?.map(Stored::of);
                if matches!(old, Some(Stored::Parts(_))) {
                    replaced.push(Keys::One(key.clone()).parts(number));
                }
            }
            Changed::Put(_) | Changed::Delete(_) | Changed::Cloned { .. } => {}
        }
    }
    Ok(replaced)
}

/// The conflict with names and keys of the user. The caller has no locks.
fn conflict_of<'s>(
    shared: &Shared,
    mut states: impl Iterator<Item = &'s Arc<DictState>>,
    conflict: &betree::Conflict,
) -> Conflict {
    let by = conflict.by;
    let (number, key) = match keys::meaning(&conflict.key) {
        Meaning::Name(name) => return Conflict { dict: name, key: None, by },
        Meaning::Dict(number) => (number, None),
        Meaning::Pair(number, key) => (number, Some(key.into())),
    };
    let own = states.find(|state| state.number == number).map(|state| state.name());
    let by_number = || {
        let catalogue = shared.catalogue.lock();
        catalogue.dicts.iter().find(|(_, state)| state.number == number).map(|(name, _)| name.clone())
    };
    Conflict { dict: own.or_else(by_number).unwrap_or_default(), key, by }
}
