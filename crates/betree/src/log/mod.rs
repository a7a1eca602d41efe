//! The redo log: a circular area of the volume to which batches are appended.
//!
//! What is promised: when [`Log::sync_to`] has returned `Ok`, a replay after any crash gives every
//! record up to that MSN; and what a replay gives is always, in order and without a gap, what was
//! appended since the start that the superblock names, up to some record.
//!
//! How: each write is a segment that carries the log's epoch and its own number in it. A reader goes
//! from one segment to the next and stops where the next number does not stand. What older laps and
//! epochs have left never carries that number. No segment is overwritten before a superblock that
//! starts behind it is durable ([`Log::trim_to`]).

mod replay;
mod ring;
mod writer;

pub(crate) use replay::replay;
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
