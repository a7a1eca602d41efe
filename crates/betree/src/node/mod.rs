//! Nodes in memory: headers of what the tree is made of.
//!
//! A node never changes: a flush, split or merge makes new versions of the nodes it touches, which
//! share the pieces that it did not touch, and puts them in the place of the old ones in one step.
//! A reader that holds a version therefore holds something whole, without a lock.

mod fold;
mod goto;
mod partition;

use alloc::sync::Arc;
use alloc::vec::Vec;

pub(crate) use fold::{Pairs, merged, only_folded, pairs_of};
pub(crate) use goto::{Goto, inside, outside};
pub(crate) use partition::{Layers, live, newer_than, same_key, with_newer};

use crate::cache::{Charge, Piece};
use crate::key::{Cut, Translation};

/// The name of a node in the node table. A slot is used again with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId {
    pub slot: u32,
    pub generation: u32,
}

impl core::fmt::Display for NodeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// A window `[lo, hi)` of a node onto a child, and what is pending for it.
#[derive(Clone)]
pub(crate) struct Edge {
    pub lo: Cut,
    pub hi: Cut,
    /// From this node's coordinates to the child's.
    pub translation: Translation,
    /// No child: a null edge. All keys of the window are absent but for what is pending.
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

    /// From the child's coordinates to this node's, for what the window shows.
    pub fn up(&self) -> Translation {
        self.translation.inverse(self.lo.bytes())
    }

    /// The bound of key lengths behind the edge in this node's coordinates, in bytes.
    pub fn longest_key_here(&self) -> u32 {
        let lifted = self.longest_key.saturating_sub(self.translation.prepend.len() as u32);
        lifted.saturating_add(self.translation.strip_len as u32)
    }

    /// How long a key of this node's coordinates is in the child's, in bytes.
    pub fn lifted_len(&self, len: u32) -> u32 {
        len.saturating_sub(self.translation.strip_len as u32)
            .saturating_add(self.translation.prepend.len() as u32)
    }

    /// What the window shows of the child, in the child's coordinates.
    pub fn shown(&self) -> (Cut, Cut) {
        (self.translation.cut(&self.lo), self.translation.cut(&self.hi))
    }

    /// The size of what is pending in bytes.
    pub fn pending_bytes(&self) -> usize {
        let gotos = self.gotos.iter().map(Goto::bytes).sum::<usize>();
        self.partition.as_ref().map_or(0, |p| p.raw_bytes()) + gotos
    }

    /// How many messages for whole ranges are pending, as far as is known without reading.
    pub fn pending_ranges(&self) -> usize {
        self.partition.as_ref().map_or(0, |p| p.ranges()) + self.gotos.len()
    }

    /// The nodes that it names, each as often as it does.
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

/// A part of a leaf: the pairs from `first` to the next basement's first key.
#[derive(Clone)]
pub(crate) struct Basement {
    /// No key in it is smaller, and it is greater than every key of the basement before.
    pub first: Vec<u8>,
    pub piece: Arc<Piece>,
}

/// What a node holds.
#[derive(Clone)]
pub(crate) enum Body {
    Leaf(Vec<Basement>),
    Interior(Vec<Edge>),
}

impl Body {
    /// As [`Node::edges`].
    pub fn edges(&self) -> &[Edge] {
        match self {
            Body::Interior(edges) => edges,
            Body::Leaf(_) => &[],
        }
    }

    /// As [`Node::content_bytes`].
    pub fn content_bytes(&self) -> usize {
        match self {
            Body::Leaf(basements) => basements.iter().map(|b| b.piece.raw_bytes()).sum(),
            Body::Interior(edges) => edges.iter().map(Edge::pending_bytes).sum(),
        }
    }
}

/// One version of a node.
pub(crate) struct Node {
    pub id: NodeId,
    /// 0 for a leaf; every child is lower than its parent.
    pub height: u8,
    /// All keys and edges lie in `[lo, hi)`, in the node's own coordinates.
    pub lo: Cut,
    pub hi: Cut,
    pub body: Body,
    /// The header's memory, charged to the cache.
    pub charge: Charge,
}

impl Node {
    /// The edges; none for a leaf.
    pub fn edges(&self) -> &[Edge] {
        self.body.edges()
    }

    /// The nodes that it names, each as often as it does: for each it holds a reference.
    pub fn references(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.edges().iter().flat_map(Edge::references)
    }

    /// The basements; none for an interior node.
    pub fn basements(&self) -> &[Basement] {
        match &self.body {
            Body::Leaf(basements) => basements,
            Body::Interior(_) => &[],
        }
    }

    /// The index of the edge whose window holds the key.
    pub fn edge_of(&self, key: &[u8]) -> usize {
        self.edges().partition_point(|e| !e.hi.is_above(key))
    }

    /// The index of the basement where the key would stand.
    pub fn basement_of(&self, key: &[u8]) -> usize {
        self.basements().partition_point(|b| b.first.as_slice() <= key).saturating_sub(1)
    }

    /// All pieces: partitions or basements.
    pub fn pieces(&self) -> Vec<Arc<Piece>> {
        match &self.body {
            Body::Leaf(basements) => basements.iter().map(|b| b.piece.clone()).collect(),
            Body::Interior(edges) => edges.iter().filter_map(|e| e.partition.clone()).collect(),
        }
    }

    /// The size of its contents before compression in bytes: pairs of a leaf, messages of an
    /// interior node.
    pub fn content_bytes(&self) -> usize {
        self.body.content_bytes()
    }

    /// The part of [`content_bytes`](Node::content_bytes) that a window shows, in bytes; what it cuts
    /// through counts whole.
    pub fn content_bytes_within(&self, lo: &Cut, hi: &Cut) -> usize {
        match &self.body {
            Body::Leaf(basements) => {
                let ends = basements.iter().skip(1).map(|next| Some(&next.first)).chain([None]);
                let shown = basements.iter().zip(ends).filter(|(basement, end)| {
                    hi.is_above(&basement.first) && end.is_none_or(|end| *lo < Cut::before(end.as_slice()))
                });
                shown.map(|(basement, _)| basement.piece.raw_bytes()).sum()
            }
            Body::Interior(edges) => {
                edges.iter().filter(|e| e.lo < *hi && e.hi > *lo).map(Edge::pending_bytes).sum()
            }
        }
    }

    /// An upper bound of the key lengths in and below it, in its own coordinates, in bytes. For an
    /// interior node: as its edges say.
    pub fn longest_key(&self) -> u32 {
        self.edges().iter().map(Edge::longest_key_here).max().unwrap_or(0)
    }
}
