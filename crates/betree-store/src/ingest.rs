//! Ingests: many pairs in the order of their keys, at once.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use betree::{Batch, Cut};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::freeing::delete_range;
use crate::keys::{self, ENGINE_DICT, Keys, PartKey};
use crate::parts::Large;
use crate::value::{Reference, Stored, stored};

/// Deletes of parts are committed when a batch has so many bytes.
const DELETES_BYTES: usize = 64 << 10;

/// What an [ingest](Dict::ingest) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// The number of pairs.
    pub pairs: u64,
    /// The bytes of their keys and values.
    pub pair_bytes: u64,
    /// The bytes that were written to the file for them, without values in parts; 0 where the pairs were so
    /// few that they went the way of a batch.
    pub written_bytes: u64,
}

/// Why an ingest ends before its end.
enum Stop<E> {
    Engine(betree::Error),
    Store(Error),
    Caller(E),
}

impl<E> From<betree::Error> for Stop<E> {
    fn from(error: betree::Error) -> Stop<E> {
        Stop::Engine(error)
    }
}

/// A value as it is stored: most are as they were given, and are not copied for that.
enum AsStored<V> {
    Given(V),
    Other(Vec<u8>),
}

impl<V: AsRef<[u8]>> AsRef<[u8]> for AsStored<V> {
    fn as_ref(&self) -> &[u8] {
        match self {
            AsStored::Given(value) => value.as_ref(),
            AsStored::Other(value) => value,
        }
    }
}

/// The dictionary as an ingest has it: with others or, once there are values in parts, alone. A change of
/// others could take parts away before their pair is there.
struct Ingesting<'d> {
    dict: &'d Dict,
    with_others: Option<RwLockReadGuard<'d, ()>>,
    alone: Option<RwLockWriteGuard<'d, ()>>,
    /// The parts that were put, each for one value.
    parts: Vec<(Cut, Cut)>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    pair_bytes: u64,
}

impl Dict {
    /// Puts many pairs, in the order of their keys, at once: the others see all of them or none, and so does
    /// a crash. When this returns they are durable. Other pairs between them stay; of two values of a key the
    /// ingested one wins, also where the dictionary has a merge. Ingested values do not expire.
    ///
    /// The pairs become leaves of the tree at once, each byte written once, and pass neither log nor memory;
    /// an import takes a fraction of the time of puts. Where the dictionary has pairs between the first key
    /// and the last, all of that range is written a second time. Values in parts are put by batches before.
    /// While it lasts, changes of the dictionary that must be alone (its drop, pops, values in parts) wait;
    /// from its first value in parts on, all others do.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let squares = store.dict("squares")?;
    /// squares.ingest((0..10_000_u64).map(|n| (n.to_be_bytes(), (n * n).to_be_bytes())))?;
    /// assert_eq!(squares.get(12_u64.to_be_bytes())?.as_deref(), Some(&144_u64.to_be_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInOrder`] with the position of the first pair that does not come behind the one before it;
    /// as [`put`](Dict::put). Nothing was changed, unless it is an error of making it durable
    /// ([`Store::sync`](crate::Store::sync)).
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Ingested> {
        self.try_ingest(pairs.into_iter().map(Ok::<_, Error>))
    }

    /// As [`ingest`](Dict::ingest), of pairs that may fail to come: then nothing is changed.
    ///
    /// # Errors
    /// As [`ingest`](Dict::ingest), and those of `pairs`.
    pub fn try_ingest<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &self,
        pairs: impl IntoIterator<Item = std::result::Result<(K, V), E>>,
    ) -> std::result::Result<Ingested, E> {
        self.shared.refuse_if_closed()?;
        self.shared.refuse_if_read_only()?;
        let mut ingesting = Ingesting::begin(self)?;
        let stored = pairs.into_iter().map(|pair| {
            let (key, value) = pair.map_err(Stop::Caller)?;
            let (key, other) = ingesting.stored(key.as_ref(), value.as_ref()).map_err(Stop::Store)?;
            Ok((key, other.map_or(AsStored::Given(value), AsStored::Other)))
        });
        let done = self.shared.env.ingest(ENGINE_DICT, stored);
        let engine = match done {
            Ok(engine) => engine,
            Err(stop) => {
                ingesting.remove_parts();
                return Err(match stop {
                    Stop::Caller(error) => error,
                    Stop::Store(error) => error.into(),
                    Stop::Engine(betree::Error::NotInOrder { position }) => {
                        Error::NotInOrder { dict: self.name(), position }.into()
                    }
                    Stop::Engine(error) => self.shared.error(error).into(),
                });
            }
        };
        ingesting.remove_replaced_parts()?;
        self.shared.env.sync().map_err(|error| self.shared.error(error))?;
        let pair_bytes = ingesting.pair_bytes;
        Ok(Ingested { pairs: engine.pairs, pair_bytes, written_bytes: engine.written_bytes })
    }
}

impl<'d> Ingesting<'d> {
    fn begin(dict: &'d Dict) -> Result<Ingesting<'d>> {
        let with_others = dict.state.changing.read();
        dict.state.refuse_if_dropped()?;
        let has_parts = dict.state.has_parts();
        let mut ingesting = Ingesting {
            dict,
            with_others: Some(with_others),
            alone: None,
            parts: Vec::new(),
            first: None,
            last: Vec::new(),
            pair_bytes: 0,
        };
        if has_parts {
            ingesting.be_alone()?;
        }
        Ok(ingesting)
    }

    fn be_alone(&mut self) -> Result<()> {
        if self.alone.is_none() {
            self.with_others = None;
            self.alone = Some(self.dict.state.changing.write());
        }
        self.dict.state.refuse_if_dropped()
    }

    /// The key of a pair in the engine, and what is stored in place of its value unless it is the value
    /// itself. The parts of a large value are put for it.
    fn stored(&mut self, key: &[u8], value: &[u8]) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let Dict { shared, state } = self.dict;
        let is_large = self.dict.check_put(key, value)?;
        self.pair_bytes += (key.len() + value.len()) as u64;
        self.first.get_or_insert_with(|| key.to_vec());
        self.last.clear();
        self.last.extend_from_slice(key);
        let pair_key = keys::pair_key(state.number, key);
        if !is_large {
            let other = match stored(value) {
                Cow::Borrowed(_) => None,
                Cow::Owned(other) => Some(other),
            };
            return Ok((pair_key, other));
        }
        self.be_alone()?;
        let generation = shared.generation.fetch_add(1, Ordering::Relaxed);
        let reference = Reference { generation, len: value.len() as u64, expires_ns: None };
        let large = Large { dict: state, key, value, reference };
        self.parts.push(large.cuts());
        large.put_parts(shared)?;
        Ok((pair_key, Some(reference.stored())))
    }

    /// Removes the parts that were put: nothing refers to them. If they cannot be removed, the next value of
    /// their key does it.
    fn remove_parts(&self) {
        let mut batch = Batch::new();
        for (number, cuts) in self.parts.iter().enumerate() {
            delete_range(&mut batch, cuts.clone());
            if batch.bytes() > DELETES_BYTES || number + 1 == self.parts.len() {
                let _ = self.dict.shared.commit(&std::mem::take(&mut batch));
            }
        }
    }

    /// Removes the parts in the range of keys to which no pair refers any more. Of each value in parts there,
    /// one part is read.
    fn remove_replaced_parts(&self) -> Result<()> {
        let (Some(first), Some(_)) = (&self.first, &self.alone) else { return Ok(()) };
        let Dict { shared, state } = self.dict;
        let range = Keys::Range(Bound::Included(first.clone()), Bound::Included(self.last.clone()));
        let (lo, hi) = range.parts(state.number);
        let mut cursor = shared.env.cursor(ENGINE_DICT, lo, hi);
        let mut batch = Batch::new();
        while let Some((part, _)) = cursor.next().map_err(|error| shared.error(error))? {
            let Some(PartKey { key, generation, value }) = keys::part_key(part) else { continue };
            let pair_key = keys::pair_key(state.number, &key);
            let found = shared.env.get(ENGINE_DICT, &pair_key).map_err(|error| shared.error(error))?;
            let is_in_use =
                matches!(found.map(Stored::of), Some(Stored::Parts(now)) if now.generation == generation);
            let behind = Cut::after(value.clone());
            if !is_in_use {
                delete_range(&mut batch, (Cut::before(value), behind.clone()));
                if batch.bytes() > DELETES_BYTES {
                    shared.commit(&std::mem::take(&mut batch))?;
                }
            }
            cursor.seek(&behind);
        }
        if batch.is_empty() { Ok(()) } else { shared.commit(&batch) }
    }
}
