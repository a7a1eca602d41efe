//! Iterators over ranges.

use betree::{Cursor, Cut};

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::Result;
use crate::keys::{ENGINE_DICT, user_key};

/// The pairs of a range, from both ends. It ends with the first error.
///
/// It is no snapshot: it reads a part at a time, and meets what is changed in the parts that it has not read.
/// It never returns a key twice, and its keys are in order.
pub struct Iter<'d> {
    dict: &'d Dict,
    lo: Cut,
    hi: Cut,
    front: Option<Cursor<'d>>,
    back: Option<Cursor<'d>>,
    is_done: bool,
}

impl<'d> Iter<'d> {
    pub(crate) fn new(dict: &'d Dict, (lo, hi): (Cut, Cut)) -> Iter<'d> {
        let is_done = lo >= hi;
        Iter { dict, lo, hi, front: None, back: None, is_done }
    }

    /// Takes a step; the other end stands where its last key was, so the two meet at a key.
    fn step(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        if self.is_done {
            return None;
        }
        let stepped = self.dict.shared.refuse_if_closed().and_then(|()| {
            let found = if is_forward { self.find_next() } else { self.find_prev() };
            // What is gone may be gone because the dictionary is.
            self.dict.state.refuse_if_dropped()?;
            found.map_err(|error| self.dict.shared.error(error))
        });
        self.is_done = !matches!(stepped, Ok(Some(_)));
        stepped.transpose()
    }

    fn find_next(&mut self) -> betree::Result<Option<(Key, Value)>> {
        let env = &self.dict.shared.env;
        let front =
            self.front.get_or_insert_with(|| env.cursor(ENGINE_DICT, self.lo.clone(), self.hi.clone()));
        let Some((key, value)) = front.next()?.filter(|(key, _)| self.hi.is_above(key)) else {
            return Ok(None);
        };
        self.lo = Cut::just_after(key);
        Ok(Some((user_key(key).to_vec().into(), value.to_vec().into())))
    }

    fn find_prev(&mut self) -> betree::Result<Option<(Key, Value)>> {
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
        Ok(Some((user_key(key).to_vec().into(), value.to_vec().into())))
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
