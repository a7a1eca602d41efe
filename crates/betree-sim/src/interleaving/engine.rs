//! An environment as the subject of interleaved transactions.

use std::ops::Range;
use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Error, Geometry, Isolation, Options, Outcome, Transaction, Upsert};
use betree_platform::Device;
use seeded::Rng;

use super::{
    CLONED_ELEMENTS, DICTS, Direction, KEYS_PER_DICT, Room, Scanned, Subject, elements_of, interleaved,
    text_of,
};
use crate::failure::Failure;
use crate::isolation::{Element, End, Key, Recorded};
use crate::mem_device::MemDevice;

const GEOMETRY: Geometry = Geometry {
    node_bytes: 1024,
    basement_bytes: 256,
    fanout_max: 6,
    log_bytes: 512 << 10,
    dicts: DICTS as u8,
};
/// With the smaller one, transactions are soon older than what is remembered of changes.
const CACHE_BYTES: [usize; 2] = [16 << 10, 64 << 10];
/// The transactions of a history.
const TRANSACTIONS: usize = 50;
const VOLUME_BYTES: u64 = 16 << 20;
/// The bytes of a pair that brings memtables to their end; it lies behind all keys.
const FILLER_BYTES: usize = 120;
const FILLER_KEYS: usize = 40;

/// Appends the delta.
struct Append;

impl Upsert for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Some([old.unwrap_or_default(), delta].concat())
    }
}

/// An environment with tiny nodes on a disk in memory.
pub struct EngineSubject {
    /// The environment.
    pub env: Arc<Env>,
}

impl EngineSubject {
    /// Makes one.
    ///
    /// # Errors
    /// The engine's.
    pub fn new(cache_bytes: usize) -> Result<EngineSubject, Failure> {
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(VOLUME_BYTES));
        Env::format(Arc::clone(&device), &GEOMETRY, *b"isolated volume.")?;
        let env = Arc::new(Env::open(device, Options::new(cache_bytes, Arc::new(Append)))?);
        let mut batch = Batch::new();
        for element in 1..=CLONED_ELEMENTS {
            let key = [source_of(element).as_slice(), b"v"].concat();
            (0..DICTS).for_each(|dict| batch.put(DictId(dict as u8), &key, &text_of(&[element])));
        }
        env.commit(&batch)?;
        env.checkpoint()?;
        Ok(EngineSubject { env })
    }
}

/// What the pairs of a key begin with.
fn prefix_of(key: Key) -> Vec<u8> {
    format!("k{:03}/", key % KEYS_PER_DICT).into_bytes()
}

/// What an element to be cloned is behind.
fn source_of(element: Element) -> Vec<u8> {
    format!("s{element:03}/").into_bytes()
}

fn place_of(key: Key) -> (DictId, Vec<u8>) {
    (DictId((key / KEYS_PER_DICT) as u8), [prefix_of(key).as_slice(), b"v"].concat())
}

/// The key of a pair of a dictionary.
fn key_of(dict: Key, bytes: &[u8]) -> Result<Key, Failure> {
    let number = str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix('k')?.strip_suffix("/v"));
    let number: Option<Key> = number.and_then(|number| number.parse().ok());
    let wrong = || Failure::Wrong(format!("a scan met \"{}\"", bytes.escape_ascii()));
    Ok(dict * KEYS_PER_DICT + number.ok_or_else(wrong)?)
}

fn room(done: betree::Result<()>) -> Result<Room, Failure> {
    match done {
        Ok(()) => Ok(Room::Enough),
        Err(Error::TooLarge { .. } | Error::TooManyClones { .. }) => Ok(Room::TooLittle),
        Err(error) => Err(error.into()),
    }
}

impl Subject for EngineSubject {
    type Transaction = Transaction;

    fn begin(&self, isolation: Isolation) -> Result<Transaction, Failure> {
        Ok(self.env.begin(isolation))
    }

    fn read(&self, transaction: &Transaction, key: Key) -> Result<Vec<Element>, Failure> {
        let (dict, key) = place_of(key);
        elements_of(&transaction.get(dict, &key)?.unwrap_or_default())
    }

    fn scan(
        &self,
        transaction: &Transaction,
        keys: Range<Key>,
        direction: Direction,
        pairs_max: usize,
    ) -> Result<Scanned, Failure> {
        let dict = keys.start / KEYS_PER_DICT;
        let (lo, hi) = (Cut::before(prefix_of(keys.start)), Cut::after(prefix_of(keys.end - 1)));
        let mut cursor = transaction.cursor(DictId(dict as u8), lo, hi.clone());
        if direction == Direction::Backward {
            cursor.seek(&hi);
        }
        let mut met = Vec::new();
        for _ in 0..pairs_max {
            let pair = match direction {
                Direction::Forward => cursor.next()?,
                Direction::Backward => cursor.prev()?,
            };
            let Some((key, value)) = pair else { return Ok((keys, met)) };
            met.push((key_of(dict, key)?, elements_of(value)?));
        }
        let last = met.last().map(|(key, _)| *key);
        let passed = match (last, direction) {
            (None, _) => keys,
            (Some(last), Direction::Forward) => keys.start..last + 1,
            (Some(last), Direction::Backward) => last..keys.end,
        };
        Ok((passed, met))
    }

    fn append(&self, transaction: &mut Transaction, key: Key, element: Element) -> Result<Room, Failure> {
        let (dict, key) = place_of(key);
        room(transaction.upsert(dict, &key, &text_of(&[element])))
    }

    fn put(&self, transaction: &mut Transaction, key: Key, elements: &[Element]) -> Result<Room, Failure> {
        let (dict, key) = place_of(key);
        room(transaction.put(dict, &key, &text_of(elements)))
    }

    fn put_clone(&self, transaction: &mut Transaction, key: Key, element: Element) -> Result<Room, Failure> {
        let (dict, _) = place_of(key);
        room(transaction.clone_range(dict, &source_of(element), &prefix_of(key)))
    }

    fn commit(&self, transaction: Transaction) -> Result<End, Failure> {
        match transaction.commit()? {
            Outcome::Committed(_) => Ok(End::Committed),
            Outcome::Conflict(_) => Ok(End::Aborted),
        }
    }

    fn append_at_once(&self, changes: &[(Key, Element)]) -> Result<(), Failure> {
        let mut batch = Batch::new();
        for (key, element) in changes {
            let (dict, key) = place_of(*key);
            batch.upsert(dict, &key, &text_of(&[*element]));
        }
        Ok(self.env.commit(&batch)?)
    }

    /// Fills memtables, and carries them out.
    fn work(&self, rng: &mut Rng) -> Result<(), Failure> {
        let mut batch = Batch::new();
        for _ in 0..rng.below(5) {
            let key = format!("z{:03}", rng.below(FILLER_KEYS)).into_bytes();
            let dict = DictId(rng.below(DICTS as usize) as u8);
            batch.put(dict, &key, &seeded::bytes(rng.next_u64(), 0, FILLER_BYTES));
        }
        self.env.throttle(batch.bytes())?;
        self.env.commit(&batch)?;
        for _ in 0..rng.below(6) {
            if !self.env.run_due_work()? {
                break;
            }
        }
        if rng.percent(10) {
            self.env.checkpoint()?;
        }
        Ok(())
    }
}

/// The history of a seed on an environment of its own.
///
/// # Errors
/// The engine's.
pub fn engine_history(isolation: Isolation, seed: u64) -> Result<Vec<Recorded>, Failure> {
    let subject = EngineSubject::new(CACHE_BYTES[(seed % 2) as usize])?;
    interleaved(&subject, isolation, seed, TRANSACTIONS)
}

/// It is not closed.
impl Drop for EngineSubject {
    fn drop(&mut self) {
        self.env.abandon();
    }
}
