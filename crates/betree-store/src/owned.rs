//! Iterators that keep their dictionary: for programs that cannot lend it, such as those in other languages.

use std::collections::VecDeque;

use betree::Cut;

use crate::bytes::{Key, Value};
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::iter::{Iter, Source};
use crate::keys::Keys;
use crate::transaction::SharedTransaction;
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
    pairs: Pairs,
}

/// What it keeps.
#[derive(Debug)]
pub(crate) enum OwnedSource {
    Dict(Dict),
    View(ViewDict),
    Transaction(SharedTransaction, Dict),
}

/// The pairs that were read, and what is not read yet.
struct Pairs {
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

impl OwnedSource {
    fn number(&self) -> u32 {
        match self {
            OwnedSource::Dict(dict) | OwnedSource::Transaction(_, dict) => dict.state.number,
            OwnedSource::View(dict) => dict.number,
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

impl From<(SharedTransaction, Dict)> for OwnedSource {
    fn from((transaction, dict): (SharedTransaction, Dict)) -> OwnedSource {
        OwnedSource::Transaction(transaction, dict)
    }
}

impl Pairs {
    fn read(&mut self, source: Source<'_>, is_forward: bool) {
        let (lo, hi) = (self.lo.clone(), self.hi.clone());
        let mut iter = Iter { source, lo, hi, front: None, back: None, is_done: self.is_read };
        let to = if is_forward { &mut self.ahead } else { &mut self.behind };
        let mut bytes = 0;
        while to.len() < self.at_once && bytes < BYTES_AT_ONCE {
            match if is_forward { iter.next() } else { iter.next_back() } {
                Some(Ok((key, value))) => {
                    bytes += key.len() + value.len();
                    to.push_back((key, value));
                }
                Some(Err(error)) => {
                    self.failure = Some(error);
                    break;
                }
                None => break,
            }
        }
        (self.lo, self.hi, self.is_read) = (iter.lo, iter.hi, iter.is_done);
        let [_, most] = PAIRS_AT_ONCE;
        self.at_once = most.min(self.at_once * 2);
    }

    fn fail(&mut self, error: Error) {
        self.failure = Some(error);
        self.is_read = true;
    }

    fn needs_reading(&self, is_forward: bool) -> bool {
        let near = if is_forward { &self.ahead } else { &self.behind };
        near.is_empty() && self.failure.is_none() && !self.is_read
    }

    fn take(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        let (near, far) = match is_forward {
            true => (&mut self.ahead, &mut self.behind),
            false => (&mut self.behind, &mut self.ahead),
        };
        if let Some(pair) = near.pop_front() {
            return Some(Ok(pair));
        }
        match self.failure.take() {
            Some(error) => {
                if !error.is_of_one_key() {
                    far.clear();
                }
                Some(Err(error))
            }
            None => far.pop_back().map(Ok),
        }
    }
}

impl OwnedIter {
    pub(crate) fn new(dict: impl Into<OwnedSource>, keys: &Keys) -> OwnedIter {
        let dict = dict.into();
        let (lo, hi) = keys.pairs(dict.number());
        let ([at_once, _], is_read) = (PAIRS_AT_ONCE, lo >= hi);
        let (ahead, behind) = Default::default();
        OwnedIter { dict, pairs: Pairs { lo, hi, is_read, ahead, behind, failure: None, at_once } }
    }

    fn step(&mut self, is_forward: bool) -> Option<Result<(Key, Value)>> {
        let OwnedIter { dict, pairs } = self;
        if pairs.needs_reading(is_forward) {
            match dict {
                OwnedSource::Dict(dict) => pairs.read(Source::Dict(dict), is_forward),
                OwnedSource::View(dict) => pairs.read(Source::View(dict), is_forward),
                OwnedSource::Transaction(shared, dict) => match &*shared.lock() {
                    Some(transaction) => pairs.read(Source::Transaction(transaction, dict), is_forward),
                    None => pairs.fail(Error::TransactionEnded),
                },
            }
        }
        pairs.take(is_forward)
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
        write!(f, "OwnedIter({:?} to {:?} of {:?})", self.pairs.lo, self.pairs.hi, self.dict)
    }
}
