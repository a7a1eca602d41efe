//! A dictionary: reads and changes.

use std::ops::RangeBounds;
use std::sync::Arc;

use betree::{Batch, Cut};

use crate::batch::WriteBatch;
use crate::bytes::{Key, Value};
use crate::error::{Error, Result};
use crate::expiring::{self, TimeNs};
use crate::iter::{Iter, Source};
use crate::keys::{self, ENGINE_DICT, KEY_BYTES_MAX, Keys};
use crate::merge::number_of;
use crate::owned::OwnedIter;
use crate::parts::{self, Then, VALUE_BYTES_MAX};
use crate::shared::{DictState, Shared};

/// A dictionary of a [`Store`](crate::Store): an ordered map from byte strings to byte strings.
///
/// Clones of it are the same dictionary. It keeps its store open.
#[derive(Clone)]
pub struct Dict {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<DictState>,
}

/// What a range holds, and what it takes in the file, in bytes as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// All of it, whoever shares it.
    pub stored_bytes: u64,
    /// What no clone shares: what a deletion would free.
    pub exclusive_bytes: u64,
    /// About how many pairs it has.
    pub pairs: u64,
}

impl Dict {
    /// The name at the moment.
    pub fn name(&self) -> String {
        self.state.name()
    }

    /// The value of a key.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let fruit = betree_store::Store::open(folder.path().join("store"))?.dict("fruit")?;
    /// fruit.put("banana", "yellow")?;
    /// assert_eq!(fruit.get("banana")?.as_deref(), Some(&b"yellow"[..]));
    /// assert_eq!(fruit.get("cherry")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DictDropped`], [`Error::Closed`]; those of the device, and damage.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.shared.refuse_if_closed()?;
        let key = key.as_ref();
        let found = self.shared.env.get(ENGINE_DICT, &keys::pair_key(self.state.number, key));
        // What was found may have been found because, or not found because, the dictionary was dropped.
        self.state.refuse_if_dropped()?;
        match found.map_err(|error| self.shared.error(error))? {
            Some(read) => parts::value_of(&self.shared, &self.state, key, read),
            None => Ok(None),
        }
    }

    /// The values of several keys, in the order of these. A key may stand among them more than once. Not of
    /// one moment: others may change a part of them meanwhile.
    ///
    /// What all keys need of the disk is asked for together, level by level: the disk is waited for about as
    /// often as for one key, as long as half of the cache holds what is read.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let fruit = betree_store::Store::open(folder.path().join("store"))?.dict("fruit")?;
    /// fruit.put("banana", "yellow")?;
    /// let found = fruit.get_many(&["cherry", "banana"])?;
    /// assert!(found[0].is_none() && found[1].is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.shared.refuse_if_closed()?;
        let (shared, state) = (&self.shared, &self.state);
        let get_many = |keys: &[Vec<u8>]| shared.env.get_many(ENGINE_DICT, keys);
        let found = get_many(&keys::pair_keys(state.number, keys));
        state.refuse_if_dropped()?;
        let found = found.map_err(|error| shared.error(error))?;
        let name = state.name();
        let then = Then { number: state.number, name: &name, merge: state.merge.as_deref() };
        parts::values_of(shared, then, keys, found, get_many, |key, read| {
            parts::value_of(shared, state, key, read)
        })
    }

    /// Whether there is a value of a key.
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Sets the value of a key. Nothing is read for it.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLarge`], [`Error::NoSpace`], [`Error::ReadOnly`],
    /// [`Error::DictDropped`], [`Error::Closed`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_lasting(key.as_ref(), value.as_ref(), None)
    }

    /// Removes a key, if it is there. Nothing is read for it.
    ///
    /// # Errors
    /// As [`put`](Dict::put), but for a lack of space.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.check_key(key)?;
        let pair_key = keys::pair_key(self.state.number, key);
        if self.change_whole(|batch| batch.delete(ENGINE_DICT, &pair_key))? {
            return Ok(());
        }
        let mut batch = WriteBatch::new(self.shared.clone());
        batch.delete(self, key)?;
        batch.commit()
    }

    /// Changes the value of a key by the dictionary's merge, without reading it: the delta is kept, and
    /// merged when the value is read.
    ///
    /// # Errors
    /// [`Error::NoMerge`] if the dictionary was made without one; as [`put`](Dict::put).
    pub fn upsert(&self, key: impl AsRef<[u8]>, delta: impl AsRef<[u8]>) -> Result<()> {
        let (key, delta) = (key.as_ref(), delta.as_ref());
        let delta = self.delta(key, delta, self.shared.now_ns())?;
        self.change(|batch| batch.upsert(ENGINE_DICT, &keys::pair_key(self.state.number, key), &delta))
    }

    /// A delta as the engine has it, made at a time.
    pub(crate) fn delta(&self, key: &[u8], delta: &[u8], made_ns: TimeNs) -> Result<Vec<u8>> {
        let Some(merge) = &self.state.merge else {
            return Err(Error::NoMerge { dict: self.name() });
        };
        self.check_put(key, delta)?;
        let delta = [&number_of(merge)[..], delta].concat();
        Ok(if self.state.is_expiring { expiring::timed_delta(made_ns, &delta) } else { delta })
    }

    /// All pairs, in the order of their keys.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let fruit = betree_store::Store::open(folder.path().join("store"))?.dict("fruit")?;
    /// fruit.put("cherry", "red")?;
    /// fruit.put("banana", "yellow")?;
    /// let keys: Result<Vec<_>, _> = fruit.iter().map(|pair| pair.map(|(key, _)| key)).collect();
    /// assert_eq!(keys?, ["banana", "cherry"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter(&self) -> Iter<'_> {
        self.prefix("")
    }

    /// The pairs of a range of keys, in their order, from both ends.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let fruit = betree_store::Store::open(folder.path().join("store"))?.dict("fruit")?;
    /// for name in ["apple", "banana", "cherry", "damson"] {
    ///     fruit.put(name, "")?;
    /// }
    /// let mut range = fruit.range("b".."cz");
    /// assert_eq!(range.next_back().transpose()?.map(|(key, _)| key), Some(b"cherry".to_vec().into()));
    /// assert_eq!(range.next().transpose()?.map(|(key, _)| key), Some(b"banana".to_vec().into()));
    /// assert!(range.next().is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter<'_> {
        Iter::new(Source::Dict(self), &Keys::of(&range))
    }

    /// The pairs whose keys begin with a prefix, in their order, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter<'_> {
        Iter::new(Source::Dict(self), &Keys::Prefix(prefix.as_ref().to_vec()))
    }

    /// As [`range`](Dict::range), with an iterator that keeps the dictionary.
    pub fn owned_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> OwnedIter {
        OwnedIter::new(self.clone(), &Keys::of(&range))
    }

    /// As [`prefix`](Dict::prefix), with an iterator that keeps the dictionary.
    pub fn owned_prefix(&self, prefix: impl AsRef<[u8]>) -> OwnedIter {
        OwnedIter::new(self.clone(), &Keys::Prefix(prefix.as_ref().to_vec()))
    }

    /// The first pair.
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next().transpose()
    }

    /// The last pair.
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next_back().transpose()
    }

    /// Whether it holds nothing.
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }

    /// Takes the first pair out. Of several threads that do so, each gets another one.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let jobs = betree_store::Store::open(folder.path().join("store"))?.dict("jobs")?;
    /// jobs.put(2_u64.to_be_bytes(), "second")?;
    /// jobs.put(1_u64.to_be_bytes(), "first")?;
    /// let (_, job) = jobs.pop_first()?.expect("a job");
    /// assert_eq!(job, "first");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Dict::get) and [`delete`](Dict::delete).
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Dict::first)
    }

    /// Takes the last pair out, as [`pop_first`](Dict::pop_first) does the first.
    ///
    /// # Errors
    /// As [`pop_first`](Dict::pop_first).
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Dict::last)
    }

    fn pop(&self, find: impl FnOnce(&Dict) -> Result<Option<(Key, Value)>>) -> Result<Option<(Key, Value)>> {
        let alone = self.state.changing.write();
        let Some((key, value)) = find(self)? else { return Ok(None) };
        let mut batch = WriteBatch::new(self.shared.clone());
        batch.delete(self, &key)?;
        batch.commit_alone()?;
        drop(alone);
        self.settle()?;
        Ok(Some((key, value)))
    }

    /// Removes every key of a range, at a cost that does not depend on how many there are.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let events = betree_store::Store::open(folder.path().join("store"))?.dict("events")?;
    /// for day in ["2026-01-31", "2026-02-01", "2026-02-02"] {
    ///     events.put(day, "")?;
    /// }
    /// events.delete_range(.."2026-02")?;
    /// assert_eq!(events.iter().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`delete`](Dict::delete).
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let mut batch = WriteBatch::new(self.shared.clone());
        batch.delete_range(self, range)?;
        batch.commit()
    }

    /// Removes every key that begins with a prefix, as [`delete_range`](Dict::delete_range) does those of a
    /// range.
    ///
    /// # Errors
    /// As [`delete`](Dict::delete).
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new(self.shared.clone());
        batch.delete_prefix(self, prefix)?;
        batch.commit()
    }

    /// Removes every key, as [`delete_range`](Dict::delete_range) does those of a range.
    ///
    /// # Errors
    /// As [`delete`](Dict::delete).
    pub fn clear(&self) -> Result<()> {
        self.delete_prefix("")
    }

    /// Makes what begins with `to` what begins with `from`: the same pairs under other names. The cost does
    /// not depend on how many there are, and each side can be changed without a change of the other. What
    /// began with `to` before is gone.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let pages = betree_store::Store::open(folder.path().join("store"))?.dict("pages")?;
    /// pages.put("draft/1", "text")?;
    /// pages.clone_prefix("draft/", "published/")?;
    /// pages.delete_prefix("draft/")?;
    /// assert!(pages.contains("published/1")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyTooLong`] if a key could become longer than is allowed; as [`put`](Dict::put).
    pub fn clone_prefix(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        [from, to].iter().for_each(|prefix| self.state.note_whole(&Keys::Prefix(prefix.to_vec())));
        self.change(|batch| {
            let prefixes = self.prefixes(from, to, self.state.has_parts());
            prefixes.for_each(|(from, to)| batch.clone_range(ENGINE_DICT, &from, &to));
        })?;
        // A sweep may have passed over the one, and not be at the other yet.
        self.state.note_expiry(TimeNs::MIN);
        Ok(())
    }

    /// As [`clone_prefix`](Dict::clone_prefix), and what began with `from` is gone.
    ///
    /// # Errors
    /// As [`clone_prefix`](Dict::clone_prefix).
    pub fn rename_prefix(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        [from, to].iter().for_each(|prefix| self.state.note_whole(&Keys::Prefix(prefix.to_vec())));
        self.change(|batch| {
            let prefixes = self.prefixes(from, to, self.state.has_parts());
            prefixes.for_each(|(from, to)| batch.rename_range(ENGINE_DICT, &from, &to));
        })?;
        self.state.note_expiry(TimeNs::MIN);
        Ok(())
    }

    /// The engine's prefixes for two of keys: those of pairs, and of parts if there may be any.
    pub(crate) fn prefixes(
        &self,
        from: &[u8],
        to: &[u8],
        has_parts: bool,
    ) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + use<> {
        let number = self.state.number;
        let pairs = (keys::pair_key(number, from), keys::pair_key(number, to));
        let parts = (keys::part_prefix(number, from), keys::part_prefix(number, to));
        [pairs].into_iter().chain(Some(parts).filter(|_| has_parts))
    }

    /// What a range holds and takes, by the tables of contents of the nodes that hold it, and at most 40
    /// pieces of some ten KiB of these nodes. What was changed since the last checkpoint may count at its
    /// size in memory, or not yet.
    ///
    /// Pairs are counted at the ends of the range and where they are in memory, and else reckoned by the mean
    /// size of a pair in some places. Where they are of about one size, the number is within a few percent
    /// for some thousand pairs and more, but for changes that have not come down to the leaves: a put counts
    /// as a new pair, a delete as one less, whether the key was there or not. Values that have expired count
    /// until they are removed.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let pages = store.dict("pages")?;
    /// pages.put("1", [1; 100_000])?;
    /// store.check()?;
    /// assert!(pages.estimate("0".."2")?.stored_bytes > 0);
    /// assert_eq!(pages.estimate("0".."2")?.pairs, 1);
    /// assert_eq!(pages.estimate("2".."3")?.stored_bytes, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Dict::get).
    pub fn estimate<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Estimate> {
        self.shared.refuse_if_closed()?;
        let (keys, number) = (Keys::of(&range), self.state.number);
        let mut estimate = Estimate::default();
        let view = self.shared.env.view();
        for (lo, hi) in [keys.pairs(number)]
            .into_iter()
            .chain(Some(keys.parts(number)).filter(|_| self.state.has_parts()))
        {
            let usage = view.usage(ENGINE_DICT, &lo, &hi);
            self.state.refuse_if_dropped()?;
            let usage = usage.map_err(|error| self.shared.error(error))?;
            estimate.stored_bytes += usage.stored_bytes;
            estimate.exclusive_bytes += usage.exclusive_bytes;
        }
        let (lo, hi) = keys.pairs(number);
        let pairs = view.estimate_pairs(ENGINE_DICT, &lo, &hi);
        self.state.refuse_if_dropped()?;
        estimate.pairs = pairs.map_err(|error| self.shared.error(error))?.pairs;
        Ok(estimate)
    }

    /// Waits as [`Shared::settle`], unless what was changed goes with a crash anyway.
    fn settle(&self) -> Result<()> {
        if self.state.is_of_large() { Ok(()) } else { self.shared.settle() }
    }

    /// Makes a change, unless the dictionary was dropped.
    fn change(&self, fill: impl FnOnce(&mut Batch)) -> Result<()> {
        let with_others = self.state.changing.read();
        self.state.refuse_if_dropped()?;
        let mut batch = Batch::new();
        fill(&mut batch);
        self.shared.commit(&batch).map_err(|error| named(&self.state, error))?;
        drop(with_others);
        self.settle()
    }

    /// As [`change`](Dict::change), where no value is in parts. `false`, and nothing changed, where one may
    /// be.
    pub(crate) fn change_whole(&self, fill: impl FnOnce(&mut Batch)) -> Result<bool> {
        let with_others = self.state.changing.read();
        self.state.refuse_if_dropped()?;
        if self.state.has_parts() {
            return Ok(false);
        }
        let mut batch = Batch::new();
        fill(&mut batch);
        self.shared.commit(&batch)?;
        drop(with_others);
        self.settle()?;
        Ok(true)
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        match key.len() {
            bytes if bytes > KEY_BYTES_MAX => {
                Err(Error::KeyTooLong { dict: self.name(), bytes, limit_bytes: KEY_BYTES_MAX })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a key that a cut has, as [`check_key`](Dict::check_key).
    pub(crate) fn check_cut(&self, cut: &Cut) -> Result<()> {
        self.check_key(keys::user_key(cut.bytes()).1)
    }

    /// Whether a value is to be stored in parts.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLarge`].
    pub(crate) fn check_put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_key(key)?;
        let whole_bytes_max = parts::whole_bytes_max(&self.shared);
        let limit_bytes = if self.state.merge.is_some() { whole_bytes_max } else { VALUE_BYTES_MAX };
        let is_large = value.len() > whole_bytes_max;
        if value.len() > limit_bytes {
            let (dict, key) = (self.name(), key.to_vec().into());
            return Err(Error::ValueTooLarge { dict, key, bytes: value.len(), limit_bytes });
        }
        if is_large && key.len() > keys::key_bytes_max_of_parts(key) {
            let limit_bytes = keys::key_bytes_max_of_parts(key);
            return Err(Error::KeyTooLong { dict: self.name(), bytes: key.len(), limit_bytes });
        }
        Ok(is_large)
    }
}

/// The error with a dictionary's name, where the engine knows of a key alone.
pub(crate) fn named(dict: &DictState, error: Error) -> Error {
    match error {
        Error::Engine { source: betree::Error::KeyTooLong { bytes, .. }, .. } => {
            let bytes = (bytes as usize).saturating_sub(betree::KEY_BYTES_MAX - KEY_BYTES_MAX);
            Error::KeyTooLong { dict: dict.name(), bytes, limit_bytes: KEY_BYTES_MAX }
        }
        error => error,
    }
}

impl std::fmt::Debug for Dict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dict({:?} of {:?})", self.name(), self.shared.path)
    }
}
