//! The space of a range of keys as of a moment, and the part of it that is not shared.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::cache::Piece;
use crate::env::View;
use crate::error::Result;
use crate::key::{Cut, Translation};
use crate::node::{Basement, Body, Edge};
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::store::Store;
use crate::tree::{Tree, dangling};

/// How many messages of a memtable are looked at while its writers wait.
const POINTS_AT_ONCE: usize = 256;

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

impl View {
    /// The space of the keys in `[lo, hi)` as of the view's moment. Reads headers of nodes and little else,
    /// and writes nothing: what is in memory or in the log alone counts as it is there, not compressed. A
    /// second call returns the same, whatever comes in between, except that what is written meanwhile counts
    /// as it is stored.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// # let mut batch = betree::Batch::new();
    /// # batch.put(betree::DictId(0), b"a/1", &[1; 10_000]);
    /// use betree::{Cut, DictId};
    ///
    /// env.commit(&batch)?;
    /// let usage = env.view().usage(DictId(0), &Cut::before("a/"), &Cut::after("a/"))?;
    /// assert!(usage.stored_bytes >= 10_000);
    /// assert_eq!(usage.stored_bytes, usage.exclusive_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ViewEnded`](crate::Error::ViewEnded), the device's, or corruption.
    pub fn usage(&self, dict: DictId, lo: &Cut, hi: &Cut) -> Result<Usage> {
        self.fix_versions();
        let tree = self.tree(dict)?;
        let root = tree.root()?;
        let mut seen: HashMap<NodeId, Seen> = HashMap::new();
        let mut stack = Vec::from([Visit { id: root, parent: None, lo: lo.clone(), hi: hi.clone() }]);
        while let Some(Visit { id, parent, lo, hi }) = stack.pop() {
            let known = match seen.entry(id) {
                Entry::Occupied(mut known) => {
                    known.get_mut().parents.extend(parent);
                    continue;
                }
                Entry::Vacant(known) => known,
            };
            let (node, place) = tree.version_at(id)?.ok_or_else(|| dangling(id))?;
            let mut bytes = match &node.body {
                Body::Leaf(basements) => leaf_bytes(tree.store, basements, (&lo, &hi))?,
                Body::Interior(edges) => {
                    let mut bytes = 0;
                    for edge in edges.iter().filter(|edge| edge.lo < hi && edge.hi > lo) {
                        if let Some(partition) = &edge.partition {
                            bytes += bytes_within(tree.store, partition, (&edge.lo, &edge.hi), (&lo, &hi))?;
                        }
                        visit_below(edge, id, (&lo, &hi), &mut stack);
                    }
                    bytes
                }
            };
            if let Some(place) = place.filter(|_| lo <= node.lo && hi >= node.hi) {
                // The whole extent, with the header, the unfilled part of the last block and a second copy.
                bytes = place.extent.all_blocks() * BLOCK_BYTES as u64;
            }
            known.insert(Seen { height: node.height, bytes, parents: parent.into_iter().collect() });
        }
        let mut usage = sum(&tree, root, &seen);
        // Nobody shares what has not come to the tree yet.
        let pending_bytes = pending_bytes(&tree, lo, hi)?;
        usage.stored_bytes += pending_bytes;
        usage.exclusive_bytes += pending_bytes;
        Ok(usage)
    }
}

/// Adds the parts of nodes that an edge of the node `parent` shows in `[lo, hi)`.
fn visit_below(edge: &Edge, parent: NodeId, (lo, hi): (&Cut, &Cut), stack: &mut Vec<Visit>) {
    let mut see = |id, translation: &Translation, from: &Cut, to: &Cut| {
        let (from, to) = (from.max(lo), to.min(hi));
        if from < to {
            stack.push(Visit {
                id,
                parent: Some(parent),
                lo: translation.cut(from),
                hi: translation.cut(to),
            });
        }
    };
    for goto in &edge.gotos {
        see(goto.target, &goto.translation, &goto.lo, &goto.hi);
    }
    if let Some(child) = edge.child {
        see(child, &edge.translation, &edge.lo, &edge.hi);
    }
}

/// Sums the nodes' bytes. A node is exclusive if all nodes that name it are.
fn sum(tree: &Tree<'_>, root: NodeId, seen: &HashMap<NodeId, Seen>) -> Usage {
    let mut order: Vec<(&NodeId, &Seen)> = seen.iter().collect();
    order.sort_unstable_by_key(|(_, seen)| core::cmp::Reverse(seen.height));
    let mut own: HashMap<NodeId, bool> = HashMap::new();
    let mut usage = Usage::default();
    for (id, node) in order {
        let named = node.parents.iter().filter(|parent| own.get(*parent) == Some(&true)).count();
        let is_own = *id == root || named as u64 == u64::from(tree.references_at(*id));
        own.insert(*id, is_own);
        usage.stored_bytes += node.bytes;
        usage.exclusive_bytes += if is_own { node.bytes } else { 0 };
    }
    usage
}

/// The bytes of keys and values in `[lo, hi)` that have not come to the tree, in memtables.
fn pending_bytes(tree: &Tree<'_>, lo: &Cut, hi: &Cut) -> Result<u64> {
    let (mut bytes, mut from) = (0, lo.clone());
    while from < *hi {
        let state = tree.dict.state.read();
        tree.at.refuse_if_ended()?;
        // A few at a time: writers wait meanwhile.
        let mut to = hi.clone();
        for memtable in state.memtables(&tree.at) {
            let too_many = memtable.points_within(&from, &to, tree.at.msn).nth(POINTS_AT_ONCE);
            let end = too_many.map(|point| Cut::just_after(&point.key));
            to = end.unwrap_or(to);
        }
        for memtable in state.memtables(&tree.at) {
            let points = memtable.points_within(&from, &to, tree.at.msn);
            bytes += points.map(|point| (point.key.len() + point.value.len()) as u64).sum::<u64>();
        }
        from = to;
    }
    Ok(bytes)
}

/// The stored bytes of basements' parts in `[lo, hi)`.
fn leaf_bytes(store: &Store, basements: &[Basement], within: (&Cut, &Cut)) -> Result<u64> {
    let ends = basements.iter().skip(1).map(|b| Cut::before(b.first.clone()));
    let mut bytes = 0;
    for (basement, end) in basements.iter().zip(ends.chain([Cut::HIGH])) {
        let first = Cut::before(basement.first.clone());
        bytes += bytes_within(store, &basement.piece, (&first, &end), within)?;
    }
    Ok(bytes)
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
