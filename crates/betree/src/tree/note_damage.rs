//! Puts known damage in the place of what cannot be read, so that all else can be changed again.
//!
//! A lost basement becomes one with nothing but known damage. A lost partition hides all below it, for it may
//! have had a message for any key: its edge becomes a null edge with known damage. So does an edge to a lost
//! node. Messages stay that are newer than what was lost: those pending above a node, or in runs over a lost
//! run. A lost target of a GOTO leaves known damage for the GOTO's range.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;

use super::apply_messages::{Applied, Messages};
use super::{Tree, TreeChange};
use crate::cache::Piece;
use crate::error::{Error, Result};
use crate::key::Cut;
use crate::message::{Goto, RangeDelete, subtract};
use crate::node::{Basement, Body, Edge, Node};
use crate::node_id::NodeId;
use crate::run::{Run, RunBuilder};

/// What a part of a node becomes.
#[derive(Default)]
struct Noted {
    /// How many structures were lost.
    lost: u64,
    /// The nodes that cannot be read, to which the part leads no more.
    nodes: Vec<NodeId>,
}

impl Tree<'_> {
    /// Puts known damage in the place of everything in the tree that cannot be read. Returns the number of
    /// structures that were lost; `seen` gets all nodes of the tree that are left. Called with the structure
    /// lock held; afterwards references may be too many, for what lost nodes led to.
    ///
    /// # Errors
    /// Those of the device that are no damage; [`Error::Internal`].
    pub fn note_damage(&self, seen: &mut HashSet<NodeId>) -> Result<u64> {
        let mut all = 0;
        let root = self.dict.state.read().root;
        let root = match self.readable(root, &Cut::LOW, &Cut::HIGH)? {
            Some(_) => root,
            None => {
                let mut edge = Edge::null(Cut::LOW, Cut::HIGH);
                edge.partition = self.piece_of(None, Vec::from([RangeDelete::damage(Cut::LOW, Cut::HIGH)]));
                let top = self.new_node(1, Cut::LOW, Cut::HIGH, Body::Interior(Vec::from([edge])));
                let id = top.id;
                let (added, removed) = (Vec::from([top]), self.own(Vec::from([root]))?);
                self.install(TreeChange { root: Some(id), added, removed, ..TreeChange::default() });
                all += 1;
                id
            }
        };
        seen.insert(root);
        let mut stack = Vec::from([root]);
        while let Some(id) = stack.pop() {
            let mut node = self.node(id)?;
            let mut noted = Noted::default();
            let body = match &node.body {
                Body::Leaf(basements) => Body::Leaf(self.noted_basements(&node, basements, &mut noted)?),
                Body::Interior(edges) => {
                    let mut new = Vec::with_capacity(edges.len());
                    for edge in edges {
                        new.extend(self.noted_edge(edge, &mut noted)?);
                    }
                    Body::Interior(new)
                }
            };
            if noted.lost > 0 {
                all += noted.lost;
                node = self.with_body(&node, body);
                noted.nodes.sort_unstable();
                noted.nodes.dedup();
                let changed = Vec::from([node.clone()]);
                let removed = self.own(noted.nodes)?;
                self.install(TreeChange { changed, removed, ..TreeChange::default() });
            }
            stack.extend(node.references().filter(|id| seen.insert(*id)));
        }
        Ok(all)
    }

    /// Puts known damage, disjoint and in order, over all that the tree holds: it hides what is below, and
    /// what is pending goes. Called with the structure lock held, once every message is in the tree.
    ///
    /// # Errors
    /// Those of the device; nothing was changed.
    pub fn lose(&self, ranges: Vec<RangeDelete>) -> Result<()> {
        let root = self.dict.state.read().root;
        let root = self.node(root)?;
        let messages = Messages { ranges, ..Messages::default() };
        let mut applied = Applied::default();
        let body = self.apply_messages(&root, &messages, true, &mut applied)?;
        applied.change.changed.push(self.with_body(&root, body));
        self.install(applied.change);
        Ok(())
    }

    /// Leaves out the nodes of other dictionaries, to which an edge of this one led: their trees have them.
    ///
    /// # Errors
    /// Those that are no damage.
    fn own(&self, ids: Vec<NodeId>) -> Result<Vec<NodeId>> {
        let mut own = Vec::with_capacity(ids.len());
        for id in ids {
            let place = self.table.lock().place(id);
            let header = match place {
                Some(place) => read(self.store.read_header(id, &place, None))?,
                None => None,
            };
            if header.is_none_or(|header| usize::from(header.origin.dict) == self.dict.index) {
                own.push(id);
            }
        }
        Ok(own)
    }

    /// Has the next checkpoint write a node anew as it is. Called with the structure lock held.
    pub fn rewrite(&self, node: &Node) {
        self.install(TreeChange { changed: Vec::from([self.copy_of(node)]), ..TreeChange::default() });
    }

    /// Whether a node that waits to be freed, or one that it leads to, cannot be read.
    ///
    /// # Errors
    /// Those that are no damage.
    pub fn is_dead_lost(&self, seen: &HashSet<NodeId>) -> Result<bool> {
        let mut looked_at = HashSet::<NodeId>::new();
        let mut stack = self.dict.dead.lock().clone();
        while let Some(id) = stack.pop() {
            // A leaf leads to nothing, and is freed unread.
            if seen.contains(&id) || !looked_at.insert(id) || self.table.lock().height(id) == Some(0) {
                continue;
            }
            match read(self.find(id))?.flatten() {
                Some(node) => stack.extend(node.references()),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The node, if it can be read and has all of `[lo, hi)`.
    ///
    /// # Errors
    /// Those that are no damage.
    fn readable(&self, id: NodeId, lo: &Cut, hi: &Cut) -> Result<Option<Arc<Node>>> {
        Ok(read(self.find(id))?.flatten().filter(|node| node.lo <= *lo && node.hi >= *hi))
    }

    /// A partition of the points of a run over ranges.
    pub(super) fn piece_of(&self, points: Option<&Run>, ranges: Vec<RangeDelete>) -> Option<Arc<Piece>> {
        let mut out = RunBuilder::default();
        if let Some(run) = points {
            run.points(0, run.len()).for_each(|p| out.push(&p.key, p.msn, p.kind, p.value));
        }
        out.set_ranges(ranges);
        (!out.is_empty()).then(|| Piece::new(&self.store.cache, out.finish()))
    }

    fn noted_basements(
        &self,
        leaf: &Node,
        basements: &[Basement],
        noted: &mut Noted,
    ) -> Result<Vec<Basement>> {
        let ends = basements.iter().skip(1).map(|next| Cut::before(next.first.as_slice()));
        let ends = ends.chain([leaf.hi.clone()]);
        let mut new = Vec::with_capacity(basements.len());
        for (basement, end) in basements.iter().zip(ends) {
            let (newer, error) = self.newest(&basement.piece)?;
            if error.is_none() {
                new.push(basement.clone());
                continue;
            }
            noted.lost += 1;
            let lost = RangeDelete::damage(Cut::before(basement.first.as_slice()), end);
            let piece = self.piece_over(newer.as_deref(), &lost);
            new.extend(piece.map(|piece| Basement { first: basement.first.clone(), piece }));
        }
        Ok(new)
    }

    /// The edges in the place of one.
    fn noted_edge(&self, edge: &Edge, noted: &mut Noted) -> Result<Vec<Edge>> {
        let (run, error) = match &edge.partition {
            None => (None, None),
            Some(piece) => self.newest(piece)?,
        };
        if error.is_some() {
            noted.lost += 1;
            return Ok(Vec::from([self.null_over(edge, run.as_deref())]));
        }
        let ranges = run.as_ref().map_or(&[][..], |run| run.ranges());
        let mut gotos = Vec::with_capacity(edge.gotos.len());
        let mut damage = Vec::new();
        for goto in &edge.gotos {
            let (lo, hi) = (goto.translation.cut(&goto.lo), goto.translation.cut(&goto.hi));
            if self.readable(goto.target, &lo, &hi)?.is_some() {
                gotos.push(goto.clone());
            } else {
                noted.lost += 1;
                noted.nodes.push(goto.target);
                damage.push(RangeDelete::damage(goto.lo.clone(), goto.hi.clone()));
            }
        }
        let (lo, hi) = edge.shown();
        let is_child_lost = match edge.child {
            Some(child) => self.readable(child, &lo, &hi)?.is_none(),
            None => false,
        };
        if !is_child_lost && damage.is_empty() {
            return Ok(Vec::from([edge.clone()]));
        }
        if !is_child_lost {
            damage.extend_from_slice(ranges);
            damage.sort_by(|a, b| a.lo.cmp(&b.lo));
            let partition = self.piece_of(run.as_deref(), damage);
            return Ok(Vec::from([Edge { partition, gotos, ..edge.clone() }]));
        }
        noted.lost += 1;
        noted.nodes.extend(edge.child);
        self.beside_gotos(&self.null_over(edge, run.as_deref()), &gotos)
    }

    /// The null edge in the place of one below which all is lost, with the messages that are left of its
    /// partition.
    fn null_over(&self, edge: &Edge, messages: Option<&Run>) -> Edge {
        let lost = RangeDelete::damage(edge.lo.clone(), edge.hi.clone());
        Edge {
            partition: self.piece_over(messages, &lost),
            longest_key: edge.longest_key_here(),
            ..Edge::null(edge.lo.clone(), edge.hi.clone())
        }
    }

    /// The piece of messages over a range below which nothing is left: a range that they have deleted is
    /// known to be empty, and all else is `lost`.
    fn piece_over(&self, messages: Option<&Run>, lost: &RangeDelete) -> Option<Arc<Piece>> {
        let ranges = messages.map_or(&[][..], |run| run.ranges());
        let deleted: Vec<_> = ranges.iter().filter(|range| !range.is_damage()).cloned().collect();
        self.piece_of(messages, subtract(core::slice::from_ref(lost), &deleted))
    }

    /// What is left of a piece: its messages newer than the first that cannot be read, and the error of that
    /// one. All of it without an error.
    ///
    /// # Errors
    /// Those that are no damage.
    fn newest(&self, piece: &Arc<Piece>) -> Result<(Option<Arc<Run>>, Option<Error>)> {
        let (layers, error) = self.store.newest_layers(piece);
        if let Some(error) = &error {
            read(Err::<(), _>(error.clone()))?;
        }
        Ok((layers.map(|layers| layers.joined()), error))
    }

    /// The parts of a null edge beside GOTOs, and the edges that the GOTOs become.
    fn beside_gotos(&self, null: &Edge, gotos: &[Goto]) -> Result<Vec<Edge>> {
        let mut edges = Vec::with_capacity(gotos.len() * 2 + 1);
        let mut from = null.lo.clone();
        for goto in gotos {
            edges.extend(self.narrow(null, &from, &goto.lo)?);
            let messages = self.partition_within(null, &goto.lo, &goto.hi)?;
            let run = messages.map(|piece| self.store.run(&piece)).transpose()?;
            let partition = self.piece_of(run.as_deref(), Vec::new());
            let mut edge = Edge { partition, ..Edge::of_goto(goto) };
            edge.longest_key = edge.longest_key.max(edge.lifted_len(null.longest_key));
            edges.push(edge);
            from = goto.hi.clone();
        }
        edges.extend(self.narrow(null, &from, &null.hi)?);
        Ok(edges)
    }
}

/// What was read; `None` if it cannot be.
///
/// # Errors
/// Those that are no damage: what a later version made is there, and nothing may take its place.
pub(crate) fn read<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(read) => Ok(Some(read)),
        Err(error @ Error::UnknownKind { .. }) => Err(error),
        Err(error) if error.is_unreadable() => Ok(None),
        Err(error) => Err(error),
    }
}
