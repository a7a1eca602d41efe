//! Builds a tree of pairs in order, bottom-up and apart: each node goes to the device once, as soon as it is
//! full, and no other tree names it before all of them are there. Where the platform lends threads, they
//! encode and write nodes while the next one fills.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, Ordering};

use super::apply_messages::{Applied, Messages};
use super::build::Lift;
use super::leaf_builder::LeafBuilder;
use super::{Tree, TreeChange};
use crate::batch::Batch;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::invariant::internal;
use crate::key::{Cut, KEY_BYTES_MAX};
use crate::message::{Goto, PairCompression};
use crate::node::{Basement, Body, Edge, join_nulls};
use crate::node_id::NodeId;
use crate::run::{Run, RunBuilder};
use crate::settings::DictId;
use crate::store::{NodePlace, Outgoing, PlaceNode, ReadScope, WriteBehind};

/// Of a leaf one part in this many stays free, so that the first puts into it do not split it.
const FREE_PARTS: usize = 8;

/// A node on the device that the node table does not hold yet.
pub(crate) struct WrittenNode {
    /// Reserved.
    pub id: NodeId,
    pub height: u8,
    pub place: NodePlace,
    /// How many of the nodes that were written with it name it.
    pub references: u32,
}

/// Takes pairs in order and writes nodes of them. In memory are one leaf, two nodes on their way to the
/// device, the edges of one node for each level above, and for each written node what the node table will
/// hold of it. All nodes have the keys of the root: nothing is stripped. Dropping it gives back ids and
/// space.
pub(crate) struct TreeBuilder<'e, 'm> {
    nodes: NodeWriter<'e, 'm>,
    /// Charges its memory: to the cache's budget it would be dirty, and no checkpoint could change that.
    memory: &'m Cache,
    leaf: LeafBuilder<'m>,
    /// Where the leaf at hand begins; `None` if that is to be at its first key.
    leaf_lo: Option<Cut>,
    last_key: Option<Vec<u8>>,
    pairs: u64,
    bytes: u64,
    /// The edges of the open node of each level, from the parents of leaves on.
    levels: Vec<Vec<Edge>>,
}

/// Writes nodes, and keeps what they are until a tree names them.
struct NodeWriter<'e, 'm> {
    place: PlaceNode<'m>,
    /// Dropped before what is written gives back its space.
    behind: WriteBehind<'e>,
    written: Unnamed<'e>,
}

/// Written nodes that no tree names. Dropping them gives back their ids and their space.
struct Unnamed<'e> {
    tree: Tree<'e>,
    nodes: Arc<Vec<WrittenNode>>,
    /// The ids of nodes on their way to the device, the oldest first.
    on_their_way: VecDeque<NodeId>,
    bytes: u64,
    is_named: AtomicBool,
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        if !self.is_named.load(Ordering::Relaxed) {
            let mut table = self.tree.table.lock();
            let written = self.nodes.iter().map(|node| node.id);
            written.chain(self.on_their_way.iter().copied()).for_each(|id| table.release_reserved(id));
        }
    }
}

impl<'e> NodeWriter<'e, '_> {
    /// Has a node for `[lo, hi)` written, and returns the edge to it. An error may be that of an earlier
    /// node.
    fn write(&mut self, height: u8, lo: Cut, hi: Cut, body: Body, longest_key: u32) -> Result<Edge> {
        let Tree { table, dict, .. } = self.written.tree;
        let id = table.lock().reserve();
        self.written.on_their_way.push_back(id);
        let node = self.written.tree.version(id, height, lo.clone(), hi.clone(), body);
        let written = self.behind.give(dict.index as u8, node.clone(), self.place)?;
        self.note_written(written)?;
        Ok(self.written.tree.edge_to(node, &lo, &hi, Lift::default(), longest_key).1)
    }

    fn note_written(&mut self, written: Vec<Outgoing>) -> Result<()> {
        for outgoing in written {
            let oldest = self.written.on_their_way.pop_front();
            self.written.bytes += outgoing.written_bytes();
            let Outgoing { node, place, .. } = outgoing;
            let nodes = Arc::get_mut(&mut self.written.nodes);
            let nodes = nodes.ok_or_else(|| internal!("nodes are shared once all are written"))?;
            nodes.push(WrittenNode { id: node.id, height: node.height, place, references: 1 });
            if oldest != Some(node.id) {
                return Err(internal!("nodes are written in the order in which they were given"));
            }
        }
        Ok(())
    }

    /// Whether no node was given to be written.
    fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.written.nodes.is_empty()
    }

    /// All nodes, once they are written.
    fn finish(mut self) -> Result<Unnamed<'e>> {
        let written = self.behind.finish(self.place)?;
        self.note_written(written)?;
        Ok(self.written)
    }
}

impl<'e, 'm> TreeBuilder<'e, 'm> {
    /// A builder of nodes for the dictionary of `tree`, with a cache of its own for the pieces at hand.
    pub fn new(tree: Tree<'e>, memory: &'m Cache, place: PlaceNode<'m>) -> TreeBuilder<'e, 'm> {
        let written = Unnamed {
            tree,
            nodes: Arc::default(),
            on_their_way: VecDeque::new(),
            bytes: 0,
            is_named: AtomicBool::new(false),
        };
        TreeBuilder {
            nodes: NodeWriter { place, behind: WriteBehind::new(tree.store), written },
            memory,
            leaf: LeafBuilder::new(memory, tree.geometry.basement_bytes),
            leaf_lo: None,
            last_key: None,
            pairs: 0,
            bytes: 0,
            levels: Vec::new(),
        }
    }

    /// The same, with a tree that begins at a cut before all keys.
    pub fn starting_at(self, lo: Cut) -> TreeBuilder<'e, 'm> {
        TreeBuilder { leaf_lo: Some(lo), ..self }
    }

    /// The number of pairs so far.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// The bytes of their keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the next pair.
    ///
    /// # Errors
    /// [`Error::NotInOrder`], [`Error::KeyTooLong`], [`Error::TooLarge`]; those of the device and of room for
    /// an earlier leaf.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.last_key.as_deref().is_some_and(|last| last >= key) {
            return Err(Error::NotInOrder { position: self.pairs });
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong { bytes: key.len() as u64, limit_bytes: KEY_BYTES_MAX as u64 });
        }
        let bytes = (key.len() + value.len()) as u64;
        let limit_bytes = self.nodes.written.tree.geometry.batch_bytes_max();
        if bytes > limit_bytes {
            return Err(Error::TooLarge { what: "a pair", bytes, limit_bytes });
        }
        self.add(key, value)
    }

    /// As [`push`](TreeBuilder::push), of a pair that is known to be in order and within limits.
    ///
    /// # Errors
    /// Those of the device and of room for an earlier leaf.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.leaf_lo.is_none() {
            self.leaf_lo = Some(Cut::before(key));
        }
        if let Some(between) = self.leaf_end_before(key, value) {
            self.end_leaf(between)?;
        }
        self.leaf.push(key, value, PairCompression::Usual);
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Where the leaf at hand ends if this pair comes next and has no room in it.
    pub fn leaf_end_before(&self, key: &[u8], value: &[u8]) -> Option<Cut> {
        let geometry = self.nodes.written.tree.geometry;
        let most_bytes = geometry.node_bytes as usize / FREE_PARTS * (FREE_PARTS - 1);
        let is_full = self.leaf.pushed_bytes() > 0
            && self.leaf.pushed_bytes() + RunBuilder::bytes_of(key, value) > most_bytes;
        self.last_key.as_deref().filter(|_| is_full).map(|last| cut_between(last, key))
    }

    /// Its pairs as a batch of puts, if none was written and they have at most `bytes_max` bytes; the builder
    /// is empty then.
    ///
    /// # Errors
    /// None but those of a broken invariant.
    pub fn take_few(&mut self, dict: DictId, bytes_max: u64) -> Result<Option<Batch>> {
        if self.bytes > bytes_max || !self.nodes.is_empty() {
            return Ok(None);
        }
        let mut batch = Batch::new();
        for Basement { piece, .. } in self.take_leaf().0 {
            let layers =
                piece.layers().ok_or_else(|| internal!("a piece that was not written is in memory"))?;
            for run in layers.newest_first() {
                run.points(0, run.len()).for_each(|pair| batch.put(dict, &pair.key, pair.value));
            }
        }
        Ok(Some(batch))
    }

    fn take_leaf(&mut self) -> (Vec<Basement>, u32) {
        let empty = LeafBuilder::new(self.memory, self.nodes.written.tree.geometry.basement_bytes);
        core::mem::replace(&mut self.leaf, empty).finish()
    }

    /// Writes the leaf at hand, which ends at `hi`.
    fn end_leaf(&mut self, hi: Cut) -> Result<()> {
        let (basements, longest_key) = self.take_leaf();
        let lo = self.leaf_lo.replace(hi.clone());
        let lo = lo.ok_or_else(|| internal!("a leaf with pairs has a beginning"))?;
        let edge = self.nodes.write(0, lo, hi, Body::Leaf(basements), longest_key)?;
        self.add_edge(0, edge)
    }

    fn add_edge(&mut self, level: usize, edge: Edge) -> Result<()> {
        let fanout_max = self.nodes.written.tree.geometry.fanout_max as usize;
        if self.levels.get(level).is_some_and(|edges| edges.len() >= fanout_max) {
            self.end_node(level)?;
        }
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        let edges = self.levels.get_mut(level).ok_or_else(|| internal!("levels are filled from below"))?;
        edges.push(edge);
        Ok(())
    }

    /// Writes the open node of a level. A node for one edge alone would show nothing else: that edge goes up.
    fn end_node(&mut self, level: usize) -> Result<()> {
        let mut edges = self.levels.get_mut(level).map(core::mem::take).unwrap_or_default();
        let edge = match edges.as_slice() {
            [first, .., last] => {
                let (lo, hi) = (first.lo.clone(), last.hi.clone());
                let longest_key = edges.iter().map(Edge::longest_key_here).max().unwrap_or(0);
                self.nodes.write(level as u8 + 1, lo, hi, Body::Interior(edges), longest_key)?
            }
            _ => edges.pop().ok_or_else(|| internal!("a level has edges until it is written"))?,
        };
        self.add_edge(level + 1, edge)
    }

    /// Writes all that is left. `None` if there are no pairs.
    ///
    /// # Errors
    /// Those of the device and of room.
    pub fn finish(self) -> Result<Option<BuiltTree<'e>>> {
        match self.last_key.as_deref().map(Cut::just_after) {
            Some(behind) => self.finish_at(behind),
            None => Ok(None),
        }
    }

    /// As [`finish`](TreeBuilder::finish), with a tree that ends at a cut behind all keys.
    ///
    /// # Errors
    /// As [`finish`](TreeBuilder::finish).
    pub fn finish_at(mut self, hi: Cut) -> Result<Option<BuiltTree<'e>>> {
        if self.last_key.is_none() {
            return Ok(None);
        }
        self.end_leaf(hi)?;
        let mut level = 0;
        while level + 1 < self.levels.len() || self.levels.get(level).is_some_and(|edges| edges.len() > 1) {
            self.end_node(level)?;
            level += 1;
        }
        let top = self.levels.pop().and_then(|mut edges| edges.pop());
        let goto = top.as_ref().and_then(Edge::to_goto);
        let goto = goto.ok_or_else(|| internal!("a tree with pairs has a top"))?;
        let mut nodes = self.nodes.finish()?;
        // Nothing names the top yet. It was written last.
        let all = Arc::get_mut(&mut nodes.nodes).map(|nodes| nodes.last_mut());
        let top = all.flatten().filter(|top| top.id == goto.target);
        top.ok_or_else(|| internal!("the top of a tree is written last"))?.references = 0;
        Ok(Some(BuiltTree { nodes, goto }))
    }
}

/// A tree of its own on the device. Dropping it gives back ids and space, unless it was put in place.
pub(crate) struct BuiltTree<'e> {
    nodes: Unnamed<'e>,
    goto: Goto,
}

impl BuiltTree<'_> {
    /// The bounds of its keys.
    pub fn bounds(&self) -> (&Cut, &Cut) {
        (&self.goto.lo, &self.goto.hi)
    }

    /// The number of its nodes.
    pub fn len(&self) -> usize {
        self.nodes.nodes.len()
    }

    /// The bytes of its nodes on the device.
    pub fn written_bytes(&self) -> u64 {
        self.nodes.bytes
    }

    /// Its pairs, one leaf at a time, in their order.
    pub fn leaves(&self) -> impl Iterator<Item = Result<Vec<Arc<Run>>>> {
        let tree = self.nodes.tree;
        self.nodes.nodes.iter().filter(|node| node.height == 0).map(
            move |WrittenNode { id, place, .. }| {
                let leaf = tree.store.read_node(*id, place, ReadScope::Whole, None)?;
                tree.basement_pairs(&leaf.pieces())
            },
        )
    }

    /// Notes that the change of [`Tree::put_tree`] was installed.
    pub fn set_named(&self) {
        self.nodes.is_named.store(true, Ordering::Relaxed);
    }
}

impl Tree<'_> {
    /// The change that shows another tree in place of all keys between its bounds; every earlier message is
    /// in the tree already. Nothing is visible until the change is installed.
    ///
    /// Called with the structure lock held.
    ///
    /// # Errors
    /// Those of reading the messages at the root that the bounds cut.
    pub fn put_tree(&self, built: &BuiltTree<'_>) -> Result<TreeChange> {
        let change = TreeChange { written: built.nodes.nodes.clone(), ..TreeChange::default() };
        let mut applied = Applied { change, ..Applied::default() };
        match self.root_over(&built.goto, &mut applied) {
            Ok(()) => Ok(applied.change),
            Err(error) => {
                self.cancel(&applied.change);
                Err(error)
            }
        }
    }

    /// The root's next version with a GOTO to another tree; a new root where it would be too low for that.
    fn root_over(&self, goto: &Goto, applied: &mut Applied) -> Result<()> {
        let root = self.dict.state.read().root;
        let root = self.node(root)?;
        let height = self.height_of(goto.target, &applied.change)?;
        if height < root.height {
            let messages = Messages { gotos: Vec::from([goto.clone()]), ..Messages::default() };
            let body = self.apply_messages(&root, &messages, true, applied)?;
            applied.change.changed.push(self.with_body(&root, body));
            return Ok(());
        }
        let mut edges = self.place_goto(root.edges().to_vec(), goto, &applied.change)?;
        join_nulls(&mut edges);
        let top = self.new_node(height.saturating_add(1), Cut::LOW, Cut::HIGH, Body::Interior(edges));
        applied.change.root = Some(top.id);
        applied.change.added.push(top);
        applied.change.removed.push(root.id);
        Ok(())
    }
}

/// The shortest cut above one key and not above the next.
fn cut_between(last: &[u8], next: &[u8]) -> Cut {
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    Cut::before(next.get(..=shared).unwrap_or(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_between_two_keys_is_short_and_stands_between_them() {
        for (last, next, bytes) in
            [("", "a", 1), ("a", "ab", 2), ("ab", "b", 1), ("abc", "abdzz", 3), ("a\0", "a\x01", 2)]
        {
            let cut = cut_between(last.as_bytes(), next.as_bytes());
            assert!(cut.is_above(last.as_bytes()) && !cut.is_above(next.as_bytes()), "{cut:?}");
            assert_eq!(cut.bytes().len(), bytes, "{cut:?}");
        }
    }
}
