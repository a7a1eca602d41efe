//! Changes that are made together.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use betree::Batch;

use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::keys::{self, ENGINE_DICT};
use crate::shared::{DictState, Shared};

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
    changes: Batch,
    /// The dictionaries that it changes, by number.
    dicts: BTreeMap<u32, Arc<DictState>>,
}

impl WriteBatch {
    pub(crate) fn new(shared: Arc<Shared>) -> WriteBatch {
        WriteBatch { shared, changes: Batch::new(), dicts: BTreeMap::new() }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLarge`], [`Error::OtherStore`]; the batch is as it was.
    pub fn put(&mut self, dict: &Dict, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        dict.check_key(key)?;
        dict.check_value(key, value)?;
        self.add(dict)?;
        self.changes.put(ENGINE_DICT, &keys::pair_key(dict.state.number, key), value);
        Ok(())
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete(&mut self, dict: &Dict, key: impl AsRef<[u8]>) -> Result<()> {
        dict.check_key(key.as_ref())?;
        self.add(dict)?;
        self.changes.delete(ENGINE_DICT, &keys::pair_key(dict.state.number, key.as_ref()));
        Ok(())
    }

    /// Changes the value of a key by the dictionary's merge: see [`Dict::upsert`].
    ///
    /// # Errors
    /// [`Error::NoMerge`]; as [`put`](WriteBatch::put).
    pub fn upsert(&mut self, dict: &Dict, key: impl AsRef<[u8]>, delta: impl AsRef<[u8]>) -> Result<()> {
        let delta = dict.delta(key.as_ref(), delta.as_ref())?;
        self.add(dict)?;
        self.changes.upsert(ENGINE_DICT, &keys::pair_key(dict.state.number, key.as_ref()), &delta);
        Ok(())
    }

    /// Removes every key of a range: see [`Dict::delete_range`].
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, dict: &Dict, range: impl RangeBounds<K>) -> Result<()> {
        self.add(dict)?;
        let (lo, hi) = keys::cuts(dict.state.number, &range);
        self.changes.delete_range(ENGINE_DICT, &lo, &hi);
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

    /// Its size in bytes, of which a commit takes at most [`bytes_max`](WriteBatch::bytes_max).
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
        self.changes = Batch::new();
        self.dicts.clear();
    }

    /// Makes the changes. The batch stays as it is.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`], [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::DictDropped`] if one of
    /// the dictionaries was, [`Error::Closed`].
    pub fn commit(&self) -> Result<()> {
        // In the order of their numbers, as everybody takes them.
        let with_others: Vec<_> = self.dicts.values().map(|dict| dict.changing.read()).collect();
        self.dicts.values().try_for_each(|dict| dict.refuse_if_dropped())?;
        self.shared.commit(&self.changes)?;
        drop(with_others);
        self.shared.settle()
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} changes, {} bytes)", self.len(), self.bytes())
    }
}
