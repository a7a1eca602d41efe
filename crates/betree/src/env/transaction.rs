//! Transactions: a view and private changes, which commit as one batch if nothing that they depend on has
//! changed.

mod reads;
mod run;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::Ordering;

use super::{Env, View};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::invariant::internal;
use crate::key::Cut;
use crate::memtable::Found;
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::transaction::{
    Footprint, Layer, Newer, Overlay, OwnClone, SavepointId, Since, SourceStays, batch_of,
};
use crate::tree::{Cursor, Reach, Tree};
pub use reads::TransactionCursor;

/// The part of the cache that the private changes of a transaction may take.
const PRIVATE_PARTS: usize = 16;
/// The most clones of a transaction, and the most parts of them in one dictionary: each is a layer to read
/// through, and each part is captured when it commits.
const CLONES_MAX: usize = 64;

/// What a commit checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Snapshot isolation: no key and no range that the transaction changed was changed since it began. Two
    /// transactions that each read what the other changes both commit (write skew).
    Snapshot,
    /// Serializability: no key and no range that the transaction read was changed since it began. The order
    /// of commits is an order in which the transactions could have run one after the other.
    Serializable,
}

/// The end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// All changes are seen from now on, and durable after a [sync](Env::sync). The number is that of the
    /// last change that was seen or made.
    Committed(u64),
    /// Nothing was changed, because another commit came first.
    Conflict(Conflict),
}

/// The change of another that a transaction may not pass over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The dictionary.
    pub dict: DictId,
    /// The key, or the first that the changed range can hold.
    pub key: Vec<u8>,
    /// The number of the other change, or of one behind it.
    pub by: u64,
}

type Predicate = Box<dyn Fn(Option<&[u8]>) -> bool + Send + Sync>;

/// A place in a transaction to which it can [return](Transaction::roll_back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(SavepointId);

/// Reads of one moment, and changes that nobody else sees before [`commit`](Transaction::commit). Dropping it
/// drops the changes.
///
/// It locks nothing, so it waits for nobody and nobody for it. Its reads see its own changes.
pub struct Transaction {
    view: View,
    isolation: Isolation,
    layers: Vec<Layer>,
    savepoints: SavepointId,
    /// What was read.
    reads: Mutex<Footprint>,
    expected: Vec<(DictId, Vec<u8>, Predicate)>,
}

impl Env {
    /// Begins a transaction.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{DictId, Isolation, Outcome};
    ///
    /// let mut one = env.begin(Isolation::Snapshot);
    /// let mut other = env.begin(Isolation::Snapshot);
    /// one.put(DictId(0), b"apple", b"red")?;
    /// other.put(DictId(0), b"apple", b"green")?;
    /// assert!(matches!(one.commit()?, Outcome::Committed(_)));
    /// assert!(matches!(other.commit()?, Outcome::Conflict(conflict) if conflict.key == b"apple"));
    /// assert_eq!(env.get(DictId(0), b"apple")?.as_deref(), Some(&b"red"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(self: &Arc<Self>, isolation: Isolation) -> Transaction {
        let live = self.engine.begin_transaction();
        Transaction {
            view: View::of(self.clone(), live),
            isolation,
            layers: Vec::from([Layer::default()]),
            savepoints: 0,
            reads: Mutex::default(),
            expected: Vec::new(),
        }
    }
}

impl Transaction {
    fn env(&self) -> &Arc<Env> {
        self.view.env()
    }

    /// The moment that it reads, without its own changes. Nothing depends on what is read by it.
    pub fn view(&self) -> &View {
        &self.view
    }

    fn overlay(&self, dict: DictId) -> Overlay<'_> {
        Overlay::new(&self.layers, dict)
    }

    fn tree(&self, dict: DictId) -> Result<Tree<'_>> {
        let tree = match planted::is(Bug::TransactionsReadNewest) {
            true => self.env().engine.tree(dict)?,
            false => self.view.tree(dict)?,
        };
        Ok(Tree { overlay: self.overlay(dict), ..tree })
    }

    /// The value of a key as of the transaction's beginning, with its own changes.
    ///
    /// # Errors
    /// [`Error::ViewEnded`], the device's, or corruption.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.note_read(dict, key);
        let counters = &self.env().engine.counters;
        counters.point_queries.fetch_add(1, Ordering::Relaxed);
        self.tree(dict)?.get(key, &counters.point_query_nodes)
    }

    /// The values of several keys, as [`get`](Transaction::get) and [`Env::get_many`].
    ///
    /// # Errors
    /// As [`get`](Transaction::get), if one of the values depends on it.
    pub fn get_many<K: AsRef<[u8]>>(&self, dict: DictId, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().for_each(|key| self.note_read(dict, key.as_ref()));
        let counters = &self.env().engine.counters;
        self.tree(dict)?.get_many(keys, &counters.point_queries, &counters.point_query_nodes)
    }

    /// Notes a key as read, unless own changes alone say what it is.
    fn note_read(&self, dict: DictId, key: &[u8]) {
        let overlay = self.overlay(dict);
        if self.isolation == Isolation::Serializable
            && matches!(overlay.get(key, &mut Vec::new()), Found::Open)
            && let Some(source) = overlay.source(key)
        {
            self.reads.lock().add_key(dict, &source);
        }
    }

    /// A cursor over `[lo, hi)`, as [`Env::cursor`], that sees the transaction's own changes. It depends on
    /// the part of the range that it passed over.
    pub fn cursor(&self, dict: DictId, lo: Cut, hi: Cut) -> TransactionCursor<'_> {
        let queries = &self.env().engine.counters.range_queries;
        let cursor = Cursor::new(self.tree(dict).ok(), lo.clone(), hi.clone(), queries);
        let noted = (self.isolation == Isolation::Serializable).then_some(&self.reads);
        TransactionCursor::new(cursor, noted, self.overlay(dict), dict, (lo, hi))
    }

    /// The layer that takes changes.
    fn change(&mut self, dict: DictId, bytes: usize) -> Result<&mut Layer> {
        self.check_room(dict, bytes)?;
        self.layers.last_mut().ok_or_else(|| internal!("a transaction has a layer until it commits"))
    }

    /// Refuses a change of a dictionary that makes the transaction too large.
    fn check_room(&self, dict: DictId, bytes: usize) -> Result<()> {
        if usize::from(dict.0) >= self.env().engine.dicts.len() {
            return Err(Error::NoSuchDictionary { id: dict.0 });
        }
        let env = self.env();
        let limit_bytes = env.batch_bytes_max().min(env.engine.store.cache.budget_bytes() / PRIVATE_PARTS);
        let bytes = bytes + self.layers.iter().map(|layer| layer.batch.bytes()).sum::<usize>();
        if bytes > limit_bytes {
            let (bytes, limit_bytes) = (bytes as u64, limit_bytes as u64);
            return Err(Error::TooLarge { what: "a transaction", bytes, limit_bytes });
        }
        Ok(())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the transaction would be larger than a batch may be or a sixteenth of the
    /// cache; [`Error::NoSuchDictionary`]. Nothing was changed.
    pub fn put(&mut self, dict: DictId, key: &[u8], value: &[u8]) -> Result<()> {
        let layer = self.change(dict, key.len() + value.len())?;
        layer.put(dict, key, value);
        layer.writes.add_key(dict, key);
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn delete(&mut self, dict: DictId, key: &[u8]) -> Result<()> {
        let layer = self.change(dict, key.len())?;
        layer.delete(dict, key);
        layer.writes.add_key(dict, key);
        Ok(())
    }

    /// Changes the value of a key by the environment's [`Upsert`](crate::Upsert). With snapshot isolation it
    /// counts as a change of the key, for the delta may come of what was read.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn upsert(&mut self, dict: DictId, key: &[u8], delta: &[u8]) -> Result<()> {
        self.push_upsert(dict, key, delta)?.writes.add_key(dict, key);
        Ok(())
    }

    /// As [`upsert`](Transaction::upsert), for a delta that depends on nothing that was read: it conflicts
    /// with no change of others.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn upsert_blind(&mut self, dict: DictId, key: &[u8], delta: &[u8]) -> Result<()> {
        self.push_upsert(dict, key, delta)?;
        Ok(())
    }

    fn push_upsert(&mut self, dict: DictId, key: &[u8], delta: &[u8]) -> Result<&mut Layer> {
        let env = self.env().clone();
        let layer = self.change(dict, key.len() + delta.len())?;
        layer.upsert(dict, key, delta, &env.engine.store.upsert);
        Ok(layer)
    }

    /// Removes every key in `[lo, hi)`.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn delete_range(&mut self, dict: DictId, lo: &Cut, hi: &Cut) -> Result<()> {
        if lo < hi {
            let layer = self.change(dict, lo.bytes().len() + hi.bytes().len())?;
            if layer.clones_without(dict, lo, hi) > CLONES_MAX {
                return Err(Error::TooManyClones { limit: CLONES_MAX });
            }
            layer.delete_range(dict, lo, hi);
            layer.writes.add_range(dict, lo.clone(), hi.clone());
        }
        Ok(())
    }

    /// Replaces all keys with the prefix `to` by those with the prefix `from`, as the transaction sees them,
    /// at a cost that does not depend on their number but on that of its own changes. The source must be
    /// unchanged when the transaction commits, with snapshot isolation too.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{DictId, Isolation, Outcome};
    ///
    /// let mut transaction = env.begin(Isolation::Snapshot);
    /// transaction.put(DictId(0), b"draft/1", b"text")?;
    /// transaction.clone_range(DictId(0), b"draft/", b"published/")?;
    /// transaction.put(DictId(0), b"draft/1", b"changed")?;
    /// assert_eq!(transaction.get(DictId(0), b"published/1")?.as_deref(), Some(&b"text"[..]));
    /// assert!(matches!(transaction.commit()?, Outcome::Committed(_)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyClones`]; as [`put`](Transaction::put).
    pub fn clone_range(&mut self, dict: DictId, from: &[u8], to: &[u8]) -> Result<()> {
        self.push_clone(dict, [from, to], SourceStays::Yes)
    }

    /// As [`clone_range`](Transaction::clone_range), and removes all keys with the prefix `from`, except the
    /// new ones. A range that is renamed to itself stays.
    ///
    /// # Errors
    /// As [`clone_range`](Transaction::clone_range).
    pub fn rename_range(&mut self, dict: DictId, from: &[u8], to: &[u8]) -> Result<()> {
        self.push_clone(dict, [from, to], SourceStays::No)
    }

    fn push_clone(&mut self, dict: DictId, [from, to]: [&[u8]; 2], source_stays: SourceStays) -> Result<()> {
        self.check_room(dict, 0)?;
        if from == to {
            return Ok(());
        }
        let clone = OwnClone::of(&self.layers, dict, [from, to], source_stays)?;
        self.check_room(dict, clone.bytes())?;
        let layers = self.layers.iter().filter(|layer| layer.replaced.is_some()).count();
        if layers == CLONES_MAX || clone.clones() > CLONES_MAX {
            return Err(Error::TooManyClones { limit: CLONES_MAX });
        }
        let env = self.env().clone();
        let below = self.layers.last().map(Layer::over).unwrap_or_default();
        let layer = clone.into_layer(below, &env.engine.store.upsert);
        if source_stays == SourceStays::No {
            let (lo, hi) = (Cut::before(from), Cut::after(from));
            let layer = self.change(dict, lo.bytes().len() + hi.bytes().len())?;
            layer.delete_range(dict, &lo, &hi);
            layer.writes.add_range(dict, lo, hi);
        }
        self.layers.push(layer);
        Ok(())
    }

    /// Declares that the transaction frees about `bytes` bytes and puts little in comparison: a full volume
    /// accepts it like one of deletes.
    pub fn mark_freeing(&mut self, bytes: u64) {
        if let Some(layer) = self.layers.last_mut() {
            layer.batch.mark_freeing(bytes);
        }
    }

    /// Makes the commit depend on a property of a value in place of the value: a change of the key by others
    /// is a conflict only if the property no longer holds. Returns whether it holds now; if not, nothing
    /// depends on it. Own changes are not looked at.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn expect(
        &mut self,
        dict: DictId,
        key: &[u8],
        holds: impl Fn(Option<&[u8]>) -> bool + Send + Sync + 'static,
    ) -> Result<bool> {
        let is_met = holds(self.view.get(dict, key)?.as_deref());
        if is_met {
            self.expected.push((dict, key.to_vec(), Box::new(holds)));
        }
        Ok(is_met)
    }

    /// A place to return to.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints += 1;
        self.push_layer_behind(self.savepoints);
        Savepoint(self.savepoints)
    }

    fn push_layer_behind(&mut self, savepoint: SavepointId) {
        let mut layer = self.layers.last().map(Layer::over).unwrap_or_default();
        layer.savepoint = Some(savepoint);
        self.layers.push(layer);
    }

    /// Drops the changes since a savepoint, which stays. What was read since then still counts as read. A
    /// savepoint behind one that was returned to has ended: returning to it drops nothing.
    pub fn roll_back(&mut self, to: Savepoint) {
        let Some(place) = self.layers.iter().position(|layer| layer.savepoint == Some(to.0)) else { return };
        if planted::is(Bug::RolledBackChangesCommitted) {
            return;
        }
        if planted::is(Bug::RolledBackClonesSeen) {
            self.push_layer_behind(to.0);
            self.layers.drain(place..self.layers.len() - 1);
            return;
        }
        self.layers.truncate(place);
        self.push_layer_behind(to.0);
    }

    /// All changes, and what must not have changed since the transaction began.
    fn take_changes(&mut self) -> Result<(Batch, Footprint)> {
        let mut layers = core::mem::take(&mut self.layers);
        let with_clones = match layers.iter().any(|layer| layer.replaced.is_some()) {
            true => Some(batch_of(&layers)?),
            false => None,
        };
        layers.retain(|layer| layer.replaced.is_some() || !layer.batch.is_empty());
        let mut layers = layers.into_iter();
        let first = layers.next().unwrap_or_default();
        let (mut batch, mut writes, mut sources) = (first.batch, first.writes, first.sources);
        for layer in layers {
            if with_clones.is_none() {
                batch.append(&layer.batch);
            }
            writes.append(layer.writes);
            sources.append(layer.sources);
        }
        let mut depends = match self.isolation {
            Isolation::Snapshot => writes,
            Isolation::Serializable => core::mem::take(&mut *self.reads.lock()),
        };
        depends.append(sources);
        Ok((with_clones.unwrap_or(batch), depends))
    }

    /// Makes the changes seen, all or none.
    ///
    /// # Errors
    /// Those of [`Env::commit`], and of reading where the transaction is older than the memory of recent
    /// changes; nothing was changed.
    pub fn commit(mut self) -> Result<Outcome> {
        let (batch, mut footprint) = self.take_changes()?;
        if batch.is_empty() {
            return Ok(Outcome::Committed(self.view.last_change()));
        }
        let env = self.env().clone();
        // Later moments at which the footprint was found as it was at the beginning.
        let mut later: Option<View> = None;
        if !self.expected.is_empty() {
            let now = self.view.later();
            for (dict, key, holds) in &self.expected {
                if !holds(now.get(*dict, key)?.as_deref()) {
                    let conflict = Conflict { dict: *dict, key: key.clone(), by: now.last_change() };
                    return Ok(Outcome::Conflict(conflict));
                }
            }
            if let Some(conflict) = self.compare(&footprint, &now)? {
                return Ok(Outcome::Conflict(conflict));
            }
            footprint.keys.extend(self.expected.drain(..).map(|(dict, key, _)| (dict, key)));
            later = Some(now);
        }
        loop {
            let since = later.as_ref().unwrap_or(&self.view).last_change();
            match env.commit_since(&batch, &footprint, since, Reach::Device)? {
                Ok(last) => return Ok(Outcome::Committed(last)),
                Err(Since::Changed(Newer { dict, key, msn })) => {
                    return Ok(Outcome::Conflict(Conflict { dict, key, by: msn }));
                }
                Err(Since::Unchanged | Since::Unknown) => {
                    let now = self.view.later();
                    if let Some(conflict) = self.compare(&footprint, &now)? {
                        return Ok(Outcome::Conflict(conflict));
                    }
                    later = Some(now);
                }
            }
        }
    }

    /// Compares the contents of the footprint at the beginning with those at a later moment. Contents that
    /// were changed and changed back count as unchanged, which is as serializable.
    fn compare(&self, footprint: &Footprint, now: &View) -> Result<Option<Conflict>> {
        let by = now.last_change();
        for (dict, key) in &footprint.keys {
            if self.view.get(*dict, key)? != now.get(*dict, key)? {
                return Ok(Some(Conflict { dict: *dict, key: key.clone(), by }));
            }
        }
        for (dict, lo, hi) in &footprint.ranges {
            let mut then = self.view.cursor(*dict, lo.clone(), hi.clone());
            let mut later = now.cursor(*dict, lo.clone(), hi.clone());
            loop {
                let (old, new) = (then.next()?, later.next()?);
                if old != new {
                    let key = old.map(|(key, _)| key).into_iter().chain(new.map(|(key, _)| key)).min();
                    let key = key.unwrap_or_default().to_vec();
                    return Ok(Some(Conflict { dict: *dict, key, by }));
                }
                if old.is_none() {
                    break;
                }
            }
        }
        Ok(None)
    }
}

impl core::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Transaction({:?}, since change {})", self.isolation, self.view.last_change())
    }
}
