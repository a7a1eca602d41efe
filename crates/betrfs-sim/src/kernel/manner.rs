//! How an operation is done where a program or the kernel has a choice. The choice follows from the seed and
//! the operation's words, so that any part of a history replays alike.

use seeded::{Rng, mix};

use super::connection::{PLAIN_TASK, ROOT_TASK};
use crate::at::At;
use crate::model::{Spot, State};
use crate::op::Op;

/// The choices of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// It is done by a user without capabilities.
    pub is_plain: bool,
    /// Requests travel by io_uring.
    pub by_ring: bool,
    /// Requests are longer than they need be.
    pub has_more: bool,
    /// FORGETs wait for a later operation.
    pub forgets_later: bool,
    /// An older request is sent where there are two: RENAME, MKNOD and OPEN, GETATTR.
    pub is_old: bool,
    /// A file that is opened is opened for writing, if it can be.
    pub opens_to_write: bool,
    /// Listings come with objects.
    pub with_objects: bool,
    /// Which of the tasks lists.
    pub lister: u32,
    /// The flags of the file keep it from being opened for writing, but at its end.
    pub only_at_end: bool,
}

impl Manner {
    /// The choices for an operation in a state.
    pub fn of(op: &Op, seed: u64, state: &State) -> Manner {
        let words = op.to_string();
        let hash = words.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        let mut rng = Rng::new(hash);
        let object = target(op).and_then(|at| match state.resolve(at) {
            Ok(Spot::Object(id)) => Some(state.object(id)),
            _ => None,
        });
        let can_write = object.is_some_and(|object| !object.is_protected() && !object.is_frozen);
        let changes_contents = match op {
            Op::SetAttr { set, .. } => set.size.is_some() && set.kill_set_id,
            Op::Write { .. } | Op::Append { .. } | Op::Fallocate { .. } | Op::CopyRange { .. } => {
                rng.percent(40)
            }
            _ => false,
        };
        Manner {
            is_plain: changes_contents,
            by_ring: rng.percent(50),
            has_more: rng.percent(10),
            forgets_later: rng.percent(30),
            is_old: rng.percent(50),
            opens_to_write: can_write && rng.percent(50),
            with_objects: rng.percent(60),
            lister: ROOT_TASK + 10 * rng.below(3) as u32,
            only_at_end: object.is_some_and(|object| object.is_protected()),
        }
    }

    /// The task that sends the requests.
    pub fn task(self) -> u32 {
        if self.is_plain { PLAIN_TASK } else { ROOT_TASK }
    }
}

/// The object that an operation opens or changes.
pub fn target(op: &Op) -> Option<&At> {
    match op {
        Op::Write { at, .. }
        | Op::Append { at, .. }
        | Op::Fallocate { at, .. }
        | Op::CopyRange { to: at, .. }
        | Op::SetAttr { at, .. }
        | Op::Open { at, .. } => Some(at),
        _ => None,
    }
}
