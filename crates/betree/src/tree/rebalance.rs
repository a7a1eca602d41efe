//! Brings a tree back within its bounds, from the root down and up again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;

use super::basement::has_messages;
use super::{EDGE_IS_THERE, Tree, TreeChange};
use crate::error::{Error, Result};
use crate::invariant::internal;
use crate::key::Cut;
use crate::message::Goto;
use crate::node::{Body, Edge, Node, live, live_before, next_live};
use crate::node_id::NodeId;
use crate::planted::{self, Bug};

/// Room that one flush needs, in nodes: the child, a neighbour that it may merge with, and their parents are
/// written anew.
pub(crate) const FLUSH_NODES: u32 = 6;
/// Room that a flush which passes the child needs, in nodes.
pub(crate) const PASSING_FLUSH_NODES: u32 = 40;

/// At most so much may wait in a node above something unreadable, in nodes: it is written with its node, and
/// copied whenever much has joined it.
const HELD_NODES_MAX: usize = 16;

/// No tree grows beyond this height; its root becomes larger instead.
pub(super) const HEIGHT_MAX: u8 = 200;

/// The result of a rebalancing.
#[derive(Default)]
pub(crate) struct Rebalanced {
    pub flushes: u64,
    /// Messages remain to be flushed, for want of room.
    pub cut_short: bool,
    /// What cannot be read keeps these from being changed.
    pub held: Held,
}

/// What a rebalancing goes round, because something there cannot be read: messages stay where they are, and
/// nodes as they are. So a checkpoint has them all the same, and whoever repairs the volume finds them. The
/// next rebalancing tries again.
#[derive(Default)]
pub(crate) struct Held {
    /// Edges whose messages cannot go down: their nodes, and where they begin.
    edges: HashSet<(NodeId, Cut)>,
    /// Nodes with messages or windows that cannot be put together with what is below.
    nodes: HashSet<NodeId>,
    /// The first errors, each for a node.
    pub errors: Vec<(NodeId, Error)>,
}

impl Held {
    fn has(&self, id: NodeId, edge: &Edge) -> bool {
        !self.edges.is_empty() && self.edges.contains(&(id, edge.lo.clone()))
    }

    /// Whether a node is to be left as it is.
    fn has_node(&self, id: NodeId) -> bool {
        self.nodes.contains(&id)
    }

    /// What was done to a node; `None` if it cannot be done.
    ///
    /// # Errors
    /// All but those of what cannot be read.
    fn unless_unreadable<T>(&mut self, id: NodeId, done: Result<T>) -> Result<Option<T>> {
        match done {
            Err(error) if error.is_unreadable() => {
                if !self.errors.iter().any(|(told, _)| *told == id) {
                    self.errors.push((id, error));
                }
                Ok(None)
            }
            done => done.map(Some),
        }
    }
}

/// How far the flushing of all buffers has come, from call to call.
#[derive(Default)]
pub(crate) struct Drain {
    /// Nodes whose own buffers were emptied: what has come since then stays in them.
    emptied: HashSet<NodeId>,
    /// Nodes below which all buffers were emptied.
    done: HashSet<NodeId>,
}

impl Tree<'_> {
    /// Flushes until no node has more pending than its size, and splits and merges on the way back. Also
    /// visits the nodes `reached` by earlier steps. With `drain`, flushes all buffers, however little they
    /// hold, until there is no room; the next call with it goes on from there. `has_room` returns whether
    /// this many more nodes could be written.
    ///
    /// It goes round what cannot be read. Called with the structure lock held.
    ///
    /// # Errors
    /// Those of reading, if the root cannot be read, or too much waits above something else.
    pub fn rebalance(
        &self,
        reached: Vec<NodeId>,
        drain: Option<&mut Drain>,
        has_room: &dyn Fn(u32) -> bool,
    ) -> Result<Rebalanced> {
        let drains = drain.is_some();
        let mut nothing = Drain::default();
        let drain = drain.unwrap_or(&mut nothing);
        let mut rebalanced = Rebalanced::default();
        let mut path: Vec<NodeId> = Vec::from([self.dict.state.read().root]);
        let mut to_visit: HashSet<NodeId> = reached.into_iter().collect();
        while let Some(id) = path.last().copied() {
            let node = match self.node(id) {
                Err(error) if error.is_unreadable() && path.len() > 1 => {
                    rebalanced.held.unless_unreadable(id, Err::<(), _>(error))?;
                    drain.done.insert(id);
                    path.pop();
                    continue;
                }
                node => node?,
            };
            let held = &mut rebalanced.held;
            let eager = drains && !drain.emptied.contains(&id);
            // What cannot go down is no reason to flush other messages early.
            let pressures = node
                .edges()
                .iter()
                .map(|edge| (edge, if held.has(id, edge) { 0 } else { self.pressure_bytes(edge) }));
            let all_bytes = pressures.clone().map(|(_, bytes)| bytes).fold(0, usize::saturating_add);
            let over = all_bytes > self.geometry.node_bytes as usize;
            let flushable = pressures
                .enumerate()
                .filter(|(_, (edge, bytes))| *bytes > 0 && (over || eager && self.may_free(edge)));
            let wanted = flushable.max_by_key(|(_, (_, bytes))| *bytes).map(|(index, _)| index);
            // Values that messages in a leaf replace take space where space is short.
            let is_free = !held.has_node(id);
            let wants_fold = eager && is_free && !self.store.may_keep_blocks() && has_messages(&node);
            let has_more = wanted.is_some() || wants_fold || eager && !rebalanced.cut_short;
            if has_more && has_room(FLUSH_NODES) {
                if let Some(index) = wanted {
                    let may_pass = has_room(PASSING_FLUSH_NODES);
                    if let Some(reached) = self.flush_or_hold(&node, index, eager, may_pass, held)? {
                        rebalanced.flushes += 1;
                        to_visit.extend(reached);
                    }
                    continue;
                }
                if wants_fold {
                    match held.unless_unreadable(id, self.folded(&node))? {
                        Some(_) => rebalanced.flushes += 1,
                        None => drop(held.nodes.insert(id)),
                    }
                    continue;
                }
                if is_free {
                    match held.unless_unreadable(id, self.materialize_one_window(&node))? {
                        Some(true) => {
                            rebalanced.flushes += 1;
                            continue;
                        }
                        Some(false) => {}
                        None => drop(held.nodes.insert(id)),
                    }
                }
                if eager {
                    drain.emptied.insert(id);
                }
            } else if has_more {
                rebalanced.cut_short = true;
            }
            let goes_on = drains && !rebalanced.cut_short;
            let mut children = node.edges().iter().filter_map(|e| e.child);
            let next = children
                .find(|c| to_visit.remove(c) || goes_on && !drain.done.contains(c) && self.is_private(*c));
            if let Some(child) = next {
                path.push(child);
                continue;
            }
            if goes_on {
                drain.done.insert(id);
            }
            path.pop();
            match path.last() {
                Some(parent) => {
                    let parent = self.node(*parent)?;
                    // A child that does not fit stays until all around it can be read.
                    let fitted = self.fit_child(parent, id);
                    rebalanced.held.unless_unreadable(id, fitted)?;
                }
                None => {
                    let fitted = self.fit_root(&node);
                    if let Some(Some(root)) = rebalanced.held.unless_unreadable(id, fitted)? {
                        path.push(root);
                    }
                }
            }
        }
        Ok(rebalanced)
    }

    /// Flushes an edge's messages, or merges its runs where that is enough. Returns the nodes that messages
    /// reached; `None` if they stay at the edge, because they were merged or what is below cannot be read.
    fn flush_or_hold(
        &self,
        node: &Node,
        index: usize,
        eager: bool,
        may_pass: bool,
        held: &mut Held,
    ) -> Result<Option<Vec<NodeId>>> {
        let edge = node.edges().get(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        let flush = |may_pass| -> Result<Option<Vec<NodeId>>> {
            if !eager && self.shrink(node, index)? {
                return Ok(None);
            }
            self.flush(node, index, may_pass).map(Some)
        };
        let flushed = match flush(may_pass) {
            // The child may take what cannot go further.
            Err(error) if may_pass && error.is_unreadable() => flush(false),
            flushed => flushed,
        };
        if let Err(error) = &flushed
            && error.is_unreadable()
        {
            let most_bytes = (self.geometry.node_bytes as usize).saturating_mul(HELD_NODES_MAX);
            // Of all edges: a node beyond its bounds could not be written so that it can be read.
            if node.edges().iter().map(Edge::pending_bytes).sum::<usize>() > most_bytes {
                return Err(error.clone());
            }
            held.edges.insert((node.id, edge.lo.clone()));
            self.make_planted_mistake(node, index)?;
        }
        Ok(held.unless_unreadable(edge.child.unwrap_or(node.id), flushed)?.flatten())
    }

    /// Drops what a planted bug drops at an edge whose messages cannot go down.
    fn make_planted_mistake(&self, node: &Node, index: usize) -> Result<()> {
        let (drops, forgets) = (planted::is(Bug::HeldMessagesDropped), planted::is(Bug::UnreadNodeForgotten));
        if !drops && !forgets {
            return Ok(());
        }
        let mut edges = node.edges().to_vec();
        let edge = edges.get_mut(index).ok_or_else(|| internal!(EDGE_IS_THERE))?;
        let removed = edge.child.filter(|_| forgets).into_iter().collect();
        *edge = Edge {
            partition: edge.partition.take().filter(|_| !drops),
            ..if forgets { Edge::null(edge.lo.clone(), edge.hi.clone()) } else { edge.clone() }
        };
        let changed = Vec::from([self.with_body(node, Body::Interior(edges))]);
        self.install(TreeChange { changed, removed, ..TreeChange::default() });
        Ok(())
    }

    /// The weight of an edge's pending messages, in bytes of a buffer that is full at a node's size. A range
    /// message weighs much: the data that it hides is kept until it has gone down, and readers have to pass
    /// it.
    fn pressure_bytes(&self, edge: &Edge) -> usize {
        let ranges_weigh = edge.pending_ranges().saturating_mul(self.geometry.range_weight_bytes());
        edge.pending_bytes().saturating_add(ranges_weigh)
    }

    /// Splits a child that is too large; merges or drops one that is too small. A reached child is private:
    /// no other edge leads to it.
    fn fit_child(&self, parent: Arc<Node>, id: NodeId) -> Result<()> {
        let Some(index) = parent.edges().iter().position(|e| e.child == Some(id)) else { return Ok(()) };
        let child = self.node(id)?;
        let (parent, child) = match self.materialize_window(&parent, index, &child)? {
            Some(parent) => match parent.edges().get(index).and_then(|e| e.child) {
                Some(id) => (parent, self.node(id)?),
                None => return Ok(()),
            },
            None => (parent, child),
        };
        let child = match self.is_large(&child) {
            true if child.height > 0 => self.compact_edges(&child)?,
            // Where most keys are new it is cheaper to leave messages where they are.
            true if self.store.may_keep_blocks() && self.dict.merge_yield.is_mostly_new() => child,
            // Otherwise folding them into the pairs may free the values that they replace.
            true => self.folded(&child)?,
            false => child,
        };
        if self.is_large(&child) {
            let mut parent = parent;
            // The halves may be too large again.
            let mut at = index;
            let mut left = 1;
            while left > 0 {
                let Some(child) = parent.edges().get(at).and_then(|e| e.child) else { return Ok(()) };
                let child = self.node(child)?;
                match if self.is_large(&child) { self.split(&parent, at, &child)? } else { None } {
                    Some(split) => {
                        parent = split;
                        left += 1;
                    }
                    None => {
                        at += 1;
                        left -= 1;
                    }
                }
            }
            return Ok(());
        }
        let mut parent = parent;
        let mut child = Some(child);
        while let Some(below) = child
            && let Some(seen) = self.collapse_edge(&parent, index, &below)?
        {
            parent = seen;
            let id = parent.edges().get(index).and_then(|edge| edge.child);
            child = id.map(|id| self.node(id)).transpose()?;
        }
        let small = |edge: Option<&Edge>| -> Result<bool> {
            match edge.map(|e| e.child) {
                // A shared child is not copied for a merge.
                Some(Some(child)) => Ok(self.is_private(child) && self.is_small(&*self.node(child)?)),
                Some(None) => Ok(true),
                None => Ok(false),
            }
        };
        if small(parent.edges().get(index))? {
            if let Some(next) = next_live(&parent, index)
                && small(parent.edges().get(next))?
                && let Some(merged) = self.merge(&parent, index, next)?
            {
                parent = merged;
            }
            if let Some(before) = live_before(&parent, index)
                && small(parent.edges().get(before))?
            {
                self.merge(&parent, before, index)?;
            }
        }
        Ok(())
    }

    /// Whether a flush of an edge's messages may free space. Pairs for a node that others name too free
    /// nothing, and would cost a copy of it.
    fn may_free(&self, edge: &Edge) -> bool {
        edge.pending_ranges() > 0 || edge.child.is_none_or(|child| self.is_private(child))
    }

    /// Materializes the first edge of a node that shows only a part of its child: mostly, that edge alone
    /// keeps the hidden part, and all below it, from being freed. `false` if there is no such edge.
    ///
    /// An interior child with other references is materialized too, although it frees nothing as long as they
    /// last: that costs some hundred bytes for each clone, once, while a remaining window would have to be
    /// looked at again whenever one of the others goes. A leaf with others is only if its parts, one for each
    /// reference, are no larger than it is.
    fn materialize_one_window(&self, node: &Node) -> Result<bool> {
        for (index, edge) in node.edges().iter().enumerate() {
            let Some(id) = edge.child else { continue };
            let child = self.node(id)?;
            let references = self.table.lock().references(id) as usize;
            if child.height == 0 && references > 1 {
                let (lo, hi) = edge.shown();
                let shown_bytes = child.whole_bytes_within(&lo, &hi);
                if shown_bytes.saturating_mul(references) > child.content_bytes() {
                    continue;
                }
            }
            if self.materialize_window(node, index, &child)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether exactly one edge leads to a node. Below a node with several this says nothing.
    pub(super) fn is_private(&self, id: NodeId) -> bool {
        self.table.lock().references(id) == 1
    }

    fn is_large(&self, node: &Node) -> bool {
        match &node.body {
            Body::Leaf(_) => node.content_bytes() > self.geometry.node_bytes as usize,
            Body::Interior(edges) => live(edges) > self.geometry.fanout_max as usize,
        }
    }

    fn is_small(&self, node: &Node) -> bool {
        match &node.body {
            Body::Leaf(_) => node.content_bytes() < self.geometry.node_bytes as usize / 4,
            Body::Interior(edges) => live(edges) < (self.geometry.fanout_max as usize / 4).max(2),
        }
    }

    /// Adds or removes a level of the tree. Returns the root if it has to be looked at again.
    fn fit_root(&self, root: &Arc<Node>) -> Result<Option<NodeId>> {
        let fanout_max = self.geometry.fanout_max as usize;
        let root = if live(root.edges()) > fanout_max { self.compact_edges(root)? } else { root.clone() };
        let edges = root.edges();
        if live(edges) > fanout_max && root.height < HEIGHT_MAX {
            let parts = live(edges).div_ceil(fanout_max).max(2);
            let mut change = TreeChange { removed: alloc::vec![root.id], ..TreeChange::default() };
            let mut tops = Vec::with_capacity(parts);
            let mut highest = 0;
            for run in edges.chunks(edges.len().div_ceil(parts)) {
                let ends = run.first().zip(run.last());
                let (first, last) = ends.ok_or_else(|| internal!("a node is put below edges"))?;
                let height = self.height_above(run);
                highest = highest.max(height);
                let built = self.build_interior(height, &first.lo, &last.hi, run);
                let (node, edge) = built.map_err(|error| self.undone(&change, error))?;
                change.added.push(node);
                tops.push(edge);
            }
            let top = self.new_node(highest + 1, Cut::LOW, Cut::HIGH, Body::Interior(tops));
            let id = top.id;
            change.added.push(top);
            change.root = Some(id);
            self.install(change);
            return Ok(Some(id));
        }
        if let [only] = edges
            && only.child.is_none()
            && !only.has_pending()
        {
            if root.height > 1 {
                let null = Edge::null(Cut::LOW, Cut::HIGH);
                let top = self.new_node(1, Cut::LOW, Cut::HIGH, Body::Interior(alloc::vec![null]));
                self.replace_root(&root, top);
            }
            return Ok(None);
        }
        self.lower_root(&root)
    }

    /// Makes the remaining edges of the root's highest children edges of the root, if there is room for all:
    /// clones that came and went leave such children all but empty.
    fn lower_root(&self, root: &Arc<Node>) -> Result<Option<NodeId>> {
        let fanout_max = self.geometry.fanout_max as usize;
        let most = if live(root.edges()) == 1 { fanout_max } else { fanout_max / 2 };
        let all = self.flatten_edges(root.edges().to_vec(), most, most)?;
        let height = self.height_above(&all);
        if height >= root.height {
            return Ok(None);
        }
        let top = self.new_node(height, Cut::LOW, Cut::HIGH, Body::Interior(all));
        let id = top.id;
        self.replace_root(root, top);
        Ok(Some(id))
    }

    /// The height of a node that will have these edges.
    pub(super) fn height_above(&self, edges: &[Edge]) -> u8 {
        let table = self.table.lock();
        edges
            .iter()
            .flat_map(Edge::references)
            .filter_map(|id| table.height(id))
            .max()
            .map_or(1, |height| height.saturating_add(1))
    }

    /// The height of a node that will have these edges, below an edge with these GOTOs pending.
    pub(super) fn height_below(&self, edges: &[Edge], gotos: &[Goto]) -> u8 {
        let table = self.table.lock();
        let targets = gotos.iter().filter_map(|goto| table.height(goto.target));
        let highest = targets.max().map_or(1, |height| height.saturating_add(1));
        drop(table);
        self.height_above(edges).max(highest)
    }

    /// Replaces the root; nodes that only the old root named are freed later.
    fn replace_root(&self, old: &Node, top: Arc<Node>) {
        let (root, removed) = (Some(top.id), alloc::vec![old.id]);
        self.install(TreeChange { root, added: alloc::vec![top], removed, ..TreeChange::default() });
    }
}
