//! Changes that are made together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use betree::{Batch, Cut};

use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expiring::TimeNs;
use crate::freeing::{delete_range, mark_freeing};
use crate::keys::{self, ENGINE_DICT, Keys};
use crate::parts::{self, Large};
use crate::shared::{DictState, Shared};
use crate::value::{Reference, Stored, stored_until};

/// A list of changes of any dictionaries of one store, which are made in their order and as one: all of them
/// are seen, and survive a crash, or none.
///
/// ```
/// # fn main() -> betree_store::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let store = betree_store::Store::open(folder.path().join("store"))?;
/// let (users, by_year) = (store.dict("users")?, store.dict("by year")?);
/// let mut batch = store.batch();
/// batch.put(&users, "ada", "1815")?;
/// batch.put(&by_year, "1815/ada", "")?;
/// batch.commit()?;
/// // It is as it was, and can be committed again, or emptied and filled anew.
/// batch.clear();
/// batch.delete(&users, "ada")?;
/// batch.delete_range(&by_year, "1815".."1816")?;
/// batch.commit()?;
/// assert!(users.is_empty()? && by_year.is_empty()?);
/// # Ok(())
/// # }
/// ```
pub struct WriteBatch {
    shared: Arc<Shared>,
    /// The changes of pairs.
    changes: Batch,
    has_puts: bool,
    /// The dictionaries that it changes, by number.
    dicts: BTreeMap<u32, Arc<DictState>>,
    /// The values that are stored in parts, by number and key.
    large: BTreeMap<(u32, Vec<u8>), (Reference, Vec<u8>)>,
    /// The earliest time at which a value expires that it puts, by number.
    expiring: BTreeMap<u32, TimeNs>,
    /// The keys that are deleted together.
    deleted: Vec<(u32, Keys)>,
}

impl WriteBatch {
    pub(crate) fn new(shared: Arc<Shared>) -> WriteBatch {
        WriteBatch {
            shared,
            changes: Batch::new(),
            has_puts: false,
            dicts: BTreeMap::new(),
            large: BTreeMap::new(),
            expiring: BTreeMap::new(),
            deleted: Vec::new(),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLarge`], [`Error::OtherStore`]; the batch is as it was.
    pub fn put(&mut self, dict: &Dict, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_lasting(dict, key.as_ref(), value.as_ref(), None)
    }

    pub(crate) fn put_lasting(
        &mut self,
        dict: &Dict,
        key: &[u8],
        value: &[u8],
        expires_ns: Option<TimeNs>,
    ) -> Result<()> {
        let is_large = dict.check_put(key, value)?;
        dict.check_expiry(expires_ns)?;
        self.add(dict)?;
        if let Some(at_ns) = expires_ns {
            self.expiring
                .entry(dict.state.number)
                .and_modify(|earliest_ns| *earliest_ns = at_ns.min(*earliest_ns))
                .or_insert(at_ns);
        }
        self.has_puts = true;
        let number = dict.state.number;
        let place = (number, key.to_vec());
        if is_large {
            let generation = self.shared.generation.fetch_add(1, Ordering::Relaxed);
            let reference = Reference { generation, len: value.len() as u64, expires_ns };
            self.changes.put(ENGINE_DICT, &keys::pair_key(number, key), &reference.stored());
            self.large.insert(place, (reference, value.to_vec()));
        } else {
            let stored = stored_until(value, expires_ns, dict.state.deltas());
            self.changes.put(ENGINE_DICT, &keys::pair_key(number, key), &stored);
            self.large.remove(&place);
        }
        Ok(())
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete(&mut self, dict: &Dict, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        dict.check_key(key)?;
        self.add(dict)?;
        self.changes.delete(ENGINE_DICT, &keys::pair_key(dict.state.number, key));
        self.large.remove(&(dict.state.number, key.to_vec()));
        Ok(())
    }

    /// Changes the value of a key by the dictionary's merge: see [`Dict::upsert`]. Where values expire, the
    /// merge finds what has not at this call.
    ///
    /// # Errors
    /// [`Error::NoMerge`]; as [`put`](WriteBatch::put).
    pub fn upsert(&mut self, dict: &Dict, key: impl AsRef<[u8]>, delta: impl AsRef<[u8]>) -> Result<()> {
        let delta = dict.delta(key.as_ref(), delta.as_ref(), self.shared.now_ns())?;
        self.add(dict)?;
        self.has_puts = true;
        self.changes.upsert(ENGINE_DICT, &keys::pair_key(dict.state.number, key.as_ref()), &delta);
        Ok(())
    }

    /// Removes every key of a range: see [`Dict::delete_range`].
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, dict: &Dict, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_keys(dict, Keys::of(&range))
    }

    /// Removes every key that begins with a prefix.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete_prefix(&mut self, dict: &Dict, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_keys(dict, Keys::Prefix(prefix.as_ref().to_vec()))
    }

    pub(crate) fn delete_keys(&mut self, dict: &Dict, keys: Keys) -> Result<()> {
        let number = dict.state.number;
        let (lo, hi) = keys.pairs(number);
        dict.check_cut(&lo)?;
        dict.check_cut(&hi)?;
        self.add(dict)?;
        self.changes.delete_range(ENGINE_DICT, &lo, &hi);
        self.large.retain(|(of, key), _| {
            let key = keys::pair_key(*of, key);
            lo.is_above(&key) || !hi.is_above(&key)
        });
        self.deleted.push((number, keys));
        Ok(())
    }

    fn add(&mut self, dict: &Dict) -> Result<()> {
        if !Arc::ptr_eq(&self.shared, &dict.shared) {
            return Err(Error::OtherStore { dict: dict.name() });
        }
        self.dicts.entry(dict.state.number).or_insert_with(|| dict.state.clone());
        Ok(())
    }

    /// How many changes it has.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether it has no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Its size in bytes without large values, of which a commit takes at most
    /// [`bytes_max`](WriteBatch::bytes_max).
    pub fn bytes(&self) -> usize {
        self.changes.bytes()
    }

    /// The largest batch in bytes: an eighth of the store's log, which is 8 MiB for a store that was made
    /// with the usual cache.
    pub fn bytes_max(&self) -> usize {
        self.shared.env.batch_bytes_max()
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        *self = WriteBatch::new(self.shared.clone());
    }

    /// Makes the changes. The batch stays as it is.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`], [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::DictDropped`] if one of
    /// the dictionaries was, [`Error::Closed`].
    pub fn commit(&self) -> Result<()> {
        // The locks are taken in the order of the numbers, as everywhere.
        let dicts = || self.dicts.values();
        for (dict, keys) in self.deleted.iter().filter_map(|(of, keys)| Some((self.dicts.get(of)?, keys))) {
            dict.note_whole(keys);
        }
        let with_others: Vec<_> = dicts().map(|dict| dict.changing.read()).collect();
        if self.large.is_empty() && !dicts().any(|dict| dict.has_parts()) {
            dicts().try_for_each(|dict| dict.refuse_if_dropped())?;
            self.commit_pairs(self.changes.clone())?;
        } else {
            drop(with_others);
            let _alone: Vec<_> = dicts().map(|dict| dict.changing.write()).collect();
            dicts().try_for_each(|dict| dict.refuse_if_dropped())?;
            self.commit_alone()?;
        }
        for (number, at_ns) in &self.expiring {
            self.dicts.get(number).inspect(|dict| dict.note_expiry(*at_ns));
        }
        // What large transactions work in goes with a crash anyway.
        if !self.dicts.is_empty() && dicts().all(|dict| dict.is_of_large()) {
            return Ok(());
        }
        self.shared.settle()
    }

    fn commit_pairs(&self, mut changes: Batch) -> Result<()> {
        if !self.has_puts && !self.deleted.is_empty() {
            mark_freeing(&mut changes, 0);
        }
        self.shared.commit(&changes)
    }

    /// Makes the changes; the caller has all dictionaries alone.
    pub(crate) fn commit_alone(&self) -> Result<()> {
        let (bytes, limit_bytes) = (self.bytes(), self.bytes_max());
        if bytes > limit_bytes {
            return Err(Error::BatchTooLarge { bytes, limit_bytes });
        }
        let larges = || {
            self.large.iter().filter_map(|((number, key), (reference, value))| {
                let dict = self.dicts.get(number)?;
                Some(Large { dict, key, value, reference: *reference })
            })
        };
        let committed = larges().try_for_each(|large| large.put_parts(&self.shared)).and_then(|()| {
            let kept: Vec<(Cut, Cut)> = larges().map(|large| large.cuts()).collect();
            let mut changes = self.changes.clone();
            let (replaced, freed_bytes) = self.replaced()?;
            for (lo, hi) in replaced.into_iter().flat_map(|cuts| parts::without(cuts, &kept)) {
                changes.delete_range(ENGINE_DICT, &lo, &hi);
            }
            if freed_bytes > 0 {
                mark_freeing(&mut changes, freed_bytes);
            }
            self.commit_pairs(changes)
        });
        if committed.is_err() {
            // Nothing refers to the parts. If they cannot be removed, the next value of their key does it.
            let mut parts = Batch::new();
            larges().for_each(|large| delete_range(&mut parts, large.cuts()));
            let _ = self.shared.commit(&parts);
        }
        committed
    }

    /// The parts that are of no use once the changes are made, with those of the large values themselves; and
    /// how many bytes of values the former are, as far as that is known.
    fn replaced(&self) -> Result<(Vec<(Cut, Cut)>, u64)> {
        let has_parts = |number: &u32| self.dicts.get(number).is_some_and(|dict| dict.has_parts());
        let (mut replaced, mut freed_bytes) = (Vec::new(), 0);
        for (number, keys) in self.deleted.iter().filter(|(number, _)| has_parts(number)) {
            replaced.push(keys.parts(*number));
        }
        let changed: BTreeSet<&[u8]> = self.changes.keys().map(|(_, key)| key).collect();
        for engine_key in changed {
            let (number, key) = keys::user_key(engine_key);
            if !has_parts(&number) {
                continue;
            }
            let old =
                self.shared.env.get(ENGINE_DICT, engine_key).map_err(|error| self.shared.error(error))?;
            let old = old.map(Stored::of);
            if let Some(Stored::Parts(old)) = &old {
                freed_bytes += old.len;
            }
            // Of a large value's key a crash may have left parts that nothing refers to.
            if matches!(old, Some(Stored::Parts(_))) || self.large.contains_key(&(number, key.to_vec())) {
                replaced.push(Keys::One(key.to_vec()).parts(number));
            }
        }
        Ok((replaced, freed_bytes))
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} changes, {} bytes)", self.len(), self.bytes())
    }
}
