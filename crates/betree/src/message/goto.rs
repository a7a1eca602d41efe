//! GOTO messages: a range shows the contents of another node.

use alloc::vec::Vec;

use super::POINT_OVERHEAD_BYTES;
use crate::key::{Cut, Translation};
use crate::node_id::NodeId;
use crate::planted::{self, Bug};

/// A pending edge (*GOTO*, dissertation §4.2.1): the keys of `[lo, hi)` are those of a node, in place of all
/// that is below or older. It travels down like any message, and becomes an edge once no child is higher than
/// its target. It holds a reference to its target.
#[derive(Clone, Debug)]
pub struct Goto {
    /// The lower bound.
    pub lo: Cut,
    /// The upper bound.
    pub hi: Cut,
    /// From its own coordinates to the target's.
    pub translation: Translation,
    /// The node that holds the keys.
    pub target: NodeId,
    /// No key in or below the target is longer, in the target's coordinates, in bytes.
    pub longest_key: u32,
}

impl Goto {
    /// Its part inside `[lo, hi)`, if there is one.
    pub(crate) fn clip(&self, lo: &Cut, hi: &Cut) -> Option<Goto> {
        let (lo, hi) = ((&self.lo).max(lo), (&self.hi).min(hi));
        (lo < hi).then(|| Goto { lo: lo.clone(), hi: hi.clone(), ..self.clone() })
    }

    /// The GOTO in other coordinates; `to` leads there and `back` leads here. Clip to the window first.
    pub(crate) fn rebase(&self, to: &Translation, back: &Translation) -> Goto {
        Goto {
            lo: to.cut(&self.lo),
            hi: to.cut(&self.hi),
            translation: back.then(&self.translation),
            ..self.clone()
        }
    }

    /// Whether it covers the key.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        !self.lo.is_above(key) && self.hi.is_above(key)
    }

    /// The bound of the key lengths behind it, in its own coordinates, in bytes.
    pub(crate) fn longest_key_here(&self) -> u32 {
        let lifted = self.longest_key.saturating_sub(self.translation.prepend.len() as u32);
        lifted.saturating_add(self.translation.strip_len as u32)
    }

    /// Its size in a buffer in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lo.bytes().len() + self.hi.bytes().len() + self.translation.prepend.len() + POINT_OVERHEAD_BYTES
    }
}

/// The parts of GOTOs outside of `[lo, hi)`; one may become two.
pub(crate) fn outside(gotos: &[Goto], lo: &Cut, hi: &Cut) -> Vec<Goto> {
    let parts = gotos.iter().flat_map(|goto| [goto.clip(&Cut::LOW, lo), goto.clip(hi, &Cut::HIGH)]);
    parts.flatten().collect()
}

/// The parts of GOTOs inside `[lo, hi)`.
pub(crate) fn inside(gotos: &[Goto], lo: &Cut, hi: &Cut) -> Vec<Goto> {
    let left_out = |goto: &Goto| planted::is(Bug::GotoOnOneSideOfCut) && goto.lo < *lo;
    gotos.iter().filter(|goto| !left_out(goto)).filter_map(|goto| goto.clip(lo, hi)).collect()
}
