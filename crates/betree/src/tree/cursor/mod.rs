//! The range query: a cursor in a key range moves both ways, a chunk at a time, and holds no lock between
//! steps.

mod chunk;
mod gather;
mod read_ahead;
mod source;
mod unreadable;
mod walk;

use betree_platform::sync::atomic::AtomicU64;
use betree_platform::sync::atomic::Ordering::Relaxed;

use super::{Reach, Tree, nowhere};
use crate::error::{Error, Result};
use crate::key::Cut;
use crate::message::PairCompression;
use chunk::Chunk;
use gather::{MEMTABLE_POINTS_FIRST, Scope};
use unreadable::BadPieces;
pub use unreadable::Unreadable;
use walk::Direction;

/// How often a place that is readable at one moment and not at the next is tried.
const TRIES_MAX: u32 = 4;

/// A place in a key range of a dictionary. It moves both ways. It is not a snapshot: each chunk is as of its
/// reading, and later commits are sure to be seen only after a [`seek`](Cursor::seek). What a chunk is merged
/// from stays in memory until the cursor leaves it.
pub struct Cursor<'e> {
    /// `None`: the dictionary does not exist, and counts as empty.
    tree: Option<Tree<'e>>,
    queries: &'e AtomicU64,
    scope: Scope,
    /// The cursor's place, unless it is inside of a chunk.
    at: Cut,
    chunk: Option<Chunk>,
    /// How many messages of a memtable the next chunk takes: twice as many from chunk to chunk.
    points_max: usize,
}

impl<'e> Cursor<'e> {
    pub(crate) fn new(tree: Option<Tree<'e>>, lo: Cut, hi: Cut, queries: &'e AtomicU64) -> Cursor<'e> {
        let (at, scope) = (lo.clone(), Scope { lo, hi, whole: None });
        Cursor { tree, queries, scope, at, chunk: None, points_max: MEMTABLE_POINTS_FIRST }
    }

    /// Names the whole that the range is a part of. The caller wants all of the range, and may soon want the
    /// next part: reading ahead covers the range, and goes further only if keys before the whole were read
    /// too. Without this call the range is a whole of its own, and a scan of it may take any time.
    #[must_use]
    pub fn part_of(mut self, lo: Cut, hi: Cut) -> Cursor<'e> {
        self.scope.whole = Some((lo, hi));
        self
    }

    /// Keeps the cursor from waiting for the device: where it would, it returns [`Error::NotInMemory`].
    #[must_use]
    pub fn in_memory(mut self) -> Cursor<'e> {
        self.tree = self.tree.map(|tree| Tree { reach: Reach::Memory, ..tree });
        self
    }

    /// Moves to a place, clipped to the cursor's range. What is there is read anew.
    pub fn seek(&mut self, to: &Cut) {
        self.at = to.max(&self.scope.lo).min(&self.scope.hi).clone();
        self.chunk = None;
        self.points_max = MEMTABLE_POINTS_FIRST;
    }

    /// Stands at its place outside of a chunk.
    fn leave_chunk(&mut self) {
        if let Some(place) = self.chunk.take().and_then(|chunk| chunk.place()) {
            self.at = place;
        }
        self.points_max = MEMTABLE_POINTS_FIRST;
    }

    /// Steps over the next pair in a direction; `false` at the end of the range.
    fn step(&mut self, direction: Direction) -> Result<bool> {
        let Some(tree) = self.tree else { return Ok(false) };
        let stepped = self.step_in(&tree, direction);
        if let Err(error) = &stepped {
            tree.count_damage(error);
        }
        stepped
    }

    fn step_in(&mut self, tree: &Tree<'_>, direction: Direction) -> Result<bool> {
        loop {
            if let Some(chunk) = self.chunk.as_mut().filter(|chunk| chunk.direction() == direction) {
                match chunk.step(&tree.expiry()) {
                    Ok(true) => return Ok(true),
                    Ok(false) => self.at = chunk.end().clone(),
                    Err(error) => {
                        self.leave_chunk();
                        return Err(error);
                    }
                }
                self.chunk = None;
            }
            if !self.read(tree, direction)? {
                return Ok(false);
            }
        }
    }

    /// Reads the chunk ahead of the place; `false` at the end of the range.
    fn read(&mut self, tree: &Tree<'_>, direction: Direction) -> Result<bool> {
        if self.chunk.is_some() {
            self.leave_chunk();
        }
        let is_at_end = match direction {
            Direction::Forward => self.at >= self.scope.hi,
            Direction::Backward => self.at <= self.scope.lo,
        };
        if is_at_end {
            return Ok(false);
        }
        let read = tree.read_chunk(&self.scope, &self.at, direction, self.points_max);
        if !matches!(read, Err(Error::NotInMemory)) {
            self.queries.fetch_add(1, Relaxed);
        }
        let chunk = read?;
        if !chunk.goes_on_from(&self.at) {
            return Err(nowhere());
        }
        self.points_max = self.points_max.saturating_mul(2);
        self.chunk = Some(chunk);
        Ok(true)
    }

    /// The pair that the last step has returned; `None` if it returned none or failed, and before the first.
    pub fn pair(&self) -> Option<(&[u8], &[u8])> {
        self.chunk.as_ref().map(Chunk::pair)
    }

    /// The compression that the pair asks for which was returned last.
    pub fn asked(&self) -> PairCompression {
        self.chunk.as_ref().map_or(PairCompression::Usual, Chunk::asked)
    }

    /// Steps over the next pair and returns it, or `None` at the end of the range.
    ///
    /// # Errors
    /// The device's, or corruption; [`Error::NotInMemory`] of a cursor
    /// [in memory](Cursor::in_memory). The cursor has not moved.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(if self.step(Direction::Forward)? { self.pair() } else { None })
    }

    /// As [`next`](Cursor::next), but skips unreadable ranges and calls `passed` with each.
    pub fn next_past(&mut self, passed: &mut dyn FnMut(Unreadable)) -> Option<(&[u8], &[u8])> {
        let mut bad = BadPieces::default();
        let mut tries = 0;
        loop {
            let error = match self.step(Direction::Forward) {
                Ok(is_there) => return if is_there { self.pair() } else { None },
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

    /// Moves behind the unreadable range that [`next`](Cursor::next) has met, and returns it; `None` if the
    /// cursor's place can be read. Reads nothing that is in memory anew.
    pub fn pass_unreadable(&mut self) -> Option<Unreadable> {
        let mut bad = BadPieces::default();
        let unreadable = self.tree.as_ref().and_then(|tree| tree.unreadable_at(&self.at, &mut bad))?;
        self.seek(&unreadable.hi);
        Some(unreadable)
    }

    /// Steps back over the pair before the cursor and returns it, or `None` at the start of the range.
    ///
    /// # Errors
    /// As [`next`](Cursor::next).
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(if self.step(Direction::Backward)? { self.pair() } else { None })
    }
}
