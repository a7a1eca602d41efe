//! Iterators over ranges.

use std::borrow::Cow;

use betree::Cut;

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::Result;
use crate::keys::{ENGINE_DICT, Keys, user_key};
use crate::parts;
use crate::shared::Shared;
use crate::steps::Steps;
use crate::transaction::Transaction;
use crate::value;
use crate::view::ViewDict;

/// The pairs of a range, from both ends. It ends with the first error, unless that concerns one key alone: it
/// goes on after a key with [`MergeFailed`](crate::Error::MergeFailed) or
/// [`UnknownMerge`](crate::Error::UnknownMerge).
///
/// That of a view or of a transaction reads the one moment of these. That of a dictionary is no snapshot: it
/// reads a part at a time, and meets what is changed in the parts that it has not read. So it holds no space,
/// and does not end where that is short. It never returns a key twice, and its keys are in order.
pub struct Iter<'d> {
    pub(crate) source: Source<'d>,
    pub(crate) lo: Cut,
    pub(crate) hi: Cut,
    pub(crate) front: Option<Steps<'d>>,
    pub(crate) back: Option<Steps<'d>>,
    pub(crate) is_done: bool,
}

/// A pair that is lent: its key and its value.
pub type Lent<'i> = (&'i [u8], Cow<'i, [u8]>);

/// The value of the pair that a cursor has come to.
enum Met {
    /// As the cursor has it.
    Plain,
    /// Another one, made of what the cursor has.
    Made(Value),
}

/// What an iterator reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'d> {
    /// A dictionary as it is when it is read.
    Dict(&'d Dict),
    /// A dictionary as it was.
    View(&'d ViewDict),
    /// A dictionary as a transaction sees it.
    Transaction(&'d Transaction, &'d Dict),
}

impl<'d> Source<'d> {
    fn number(self) -> u32 {
        match self {
            Source::Dict(dict) => dict.state.number,
            Source::View(dict) => dict.number,
            Source::Transaction(_, dict) => dict.state.number,
        }
    }

    fn shared(self) -> &'d Shared {
        match self {
            Source::Dict(dict) => &dict.shared,
            Source::View(dict) => dict.shared(),
            Source::Transaction(transaction, _) => transaction.shared(),
        }
    }

    fn open(self, lo: &Cut, hi: &Cut) -> Steps<'d> {
        let (lo, hi) = (lo.clone(), hi.clone());
        match self {
            Source::Dict(dict) => Steps::Plain(dict.shared.env.cursor(ENGINE_DICT, lo, hi)),
            Source::View(dict) => Steps::Plain(dict.engine().cursor(ENGINE_DICT, lo, hi)),
            Source::Transaction(transaction, _) => Steps::Noted(transaction.cursor(lo, hi)),
        }
    }

    /// What is gone may be gone because the dictionary is.
    fn refuse_if_dropped(self) -> Result<()> {
        match self {
            Source::Dict(dict) => dict.state.refuse_if_dropped(),
            Source::View(_) => Ok(()),
            Source::Transaction(transaction, dict) => transaction.refuse(dict),
        }
    }

    /// The value in what was read of a key; `None` if the key was removed meanwhile.
    fn value_of(self, key: &[u8], read: Vec<u8>) -> Result<Option<Value>> {
        match self {
            Source::Dict(Dict { shared, state }) => parts::value_of(shared, state, key, read),
            Source::View(dict) => dict.value_of(key, read),
            Source::Transaction(transaction, dict) => transaction.value_of(dict, key, read),
        }
    }
}

impl<'d> Iter<'d> {
    pub(crate) fn new(source: Source<'d>, keys: &Keys) -> Iter<'d> {
        let (lo, hi) = keys.pairs(source.number());
        let is_done = lo >= hi;
        Iter { source, lo, hi, front: None, back: None, is_done }
    }

    /// The next pair, as that of [`next`](Iterator::next), but lent: what the store has in memory is not
    /// copied, so that a scan of values of 1,000 bytes takes half of the time. A value in parts, and one that
    /// a merge makes for the reader, are owned.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let pages = betree_store::Store::open(folder.path().join("store"))?.dict("pages")?;
    /// pages.put("a", "first")?;
    /// pages.put("b", "second")?;
    /// let (mut bytes, mut iter) = (0, pages.iter());
    /// while let Some((_, value)) = iter.next_lent()? {
    ///     bytes += value.len();
    /// }
    /// assert_eq!(bytes, 11);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the items of [`next`](Iterator::next).
    pub fn next_lent(&mut self) -> Result<Option<Lent<'_>>> {
        self.lend(true)
    }

    /// The last pair that is left, as that of [`next_back`](DoubleEndedIterator::next_back), but lent, as by
    /// [`next_lent`](Iter::next_lent).
    ///
    /// # Errors
    /// As [`next_lent`](Iter::next_lent).
    pub fn next_back_lent(&mut self) -> Result<Option<Lent<'_>>> {
        self.lend(false)
    }

    fn lend(&mut self, is_forward: bool) -> Result<Option<Lent<'_>>> {
        if self.is_done {
            return Ok(None);
        }
        let met = self.take_step(is_forward);
        self.is_done = match &met {
            Ok(met) => met.is_none(),
            Err(error) => !error.is_of_one_key(),
        };
        let Some(met) = met? else { return Ok(None) };
        let steps = if is_forward { &self.front } else { &self.back };
        Ok(steps.as_ref().and_then(Steps::pair).map(|(key, value)| {
            let value = match met {
                Met::Plain => Cow::Borrowed(value),
                Met::Made(made) => Cow::Owned(made.into_vec()),
            };
            (user_key(key).1, value)
        }))
    }

    /// Takes a step; the other end stands where its last key was, so the two meet at a key.
    fn take_step(&mut self, is_forward: bool) -> Result<Option<Met>> {
        let shared = self.source.shared();
        loop {
            shared.refuse_if_closed()?;
            let found = if is_forward { self.find_next() } else { self.find_prev() };
            let found = found.map(|pair| {
                // What has to be made of a value may take reads of its own: the cursor is not held for them.
                pair.map(|(key, read)| {
                    (!value::is_plain(read)).then(|| (user_key(key).1.to_vec(), read.to_vec()))
                })
            });
            self.source.refuse_if_dropped()?;
            let Some(found) = found.map_err(|error| shared.error(error))? else { return Ok(None) };
            let Some((key, read)) = found else { return Ok(Some(Met::Plain)) };
            // A large value may be gone by now, as if it had not been met.
            if let Some(value) = self.source.value_of(&key, read)? {
                return Ok(Some(Met::Made(value)));
            }
        }
    }

    fn find_next(&mut self) -> betree::Result<Option<(&[u8], &[u8])>> {
        let front = self.front.get_or_insert_with(|| self.source.open(&self.lo, &self.hi));
        let Some((key, value)) = front.next()?.filter(|(key, _)| self.hi.is_above(key)) else {
            return Ok(None);
        };
        self.lo.move_just_after(key);
        Ok(Some((key, value)))
    }

    fn find_prev(&mut self) -> betree::Result<Option<(&[u8], &[u8])>> {
        let back = self.back.get_or_insert_with(|| {
            let mut back = self.source.open(&self.lo, &self.hi);
            back.seek(&self.hi);
            back
        });
        let Some((key, value)) = back.prev()?.filter(|(key, _)| !self.lo.is_above(key)) else {
            return Ok(None);
        };
        self.hi.move_before(key);
        Ok(Some((key, value)))
    }
}

/// A pair of one's own.
fn owned((key, value): Lent<'_>) -> (Key, Value) {
    (key.to_vec().into(), value.into_owned().into())
}

impl Iterator for Iter<'_> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Result<(Key, Value)>> {
        self.next_lent().map(|pair| pair.map(owned)).transpose()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Result<(Key, Value)>> {
        self.next_back_lent().map(|pair| pair.map(owned)).transpose()
    }
}

impl std::iter::FusedIterator for Iter<'_> {}

impl std::fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iter({:?} to {:?} of {:?})", self.lo, self.hi, self.source)
    }
}
