//! Views: one moment of all dictionaries.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::bytes::{Key, Value};
use crate::catalogue;
use crate::error::{Error, Result};
use crate::iter::{Iter, Source};
use crate::keys::{self, ENGINE_DICT, Keys};
use crate::owned::OwnedIter;
use crate::parts::{self, Then};
use crate::shared::Shared;
use crate::steps::Steps;
use crate::store::{Store, refused_catalogue};

/// One moment of a store: what was changed before it began is seen, and nothing later, in all dictionaries
/// and with their names of then. A batch, and a transaction, is seen wholly or not at all.
///
/// It begins without a look at the disk, hinders nobody, and may last as long as it likes. The space of what
/// is overwritten or deleted meanwhile comes back when it is dropped. Where space is short, the oldest view
/// ends before a change is refused: its reads then fail with [`Error::ViewEnded`]. Clones of it are the same
/// view. It keeps its store open, and does not survive it.
#[derive(Clone)]
pub struct View {
    moment: Arc<Moment>,
}

/// The engine's view ends first.
struct Moment {
    engine: betree::View,
    shared: Arc<Shared>,
}

/// A dictionary as it was when a [`View`] began. It keeps the view.
#[derive(Clone)]
pub struct ViewDict {
    view: View,
    pub(crate) number: u32,
    name: Arc<str>,
    merge: Option<Arc<str>>,
}

impl Store {
    /// Begins a view of this moment.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let users = store.dict("users")?;
    /// users.put("ada", "1815")?;
    /// let view = store.view();
    /// users.delete("ada")?;
    /// store.drop_dict("users")?;
    /// assert_eq!(view.dicts()?, ["users"]);
    /// assert!(view.dict("users")?.contains("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn view(&self) -> View {
        View { moment: Arc::new(Moment { engine: self.shared.env.view(), shared: self.shared.clone() }) }
    }
}

impl View {
    /// The dictionary that had the name when the view began.
    ///
    /// # Errors
    /// [`Error::NoSuchDict`], [`Error::ViewEnded`], [`Error::Closed`]; those of the device, and damage.
    pub fn dict(&self, name: &str) -> Result<ViewDict> {
        let Moment { engine, shared } = &*self.moment;
        shared.refuse_if_closed()?;
        let found = engine.get(ENGINE_DICT, &catalogue::name_key(name));
        let found = found.map_err(|error| shared.error(error))?;
        let found = found.ok_or_else(|| Error::NoSuchDict { name: name.into() })?;
        let entry = catalogue::entry_of(name, &found).map_err(|why| refused_catalogue(&shared.path, why))?;
        let merge = entry.merge.map(Arc::from);
        Ok(ViewDict { view: self.clone(), number: entry.number, name: name.into(), merge })
    }

    /// The names of all dictionaries that there were, in order.
    ///
    /// # Errors
    /// As [`dict`](View::dict).
    pub fn dicts(&self) -> Result<Vec<String>> {
        let Moment { engine, shared } = &*self.moment;
        Ok(names(shared, engine)?.into_iter().map(|(name, _)| name).collect())
    }

    /// The number of the last change that it sees. A later view has the same or a greater one.
    pub fn last_change(&self) -> u64 {
        self.moment.engine.last_change()
    }

    /// Ends the view before its last clone is dropped: all its reads fail with [`Error::ViewEnded`] from then
    /// on, and the space of what it held comes back. Ended again, it does nothing.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Error;
    ///
    /// store.dict("users")?;
    /// let view = store.view();
    /// let users = view.dict("users")?;
    /// view.end();
    /// assert!(matches!(users.get("ada"), Err(Error::ViewEnded { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn end(&self) {
        self.moment.engine.end();
    }

    pub(crate) fn engine(&self) -> &betree::View {
        &self.moment.engine
    }
}

/// The names and entries of all dictionaries at a moment, in order.
pub(crate) fn names(shared: &Shared, engine: &betree::View) -> Result<Vec<(String, catalogue::Entry)>> {
    shared.refuse_if_closed()?;
    catalogue::entries(|lo, hi| Steps::Plain(engine.cursor(ENGINE_DICT, lo, hi))).map_err(|refusal| {
        match refusal {
            catalogue::Refusal::Engine(error) => shared.error(error),
            refusal => refused_catalogue(&shared.path, refusal),
        }
    })
}

impl ViewDict {
    pub(crate) fn shared(&self) -> &Shared {
        &self.view.moment.shared
    }

    pub(crate) fn engine(&self) -> &betree::View {
        self.view.engine()
    }

    pub(crate) fn value_of(&self, key: &[u8], read: Vec<u8>) -> Result<Option<Value>> {
        parts::value_then(self.shared(), self.then(), key, read, |lo, hi| {
            Steps::Plain(self.engine().cursor(ENGINE_DICT, lo, hi))
        })
    }

    fn then(&self) -> Then<'_> {
        Then { number: self.number, name: &self.name, merge: self.merge.as_deref() }
    }

    /// The name that it had.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value that a key had.
    ///
    /// # Errors
    /// [`Error::ViewEnded`], [`Error::Closed`]; those of the device, and damage.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let (key, shared) = (key.as_ref(), self.shared());
        shared.refuse_if_closed()?;
        let found = self.engine().get(ENGINE_DICT, &keys::pair_key(self.number, key));
        let found = found.map_err(|error| shared.error(error))?;
        found.map_or(Ok(None), |read| self.value_of(key, read))
    }

    /// The values of several keys, in the order of these, as [`Dict::get_many`](crate::Dict::get_many). A key
    /// may stand among them more than once.
    ///
    /// # Errors
    /// As [`get`](ViewDict::get).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let shared = self.shared();
        shared.refuse_if_closed()?;
        let get_many = |keys: &[Vec<u8>]| self.engine().get_many(ENGINE_DICT, keys);
        let found = get_many(&keys::pair_keys(self.number, keys)).map_err(|error| shared.error(error))?;
        parts::values_of(shared, self.then(), keys, found, get_many, |key, read| self.value_of(key, read))
    }

    /// Whether a key had a value.
    ///
    /// # Errors
    /// As [`get`](ViewDict::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// All pairs, in the order of their keys.
    pub fn iter(&self) -> Iter<'_> {
        self.prefix("")
    }

    /// The pairs of a range of keys, in their order, from both ends.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let fruit = store.dict("fruit")?;
    /// fruit.put("banana", "yellow")?;
    /// let then = store.view().dict("fruit")?;
    /// for pair in then.range("a"..) {
    ///     // It does not meet what it adds.
    ///     let (key, value) = pair?;
    ///     fruit.put([&key[..], b"2"].concat(), value)?;
    /// }
    /// assert_eq!(then.iter().count(), 1);
    /// assert_eq!(fruit.iter().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter<'_> {
        Iter::new(Source::View(self), &Keys::of(&range))
    }

    /// The pairs whose keys begin with a prefix, in their order, from both ends.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter<'_> {
        Iter::new(Source::View(self), &Keys::Prefix(prefix.as_ref().to_vec()))
    }

    /// As [`range`](ViewDict::range), with an iterator that keeps the view.
    pub fn owned_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> OwnedIter {
        OwnedIter::new(self.clone(), &Keys::of(&range))
    }

    /// As [`prefix`](ViewDict::prefix), with an iterator that keeps the view.
    pub fn owned_prefix(&self, prefix: impl AsRef<[u8]>) -> OwnedIter {
        OwnedIter::new(self.clone(), &Keys::Prefix(prefix.as_ref().to_vec()))
    }

    /// The first pair.
    ///
    /// # Errors
    /// As [`get`](ViewDict::get).
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next().transpose()
    }

    /// The last pair.
    ///
    /// # Errors
    /// As [`get`](ViewDict::get).
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().next_back().transpose()
    }

    /// Whether it held nothing.
    ///
    /// # Errors
    /// As [`get`](ViewDict::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View(up to change {} of {:?})", self.last_change(), self.moment.shared.path)
    }
}

impl std::fmt::Debug for ViewDict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ViewDict({:?} of {:?})", self.name, self.view)
    }
}

/// Many threads use one view.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<View>();
    is_shared::<ViewDict>();
    is_shared::<Iter<'static>>();
};
