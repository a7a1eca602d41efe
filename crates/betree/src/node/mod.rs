//! Nodes in memory: the headers of the tree.
//!
//! A node never changes. A flush, split or merge makes new versions of the nodes it touches, which share all
//! untouched pieces, and installs them in one step. A version is therefore consistent for its readers without
//! a lock.

mod edges;

use alloc::sync::Arc;
use alloc::vec::Vec;

pub(crate) use edges::{Edge, is_nothing, join_nulls, live, live_before, next_live, shown_edges};

use crate::cache::{Charge, Piece};
use crate::key::Cut;
use crate::node_id::NodeId;

/// A part of a leaf: the pairs from `first` to the next basement's first key.
#[derive(Clone)]
pub(crate) struct Basement {
    /// No key in it is smaller, and it is greater than every key of the basement before.
    pub first: Vec<u8>,
    pub piece: Arc<Piece>,
}

/// The contents of a node.
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

    /// The number of GOTOs that are pending for its edges.
    pub fn gotos(&self) -> u64 {
        self.edges().iter().map(|edge| edge.gotos.len() as u64).sum()
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

/// One line: id, bounds and sizes, without the contents.
impl core::fmt::Debug for Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Node { id, height, lo, hi, body, .. } = self;
        write!(f, "node {id} of height {height} [{lo:?}, {hi:?}): ")?;
        match body {
            Body::Leaf(basements) => write!(f, "{} basements", basements.len())?,
            Body::Interior(edges) => {
                let nulls = edges.iter().filter(|edge| edge.child.is_none()).count();
                write!(f, "{} edges, {nulls} of them null, {} GOTOs", edges.len(), body.gotos())?;
            }
        }
        write!(f, ", {} bytes", body.content_bytes())
    }
}

impl Node {
    /// The edges; none for a leaf.
    pub fn edges(&self) -> &[Edge] {
        self.body.edges()
    }

    /// The nodes that it names; one that it names twice comes twice. It holds a reference for each.
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

    /// The part of [`content_bytes`](Node::content_bytes) that a window shows, in bytes; pieces across its
    /// bounds count whole.
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

    /// The bytes of a leaf's pieces that a window shows whole, before compression.
    pub fn whole_bytes_within(&self, lo: &Cut, hi: &Cut) -> usize {
        let basements = self.basements();
        let ends =
            basements.iter().skip(1).map(|next| Cut::before(next.first.as_slice())).chain([self.hi.clone()]);
        let is_first = |at: usize| at == 0 && *lo == self.lo;
        let shown = basements.iter().zip(ends).enumerate().filter(|(at, (basement, end))| {
            (is_first(*at) || *lo <= Cut::before(basement.first.as_slice())) && *end <= *hi
        });
        shown.map(|(_, (basement, _))| basement.piece.raw_bytes()).sum()
    }

    /// An upper bound of the key lengths in and below an interior node, by its edges, in its own coordinates,
    /// in bytes.
    pub fn longest_key(&self) -> u32 {
        self.edges().iter().map(Edge::longest_key_here).max().unwrap_or(0)
    }
}

/// The basements that may hold keys in `[lo, hi)`.
pub(crate) fn shown_basements<'b>(basements: &'b [Basement], lo: &Cut, hi: &Cut) -> &'b [Basement] {
    let from = basements.partition_point(|b| lo.is_above(&b.first)).saturating_sub(1);
    let to = basements.partition_point(|b| hi.is_above(&b.first));
    basements.get(from..to).unwrap_or_default()
}
