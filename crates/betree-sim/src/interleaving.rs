//! Transactions of several users at once, recorded for the judgement of their [isolation](crate::isolation).

mod engine;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use betree::Isolation;
use seeded::Rng;

use crate::failure::Failure;
use crate::isolation::{Element, End, Key, Operation, Recorded};
pub use engine::{EngineSubject, engine_history};

/// The keys: so few that transactions meet. Those of a dictionary follow each other.
pub const KEYS: Key = DICTS * KEYS_PER_DICT;
/// The number of dictionaries.
pub const DICTS: Key = 2;
/// The number of keys of a dictionary.
pub const KEYS_PER_DICT: Key = 6;
/// So many elements, counted from 1, are there from the beginning, each in a range of its own of each
/// dictionary, to be cloned into registers.
pub const CLONED_ELEMENTS: Element = 40;
/// How many transactions are open at the same time.
const OPEN_MAX: usize = 4;
/// The most operations of a transaction.
const OPERATIONS_MAX: usize = 6;

/// Whether a key is a register; the others are lists.
pub fn is_register(key: Key) -> bool {
    key % 3 == 2
}

/// What a list or a register holds, as text.
pub fn text_of(elements: &[Element]) -> Vec<u8> {
    elements.iter().map(|element| format!("{element},")).collect::<String>().into_bytes()
}

/// The elements of a text.
///
/// # Errors
/// It is none of [`text_of`].
pub fn elements_of(text: &[u8]) -> Result<Vec<Element>, Failure> {
    let wrong = || Failure::Wrong(format!("no elements: \"{}\"", text.escape_ascii()));
    let text = str::from_utf8(text).map_err(|_| wrong())?;
    text.split_terminator(',').map(|element| element.parse().map_err(|_| wrong())).collect()
}

/// The keys of a part of a scan, and the pairs that it met.
pub type Scanned = (Range<Key>, Vec<(Key, Vec<Element>)>);

/// The order in which a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first key on.
    Forward,
    /// From the last key on.
    Backward,
}

/// Whether there was room for a change in the transaction; without, nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There was.
    Enough,
    /// There was none.
    TooLittle,
}

/// Something with transactions over lists and registers.
pub trait Subject {
    /// A transaction.
    type Transaction;

    /// Begins one.
    ///
    /// # Errors
    /// The subject's, as in all that follows.
    fn begin(&self, isolation: Isolation) -> Result<Self::Transaction, Failure>;

    /// Reads a key.
    ///
    /// # Errors
    /// The subject's.
    fn read(&self, transaction: &Self::Transaction, key: Key) -> Result<Vec<Element>, Failure>;

    /// Reads pairs of some keys of one dictionary, `pairs_max` at most. Returns what it has passed over.
    ///
    /// # Errors
    /// The subject's.
    fn scan(
        &self,
        transaction: &Self::Transaction,
        keys: Range<Key>,
        direction: Direction,
        pairs_max: usize,
    ) -> Result<Scanned, Failure>;

    /// Appends to a list without reading it.
    ///
    /// # Errors
    /// The subject's.
    fn append(
        &self,
        transaction: &mut Self::Transaction,
        key: Key,
        element: Element,
    ) -> Result<Room, Failure>;

    /// Replaces what a key holds.
    ///
    /// # Errors
    /// The subject's.
    fn put(
        &self,
        transaction: &mut Self::Transaction,
        key: Key,
        elements: &[Element],
    ) -> Result<Room, Failure>;

    /// Replaces what a register holds by a clone of one of the [elements](CLONED_ELEMENTS) that are there.
    ///
    /// # Errors
    /// The subject's.
    fn put_clone(
        &self,
        transaction: &mut Self::Transaction,
        key: Key,
        element: Element,
    ) -> Result<Room, Failure>;

    /// Commits.
    ///
    /// # Errors
    /// The subject's.
    fn commit(&self, transaction: Self::Transaction) -> Result<End, Failure>;

    /// Appends to several lists by one batch.
    ///
    /// # Errors
    /// The subject's.
    fn append_at_once(&self, changes: &[(Key, Element)]) -> Result<(), Failure>;

    /// Does work that changes nothing for transactions.
    ///
    /// # Errors
    /// The subject's.
    fn work(&self, rng: &mut Rng) -> Result<(), Failure>;
}

/// Moments and elements, none of which comes twice.
#[derive(Debug)]
struct Numbers {
    moment: AtomicU64,
    element: AtomicU64,
    cloned: AtomicU64,
}

impl Numbers {
    fn new() -> Numbers {
        Numbers {
            moment: AtomicU64::new(0),
            element: AtomicU64::new(CLONED_ELEMENTS + 1),
            cloned: AtomicU64::new(1),
        }
    }

    fn moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    fn element(&self) -> Element {
        self.element.fetch_add(1, Ordering::SeqCst)
    }

    /// One of those that are there, as long as there are some.
    fn cloned(&self) -> Option<Element> {
        Some(self.cloned.fetch_add(1, Ordering::SeqCst)).filter(|element| *element <= CLONED_ELEMENTS)
    }
}

/// A transaction that goes on.
struct Open<T> {
    transaction: T,
    invoked: u64,
    operations: Vec<Operation>,
}

/// One user of a subject.
struct User<'s, S: Subject> {
    subject: &'s S,
    numbers: &'s Numbers,
    isolation: Isolation,
    rng: Rng,
    recorded: Vec<Recorded>,
}

impl<S: Subject> User<'_, S> {
    fn begin(&self) -> Result<Open<S::Transaction>, Failure> {
        let invoked = self.numbers.moment();
        Ok(Open { transaction: self.subject.begin(self.isolation)?, invoked, operations: Vec::new() })
    }

    fn key(&mut self) -> Key {
        self.rng.below(KEYS as usize) as Key
    }

    fn step(&mut self, open: &mut Open<S::Transaction>) -> Result<(), Failure> {
        match self.rng.below(100) {
            0..30 => {
                let key = self.key();
                self.read(open, key).map(|_| ())
            }
            30..55 => self.scan(open),
            _ => {
                let key = self.key();
                if is_register(key) { self.write(open, key) } else { self.append(open, key) }
            }
        }
    }

    fn read(&self, open: &mut Open<S::Transaction>, key: Key) -> Result<Vec<Element>, Failure> {
        let found = self.subject.read(&open.transaction, key)?;
        open.operations.push(Operation::Read(key, found.clone()));
        Ok(found)
    }

    fn scan(&mut self, open: &mut Open<S::Transaction>) -> Result<(), Failure> {
        let first = self.rng.below(DICTS as usize) as Key * KEYS_PER_DICT;
        let from = self.rng.below(KEYS_PER_DICT as usize);
        let to = self.rng.between(from + 1, KEYS_PER_DICT as usize);
        let keys = first + from as Key..first + to as Key;
        let direction = *self.rng.pick(&[Direction::Forward, Direction::Backward]);
        let pairs_max = self.rng.between(1, KEYS_PER_DICT as usize);
        let (passed, met) = self.subject.scan(&open.transaction, keys, direction, pairs_max)?;
        open.operations.push(Operation::Scan(passed, met));
        Ok(())
    }

    /// Appends to a list: blindly, or by putting what was read with one element more.
    fn append(&mut self, open: &mut Open<S::Transaction>, key: Key) -> Result<(), Failure> {
        let element = self.numbers.element();
        let room = match self.rng.percent(60) {
            true => self.subject.append(&mut open.transaction, key, element)?,
            false => {
                let mut elements = self.read(open, key)?;
                elements.push(element);
                self.subject.put(&mut open.transaction, key, &elements)?
            }
        };
        if room == Room::Enough {
            open.operations.push(Operation::Append(key, element));
        }
        Ok(())
    }

    /// Writes a register, mostly after reading it.
    fn write(&mut self, open: &mut Open<S::Transaction>, key: Key) -> Result<(), Failure> {
        if self.rng.percent(70) {
            self.read(open, key)?;
        }
        let cloned = if self.rng.percent(30) { self.numbers.cloned() } else { None };
        let (element, room) = match cloned {
            Some(element) => (element, self.subject.put_clone(&mut open.transaction, key, element)?),
            None => {
                let element = self.numbers.element();
                (element, self.subject.put(&mut open.transaction, key, &[element])?)
            }
        };
        if room == Room::Enough {
            open.operations.push(Operation::Write(key, element));
        }
        Ok(())
    }

    fn end(&mut self, open: Open<S::Transaction>) -> Result<(), Failure> {
        let Open { transaction, invoked, operations } = open;
        let end = match self.rng.percent(90) {
            true => self.subject.commit(transaction)?,
            false => End::Aborted,
        };
        self.recorded.push(Recorded { invoked, returned: self.numbers.moment(), operations, end });
        Ok(())
    }

    /// A batch, which is a transaction that reads nothing.
    fn append_at_once(&mut self) -> Result<(), Failure> {
        let keys = (0..self.rng.between(1, 3)).map(|_| self.key()).collect::<Vec<_>>();
        let lists = keys.into_iter().filter(|key| !is_register(*key));
        let changes: Vec<(Key, Element)> = lists.map(|key| (key, self.numbers.element())).collect();
        let invoked = self.numbers.moment();
        self.subject.append_at_once(&changes)?;
        let operations = changes.into_iter().map(|(key, element)| Operation::Append(key, element)).collect();
        let returned = self.numbers.moment();
        self.recorded.push(Recorded { invoked, returned, operations, end: End::Committed });
        Ok(())
    }

    /// Reads everything.
    fn read_all(&mut self) -> Result<(), Failure> {
        let mut open = self.begin()?;
        (0..KEYS).try_for_each(|key| self.read(&mut open, key).map(|_| ()))?;
        let Open { transaction, invoked, operations } = open;
        let end = self.subject.commit(transaction)?;
        self.recorded.push(Recorded { invoked, returned: self.numbers.moment(), operations, end });
        Ok(())
    }
}

/// The history of so many transactions whose steps take turns as a seed decides.
///
/// # Errors
/// The subject's.
pub fn interleaved<S: Subject>(
    subject: &S,
    isolation: Isolation,
    seed: u64,
    transactions: usize,
) -> Result<Vec<Recorded>, Failure> {
    let (numbers, rng) = (Numbers::new(), Rng::new(seed));
    let mut user = User { subject, numbers: &numbers, isolation, rng, recorded: Vec::new() };
    let mut open: Vec<Open<S::Transaction>> = Vec::new();
    while user.recorded.len() + open.len() < transactions || !open.is_empty() {
        let which = user.rng.below(OPEN_MAX);
        match user.rng.below(100) {
            0..8 => user.append_at_once()?,
            8..20 => subject.work(&mut user.rng)?,
            _ if which >= open.len() => {
                if user.recorded.len() + open.len() < transactions {
                    open.push(user.begin()?);
                }
            }
            20..32 => user.end(open.swap_remove(which))?,
            _ => {
                if let Some(one) = open.get_mut(which).filter(|one| one.operations.len() < OPERATIONS_MAX) {
                    user.step(one)?;
                }
            }
        }
    }
    user.read_all()?;
    Ok(user.recorded)
}

/// The history of so many transactions by each of some threads.
///
/// # Errors
/// The subject's.
pub fn in_threads<S: Subject + Sync>(
    subject: &S,
    isolation: Isolation,
    seed: u64,
    threads: u64,
    transactions: usize,
) -> Result<Vec<Recorded>, Failure> {
    let numbers = Numbers::new();
    let user = |thread| User {
        subject,
        numbers: &numbers,
        isolation,
        rng: Rng::new(seed << 8 | thread),
        recorded: Vec::new(),
    };
    let run = |mut user: User<'_, S>| -> Result<Vec<Recorded>, Failure> {
        for _ in 0..transactions {
            let mut open = user.begin()?;
            for _ in 0..user.rng.between(1, OPERATIONS_MAX) {
                user.step(&mut open)?;
            }
            user.end(open)?;
            if user.rng.percent(10) {
                user.append_at_once()?;
            }
        }
        Ok(user.recorded)
    };
    let mut recorded = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(user(thread)))).collect();
        let mut recorded = Vec::new();
        for thread in started {
            let done = thread.join().map_err(|_| Failure::Wrong("a thread panicked".into()))?;
            recorded.extend(done?);
        }
        Ok::<_, Failure>(recorded)
    })?;
    let mut last = user(threads);
    last.read_all()?;
    recorded.append(&mut last.recorded);
    Ok(recorded)
}
