//! The space of a range of keys on the device, and the part of it that is not shared.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::cache::Piece;
use crate::env::Env;
use crate::error::Result;
use crate::key::Cut;
use crate::node::Body;
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::store::Store;

/// The stored bytes of a range of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of them, shared or not.
    pub stored_bytes: u64,
    /// Those that nothing outside of the range shares: the bytes that its removal would free.
    pub exclusive_bytes: u64,
}

/// A node in the range.
struct Seen {
    height: u8,
    bytes: u64,
    /// Its parents in the range, once for each edge or GOTO that leads to it.
    parents: Vec<NodeId>,
}

/// A part of a node to visit, in the node's coordinates.
struct Visit {
    id: NodeId,
    parent: Option<NodeId>,
    lo: Cut,
    hi: Cut,
}

impl Env {
    /// The space of the keys in `[lo, hi)`. Reads headers of nodes and little else. Changes that are only in
    /// the log do not count; concurrent ones may.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let mut batch = betree::Batch::new();
    /// # batch.put(betree::DictId(0), b"a/1", &[1; 10_000]);
    /// use betree::{Cut, DictId};
    ///
    /// env.commit(&batch)?;
    /// env.checkpoint()?;
    /// let usage = env.usage(DictId(0), &Cut::before("a/"), &Cut::after("a/"))?;
    /// assert_eq!(usage.stored_bytes, usage.exclusive_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The device's, or corruption.
    pub fn usage(&self, dict: DictId, lo: &Cut, hi: &Cut) -> Result<Usage> {
        let tree = self.engine.tree(dict)?;
        let root = tree.dict.state.read().root;
        let mut seen: HashMap<NodeId, Seen> = HashMap::new();
        let mut stack = Vec::from([Visit { id: root, parent: None, lo: lo.clone(), hi: hi.clone() }]);
        while let Some(Visit { id, parent, lo, hi }) = stack.pop() {
            let place = match seen.entry(id) {
                Entry::Occupied(mut known) => {
                    known.get_mut().parents.extend(parent);
                    continue;
                }
                Entry::Vacant(place) => place,
            };
            // A node that is gone meanwhile takes nothing.
            let Some(node) = tree.find(id)? else { continue };
            let store = &self.engine.store;
            let mut bytes = 0;
            match &node.body {
                Body::Leaf(basements) => {
                    let ends = basements.iter().skip(1).map(|b| Cut::before(b.first.clone()));
                    for (basement, end) in basements.iter().zip(ends.chain([Cut::HIGH])) {
                        let first = Cut::before(basement.first.clone());
                        bytes += bytes_within(store, &basement.piece, (&first, &end), (&lo, &hi))?;
                    }
                }
                Body::Interior(edges) => {
                    for edge in edges.iter().filter(|edge| edge.lo < hi && edge.hi > lo) {
                        if let Some(partition) = &edge.partition {
                            bytes += bytes_within(store, partition, (&edge.lo, &edge.hi), (&lo, &hi))?;
                        }
                        let mut see = |id, translation: &crate::key::Translation, from: &Cut, to: &Cut| {
                            let (from, to) = (from.max(&lo), to.min(&hi));
                            if from < to {
                                let (lo, hi) = (translation.cut(from), translation.cut(to));
                                stack.push(Visit { id, parent: Some(node.id), lo, hi });
                            }
                        };
                        for goto in &edge.gotos {
                            see(goto.target, &goto.translation, &goto.lo, &goto.hi);
                        }
                        if let Some(child) = edge.child {
                            see(child, &edge.translation, &edge.lo, &edge.hi);
                        }
                    }
                }
            }
            if lo <= node.lo
                && hi >= node.hi
                && let Some(place) = self.engine.table.lock().place(id)
            {
                // The whole extent, with the header and the unfilled part of the last block.
                bytes = place.extent.len_blocks() * BLOCK_BYTES as u64;
            }
            place.insert(Seen { height: node.height, bytes, parents: parent.into_iter().collect() });
        }
        Ok(self.sum(root, &seen))
    }

    /// Sums the nodes' bytes. A node is exclusive if all nodes that name it are.
    fn sum(&self, root: NodeId, seen: &HashMap<NodeId, Seen>) -> Usage {
        let mut order: Vec<(&NodeId, &Seen)> = seen.iter().collect();
        order.sort_unstable_by_key(|(_, seen)| core::cmp::Reverse(seen.height));
        let mut own: HashMap<NodeId, bool> = HashMap::new();
        let mut usage = Usage::default();
        let table = self.engine.table.lock();
        for (id, node) in order {
            let named = node.parents.iter().filter(|parent| own.get(*parent) == Some(&true)).count();
            let is_own = *id == root || named as u64 == u64::from(table.references(*id));
            own.insert(*id, is_own);
            usage.stored_bytes += node.bytes;
            usage.exclusive_bytes += if is_own { node.bytes } else { 0 };
        }
        usage
    }
}

/// The stored bytes of a piece's part in `[lo, hi)`, by its share of the keys. The piece's keys are in
/// `[first, end)`.
fn bytes_within(
    store: &Store,
    piece: &Arc<Piece>,
    (first, end): (&Cut, &Cut),
    (lo, hi): (&Cut, &Cut),
) -> Result<u64> {
    if first >= hi || end <= lo {
        return Ok(0);
    }
    let bytes = match piece.stored() {
        Some(stored) => stored.runs.iter().map(|run| u64::from(run.stored_len)).sum(),
        None => piece.raw_bytes() as u64,
    };
    if first >= lo && end <= hi {
        return Ok(bytes);
    }
    let (mut inside, mut all) = (0, 0);
    for run in store.layers(piece)?.newest_first() {
        inside += run.first_behind(hi).saturating_sub(run.first_behind(lo)) as u64;
        all += run.len() as u64;
    }
    Ok(bytes * inside / all.max(1))
}
