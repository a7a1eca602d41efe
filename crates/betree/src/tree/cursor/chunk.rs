//! The step of a cursor: the pairs ahead of a place.
//!
//! A *chunk* is the largest part of the key space ahead of a place that one basement, one null edge or one
//! range delete serves. Its *sources* are the messages of the memtables, of the partitions above and of the
//! basement. They are merged one pair at a time, newest first, as the cursor asks for pairs: a seek costs the
//! way to its place, however much is there. A read changes no node (§3.4.4).

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::source::Source;
use super::walk::{Direction, Window};
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::key::Cut;
use crate::message::{Kind, PairCompression};
use crate::upsert::Upsert;

/// The pairs of a chunk that the cursor has not passed yet, and the one at hand.
pub(super) struct Chunk {
    window: Window,
    direction: Direction,
    /// Newest first.
    sources: Vec<Source>,
    /// Whether a source has range deletes.
    has_ranges: bool,
    /// Why nothing can be said of what is older than all sources, if it cannot.
    lost_below: Option<Error>,
    lead: Option<Lead>,
    /// The key at hand.
    key: Vec<u8>,
    at: At,
    /// The value at hand, if upserts made it.
    made: Vec<u8>,
    /// The compression that the newest delta of that value asks for.
    made_asked: PairCompression,
}

/// Where the cursor stands in a chunk.
#[derive(Clone, Copy)]
enum At {
    /// At its beginning.
    Start,
    /// Past the key at hand, whose value is that of a point of a source.
    Point { source: usize, point: usize },
    /// Past the key at hand, whose value upserts made.
    Made,
    /// Before the key at hand, whose value could not be made.
    Failed,
}

/// The source with the first key, and the one with the first key of the others.
#[derive(Clone, Copy)]
struct Lead {
    source: usize,
    rival: Option<usize>,
}

/// The source whose next key is the chunk's next one.
struct Front {
    source: usize,
    /// Whether no other source has that key.
    is_alone: bool,
}

impl Chunk {
    /// A chunk of sources, the newest first, over something that may be lost.
    pub fn new(
        window: Window,
        direction: Direction,
        mut sources: Vec<Source>,
        lost_below: Option<Error>,
    ) -> Chunk {
        sources.retain(|source| !source.is_empty());
        let has_ranges = sources.iter().any(Source::has_ranges);
        Chunk {
            window,
            direction,
            sources,
            has_ranges,
            lost_below,
            lead: None,
            key: Vec::new(),
            at: At::Start,
            made: Vec::new(),
            made_asked: PairCompression::Usual,
        }
    }

    /// Which way it goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Where it ends, in its direction.
    pub fn end(&self) -> &Cut {
        match self.direction {
            Direction::Forward => &self.window.hi,
            Direction::Backward => &self.window.lo,
        }
    }

    /// Whether the place that it was made for is before its end.
    pub fn goes_on_from(&self, at: &Cut) -> bool {
        match self.direction {
            Direction::Forward => self.window.hi > *at,
            Direction::Backward => self.window.lo < *at,
        }
    }

    /// The place where the cursor stands; `None` at the chunk's beginning.
    pub fn place(&self) -> Option<Cut> {
        match (self.at, self.direction) {
            (At::Start, _) => None,
            (At::Point { .. } | At::Made, Direction::Forward) | (At::Failed, Direction::Backward) => {
                Some(Cut::just_after(&self.key))
            }
            (At::Point { .. } | At::Made, Direction::Backward) | (At::Failed, Direction::Forward) => {
                Some(Cut::before(self.key.as_slice()))
            }
        }
    }

    /// The pair at hand, after a step that found one.
    pub fn pair(&self) -> (&[u8], &[u8]) {
        let value = match self.at {
            At::Point { source, point } => self.sources.get(source).map(|source| source.value(point)),
            At::Made => Some(self.made.as_slice()),
            At::Start | At::Failed => None,
        };
        (&self.key, value.unwrap_or_default())
    }

    /// The compression that the pair at hand asks for.
    pub fn asked(&self) -> PairCompression {
        match self.at {
            At::Point { source, point } => {
                self.sources.get(source).map_or(PairCompression::Usual, |source| source.kind(point).asked())
            }
            At::Made => self.made_asked,
            At::Start | At::Failed => PairCompression::Usual,
        }
    }

    /// Steps over the next pair that has not expired; `false` at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged range. The cursor then stands before the pair.
    pub fn step(&mut self, expiry: &Expiry<'_>) -> Result<bool> {
        while self.step_over_any(expiry.upsert)? {
            if !expiry.has_expired(self.pair().1) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`step`](Chunk::step), whether the pair has expired or not.
    fn step_over_any(&mut self, upsert: &dyn Upsert) -> Result<bool> {
        while let Some(Front { source: first, is_alone }) = self.find_front() {
            if is_alone
                && let Some(source) = self.sources.get_mut(first)
                && let Some(point) = source.single_put()
            {
                source.pass(&mut self.key);
                if !self.is_covered_above(first) {
                    self.at = At::Point { source: first, point };
                    return Ok(true);
                }
                continue;
            }
            self.lead = None;
            if self.merge_key(first, upsert)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The order in which the cursor meets the next keys of two sources.
    fn order(&self, one: usize, other: usize) -> Ordering {
        let head = |source: usize| self.sources.get(source).and_then(Source::head);
        match self.direction {
            Direction::Forward => head(one).cmp(&head(other)),
            Direction::Backward => head(other).cmp(&head(one)),
        }
    }

    /// The source with the first key, the newest of several. As long as the same source leads, two keys are
    /// compared.
    fn find_front(&mut self) -> Option<Front> {
        let is_there = |source: usize| self.sources.get(source).is_some_and(|s| s.head().is_some());
        let is_before = |one: usize, other: usize| self.order(one, other) == Ordering::Less;
        if let Some(Lead { source, rival }) = self.lead
            && is_there(source)
            && rival.is_none_or(|rival| is_before(source, rival))
        {
            return Some(Front { source, is_alone: true });
        }
        let mut lead: Option<Lead> = None;
        for source in (0..self.sources.len()).filter(|source| is_there(*source)) {
            lead = Some(match lead {
                None => Lead { source, rival: None },
                Some(lead) if is_before(source, lead.source) => Lead { source, rival: Some(lead.source) },
                Some(Lead { source: first, rival }) => {
                    let is_rival = rival.is_none_or(|rival| is_before(source, rival));
                    Lead { source: first, rival: if is_rival { Some(source) } else { rival } }
                }
            });
        }
        let Lead { source, rival } = lead?;
        let is_alone = rival.is_none_or(|rival| is_before(source, rival));
        self.lead = lead;
        Some(Front { source, is_alone })
    }

    /// Whether a source newer than this one has deleted the key at hand in a range.
    fn is_covered_above(&self, source: usize) -> bool {
        self.has_ranges && self.sources.iter().take(source).any(|newer| newer.covers(&self.key))
    }

    /// Merges all messages for the next key, which `first` has; `false` if they leave no value.
    fn merge_key(&mut self, first: usize, upsert: &dyn Upsert) -> Result<bool> {
        self.key.clear();
        self.key.extend_from_slice(self.sources.get(first).and_then(Source::head).unwrap_or_default());
        // Newest first, so that a base ends the search.
        let mut deltas: Vec<(usize, usize)> = Vec::new();
        let (mut base, mut is_decided, mut lost) = (None, false, None);
        for (number, source) in self.sources.iter_mut().enumerate() {
            if source.head() == Some(self.key.as_slice()) {
                for point in source.pass_group().rev() {
                    if is_decided {
                        break;
                    }
                    match source.kind(point) {
                        Kind::Put(_) => (base, is_decided) = (Some((number, point)), true),
                        Kind::Delete => is_decided = true,
                        Kind::Upsert(_) => deltas.push((number, point)),
                    }
                }
            }
            if !is_decided && let Some(range) = source.range_over(&self.key) {
                is_decided = true;
                lost = range.is_damage().then(|| range.lost());
            }
        }
        if !is_decided {
            lost = self.lost_below.clone();
        }
        if let Some(error) = lost {
            self.at = At::Failed;
            return Err(error);
        }
        if deltas.is_empty() {
            let Some((source, point)) = base else { return Ok(false) };
            self.at = At::Point { source, point };
            return Ok(true);
        }
        let newest = deltas.first().and_then(|(source, point)| Some(self.sources.get(*source)?.kind(*point)));
        self.made_asked = newest.map_or(PairCompression::Usual, Kind::asked);
        // Until it is known that the value can be made.
        self.at = At::Failed;
        let value_of = |(source, point): (usize, usize)| {
            self.sources.get(source).map(|source| source.value(point)).unwrap_or_default()
        };
        let mut value = base.map(|base| Cow::Borrowed(value_of(base)));
        for delta in deltas.iter().rev() {
            value = upsert.apply(value.as_deref(), value_of(*delta)).map(Cow::Owned);
        }
        let Some(made) = value.map(Cow::into_owned) else { return Ok(false) };
        (self.made, self.at) = (made, At::Made);
        Ok(true)
    }
}
