//! Iterators over ranges.

use betree::{Cursor, Cut};

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::Result;
use crate::keys::{ENGINE_DICT, Keys, user_key};
use crate::parts;

/// The pairs of a range, from both ends. It ends with the first error.
///
/// It is no snapshot: it reads a part at a time, and meets what is changed in the parts that it has not read.
/// It never returns a key twice, and its keys are in order.
pub struct Iter<'d> {
    pub(crate) dict: &'d Dict,
    pub(crate) lo: Cut,
    pub(crate) hi: Cut,
    pub(crate) front: Option<Cursor<'d>>,
    pub(crate) back: Option<Cursor<'d>>,
    pub(crate) is_done: bool,
}

impl<'d> Iter<'d> {
    pub(crate) fn new(dict: &'d Dict, keys: &Keys) -> Iter<'d> {
        let (lo, hi) = keys.pairs(dict.state.number);
        let is_done = lo >= hi;
        Iter { dict, lo, hi, front: None, back: None, is_done }
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
        let Dict { shared, state } = self.dict;
        loop {
            shared.refuse_if_closed()?;
            let found = if is_forward { self.find_next() } else { self.find_prev() };
            // What is gone may be gone because the dictionary is.
            state.refuse_if_dropped()?;
            let Some((key, read)) = found.map_err(|error| shared.error(error))? else { return Ok(None) };
            // A large value may be gone by now, as if it had not been met.
            if let Some(value) = parts::value_of(shared, state, &key, read)? {
                return Ok(Some((key, value)));
            }
        }
    }

    fn find_next(&mut self) -> betree::Result<Option<(Key, Vec<u8>)>> {
        let env = &self.dict.shared.env;
        let front =
            self.front.get_or_insert_with(|| env.cursor(ENGINE_DICT, self.lo.clone(), self.hi.clone()));
        let Some((key, value)) = front.next()?.filter(|(key, _)| self.hi.is_above(key)) else {
            return Ok(None);
        };
        self.lo = Cut::just_after(key);
        Ok(Some((user_key(key).1.to_vec().into(), value.to_vec())))
    }

    fn find_prev(&mut self) -> betree::Result<Option<(Key, Vec<u8>)>> {
        let env = &self.dict.shared.env;
        let back = self.back.get_or_insert_with(|| {
            let mut back = env.cursor(ENGINE_DICT, self.lo.clone(), self.hi.clone());
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
        write!(f, "Iter({:?} to {:?} of {:?})", self.lo, self.hi, self.dict)
    }
}
