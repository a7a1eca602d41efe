//! The walk from the roots to every readable node, each once.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use super::FindingCode as Code;
use super::pieces::{check_basement_run, check_partition};
use super::{Finding, Place};
use crate::cache::Piece;
use crate::engine::Engine;
use crate::error::Error;
use crate::key::{Cut, shared_len};
use crate::message::Goto;
use crate::node::{Body, Edge, Node};
use crate::node_id::NodeId;
use crate::store::ReadScope;
use crate::tree::{astray, dangling, fits};

/// A node to visit, and its description in the parent.
struct Visit {
    id: NodeId,
    /// The dictionary of its tree.
    dict: u8,
    lo: Cut,
    hi: Cut,
    /// The parent's height; 256, above every height, if the parent was reported as not fitting the node
    /// table.
    below_height: u16,
    longest_key: Option<u32>,
}

/// The number of references to a node found so far, and its shape.
#[derive(Default)]
struct Found {
    references: u32,
    /// Kept if more than one edge or GOTO leads to the node: each has a window of its own.
    shape: Option<Shape>,
}

/// The properties that each edge or GOTO to a node has to match.
struct Shape {
    height: u8,
    lo: Cut,
    hi: Cut,
    longest_key: usize,
}

/// A walk through the trees of an engine.
pub(super) struct Walk<'e, 't> {
    engine: &'e Engine,
    tell: &'t mut dyn FnMut(Finding),
    /// Height and references by the node table.
    known: HashMap<NodeId, (u8, u32)>,
    found: HashMap<NodeId, Found>,
    stack: Vec<Visit>,
    /// The number of nodes that may lead to others and could not be read, or not freed; and the first of
    /// them.
    unread: u64,
    first_unread: Option<NodeId>,
}

impl<'e, 't> Walk<'e, 't> {
    pub fn new(engine: &'e Engine, tell: &'t mut dyn FnMut(Finding)) -> Walk<'e, 't> {
        let known = engine.table.lock().nodes().map(|(id, height, refs)| (id, (height, refs))).collect();
        let (found, stack) = (HashMap::new(), Vec::new());
        Walk { engine, tell, known, found, stack, unread: 0, first_unread: None }
    }

    fn place(&self, id: NodeId) -> Place {
        Place::node(id, self.engine.table.lock().place(id).map(|place| place.extent.place(0)))
    }

    fn problem(&mut self, code: Code, id: NodeId, what: impl core::fmt::Display) {
        let found = Finding::problem(code, self.place(id), format!("node {id}: {what}"));
        (self.tell)(found);
    }

    fn unreadable(&mut self, code: Code, id: NodeId, what: String, error: Error) {
        let found = Finding::unreadable(code, self.place(id), what, error);
        (self.tell)(found);
    }

    /// Goes from each root down.
    pub fn trees(&mut self, progress: &mut dyn FnMut(u64, u64)) {
        let total = self.known.len() as u64;
        let mut done = 0;
        for dict in &self.engine.dicts {
            let id = dict.state.read().root;
            let (dict, lo, hi) = (dict.index as u8, Cut::LOW, Cut::HIGH);
            self.stack.push(Visit { id, dict, lo, hi, below_height: 256, longest_key: None });
            while let Some(visit) = self.stack.pop() {
                let node = self.found.entry(visit.id).or_default();
                node.references += 1;
                if node.references > 1 {
                    if let Some(shape) = node.shape.take() {
                        self.compare(&shape, &visit);
                        self.found.entry(visit.id).or_default().shape = Some(shape);
                    }
                    continue;
                }
                done += 1;
                progress(done, total);
                let shape = self.node(&visit);
                let is_shared = self.known.get(&visit.id).is_some_and(|(_, refs)| *refs > 1);
                self.found.entry(visit.id).or_default().shape = shape.filter(|_| is_shared);
            }
        }
    }

    /// Reports where a visit does not match the node's shape.
    fn compare(&mut self, shape: &Shape, visit: &Visit) {
        let id = visit.id;
        if u16::from(shape.height) >= visit.below_height {
            self.problem(
                Code::EdgeNotDown,
                id,
                format!("its height is {}, no lower than its parent's", shape.height),
            );
        }
        if shape.lo > visit.lo || shape.hi < visit.hi {
            let what = format!(
                "node {id}: it is bounded by [{:?}, {:?}); its parent shows more: [{:?}, {:?})",
                shape.lo, shape.hi, visit.lo, visit.hi
            );
            self.unreadable(Code::EdgeTooWide, id, what, astray(id));
        }
        if let Some(bound) = visit.longest_key.filter(|bound| shape.longest_key > *bound as usize) {
            let what = format!(
                "a key of {} bytes is longer than its parent's bound, {bound}; height {} [{:?}, {:?}) seen as [{:?}, {:?})",
                shape.longest_key, shape.height, shape.lo, shape.hi, visit.lo, visit.hi
            );
            self.problem(Code::KeyOverBound, id, what);
        }
    }

    fn lacks(&mut self, id: NodeId) {
        self.unread += 1;
        self.first_unread.get_or_insert(id);
    }

    fn node(&mut self, visit: &Visit) -> Option<Shape> {
        let (id, engine) = (visit.id, self.engine);
        let (place, lost) = {
            let table = engine.table.lock();
            (table.place(id), table.why_lost(id))
        };
        let Some(place) = place else {
            self.lacks(id);
            // A slot that the node table lost was reported when the table was read.
            if lost.is_none() {
                let what = format!("node {id}: an edge leads to it, but the node table does not hold it");
                self.unreadable(Code::DanglingEdge, id, what, dangling(id));
            }
            return None;
        };
        let node = match engine.store.read_node(id, &place, ReadScope::Header, Some(visit.dict)) {
            Ok(node) => node,
            Err(error) => {
                if self.known.get(&id).is_none_or(|(height, _)| *height > 0) {
                    self.lacks(id);
                }
                self.unreadable(Code::BadNode, id, format!("node {id}: {error}"), error);
                return None;
            }
        };
        let unfit = fits(&engine.table.lock(), &node, &place).err();
        // Its children are not reported for their height too.
        let height = if unfit.is_some() { 256 } else { u16::from(node.height) };
        if let Some(error) = unfit {
            self.unreadable(Code::NodeMismatch, id, format!("node {id}: {error}"), error);
        }
        let longest_key = match &node.body {
            Body::Leaf(_) => self.leaf(&node),
            Body::Interior(edges) => {
                edges.iter().map(|edge| self.edge(visit.dict, &node, height, edge)).max().unwrap_or(0)
            }
        };
        let shape = Shape { height: node.height, lo: node.lo.clone(), hi: node.hi.clone(), longest_key };
        self.compare(&shape, visit);
        Some(shape)
    }

    /// Checks an edge. Returns the length of the longest key that may lie behind it, in the node's
    /// coordinates.
    fn edge(&mut self, dict: u8, node: &Node, below_height: u16, edge: &Edge) -> usize {
        let to = &edge.translation;
        if to.strip_len > shared_len(&edge.lo, &edge.hi) {
            let what = format!("the edge from {:?} strips more than its window shares", edge.lo);
            self.problem(Code::BadTranslation, node.id, what);
        }
        if let Some(child) = edge.child {
            self.stack.push(Visit {
                id: child,
                dict,
                lo: to.cut(&edge.lo),
                hi: to.cut(&edge.hi),
                below_height,
                longest_key: Some(edge.longest_key),
            });
        }
        for goto in &edge.gotos {
            self.goto(dict, node.id, below_height, edge, goto);
        }
        let mut longest = (edge.longest_key as usize + to.strip_len).saturating_sub(to.prepend.len());
        let Some(piece) = &edge.partition else { return longest };
        match self.engine.store.run(piece) {
            Ok(run) => {
                check_partition(edge, &run, &mut |what| {
                    self.problem(Code::PartitionContents, node.id, what);
                });
                let keys = (0..run.len()).map(|i| run.key(i).len()).max().unwrap_or(0);
                if edge.child.is_some() && keys > longest {
                    let what =
                        format!("a message's key is longer than the bound of the edge from {:?}", edge.lo);
                    self.problem(Code::KeyOverBound, node.id, what);
                }
                longest = longest.max(keys);
            }
            Err(error) => {
                let place = format!("node {}, messages for the keys from {:?}", node.id, edge.lo);
                self.bad_piece(node.id, &place, piece, &error);
            }
        }
        longest
    }

    fn goto(&mut self, dict: u8, id: NodeId, below_height: u16, edge: &Edge, goto: &Goto) {
        let height = self.known.get(&goto.target).map(|(height, _)| *height);
        let above = edge.child.and_then(|child| self.known.get(&child)).map(|(height, _)| *height);
        // A node that the table does not hold, or has lost, is reported when the walk visits it.
        let is_known = height.is_some() && edge.child.is_none_or(|_| above.is_some());
        if is_known && height >= above {
            let what = format!("the GOTO from {:?} leads to a node no lower than the child", goto.lo);
            self.problem(Code::EdgeNotDown, id, what);
        }
        if goto.longest_key_here() > edge.longest_key_here() {
            let what = format!("the GOTO from {:?} has longer keys than its edge", goto.lo);
            self.problem(Code::KeyOverBound, id, what);
        }
        self.stack.push(Visit {
            id: goto.target,
            dict,
            lo: goto.translation.cut(&goto.lo),
            hi: goto.translation.cut(&goto.hi),
            below_height,
            longest_key: Some(goto.longest_key),
        });
    }

    /// Checks a leaf. Returns the length of its longest key.
    fn leaf(&mut self, node: &Node) -> usize {
        let basements = node.basements();
        let mut longest = 0;
        for (index, basement) in basements.iter().enumerate() {
            let layers = match self.engine.store.layers(&basement.piece) {
                Ok(layers) => layers,
                Err(error) => {
                    let place = format!("node {}, basement {index}", node.id);
                    self.bad_piece(node.id, &place, &basement.piece, &error);
                    continue;
                }
            };
            let end =
                basements.get(index + 1).map_or_else(|| node.hi.clone(), |b| Cut::before(b.first.clone()));
            for run in layers.newest_first() {
                check_basement_run(basement, run, &end, index, &mut |what| {
                    self.problem(Code::BasementContents, node.id, what);
                });
                longest = longest.max((0..run.len()).map(|at| run.key(at).len()).max().unwrap_or(0));
            }
        }
        longest
    }

    /// Reports each bad run of an unreadable piece.
    fn bad_piece(&mut self, id: NodeId, place: &str, piece: &Arc<Piece>, error: &Error) {
        let mut all = self.engine.store.bad_runs(piece);
        if all.is_empty() {
            all.push(error.clone());
        }
        for bad in all {
            self.unreadable(Code::BadPiece, id, format!("{place}: {bad}"), error.clone());
        }
    }

    /// Compares each node's references with the edges and GOTOs to it.
    pub fn references(&mut self) {
        // A node that is still to be freed leads to others.
        let unfreed: Vec<NodeId> =
            self.known.iter().filter(|(_, (_, refs))| *refs == 0).map(|(id, _)| *id).collect();
        unfreed.into_iter().for_each(|id| self.lacks(id));
        let mut unchecked = 0;
        let mut wrong = Vec::new();
        for (id, (_, refs)) in &self.known {
            let counted = self.found.get(id).map_or(0, |node| node.references);
            if counted < *refs && self.unread > 0 {
                unchecked += 1;
            } else if counted != *refs {
                wrong.push((*id, counted, *refs));
            }
        }
        wrong.sort_unstable();
        for (id, counted, refs) in wrong {
            let what = format!("node {id} has {counted} references; the node table says {refs}");
            let found = Finding::problem(Code::WrongReferences, self.place(id), what);
            (self.tell)(found);
        }
        if let (Some(id), true) = (self.first_unread, unchecked > 0) {
            let more = match self.unread - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let what = format!(
                "not checked: the number of references to {unchecked} nodes, because node {id}{more}, which may \
                 lead to them, could not be read"
            );
            let found = Finding::note(Code::ReferencesNotChecked, self.place(id), what);
            (self.tell)(found);
        }
    }

    /// Reports nodes without references that could not be freed because something is unreadable.
    pub fn unfreed(&mut self, dead: &HashSet<NodeId>) {
        let mut unfreed: Vec<NodeId> =
            self.known.iter().filter(|(_, (_, refs))| *refs == 0).map(|(id, _)| *id).collect();
        unfreed.retain(|id| !dead.contains(id));
        unfreed.sort_unstable();
        for id in unfreed {
            let place = self.engine.table.lock().place(id);
            let read = place.map(|place| self.engine.store.read_node(id, &place, ReadScope::Header, None));
            let why = match read {
                Some(Err(error)) => error.to_string(),
                _ => "it could not be read".into(),
            };
            let what = format!("node {id} has no references and cannot be freed: {why}");
            let found = Finding::problem(Code::NotFreed, self.place(id), what);
            (self.tell)(found);
        }
    }
}
