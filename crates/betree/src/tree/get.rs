//! The point query.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicU64, Ordering};

use super::{Tree, astray};
use crate::cache::Piece;
use crate::error::Result;
use crate::memtable::Found;
use crate::message::Kind;
use crate::node::Body;
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::run::Layers;

/// The pieces on the way to a key, as of one moment.
#[derive(Default)]
pub(super) struct Path {
    /// The partitions from the root down, then the key's basement, each with the key in its node's
    /// coordinates.
    pub pieces: Vec<(Arc<Piece>, Vec<u8>)>,
    /// A node on the way that is not in memory; the path ends above it.
    pub missing: Option<NodeId>,
}

/// Searches the runs of a piece, newest first; `None` if they leave the value open.
pub(super) fn search_runs(layers: &Layers, key: &[u8], pending: &mut Vec<Vec<u8>>) -> Option<Found> {
    for run in layers.newest_first() {
        let from = run.lower_bound(key);
        let mut to = from;
        while to < run.len() && run.key(to) == key {
            to += 1;
        }
        for point in run.points(from, to).rev() {
            match point.kind {
                Kind::Put(_) => return Some(Found::Value(point.value.to_vec())),
                Kind::Delete => return Some(Found::Absent),
                Kind::Upsert(_) => pending.push(point.value.to_vec()),
            }
        }
        if let Some(range) = run.range_over(key) {
            return Some(if range.is_damage() { Found::Lost(range.lost()) } else { Found::Absent });
        }
    }
    None
}

impl Tree<'_> {
    /// Returns the value of a key. The search goes from the root down, newest first, to a put, a delete or a
    /// range that covers the key; upserts on the way are applied on the way back (§3.1). Adds the number of
    /// nodes visited to `nodes`: each is lower than the one before.
    pub fn get(&self, key: &[u8], nodes: &AtomicU64) -> Result<Option<Vec<u8>>> {
        self.store.disk.refuse_if_forked()?;
        let mut gone = None;
        loop {
            // Newest first.
            let mut pending: Vec<Vec<u8>> = Vec::new();
            let (found, path) = self.look(key, &mut pending, nodes)?;
            let found = match (found, path) {
                (Found::Open, Some(path)) => self.search(path, &mut pending, &mut gone)?,
                (found, _) => Some(found),
            };
            if let Some(found) = found {
                return self.value_over(found, &pending);
            }
        }
    }

    /// The value that the deltas over what was found make, newest first, unless it has expired.
    pub(super) fn value_over(&self, found: Found, pending: &[Vec<u8>]) -> Result<Option<Vec<u8>>> {
        let base = match found {
            Found::Value(value) => Some(value),
            Found::Absent | Found::Open => None,
            Found::Lost(error) => {
                self.count_damage(&error);
                return Err(error);
            }
        };
        let value = pending.iter().rev().fold(base, |old, delta| self.upsert.apply(old.as_deref(), delta));
        let expiry = self.expiry();
        Ok(value.filter(|value| !expiry.has_expired(value) || planted::is(Bug::ExpiredShown)))
    }

    /// Searches the memtables; if they leave the value open, also returns the path through the nodes in
    /// memory.
    pub(super) fn look(
        &self,
        key: &[u8],
        pending: &mut Vec<Vec<u8>>,
        nodes: &AtomicU64,
    ) -> Result<(Found, Option<Path>)> {
        match self.overlay.get(key, pending) {
            Found::Open => {}
            found => return Ok((found, None)),
        }
        let Some(key) = self.overlay.source(key) else { return Ok((Found::Absent, None)) };
        let state = self.dict.state.read();
        self.at.refuse_if_ended()?;
        for memtable in state.memtables(&self.at) {
            match memtable.get(&key, self.at.msn, pending) {
                Found::Open => {}
                found => return Ok((found, None)),
            }
        }
        let mut path = Path { pieces: Vec::new(), missing: None };
        let mut id = state.root_at(&self.at);
        let mut key = key.into_owned();
        let mut visited = 0;
        loop {
            let Some(node) = state.node_at(id, &self.at) else {
                path.missing = Some(id);
                break;
            };
            visited += 1;
            match &node.body {
                Body::Leaf(basements) => {
                    let basement = basements.get(node.basement_of(&key));
                    path.pieces.extend(basement.map(|basement| (basement.piece.clone(), key)));
                    break;
                }
                Body::Interior(edges) => {
                    // A key outside of the node's bounds is before its first edge or behind its last.
                    let index = node.edge_of(&key);
                    let edge = edges.get(index).filter(|edge| index > 0 || !edge.lo.is_above(&key));
                    let edge = edge.ok_or_else(|| astray(id))?;
                    let (child, below) = match edge.goto_over(&key) {
                        Some(goto) => (Some(goto.target), goto.translation.key(&key).into_owned()),
                        None => (edge.child, edge.translation.key(&key).into_owned()),
                    };
                    if let Some(piece) = &edge.partition {
                        path.pieces.push((piece.clone(), key));
                    }
                    let Some(child) = child else { break };
                    (id, key) = (child, below);
                }
            }
        }
        nodes.fetch_add(visited, Ordering::Relaxed);
        Ok((Found::Open, Some(path)))
    }

    /// Searches a piece, from memory or from the device; `None` if it leaves the value open.
    ///
    /// # Errors
    /// Why the piece cannot be read, if what is newer than the part that cannot leaves the value open.
    pub(super) fn search_piece(
        &self,
        piece: &Arc<Piece>,
        key: &[u8],
        pending: &mut Vec<Vec<u8>>,
    ) -> Result<Option<Found>> {
        let (layers, error) = self.store.newest_layers(piece);
        match (layers.and_then(|layers| search_runs(&layers, key, pending)), error) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// Searches the pieces of a path; `None` if a node had to be read and the search must begin anew.
    fn search(
        &self,
        path: Path,
        pending: &mut Vec<Vec<u8>>,
        gone: &mut Option<NodeId>,
    ) -> Result<Option<Found>> {
        for (piece, key) in &path.pieces {
            self.refuse_out_of_reach(piece)?;
            if let Some(found) = self.search_piece(piece, key, pending)? {
                return Ok(Some(found));
            }
        }
        match path.missing {
            None => Ok(Some(Found::Absent)),
            Some(id) => {
                self.find_for_search(id, gone)?;
                Ok(None)
            }
        }
    }
}
