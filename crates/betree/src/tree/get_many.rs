//! The point query of many keys at once.
//!
//! The keys are searched in *rounds*. A round looks each key up as far as memory goes. Then it asks the
//! device together for all that is missing on their ways: pieces that headers in memory name, and the headers
//! below these. So there is a round for each level whose headers are missing, and one for the last pieces,
//! however many keys there are.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicU64, Ordering};
use hashbrown::{HashMap, HashSet};

use super::get::{Path, search_runs};
use super::{Tree, leads_down};
use crate::cache::Piece;
use crate::dict::Old;
use crate::error::Result;
use crate::memtable::Found;
use crate::node_id::NodeId;
use crate::run::Layers;
use crate::store::{NodePlace, Together};

/// The part of the cache that a round reads at most, if it needs more than one key.
const ROUND_PARTS: usize = 2;

/// So many rounds in a row may find no value, as those that read the headers of one level each. With more,
/// the headers of some keys drive those of others out of memory: from then on rounds have fewer keys.
const FRUITLESS_ROUNDS_MAX: u32 = 16;

/// A key whose value is not known yet.
struct Search<'k> {
    key: &'k [u8],
    /// Its place among the keys.
    index: usize,
    /// The deltas that wait for a base, newest first.
    pending: Vec<Vec<u8>>,
    /// The way from the first piece on that was not in memory.
    path: Path,
    /// The node that a look did not find last.
    gone: Option<NodeId>,
}

/// Where a node that is not in memory is read.
struct Missing {
    id: NodeId,
    place: NodePlace,
    /// Views alone see that version.
    is_old: bool,
}

/// All that the keys of a round need of the device, each once.
#[derive(Default)]
struct Round {
    pieces: Vec<Arc<Piece>>,
    /// Where a piece is in `pieces`, by its address.
    piece_index: HashMap<usize, usize>,
    nodes: Vec<Missing>,
    node_ids: HashSet<NodeId>,
    /// Of what is read, before compression.
    bytes: usize,
}

impl<'k> Search<'k> {
    fn of(key: &'k [u8], index: usize) -> Search<'k> {
        Search { key, index, pending: Vec::new(), path: Path::default(), gone: None }
    }
}

impl Round {
    /// Adds what a search needs next. Pieces in memory are held too, so that they stay until it goes on.
    fn add(&mut self, tree: &Tree<'_>, search: &Search<'_>) -> Result<()> {
        for (piece, _) in &search.path.pieces {
            let (pieces, bytes) = (&mut self.pieces, &mut self.bytes);
            self.piece_index.entry(address(piece)).or_insert_with(|| {
                *bytes += if piece.is_resident() { 0 } else { piece.raw_bytes() };
                pieces.push(piece.clone());
                pieces.len() - 1
            });
        }
        if let Some(id) = search.path.missing
            && self.node_ids.insert(id)
            && let Some(missing) = tree.missing(id)?
        {
            self.bytes += missing.place.header_len as usize;
            self.nodes.push(missing);
        }
        Ok(())
    }
}

fn address(piece: &Arc<Piece>) -> usize {
    Arc::as_ptr(piece).addr()
}

impl Tree<'_> {
    /// The values of keys, in their order; a key that stands there several times is searched once. Adds the
    /// number of different keys to `queries`, and that of visited nodes to `nodes`.
    ///
    /// A round reads at most half of the cache's budget beside the needs of one key: more keys take more
    /// rounds. What cannot be read is an error only if a key's value depends on it.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        queries: &AtomicU64,
        nodes: &AtomicU64,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.store.disk.refuse_if_forked()?;
        let mut order: Vec<(&[u8], usize)> = keys.iter().map(AsRef::as_ref).zip(0..).collect();
        order.sort_unstable();
        let mut waiting: VecDeque<Search<'_>> = VecDeque::new();
        let mut doubled: Vec<(usize, usize)> = Vec::new();
        for (key, index) in order {
            match waiting.back() {
                Some(last) if last.key == key => doubled.push((index, last.index)),
                _ => waiting.push_back(Search::of(key, index)),
            }
        }
        queries.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        let mut values: Vec<Option<Vec<u8>>> = alloc::vec![None; keys.len()];
        let bytes_max = self.store.cache.budget_bytes() / ROUND_PARTS;
        let (mut keys_max, mut fruitless_rounds) = (usize::MAX, 0);
        while !waiting.is_empty() {
            let mut round = Round::default();
            let mut asking: Vec<Search<'_>> = Vec::new();
            while round.bytes <= bytes_max
                && asking.len() < keys_max
                && let Some(mut search) = waiting.pop_front()
            {
                match self.search_memory(&mut search, nodes)? {
                    Some(found) => self.note_value(search, found, &mut values)?,
                    None => {
                        round.add(self, &search)?;
                        asking.push(search);
                    }
                }
            }
            let layers = self.read_round(&round)?;
            let asked = asking.len();
            let mut unread = VecDeque::new();
            for mut search in asking {
                match self.search_round(&mut search, &round, &layers)? {
                    Some(found) => self.note_value(search, found, &mut values)?,
                    None => unread.push_back(search),
                }
            }
            fruitless_rounds = if unread.len() < asked { 0 } else { fruitless_rounds + 1 };
            if fruitless_rounds > FRUITLESS_ROUNDS_MAX {
                // One key alone needs no more memory than a plain query.
                keys_max = (asked / 2).max(1);
            }
            // First, while the headers that were read for them are in memory.
            unread.append(&mut waiting);
            waiting = unread;
        }
        for (index, same) in doubled {
            let value = values.get(same).cloned().flatten();
            if let Some(place) = values.get_mut(index) {
                *place = value;
            }
        }
        Ok(values)
    }

    /// Notes the value of a key that was found.
    fn note_value(&self, search: Search<'_>, found: Found, values: &mut [Option<Vec<u8>>]) -> Result<()> {
        let value = self.value_over(found, &search.pending)?;
        if let Some(place) = values.get_mut(search.index) {
            *place = value;
        }
        Ok(())
    }

    /// Searches a key as far as memory goes; `None` if more has to be read.
    fn search_memory(&self, search: &mut Search<'_>, nodes: &AtomicU64) -> Result<Option<Found>> {
        search.pending.clear();
        let (found, path) = self.look(search.key, &mut search.pending, nodes)?;
        let Some(mut path) = path else { return Ok(Some(found)) };
        let mut searched = 0;
        for (piece, key) in &path.pieces {
            let Some(layers) = piece.layers() else { break };
            if let Some(found) = search_runs(&layers, key, &mut search.pending) {
                return Ok(Some(found));
            }
            searched += 1;
        }
        path.pieces.drain(..searched);
        if path.pieces.is_empty() && path.missing.is_none() {
            return Ok(Some(Found::Absent));
        }
        search.path = path;
        Ok(None)
    }

    /// Goes on with a search after its round; `None` if it must begin anew, because a node was read.
    fn search_round(
        &self,
        search: &mut Search<'_>,
        round: &Round,
        layers: &[Result<Layers>],
    ) -> Result<Option<Found>> {
        let Search { path, pending, gone, .. } = search;
        for (piece, key) in &path.pieces {
            let read = round.piece_index.get(&address(piece)).and_then(|index| layers.get(*index));
            let found = match read {
                Some(Ok(layers)) => search_runs(layers, key, pending),
                // It is needed now, so this gives the error.
                _ => self.search_piece(piece, key, pending)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        match path.missing {
            None => Ok(Some(Found::Absent)),
            Some(id) => {
                // It is in memory, unless it could not be read or has left the tree.
                self.find_for_search(id, gone)?;
                Ok(None)
            }
        }
    }

    /// Where a node is read that is not in memory; `None` if it came to memory meanwhile or left the tree.
    fn missing(&self, id: NodeId) -> Result<Option<Missing>> {
        let state = self.dict.state.read();
        self.at.refuse_if_ended()?;
        Ok(match state.history.version(id, self.at.epoch) {
            Some(Old::Node(_)) => None,
            Some(Old::Place(place)) => Some(Missing { id, place: place.clone(), is_old: true }),
            None if state.node(id).is_some() => None,
            None => self.table.lock().place(id).map(|place| Missing { id, place, is_old: false }),
        })
    }

    /// Reads all that a round needs, and keeps the nodes in memory. Returns the contents of its pieces.
    fn read_round(&self, round: &Round) -> Result<Vec<Result<Layers>>> {
        let places: Vec<_> = round.nodes.iter().map(|node| (node.id, &node.place)).collect();
        let Together { layers, nodes } = self.store.read_together(&round.pieces, &places)?;
        for (Missing { place, is_old, .. }, node) in round.nodes.iter().zip(nodes) {
            // Whoever needs a node that could not be read, or does not fit, reads it again for the error.
            let Ok(node) = node else { continue };
            if !is_old {
                let _ = self.keep_read(node, place);
            } else if leads_down(&self.table.lock(), &node, place).is_ok() {
                self.dict.state.write().history.keep_read(&node, place);
            }
        }
        self.forget_unused_headers();
        Ok(layers)
    }
}
