//! The range query: a cursor in a key range moves both ways, a chunk at a time, and holds no lock between
//! steps.

mod chunk;
mod message_iter;
mod unreadable;
mod walk;

use betree_platform::sync::atomic::AtomicU64;
use betree_platform::sync::atomic::Ordering::Relaxed;

use super::{Tree, nowhere};
use crate::error::Result;
use crate::key::Cut;
use chunk::{Chunk, Scope};
use unreadable::BadPieces;
pub use unreadable::Unreadable;
use walk::Direction;

/// How often a place that is readable at one moment and not at the next is tried.
const TRIES_MAX: u32 = 4;

/// A place in a key range of a dictionary. It moves both ways. It is not a snapshot: each chunk is as of its
/// reading, and later commits are sure to be seen only after a [`seek`](Cursor::seek).
pub struct Cursor<'e> {
    /// `None`: the dictionary does not exist, and counts as empty.
    tree: Option<Tree<'e>>,
    queries: &'e AtomicU64,
    scope: Scope,
    at: Cut,
    chunk: Chunk,
    /// The index of the pair of the chunk that the cursor stands before, if it stands inside the chunk. A
    /// step then searches nothing, and `at` is out of date.
    index: Option<usize>,
}

impl<'e> Cursor<'e> {
    pub(crate) fn new(tree: Option<Tree<'e>>, lo: Cut, hi: Cut, queries: &'e AtomicU64) -> Cursor<'e> {
        let (at, whole) = (lo.clone(), None);
        Cursor { tree, queries, scope: Scope { lo, hi, whole }, at, chunk: Chunk::default(), index: None }
    }

    /// Names the whole that the range is a part of. The caller wants all of the range, and may soon want the
    /// next part: reading ahead covers the range, and goes further only if keys before the whole were read
    /// too. Without this call the range is a whole of its own, and a scan of it may take any time.
    #[must_use]
    pub fn part_of(mut self, lo: Cut, hi: Cut) -> Cursor<'e> {
        self.scope.whole = Some((lo, hi));
        self
    }

    /// Reads the chunk around the place.
    fn read(&mut self, direction: Direction) -> Result<()> {
        self.queries.fetch_add(1, Relaxed);
        match &self.tree {
            Some(tree) => {
                tree.read_chunk(&self.scope, &self.at, direction, &mut self.chunk)?;
                let is_further = match direction {
                    Direction::Forward => self.chunk.hi.as_ref().is_some_and(|hi| *hi > self.at),
                    Direction::Backward => self.chunk.lo.as_ref().is_some_and(|lo| *lo < self.at),
                };
                if is_further { Ok(()) } else { Err(nowhere()) }
            }
            None => {
                (self.chunk.lo, self.chunk.hi) = (Some(self.scope.lo.clone()), Some(self.scope.hi.clone()));
                Ok(())
            }
        }
    }

    /// Moves to a place, clipped to the cursor's range. The chunk is read anew.
    pub fn seek(&mut self, to: &Cut) {
        self.at = to.clone().max(self.scope.lo.clone()).min(self.scope.hi.clone());
        self.chunk.lo = None;
        self.index = None;
    }

    /// The index of the pair of the chunk that the cursor stands before.
    fn index(&self) -> usize {
        self.index.unwrap_or_else(|| self.chunk.first_behind(&self.at))
    }

    /// Leaves the chunk for a place at its end.
    fn leave(&mut self, to: Cut) {
        self.at = to;
        self.index = None;
    }

    /// Steps over the next pair and returns it, or `None` at the end of the range.
    ///
    /// # Errors
    /// The device's, or corruption; the cursor has not moved.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.find_next()?;
        Ok(found.map(|index| self.chunk.pair(index)))
    }

    /// As [`next`](Cursor::next), but skips unreadable ranges and calls `passed` with each.
    pub fn next_past(&mut self, passed: &mut dyn FnMut(Unreadable)) -> Option<(&[u8], &[u8])> {
        let mut bad = BadPieces::default();
        let mut tries = 0;
        loop {
            let error = match self.find_next() {
                Ok(found) => return found.map(|index| self.chunk.pair(index)),
                Err(error) => error,
            };
            let before = self.at.clone();
            while self.at < self.scope.hi
                && let Some(unreadable) =
                    self.tree.as_ref().and_then(|tree| tree.unreadable_at(&self.at, &mut bad))
            {
                self.seek(&unreadable.hi);
                passed(unreadable);
            }
            tries = if self.at == before { tries + 1 } else { 0 };
            // The place became readable, and then unreadable again.
            if tries == TRIES_MAX {
                passed(Unreadable { lo: before, hi: Cut::HIGH, errors: alloc::vec![error] });
                self.seek(&Cut::HIGH);
            }
        }
    }

    /// Steps over the next pair and returns its index in the chunk.
    fn find_next(&mut self) -> Result<Option<usize>> {
        loop {
            if self.index.is_none() {
                if self.at >= self.scope.hi {
                    return Ok(None);
                }
                let known = matches!((&self.chunk.lo, &self.chunk.hi),
                    (Some(lo), Some(hi)) if *lo <= self.at && self.at < *hi);
                if !known {
                    self.read(Direction::Forward)?;
                }
            }
            let index = self.index();
            if index < self.chunk.len() {
                self.index = Some(index + 1);
                return Ok(Some(index));
            }
            self.leave(self.chunk.hi.clone().unwrap_or(Cut::HIGH));
        }
    }

    /// Steps back over the pair before the cursor and returns it, or `None` at the start of the range.
    ///
    /// # Errors
    /// The device's, or corruption; the cursor has not moved.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            if self.index.is_none() {
                if self.at <= self.scope.lo {
                    return Ok(None);
                }
                let known = matches!((&self.chunk.lo, &self.chunk.hi),
                    (Some(lo), Some(hi)) if *lo < self.at && self.at <= *hi);
                if !known {
                    self.read(Direction::Backward)?;
                }
            }
            if let Some(index) = self.index().checked_sub(1) {
                self.index = Some(index);
                return Ok(Some(self.chunk.pair(index)));
            }
            self.leave(self.chunk.lo.clone().unwrap_or(Cut::LOW));
        }
    }
}
