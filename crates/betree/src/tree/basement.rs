//! Basements: pairs, and messages over them.
//!
//! Messages that reach a leaf touch most of its basements, each a little. Where blocks of the last version
//! may be reused, messages are added to a basement as to a partition, without reading its pairs, and are
//! written as a run of their own. They are merged into the pairs once they are many, and whenever pairs are
//! copied. In a basement that is not yet on the device they wait beside the pairs; the write merges them
//! (`run/fold.rs`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::build::{Lift, Share};
use super::leaf_builder::LeafBuilder;
use super::{Tree, TreeChange};
use crate::cache::Piece;
use crate::error::Result;
use crate::key::Cut;
use crate::message::{Kind, Point};
use crate::node::{Basement, Body, Node};
use crate::planted::{self, Bug};
use crate::run::{Run, pairs_of};

/// A basement with its messages holds at most this many times the usual size of a basement.
const SIZES_MAX: usize = 2;
/// The same limit where most keys are new.
const GROWING_SIZES_MAX: usize = 8;

impl Tree<'_> {
    /// The basement with messages added, its pairs unread. `None` if the pairs must be read: blocks may not
    /// be reused, the basement would be too large or have too many runs, or no pair might remain (an empty
    /// leaf has to be noticed).
    pub(super) fn with_messages(&self, basement: &Basement, points: &[Point<'_>]) -> Option<Basement> {
        let first = points.first()?;
        let new_bytes = points.iter().map(Point::bytes).sum::<usize>();
        let old_bytes = basement.piece.raw_bytes();
        let last_msn = basement.piece.last_msn();
        let is_newer = points.iter().all(|point| point.msn > last_msn);
        let may_delete = points.iter().any(|point| point.kind == Kind::Delete);
        let may_keep = self.store.may_keep_blocks();
        let is_growing = may_keep && self.dict.merge_yield.is_mostly_new();
        // Messages that are a large part of the basement are cheaper to write once, merged, than twice.
        let most_bytes = if is_growing { old_bytes } else { old_bytes / 2 };
        let is_within = |sizes: usize| old_bytes + new_bytes <= self.geometry.basement_bytes as usize * sizes;
        let sizes_max = if is_growing { GROWING_SIZES_MAX } else { SIZES_MAX };
        if new_bytes > most_bytes || !is_within(sizes_max) || !is_newer || may_delete {
            return None;
        }
        let over = || Piece::over(&self.store.cache, &basement.piece, points, &[]);
        // The messages are written as one run, which has the size limit of a run.
        let layered = || Piece::layered(&self.store.cache, &basement.piece, points);
        let piece = if may_keep { over() } else { None };
        let piece = piece.or_else(|| if is_within(SIZES_MAX) { layered() } else { None })?;
        let mut first = basement.first.as_slice().min(&first.key).to_vec();
        if planted::is(Bug::SmallerKeyNotFirst) {
            first.clone_from(&basement.first);
        }
        Some(Basement { first, piece })
    }

    /// The pairs of basements, in their order, with the messages over them applied.
    pub(super) fn basement_pairs(&self, pieces: &[Arc<Piece>]) -> Result<Vec<Arc<Run>>> {
        let all = self.all_layers(pieces)?.into_iter().zip(pieces);
        let pairs = all.map(|(layers, piece)| {
            let pairs = pairs_of(layers, self.upsert);
            if piece.has_messages() {
                let out_bytes = pairs.as_bytes().len();
                self.dict.merge_yield.note(piece.raw_bytes(), out_bytes, self.geometry.node_bytes);
            }
            pairs
        });
        Ok(pairs.collect())
    }

    /// A version of the leaf in which no basement has messages. No other node names the leaf.
    pub(super) fn folded(&self, leaf: &Arc<Node>) -> Result<Arc<Node>> {
        if !has_messages(leaf) {
            return Ok(leaf.clone());
        }
        let mut out = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
        self.copy_pairs(leaf, &Cut::LOW, &Cut::HIGH, &Lift::default(), Share::Pairs, &mut out)?;
        let leaf = self.with_body(leaf, Body::Leaf(out.finish().0));
        self.install(TreeChange { changed: Vec::from([leaf.clone()]), ..TreeChange::default() });
        Ok(leaf)
    }
}

/// Whether a node is a leaf that has a basement with messages.
pub(super) fn has_messages(leaf: &Node) -> bool {
    leaf.basements().iter().any(|basement| basement.piece.has_messages())
}
