//! Iterators that keep their dictionary: for programs that cannot lend it, such as those in other languages.

use std::collections::VecDeque;

use betree::Cut;

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::iter::{Iter, Source};
use crate::keys::Keys;
use crate::view::ViewDict;

/// The pairs that are read at once: of the first time, and the most.
const PAIRS_AT_ONCE: [usize; 2] = [4, 256];
/// No more pairs are read at once when they have this many bytes.
const BYTES_AT_ONCE: usize = 256 << 10;

/// As [`Iter`], but it keeps its dictionary, and with it the store open.
///
/// It reads some pairs at a time; that of no view meets what is changed behind those.
pub struct OwnedIter {
    dict: OwnedSource,
    /// What is not read yet.
    lo: Cut,
    hi: Cut,
    is_read: bool,
    /// What was read, from each end: `ahead` in order, `behind` from the last.
    ahead: VecDeque<(Key, Value)>,
    behind: VecDeque<(Key, Value)>,
    /// What comes when the pairs that were read are taken.
    failure: Option<Error>,
    at_once: usize,
}

/// What it keeps.
#[derive(Debug)]
pub(crate) enum OwnedSource {
    Dict(Dict),
    View(ViewDict),
}

impl OwnedSource {
    fn lent(&self) -> Source<'_> {
        match self {
            OwnedSource::Dict(dict) => Source::Dict(dict),
            OwnedSource::View(dict) => Source::View(dict),
        }
    }
}

impl From<Dict> for OwnedSource {
    fn from(dict: Dict) -> OwnedSource {
        OwnedSource::Dict(dict)
    }
}

impl From<ViewDict> for OwnedSource {
    fn from(dict: ViewDict) -> OwnedSource {
        OwnedSource::View(dict)
    }
}

impl OwnedIter {
    pub(crate) fn new(dict: impl Into<OwnedSource>, keys: &Keys) -> OwnedIter {
        let dict = dict.into();
        let Iter { lo, hi, is_done, .. } = Iter::new(dict.lent(), keys);
        let [at_once, _] = PAIRS_AT_ONCE;
        let (ahead, behind) = Default::default();
        OwnedIter { dict, lo, hi, is_read: is_done, ahead, behind, failure: None, at_once }
    }

    fn read(&mut self, is_forward: bool) {
        let (lo, hi) = (self.lo.clone(), self.hi.clone());
        let mut iter =
            Iter { source: self.dict.lent(), lo, hi, front: None, back: None, is_done: self.is_read };
        let to = if is_forward { &mut self.ahead } else { &mut self.behind };
        let mut bytes = 0;
        while to.len() < self.at_once && bytes < BYTES_AT_ONCE {
            match if is_forward { iter.next() } else { iter.next_back() } {
                Some(Ok((key, value))) => {
                    bytes += key.len() + value.len();
                    to.push_back((key, value));
                }
                Some(Err(error)) => self.failure = Some(error),
                None => break,
            }
        }
        (self.lo, self.hi, self.is_read) = (iter.lo, iter.hi, iter.is_done);
        let [_, most] = PAIRS_AT_ONCE;
        self.at_once = most.min(self.at_once * 2);
    }

    fn step(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        let near = if is_forward { &self.ahead } else { &self.behind };
        if near.is_empty() && !self.is_read {
            self.read(is_forward);
        }
        let (near, far) = match is_forward {
            true => (&mut self.ahead, &mut self.behind),
            false => (&mut self.behind, &mut self.ahead),
        };
        if let Some(pair) = near.pop_front() {
            return Some(Ok(pair));
        }
        match self.failure.take() {
            Some(error) => {
                // It ends with the first error.
                far.clear();
                Some(Err(error))
            }
            None => far.pop_back().map(Ok),
        }
    }
}

impl Iterator for OwnedIter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Result<(Key, Value)>> {
        self.step(true)
    }
}

impl DoubleEndedIterator for OwnedIter {
    fn next_back(&mut self) -> Option<Result<(Key, Value)>> {
        self.step(false)
    }
}

impl std::iter::FusedIterator for OwnedIter {}

impl std::fmt::Debug for OwnedIter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedIter({:?} to {:?} of {:?})", self.lo, self.hi, self.dict)
    }
}
