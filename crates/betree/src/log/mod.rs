//! The redo log: a circular area of the volume to which batches are appended.
//!
//! Promise: when [`Log::sync_to`] has returned `Ok(true)`, a replay after any crash returns every record up
//! to that MSN. A replay always returns the records since the start that the superblock names, in order and
//! without a gap, up to some record.
//!
//! How: each write is a segment that carries the log's epoch and its own number within it. A reader goes from
//! segment to segment and stops where the next number is missing. Segments of older laps and epochs never
//! carry that number. No segment is overwritten before a superblock that starts behind it is durable
//! ([`Log::trim_to`]).

mod replay;
mod ring;
mod writer;

pub(crate) use replay::{End, NOT_THE_CHANGES, NOT_THE_RECORDS, Segment, Segments, replay, senseless};
pub(crate) use writer::Log;

/// The part of the volume that is the log, in bytes, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogArea {
    /// First byte on the volume.
    pub offset: u64,
    pub len: u64,
}

#[cfg(test)]
mod tests;
