//! The changes of the log, taken into the trees again.
//!
//! As a rule they arrive as they did before the crash. What cannot be read lets nothing through to what is
//! below: who opens a volume for reading, for a repair or for a rescue has the changes wait above it, in
//! memtables and at the roots. A clone cannot wait: it needs the nodes at its bounds.

use alloc::sync::Arc;

use crate::engine::Engine;
use crate::engine::commit_ranges::{Installed, PreparedRanges};
use crate::engine::hidden_ranges::BOUNDS_AT_ONCE;
use crate::error::{Error, Result};
use crate::format::record::{Change, Changes};
use crate::format::segment::last_msn;
use crate::planted;
use crate::tree::Reach;

/// What becomes of changes over something that cannot be read.
pub(crate) enum OnUnreadable<'l> {
    /// The volume is not opened.
    Refuse,
    /// They wait above it, from the first one on that it holds up. A clone of it is an error.
    Wait,
    /// They wait above from the beginning. What a clone needs is given up.
    GiveUp(GiveUp<'l>),
}

/// Puts known damage in the place of everything that cannot be read. `false` if that would lose more than the
/// rest of the log, which ends then.
pub(crate) type GiveUp<'l> = &'l mut dyn FnMut(&Engine) -> Result<bool>;

/// How far the changes of a log were taken.
pub(crate) struct ReplayedChanges<'e, 'l> {
    engine: &'e Engine,
    on_unreadable: OnUnreadable<'l>,
    /// Changes stay above what may be unreadable.
    waits: bool,
    /// The number of the change behind the last one.
    pub next_msn: u64,
    /// The number of batches.
    pub batches: u64,
    /// The batch at hand cannot be taken, and none behind it.
    pub has_ended: bool,
}

impl<'e, 'l> ReplayedChanges<'e, 'l> {
    /// Before the first change, which has the number `next_msn`.
    pub fn new(
        engine: &'e Engine,
        next_msn: u64,
        on_unreadable: OnUnreadable<'l>,
    ) -> ReplayedChanges<'e, 'l> {
        let waits = matches!(on_unreadable, OnUnreadable::GiveUp(_));
        ReplayedChanges { engine, on_unreadable, waits, next_msn, batches: 0, has_ended: false }
    }

    /// Takes the record of a batch. Returns whether all so far has arrived at the trees.
    ///
    /// # Errors
    /// [`Error::BadRecord`]; those of reading.
    pub fn take(&mut self, first_msn: u64, count: u32, record: &[u8]) -> Result<bool> {
        let engine = self.engine;
        let ranges = ranges_at_front(record, count)?;
        if ranges > 0 {
            engine.freeze(true);
            if !self.waits {
                let arrived = engine.absorb_all();
                self.unless_held_up(arrived)?;
            }
            let taken = self.take_ranges(first_msn, ranges, record);
            match (taken, &mut self.on_unreadable) {
                (Err(error), OnUnreadable::GiveUp(give_up)) if error.is_unreadable() => {
                    if !give_up(engine)? {
                        self.has_ended = true;
                        return Err(error);
                    }
                    self.take_ranges(first_msn, ranges, record)?;
                }
                (taken, _) => taken?,
            }
        }
        engine.take(first_msn, &Arc::new(record.to_vec()))?;
        self.batches = self.batches.saturating_add(1);
        // The log has checked both numbers.
        self.next_msn = self.next_msn.max(last_msn(first_msn, count).saturating_add(1));
        if self.waits || !engine.freeze(false) && ranges == 0 {
            return Ok(false);
        }
        let arrived = let_arrive(engine);
        self.unless_held_up(arrived)?;
        Ok(!self.waits)
    }

    /// Takes the range changes of a batch, after all that stands before them.
    fn take_ranges(&self, first_msn: u64, ranges: u32, record: &[u8]) -> Result<()> {
        let engine = self.engine;
        let structures = engine.lock_structures();
        if self.waits {
            engine.absorb_at_roots(&structures)?;
        }
        // A batch that was accepted once is within every limit.
        let changes =
            PreparedRanges::new(engine, &structures, first_msn, record, ranges, usize::MAX, Reach::Device)?;
        let installed = changes.install(&mut engine.views.lock(), last_msn(first_msn, ranges));
        installed.iter().for_each(Installed::send);
        if !self.waits {
            engine.note_ranges(record, 0);
        }
        Ok(())
    }

    /// Lets the last changes arrive, or at the roots.
    ///
    /// # Errors
    /// Those of reading.
    pub fn finish(&mut self) -> Result<()> {
        self.engine.freeze(true);
        let arrived = match self.waits {
            // Where a root cannot be read they stay in the memtables.
            true => self.engine.absorb_at_roots(&self.engine.lock_structures()),
            false => self.engine.absorb_all(),
        };
        self.unless_held_up(arrived)
    }

    /// Has all changes from now on wait above if the last ones could not arrive, because something cannot be
    /// read.
    fn unless_held_up(&mut self, arrived: Result<()>) -> Result<()> {
        match arrived {
            Err(error) if !matches!(self.on_unreadable, OnUnreadable::Refuse) && error.is_unreadable() => {
                self.waits = true;
                Ok(())
            }
            arrived => arrived,
        }
    }
}

/// Lets changes arrive at their trees, and does what follows, as workers did before the crash, so that a
/// replay takes no more room than the changes took then.
fn let_arrive(engine: &Engine) -> Result<()> {
    engine.absorb_all()?;
    engine.resume_rebalance()?;
    engine.reclaim_hidden(BOUNDS_AT_ONCE)?;
    while engine.free_one()? {}
    Ok(())
}

/// The number of range changes at the front of the record of a batch with clones; 0 for other batches.
///
/// # Errors
/// [`Error::BadRecord`] if the record does not hold exactly `changes` changes: each of them has a number.
pub(crate) fn ranges_at_front(record: &[u8], changes: u32) -> Result<u32> {
    let (mut all, mut ranges, mut clones) = (0u64, 0u32, false);
    for change in Changes::of(record) {
        let is_at_front = u64::from(ranges) == all;
        match change?.1 {
            Change::DeleteRange { .. } if is_at_front => ranges += 1,
            Change::CloneRange { .. } if is_at_front => {
                ranges += 1;
                clones = true;
            }
            _ => {}
        }
        all += 1;
    }
    if all != u64::from(changes) {
        return Err(Error::BadRecord);
    }
    Ok(if clones && !planted::is(planted::Bug::ClonesNotReplayed) { ranges } else { 0 })
}
