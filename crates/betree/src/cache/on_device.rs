//! The place of a piece on the device.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::format::node::RunRef;
use crate::message::Msn;
use crate::space::Extent;

/// The most runs in which a piece is stored: each may be a read of its own. With more, random inserts write
/// less. A piece in too many runs is read, and written as one.
pub(crate) const RUNS_MAX: usize = 12;

/// Where a piece is stored: parts of a node's extent, whose blocks are not reused while a piece refers to it.
#[derive(Clone)]
pub(crate) struct OnDevice {
    pub extent: Arc<Extent>,
    /// One run or several, each with messages newer than all in the runs before.
    pub runs: Vec<RunRef>,
}

impl OnDevice {
    /// The sequence number of its newest message; 0 for pairs. (A piece without runs is an error where it is
    /// read.)
    pub(super) fn last_msn(&self) -> Msn {
        self.runs.iter().map(|run| run.last_msn).max().unwrap_or(0)
    }

    /// Whether a run of newer messages may be added.
    pub(super) fn may_grow(&self) -> bool {
        self.runs.len() < RUNS_MAX
    }
}
