//! Edges of interior nodes, and lists of them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Node;
use crate::cache::Piece;
use crate::key::{Cut, Translation};
use crate::message::Goto;
use crate::node_id::NodeId;

/// A window `[lo, hi)` of a node onto a child, with the messages pending for it.
#[derive(Clone)]
pub(crate) struct Edge {
    pub lo: Cut,
    pub hi: Cut,
    /// From this node's coordinates to the child's.
    pub translation: Translation,
    /// No child: a null edge. All keys of the window are absent, except by pending messages.
    pub child: Option<NodeId>,
    /// No key in or below the child is longer, in the child's coordinates, in bytes.
    pub longest_key: u32,
    /// The messages pending for the window, in this node's coordinates; `None` if there are none.
    pub partition: Option<Arc<Piece>>,
    /// The GOTOs pending for it, disjoint and in order. The partition's points are newer than a GOTO
    /// that covers them; its ranges overlap none. The child is higher than each target.
    pub gotos: Vec<Goto>,
}

impl Edge {
    /// An edge to nothing.
    pub fn null(lo: Cut, hi: Cut) -> Edge {
        let translation = Translation::default();
        Edge { lo, hi, translation, child: None, longest_key: 0, partition: None, gotos: Vec::new() }
    }

    /// The edge that a GOTO becomes.
    pub fn of_goto(goto: &Goto) -> Edge {
        Edge {
            translation: goto.translation.clone(),
            child: Some(goto.target),
            longest_key: goto.longest_key,
            ..Edge::null(goto.lo.clone(), goto.hi.clone())
        }
    }

    /// The GOTO that shows the same, without the pending messages; `None` for a null edge.
    pub fn to_goto(&self) -> Option<Goto> {
        Some(Goto {
            lo: self.lo.clone(),
            hi: self.hi.clone(),
            translation: self.translation.clone(),
            target: self.child?,
            longest_key: self.longest_key,
        })
    }

    /// From the child's coordinates to this node's, for keys in the window.
    pub fn up(&self) -> Translation {
        self.translation.inverse(self.lo.bytes())
    }

    /// The bound of key lengths behind the edge in this node's coordinates, in bytes.
    pub fn longest_key_here(&self) -> u32 {
        let lifted = self.longest_key.saturating_sub(self.translation.prepend.len() as u32);
        lifted.saturating_add(self.translation.strip_len as u32)
    }

    /// The length in the child's coordinates of a key with `len` bytes in this node's.
    pub fn lifted_len(&self, len: u32) -> u32 {
        len.saturating_sub(self.translation.strip_len as u32)
            .saturating_add(self.translation.prepend.len() as u32)
    }

    /// The bounds of the window in the child's coordinates.
    pub fn shown(&self) -> (Cut, Cut) {
        (self.translation.cut(&self.lo), self.translation.cut(&self.hi))
    }

    /// The size of the pending messages in bytes.
    pub fn pending_bytes(&self) -> usize {
        let gotos = self.gotos.iter().map(Goto::bytes).sum::<usize>();
        self.partition.as_ref().map_or(0, |p| p.raw_bytes()) + gotos
    }

    /// The number of pending range messages, as far as known without a read.
    pub fn pending_ranges(&self) -> usize {
        self.partition.as_ref().map_or(0, |p| p.ranges()) + self.gotos.len()
    }

    /// The nodes that it names; one that it names twice comes twice.
    pub fn references(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.child.into_iter().chain(self.gotos.iter().map(|goto| goto.target))
    }

    /// Whether anything is pending.
    pub fn has_pending(&self) -> bool {
        self.partition.is_some() || !self.gotos.is_empty()
    }

    /// The GOTO that covers the key, if one does.
    pub fn goto_over(&self, key: &[u8]) -> Option<&Goto> {
        let at = self.gotos.partition_point(|goto| !goto.hi.is_above(key));
        self.gotos.get(at).filter(|goto| goto.covers(key))
    }
}

/// The edges of an interior child that an edge shows.
pub(crate) fn shown_edges<'c>(child: &'c Node, edge: &Edge) -> &'c [Edge] {
    let (lo, hi) = edge.shown();
    let edges = child.edges();
    let (from, to) = (edges.partition_point(|e| e.hi <= lo), edges.partition_point(|e| e.lo < hi));
    edges.get(from..to).unwrap_or_default()
}

/// The number of edges that lead to something or have something pending. At most one null edge stands between
/// two of these.
pub(crate) fn live(edges: &[Edge]) -> usize {
    edges.iter().filter(|edge| !is_nothing(edge)).count()
}

/// The next edge behind another that leads to something.
pub(crate) fn next_live(node: &Node, index: usize) -> Option<usize> {
    let behind = node.edges().iter().enumerate().skip(index + 1);
    behind.filter(|(_, edge)| !is_nothing(edge)).map(|(at, _)| at).next()
}

/// The last edge before another that leads to something.
pub(crate) fn live_before(node: &Node, index: usize) -> Option<usize> {
    node.edges().get(..index)?.iter().rposition(|edge| !is_nothing(edge))
}

pub(crate) fn is_nothing(edge: &Edge) -> bool {
    edge.child.is_none() && !edge.has_pending()
}

/// Joins neighbouring null edges that have nothing pending.
pub(crate) fn join_nulls(edges: &mut Vec<Edge>) {
    edges.dedup_by(|next, edge| {
        let both = is_nothing(edge) && is_nothing(next);
        if both {
            edge.hi = next.hi.clone();
        }
        both
    });
}
