//! Steps of a history: operations, and what happens around them.

use std::fmt;

use crate::drive::Fault;
use crate::op::Op;

/// A cut of the power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// At which call from now on that changes the disk; counted from 1.
    pub call: u64,
    /// Not then, but once another program has synced within an operation: after which of its batches, counted
    /// from 1.
    pub sync_after: Option<u64>,
    /// Decides what is left of unsynced writes.
    pub seed: u64,
    /// Cuts of the recoveries that follow, each with its call and seed.
    pub recoveries: Vec<(u64, u64)>,
}

/// What a kernel does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Forgets some of its memory; the seed decides what.
    Shrink(u64),
    /// Sends the FORGETs that wait.
    Forget,
    /// Sends a request that must be refused; the seed decides which.
    Provoke(u64),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Shrink(seed) => write!(f, "forget some of its memory (seed {seed})"),
            Act::Forget => f.write_str("send the forgets that wait"),
            Act::Provoke(seed) => write!(f, "send a request that must be refused (seed {seed})"),
        }
    }
}

/// A step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation.
    Op(Op),
    /// What the kernel does by itself.
    Act(Act),
    /// Pieces of background work.
    Pump(usize),
    /// A checkpoint.
    Checkpoint,
    /// Time passes, in milliseconds.
    Wait(u32),
    /// The volume is checked.
    Check,
    /// Everything on the volume is compared with the model.
    Compare,
    /// The volume is closed and opened.
    Reopen,
    /// The program dies, and the volume is opened again: what was written to the disk is there.
    Kill,
    /// The power will be cut.
    Crash(Crash),
    /// The disk fails, or will.
    Fault(Fault),
    /// The disk is sound again, and has room; a volume that takes no changes is opened anew.
    Heal,
}

impl Step {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Step::Op(op) => op.kind(),
            Step::Act(Act::Shrink(_)) => "shrink",
            Step::Act(Act::Forget) => "forget",
            Step::Act(Act::Provoke(_)) => "provoke",
            Step::Pump(_) => "background work",
            Step::Checkpoint => "checkpoint",
            Step::Wait(_) => "wait",
            Step::Check => "check",
            Step::Compare => "compare",
            Step::Reopen => "reopen",
            Step::Kill => "kill",
            Step::Crash(_) => "crash",
            Step::Fault(fault) => fault.kind(),
            Step::Heal => "heal",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Op(op) => op.fmt(f),
            Step::Act(act) => write!(f, "the kernel is to {act}"),
            Step::Pump(pieces) => write!(f, "{pieces} pieces of background work"),
            Step::Wait(ms) => write!(f, "{ms} ms pass"),
            Step::Checkpoint | Step::Check | Step::Compare | Step::Reopen | Step::Kill | Step::Heal => {
                f.write_str(self.kind())
            }
            Step::Fault(fault) => fault.fmt(f),
            Step::Crash(Crash { call, sync_after, seed, recoveries }) => {
                match sync_after {
                    Some(batch) => {
                        write!(
                            f,
                            "another program will sync after batch {batch} of an operation, and the power be cut"
                        )?;
                    }
                    None => write!(f, "the power will be cut at call {call}")?,
                }
                write!(f, " (seed {seed})")?;
                recoveries.iter().try_for_each(|(call, _)| write!(f, ", in the recovery at call {call}"))
            }
        }
    }
}
