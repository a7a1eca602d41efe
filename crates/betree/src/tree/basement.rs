//! Basements: pairs, and messages over them.
//!
//! What comes to a leaf has something for most of its basements, and little for each. Where the last
//! version's blocks may be kept, messages are added to a basement as to a partition, without a look at its
//! pairs, and written as a run of their own; they are put together with the pairs once they are many, and by
//! all that copies pairs. In a basement that is not on the device yet they wait beside its pairs, until
//! whoever writes it puts them together (`run/fold.rs`).

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

/// A basement with its messages is not larger than so many basements of the usual size.
const SIZES_MAX: usize = 2;
/// The same where keys are mostly new.
const GROWING_SIZES_MAX: usize = 8;

impl Tree<'_> {
    /// A basement with messages added to it, without a look at what is there. `None` where it has to be
    /// looked at: blocks may not be kept, it would be too large or too many runs, or it might be left without
    /// a pair. A leaf that holds none is to be noticed.
    pub(super) fn with_messages(&self, basement: &Basement, points: &[Point<'_>]) -> Option<Basement> {
        let first = points.first()?;
        let new_bytes = points.iter().map(Point::bytes).sum::<usize>();
        let old_bytes = basement.piece.raw_bytes();
        let last_msn = basement.piece.last_msn();
        let is_newer = points.iter().all(|point| point.msn > last_msn);
        let may_delete = points.iter().any(|point| point.kind == Kind::Delete);
        let may_keep = self.store.may_keep_blocks();
        let is_growing = may_keep && self.dict.merge_yield.is_mostly_new();
        // What is much of it is better written with the rest than twice.
        let most_bytes = if is_growing { old_bytes } else { old_bytes / 2 };
        let is_within = |sizes: usize| old_bytes + new_bytes <= self.geometry.basement_bytes as usize * sizes;
        let sizes_max = if is_growing { GROWING_SIZES_MAX } else { SIZES_MAX };
        if new_bytes > most_bytes || !is_within(sizes_max) || !is_newer || may_delete {
            return None;
        }
        let over = || Piece::over(&self.store.cache, &basement.piece, points, &[]);
        // It is written as one run, which is not to be larger.
        let layered = || Piece::layered(&self.store.cache, &basement.piece, points);
        let piece = if may_keep { over() } else { None };
        let piece = piece.or_else(|| if is_within(SIZES_MAX) { layered() } else { None })?;
        let mut first = basement.first.as_slice().min(&first.key).to_vec();
        if planted::is(Bug::SmallerKeyNotFirst) {
            first.clone_from(&basement.first);
        }
        Some(Basement { first, piece })
    }

    /// The pairs of basements, in their order, with the messages over them in them.
    pub(super) fn basement_pairs(&self, pieces: &[Arc<Piece>]) -> Result<Vec<Arc<Run>>> {
        let all = self.store.all_layers(pieces)?.into_iter().zip(pieces);
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

    /// A leaf of which no basement has messages. Nobody else names it.
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

/// Whether it is a leaf with a basement that has messages.
pub(super) fn has_messages(leaf: &Node) -> bool {
    leaf.basements().iter().any(|basement| basement.piece.has_messages())
}
