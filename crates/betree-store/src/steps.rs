//! Cursors of the engine as one type.

use betree::{Cursor, Cut, TransactionCursor};

/// A cursor of the engine.
pub(crate) enum Steps<'c> {
    Plain(Cursor<'c>),
    /// It notes what was read.
    Noted(TransactionCursor<'c>),
}

impl Steps<'_> {
    pub fn next(&mut self) -> betree::Result<Option<(&[u8], &[u8])>> {
        match self {
            Steps::Plain(cursor) => cursor.next(),
            Steps::Noted(cursor) => cursor.next(),
        }
    }

    pub fn prev(&mut self) -> betree::Result<Option<(&[u8], &[u8])>> {
        match self {
            Steps::Plain(cursor) => cursor.prev(),
            Steps::Noted(cursor) => cursor.prev(),
        }
    }

    /// The pair that the last step has come to.
    pub fn pair(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Steps::Plain(cursor) => cursor.pair(),
            Steps::Noted(cursor) => cursor.pair(),
        }
    }

    pub fn seek(&mut self, to: &Cut) {
        match self {
            Steps::Plain(cursor) => cursor.seek(to),
            Steps::Noted(cursor) => cursor.seek(to),
        }
    }
}
