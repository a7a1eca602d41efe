//! A cursor that notes what a transaction has read by it.

use betree_platform::sync::Mutex;

use crate::error::Result;
use crate::key::Cut;
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::transaction::{Footprint, Overlay};
use crate::tree::Cursor;

/// A [`Cursor`] of a transaction. The range from the place where it was put to the last pair that it
/// returned, or to the end of its range once that was reached, counts as read.
pub struct TransactionCursor<'t> {
    cursor: Cursor<'t>,
    /// Where to note; `None` if nothing depends on reads.
    reads: Option<&'t Mutex<Footprint>>,
    /// The transaction's own changes, by which what it reads may stand elsewhere in its view.
    overlay: Overlay<'t>,
    dict: DictId,
    lo: Cut,
    hi: Cut,
    /// The range that was passed over since the cursor was put at a place.
    from: Cut,
    to: Cut,
}

impl<'t> TransactionCursor<'t> {
    pub(super) fn new(
        cursor: Cursor<'t>,
        reads: Option<&'t Mutex<Footprint>>,
        overlay: Overlay<'t>,
        dict: DictId,
        (lo, hi): (Cut, Cut),
    ) -> TransactionCursor<'t> {
        let (from, to) = (lo.clone(), lo.clone());
        TransactionCursor { cursor, reads, overlay, dict, lo, hi, from, to }
    }

    fn note(&mut self) {
        if let Some(reads) = self.reads
            && self.from < self.to
        {
            let sources = self.overlay.sources(&self.from, &self.to);
            let mut reads = reads.lock();
            sources.into_iter().for_each(|(lo, hi)| reads.add_range(self.dict, lo, hi));
        }
    }

    /// The pair that the last step has returned, as [`Cursor::pair`].
    pub fn pair(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.pair()
    }

    /// Moves to a place, clipped to the cursor's range.
    pub fn seek(&mut self, to: &Cut) {
        self.note();
        self.cursor.seek(to);
        self.from = to.clone().max(self.lo.clone()).min(self.hi.clone());
        self.to = self.from.clone();
    }

    /// Steps over the next pair and returns it, or `None` at the end of the range.
    ///
    /// # Errors
    /// Those of [`Cursor::next`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.cursor.next()?;
        if self.reads.is_some() {
            let end = || if planted::is(Bug::ScansWithoutTheirEnd) { Cut::LOW } else { self.hi.clone() };
            let passed = found.map_or_else(end, |(key, _)| Cut::just_after(key));
            if passed > self.to {
                self.to = passed;
            }
        }
        Ok(found)
    }

    /// Steps back over the pair before the cursor and returns it, or `None` at the start of the range.
    ///
    /// # Errors
    /// Those of [`Cursor::prev`].
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.cursor.prev()?;
        if self.reads.is_some() {
            let passed = found.map_or_else(|| self.lo.clone(), |(key, _)| Cut::before(key));
            if passed < self.from {
                self.from = passed;
            }
        }
        Ok(found)
    }
}

impl Drop for TransactionCursor<'_> {
    fn drop(&mut self) {
        self.note();
    }
}
