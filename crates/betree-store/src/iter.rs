//! Iterators over ranges.

use betree::Cut;

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::Result;
use crate::keys::{ENGINE_DICT, Keys, user_key};
use crate::parts;
use crate::shared::Shared;
use crate::steps::Steps;
use crate::transaction::Transaction;
use crate::view::ViewDict;

/// The pairs of a range, from both ends. It ends with the first error.
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

    /// Takes a step; the other end stands where its last key was, so the two meet at a key.
    fn step(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        if self.is_done {
            return None;
        }
        let stepped = self.take_step(is_forward);
        self.is_done = !matches!(stepped, Ok(Some(_)));
        stepped.transpose()
    }

    fn take_step(&mut self, is_forward: bool) -> Result<Option<(Key, Value)>> {
        let shared = self.source.shared();
        loop {
            shared.refuse_if_closed()?;
            let found = if is_forward { self.find_next() } else { self.find_prev() };
            self.source.refuse_if_dropped()?;
            let Some((key, read)) = found.map_err(|error| shared.error(error))? else { return Ok(None) };
            // A large value may be gone by now, as if it had not been met.
            if let Some(value) = self.source.value_of(&key, read)? {
                return Ok(Some((key, value)));
            }
        }
    }

    fn find_next(&mut self) -> betree::Result<Option<(Key, Vec<u8>)>> {
        let front = self.front.get_or_insert_with(|| self.source.open(&self.lo, &self.hi));
        let Some((key, value)) = front.next()?.filter(|(key, _)| self.hi.is_above(key)) else {
            return Ok(None);
        };
        self.lo = Cut::just_after(key);
        Ok(Some((user_key(key).1.to_vec().into(), value.to_vec())))
    }

    fn find_prev(&mut self) -> betree::Result<Option<(Key, Vec<u8>)>> {
        let back = self.back.get_or_insert_with(|| {
            let mut back = self.source.open(&self.lo, &self.hi);
            back.seek(&self.hi);
            back
        });
        let Some((key, value)) = back.prev()?.filter(|(key, _)| !self.lo.is_above(key)) else {
            return Ok(None);
        };
        self.hi = Cut::before(key);
        Ok(Some((user_key(key).1.to_vec().into(), value.to_vec())))
    }
}

impl Iterator for Iter<'_> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Result<(Key, Value)>> {
        self.step(true)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Result<(Key, Value)>> {
        self.step(false)
    }
}

impl std::iter::FusedIterator for Iter<'_> {}

impl std::fmt::Debug for Iter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iter({:?} to {:?} of {:?})", self.lo, self.hi, self.source)
    }
}
