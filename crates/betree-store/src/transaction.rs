//! Transactions: reads of one moment, and changes that are made together if nothing that they depend on has
//! changed.

mod clones;
mod commit;
mod expiry;
mod names;
mod run;
mod shared;
#[cfg(test)]
mod tests;

use std::ops::RangeBounds;
use std::sync::Arc;

pub use betree::Isolation;
use betree::{Cut, TransactionCursor};
pub use shared::SharedTransaction;

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::expiring::TimeNs;
use crate::iter::{Iter, Source};
use crate::keys::{self, ENGINE_DICT, Keys};
use crate::parts::{self, Then};
use crate::shared::{DictState, Shared};
use crate::steps::Steps;
use crate::store::Store;
use crate::value::Stored;
use crate::view;

/// The end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// All changes are seen from now on, and durable as the store's [`Durability`](crate::Durability) says.
    /// The number is that of the last change that was seen or made.
    Committed(u64),
    /// Nothing was changed, because another change came first.
    Conflict(Conflict),
}

/// The change of another that a transaction may not pass over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The name of the dictionary.
    pub dict: String,
    /// The key, or the place where the changed range begins. `None` if the dictionary itself was made,
    /// renamed or dropped.
    pub key: Option<Key>,
    /// The number of the other change, or of one behind it.
    pub by: u64,
}

/// A place in a transaction to which it can [return](Transaction::roll_back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(u64);

/// Its number in its transaction, for programs that cannot keep the type.
impl From<Savepoint> for u64 {
    fn from(savepoint: Savepoint) -> u64 {
        savepoint.0
    }
}

/// The savepoint of a number, which may be none.
impl From<u64> for Savepoint {
    fn from(number: u64) -> Savepoint {
        Savepoint(number)
    }
}

/// A change of pairs, as far as the commit has to know it.
enum Changed {
    Put(Vec<u8>),
    Delete(Vec<u8>),
    Range(Keys),
    /// A clone from it or into it. The parts that are of no use by the changes before it were removed, if it
    /// had any.
    Cloned {
        with_parts: bool,
    },
}

/// A change of names.
enum Renaming {
    Made(String),
    Renamed { from: String, to: String },
    Dropped(String),
}

/// What a transaction was at a savepoint.
struct Point {
    serial: u64,
    engine: betree::Savepoint,
    changes: usize,
    renamings: usize,
}

/// Reads of one moment of a store, and changes of any of its dictionaries that nobody else sees before
/// [`commit`](Transaction::commit). Dropping it drops the changes.
///
/// It locks nothing, so it waits for nobody and nobody for it; its commit may find a
/// [conflict](Outcome::Conflict), after which it is to be tried again, as [`Store::run`] does. Its reads see
/// its own changes. It makes, renames, clones and drops dictionaries too. Its values are stored whole: they
/// have up to 1 MiB (of a store with a small log a sixteenth of that), and it reads, replaces and deletes
/// larger ones. It may have changes of a sixteenth of the cache, and no more than a batch.
pub struct Transaction {
    engine: betree::Transaction,
    shared: Arc<Shared>,
    changes: Vec<(Arc<DictState>, Changed)>,
    renamings: Vec<(Arc<DictState>, Renaming)>,
    /// When values expire that it has put.
    expiring: Vec<(Arc<DictState>, TimeNs)>,
    points: Vec<Point>,
    next_serial: u64,
}

impl Store {
    /// Begins a transaction.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::{Isolation, Outcome};
    ///
    /// let fruit = store.dict("fruit")?;
    /// let mut one = store.begin(Isolation::Snapshot);
    /// let mut other = store.begin(Isolation::Snapshot);
    /// one.put(&fruit, "apple", "red")?;
    /// other.put(&fruit, "apple", "green")?;
    /// assert!(matches!(one.commit()?, Outcome::Committed(_)));
    /// let Outcome::Conflict(conflict) = other.commit()? else { panic!("the first committer wins") };
    /// assert_eq!((conflict.dict.as_str(), conflict.key), ("fruit", Some(b"apple".to_vec().into())));
    /// assert_eq!(fruit.get("apple")?.as_deref(), Some(&b"red"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self, isolation: Isolation) -> Transaction {
        Transaction {
            engine: self.shared.env.begin(isolation),
            shared: self.shared.clone(),
            changes: Vec::new(),
            renamings: Vec::new(),
            expiring: Vec::new(),
            points: Vec::new(),
            next_serial: 0,
        }
    }
}

impl Transaction {
    /// Refuses a dictionary that the transaction cannot know: one of another store, one that was dropped
    /// before it began or by itself, and one that another transaction makes.
    fn attend(&self, dict: &Dict) -> Result<()> {
        self.shared.refuse_if_closed()?;
        if !Arc::ptr_eq(&self.shared, &dict.shared) {
            return Err(Error::OtherStore { dict: dict.name() });
        }
        let own = self.renamings.iter().rev().filter(|(state, _)| Arc::ptr_eq(state, &dict.state));
        let own = own.map(|(_, renaming)| renaming).next();
        match own {
            Some(Renaming::Dropped(name)) => return Err(Error::DictDropped { name: name.clone() }),
            Some(_) => return Ok(()),
            None => {}
        }
        let Err(refused) = dict.state.refuse_if_dropped() else { return Ok(()) };
        let number = dict.state.number;
        let then = view::names(&self.shared, self.engine.view())?;
        // The commit will meet what has happened to it.
        if then.iter().any(|(_, entry)| entry.number == number) { Ok(()) } else { Err(refused) }
    }

    /// Refuses a change of a dictionary.
    fn attend_change(&self, dict: &Dict) -> Result<()> {
        self.refuse_if_read_only()?;
        self.attend(dict)
    }

    fn refuse_if_read_only(&self) -> Result<()> {
        self.shared.refuse_if_closed()?;
        self.shared.refuse_if_read_only()
    }

    pub(crate) fn cursor(&self, lo: Cut, hi: Cut) -> TransactionCursor<'_> {
        self.engine.cursor(ENGINE_DICT, lo, hi)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The value in what was read of a key; `None` if deltas remove it. Its parts may be those of a clone.
    pub(crate) fn value_of(&self, dict: &Dict, key: &[u8], read: Vec<u8>) -> Result<Option<Value>> {
        self.value_by(dict, key, read, |lo, hi| Steps::Noted(self.cursor(lo, hi)))
    }

    /// As [`value_of`](Transaction::value_of), where `open` reads the parts.
    fn value_by<'c>(
        &self,
        dict: &Dict,
        key: &[u8],
        read: Vec<u8>,
        open: impl FnOnce(Cut, Cut) -> Steps<'c>,
    ) -> Result<Option<Value>> {
        let (name, state) = (dict.name(), &dict.state);
        let then = Then { number: state.number, name: &name, merge: state.merge.as_deref() };
        parts::value_then(&self.shared, then, key, read, open)
    }

    /// Whether the store has ended its view, because it needed the space.
    fn has_lost_its_view(&self) -> bool {
        // Any key tells.
        matches!(self.engine.view().get(ENGINE_DICT, &[]), Err(betree::Error::ViewEnded))
    }

    /// The value of a key as of the transaction's beginning, with its own changes.
    ///
    /// # Errors
    /// [`Error::DictDropped`] if it was before the transaction began, or by it; [`Error::OtherStore`],
    /// [`Error::ViewEnded`], [`Error::Closed`]; those of the device, and damage.
    pub fn get(&self, dict: &Dict, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.read(dict, key)?.map_or(Ok(None), |read| self.value_of(dict, key, read))
    }

    /// What is stored under a key.
    fn read(&self, dict: &Dict, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.attend(dict)?;
        let found = self.engine.get(ENGINE_DICT, &keys::pair_key(dict.state.number, key));
        found.map_err(|error| self.shared.error(error))
    }

    /// The values of several keys, in the order of these, as [`Dict::get_many`]. A key may stand among them
    /// more than once.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn get_many<K: AsRef<[u8]>>(&self, dict: &Dict, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.attend(dict)?;
        let (shared, number) = (&self.shared, dict.state.number);
        let get_many = |keys: &[Vec<u8>]| self.engine.get_many(ENGINE_DICT, keys);
        let found = get_many(&keys::pair_keys(number, keys)).map_err(|error| shared.error(error))?;
        let name = dict.name();
        let then = Then { number, name: &name, merge: dict.state.merge.as_deref() };
        parts::values_of(shared, then, keys, found, get_many, |key, read| self.value_of(dict, key, read))
    }

    /// Whether there is a value of a key.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn contains(&self, dict: &Dict, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(dict, key)?.is_some())
    }

    /// All pairs of a dictionary, as [`range`](Transaction::range).
    pub fn iter<'t>(&'t self, dict: &'t Dict) -> Iter<'t> {
        self.prefix(dict, "")
    }

    /// The pairs of a range of keys with the transaction's own changes, in their order, from both ends. The
    /// transaction depends on the part of the range that the iterator has passed over.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Isolation;
    ///
    /// let fruit = store.dict("fruit")?;
    /// fruit.put("apple", "red")?;
    /// let mut transaction = store.begin(Isolation::Serializable);
    /// transaction.put(&fruit, "banana", "yellow")?;
    /// let keys: Result<Vec<_>, _> =
    ///     transaction.range(&fruit, "a".."c").map(|pair| pair.map(|(key, _)| key)).collect();
    /// assert_eq!(keys?, ["apple", "banana"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<'t, K: AsRef<[u8]>>(&'t self, dict: &'t Dict, range: impl RangeBounds<K>) -> Iter<'t> {
        Iter::new(Source::Transaction(self, dict), &Keys::of(&range))
    }

    /// The pairs whose keys begin with a prefix, as [`range`](Transaction::range).
    pub fn prefix<'t>(&'t self, dict: &'t Dict, prefix: impl AsRef<[u8]>) -> Iter<'t> {
        Iter::new(Source::Transaction(self, dict), &Keys::Prefix(prefix.as_ref().to_vec()))
    }

    /// [`attend`](Transaction::attend) for an iterator.
    pub(crate) fn refuse(&self, dict: &Dict) -> Result<()> {
        self.attend(dict)
    }

    /// Makes a change in the engine and notes it.
    fn change(
        &mut self,
        dict: &Dict,
        changed: Changed,
        change: impl FnOnce(&mut betree::Transaction) -> betree::Result<()>,
    ) -> Result<()> {
        self.attend_change(dict)?;
        change(&mut self.engine).map_err(|error| self.shared.error(error))?;
        self.changes.push((dict.state.clone(), changed));
        Ok(())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`]; [`Error::ValueTooLarge`] for one that would be stored in parts;
    /// [`Error::TransactionTooLarge`]; [`Error::ReadOnly`]; as [`get`](Transaction::get). The transaction is
    /// as it was.
    pub fn put(&mut self, dict: &Dict, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_lasting(dict, key.as_ref(), value.as_ref(), None)
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn delete(&mut self, dict: &Dict, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        dict.check_key(key)?;
        let pair_key = keys::pair_key(dict.state.number, key);
        self.change(dict, Changed::Delete(key.to_vec()), |engine| engine.delete(ENGINE_DICT, &pair_key))
    }

    /// Changes the value of a key by the dictionary's merge: see [`Dict::upsert`]. With snapshot isolation it
    /// counts as a change of the key, for the delta may come of what was read.
    ///
    /// # Errors
    /// [`Error::NoMerge`]; as [`put`](Transaction::put).
    pub fn upsert(&mut self, dict: &Dict, key: impl AsRef<[u8]>, delta: impl AsRef<[u8]>) -> Result<()> {
        let delta = dict.delta(key.as_ref(), delta.as_ref(), self.now_ns())?;
        let pair_key = keys::pair_key(dict.state.number, key.as_ref());
        self.change(dict, Changed::Put(key.as_ref().to_vec()), |engine| {
            engine.upsert(ENGINE_DICT, &pair_key, &delta)
        })
    }

    /// As [`upsert`](Transaction::upsert), for a delta that depends on nothing that was read: it conflicts
    /// with no change of the key by others.
    ///
    /// # Errors
    /// As [`upsert`](Transaction::upsert).
    pub fn upsert_blind(
        &mut self,
        dict: &Dict,
        key: impl AsRef<[u8]>,
        delta: impl AsRef<[u8]>,
    ) -> Result<()> {
        let delta = dict.delta(key.as_ref(), delta.as_ref(), self.now_ns())?;
        let pair_key = keys::pair_key(dict.state.number, key.as_ref());
        self.change(dict, Changed::Put(key.as_ref().to_vec()), |engine| {
            engine.upsert_blind(ENGINE_DICT, &pair_key, &delta)
        })
    }

    /// Removes every key of a range.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, dict: &Dict, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_keys(dict, Keys::of(&range))
    }

    /// Removes every key that begins with a prefix.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn delete_prefix(&mut self, dict: &Dict, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_keys(dict, Keys::Prefix(prefix.as_ref().to_vec()))
    }

    fn delete_keys(&mut self, dict: &Dict, keys: Keys) -> Result<()> {
        let (lo, hi) = keys.pairs(dict.state.number);
        dict.check_cut(&lo)?;
        dict.check_cut(&hi)?;
        self.change(dict, Changed::Range(keys), |engine| engine.delete_range(ENGINE_DICT, &lo, &hi))
    }

    /// Makes the commit depend on a property of a value in place of the value: a change of the key by others
    /// is a conflict only if the property no longer holds. Returns whether it holds now; if not, nothing
    /// depends on it. Own changes are not looked at. Another value in parts counts as one without the
    /// property.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::{Isolation, Outcome};
    ///
    /// let (stock, orders) = (store.dict("stock")?, store.dict("orders")?);
    /// stock.put("apples", [9])?;
    /// let mut order = store.begin(Isolation::Serializable);
    /// assert!(order.expect(&stock, "apples", |left| left.is_some_and(|left| left >= &[3]))?);
    /// order.put(&orders, "1", "3 apples")?;
    /// stock.put("apples", [5])?;
    /// assert!(matches!(order.commit()?, Outcome::Committed(_)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn expect(
        &mut self,
        dict: &Dict,
        key: impl AsRef<[u8]>,
        holds: impl Fn(Option<&[u8]>) -> bool + Send + Sync + 'static,
    ) -> Result<bool> {
        self.attend(dict)?;
        let key = key.as_ref();
        let pair_key = keys::pair_key(dict.state.number, key);
        let found =
            self.engine.view().get(ENGINE_DICT, &pair_key).map_err(|error| self.shared.error(error))?;
        let in_parts = found.clone().map(Stored::of).filter(|found| matches!(found, Stored::Parts(_)));
        let of_view = |lo, hi| Steps::Plain(self.engine.view().cursor(ENGINE_DICT, lo, hi));
        let value = found.map_or(Ok(None), |read| self.value_by(dict, key, read, of_view))?;
        if !holds(value.as_deref()) {
            return Ok(false);
        }
        let (merges, bytes_max) = (self.shared.merges.clone(), self.shared.env.batch_bytes_max());
        let still_holds = move |read: Option<&[u8]>| match read.map(|read| Stored::of(read.to_vec())) {
            None | Some(Stored::Absent) => holds(None),
            Some(Stored::Whole(value)) => holds(Some(&value)),
            Some(Stored::Unmerged(waiting)) => {
                merges.value_of(&waiting, bytes_max).is_ok_and(|value| holds(value.as_deref()))
            }
            // A value in parts is known by its generation.
            other => other == in_parts,
        };
        let expected = self.engine.expect(ENGINE_DICT, &pair_key, still_holds);
        expected.map_err(|error| self.shared.error(error))
    }

    /// A place to return to.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Isolation;
    ///
    /// let fruit = store.dict("fruit")?;
    /// let mut transaction = store.begin(Isolation::Snapshot);
    /// transaction.put(&fruit, "apple", "red")?;
    /// let before = transaction.savepoint();
    /// transaction.delete_range::<&str>(&fruit, ..)?;
    /// transaction.roll_back(before);
    /// assert!(transaction.contains(&fruit, "apple")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        let serial = self.next_serial;
        self.next_serial += 1;
        let (changes, renamings) = (self.changes.len(), self.renamings.len());
        self.points.push(Point { serial, engine: self.engine.savepoint(), changes, renamings });
        Savepoint(serial)
    }

    /// Drops the changes since a savepoint, those of names too. The savepoint stays; those behind it end.
    /// What was read since then still counts as read. `false`, and nothing is done, if it has ended.
    pub fn roll_back(&mut self, to: Savepoint) -> bool {
        let Some(place) = self.points.iter().position(|point| point.serial == to.0) else { return false };
        self.points.truncate(place + 1);
        if let Some(point) = self.points.last() {
            self.engine.roll_back(point.engine);
            self.changes.truncate(point.changes);
            self.renamings.truncate(point.renamings);
        }
        true
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.engine, self.shared.path)
    }
}

/// A transaction goes from thread to thread, and threads may read by it together.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Transaction>();
};
