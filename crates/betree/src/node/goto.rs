//! GOTO messages: what stands in a range is what another node shows.

use alloc::vec::Vec;

use super::{Edge, NodeId};
use crate::key::{Cut, Translation};
use crate::message::POINT_OVERHEAD_BYTES;
use crate::planted::{self, Bug};

/// A pending edge (*GOTO*, dissertation §4.2.1): the keys of `[lo, hi)` are those of a node, in place
/// of all that is below or older. It travels down like any message, and becomes an edge where its
/// target fits below no child any more. It holds a reference to its target.
#[derive(Clone)]
pub(crate) struct Goto {
    pub lo: Cut,
    pub hi: Cut,
    /// From the coordinates that it stands in to the target's.
    pub translation: Translation,
    pub target: NodeId,
    /// No key in or below the target is longer, in the target's coordinates, in bytes.
    pub longest_key: u32,
}

impl Goto {
    /// What an edge shows, as a message; `None` of a null edge. What is pending for it is left out.
    pub fn of(edge: &Edge) -> Option<Goto> {
        Some(Goto {
            lo: edge.lo.clone(),
            hi: edge.hi.clone(),
            translation: edge.translation.clone(),
            target: edge.child?,
            longest_key: edge.longest_key,
        })
    }

    /// The edge that it becomes.
    pub fn to_edge(&self) -> Edge {
        Edge {
            translation: self.translation.clone(),
            child: Some(self.target),
            longest_key: self.longest_key,
            ..Edge::null(self.lo.clone(), self.hi.clone())
        }
    }

    /// Its part inside `[lo, hi)`, if there is one.
    pub fn clip(&self, lo: &Cut, hi: &Cut) -> Option<Goto> {
        let (lo, hi) = ((&self.lo).max(lo), (&self.hi).min(hi));
        (lo < hi).then(|| Goto { lo: lo.clone(), hi: hi.clone(), ..self.clone() })
    }

    /// In other coordinates, to which `to` leads and from which `back` does; clip to the window first.
    pub fn rebase(&self, to: &Translation, back: &Translation) -> Goto {
        Goto {
            lo: to.cut(&self.lo),
            hi: to.cut(&self.hi),
            translation: back.then(&self.translation),
            ..self.clone()
        }
    }

    /// Whether it covers the key.
    pub fn covers(&self, key: &[u8]) -> bool {
        !self.lo.is_above(key) && self.hi.is_above(key)
    }

    /// The bound of key lengths behind it in the coordinates that it stands in, in bytes.
    pub fn longest_key_here(&self) -> u32 {
        let lifted = self.longest_key.saturating_sub(self.translation.prepend.len() as u32);
        lifted.saturating_add(self.translation.strip_len as u32)
    }

    /// Its size in a buffer in bytes.
    pub fn bytes(&self) -> usize {
        self.lo.bytes().len() + self.hi.bytes().len() + self.translation.prepend.len() + POINT_OVERHEAD_BYTES
    }
}

/// What is left of GOTOs outside of `[lo, hi)`: one may become two.
pub(crate) fn outside(gotos: &[Goto], lo: &Cut, hi: &Cut) -> Vec<Goto> {
    let parts = gotos.iter().flat_map(|goto| [goto.clip(&Cut::LOW, lo), goto.clip(hi, &Cut::HIGH)]);
    parts.flatten().collect()
}

/// What is left of GOTOs inside `[lo, hi)`.
pub(crate) fn inside(gotos: &[Goto], lo: &Cut, hi: &Cut) -> Vec<Goto> {
    let left_out = |goto: &Goto| planted::is(Bug::GotoOnOneSideOfCut) && goto.lo < *lo;
    gotos.iter().filter(|goto| !left_out(goto)).filter_map(|goto| goto.clip(lo, hi)).collect()
}
