//! By what the operations of a history come to the volume: the library's calls, or the requests of a kernel.

use std::fmt;

use betrfs::{Error, InodeId, Volume};
use betrfs_fuse::Errno;

use crate::at::SlotId;
use crate::compare::Inos;
use crate::model::{State, Why};
use crate::op::Op;
use crate::perform::Answer;
use crate::reached::Reached;
use crate::step::Act;

/// By what operations come to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Calls of the library.
    Calls,
    /// Requests of a kernel.
    Requests,
}

/// Why an operation did not succeed, as its client sees it.
#[derive(Debug)]
pub enum Failed {
    /// The library's error.
    Library(Error),
    /// The error number of a reply.
    Request(Errno),
    /// Something that must not happen.
    Wrong(String),
}

impl Failed {
    /// Whether it is one of these.
    pub fn is_of(&self, whys: &[Why]) -> bool {
        match self {
            Failed::Library(error) => whys.contains(&Why::of(error)),
            Failed::Request(errno) => whys.iter().any(|why| why.errno() == *errno),
            Failed::Wrong(_) => false,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Library(error) => error.fmt(f),
            Failed::Request(errno) => errno.fmt(f),
            Failed::Wrong(what) => f.write_str(what),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Library(error)
    }
}

/// An operation as a client does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// One after the other, up to the first that is refused.
    pub ops: Vec<Op>,
    /// What follows if a part but the first is refused.
    pub undo: Vec<Op>,
}

impl Parts {
    /// An operation that is done as a whole.
    pub fn whole(op: &Op) -> Parts {
        Parts { ops: vec![op.clone()], undo: Vec::new() }
    }
}

/// Does operations on a volume.
pub trait Client {
    /// The volume.
    fn volume(&self) -> &Volume;

    /// The operations that an operation is made of here, in this state; `None` if it cannot be done.
    fn parts(&mut self, op: &Op, state: &State) -> Option<Parts>;

    /// Whether the present operation clears the set-id bits of a file before it changes its contents.
    fn sets_id_aside(&self) -> bool;

    /// Does a part of an operation; `cookie` is where a listing goes on.
    ///
    /// # Errors
    /// As they come.
    fn perform(&mut self, op: &Op, cookie: u64) -> Result<Answer, Failed>;

    /// Closes a held object.
    fn close_slot(&mut self, slot: SlotId, is_open: bool);

    /// The inode of a held object.
    fn node_of(&self, slot: SlotId) -> Option<InodeId>;

    /// Compares what the client remembers of the volume with a state.
    ///
    /// # Errors
    /// What is wrong.
    fn check_memory(&mut self, state: &State, inos: &mut Inos) -> Result<(), String>;

    /// Does what the client does by itself.
    ///
    /// # Errors
    /// A wrong answer.
    fn take(&mut self, act: Act) -> Result<(), Failed>;

    /// Counts what the client did since the last call.
    fn count(&mut self, reached: &mut Reached);

    /// Lets everything go that is held.
    ///
    /// # Errors
    /// The volume holds more than it should.
    fn leave(&mut self) -> Result<(), Failed>;

    /// Closes the volume.
    ///
    /// # Errors
    /// The library's.
    fn close(&mut self) -> Result<(), Failed>;
}
