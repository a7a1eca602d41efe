//! The walk from the roots to every readable node, each once, as of a moment whose versions of nodes are
//! fixed. It holds no lock between two steps, and remembers of each node a few numbers.

mod ways;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree_platform::sync::MutexGuard;
use hashbrown::HashMap;

use super::FindingCode as Code;
use super::pieces::{check_basement_run, check_partition};
use super::{Finding, KeyRange, Place};
use crate::cache::Piece;
use crate::dict::Dict;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::key::{Cut, Translation, shared_len};
use crate::message::Goto;
use crate::node::{Body, Edge, Node};
use crate::node_id::NodeId;
use crate::run::Run;
use crate::settings::DictId;
use crate::store::{NodePlace, ReadScope};
use crate::tree::{astray, dangling, fits, leads_down};
use crate::views::{Live, Moment};

/// A node to visit, and its description in the parent.
pub(super) struct Visit {
    id: NodeId,
    /// The dictionary of its tree.
    dict: u8,
    lo: Cut,
    hi: Cut,
    /// The part of `[lo, hi)` that this way shows, whose keys `up` translates: a GOTO above may show less of
    /// the parent than the edge. Empty if the bounds are out of order.
    window: (Cut, Cut),
    /// The parent's height; 256, above every height, if the parent was reported as not fitting the node
    /// table.
    below_height: u16,
    longest_key: Option<u32>,
    /// From the node's coordinates to the dictionary's.
    up: Translation,
}

impl Visit {
    /// The same, where the parent shows less of the node: `[lo, hi)` of its own keys, which `to` translates.
    pub fn showing(self, above: &Visit, (lo, hi): (&Cut, &Cut), to: &Translation) -> Visit {
        let (lo, hi) = (lo.max(&above.window.0), hi.min(&above.window.1));
        let window = if lo < hi { (to.cut(lo), to.cut(hi)) } else { (Cut::HIGH, Cut::LOW) };
        Visit { window, ..self }
    }

    /// The keys of a part of the node that this way shows, in the dictionary's coordinates.
    pub fn keys(&self, from: &Cut, to: &Cut) -> Option<KeyRange> {
        let (lo, hi) = (from.max(&self.window.0), to.min(&self.window.1));
        let dict = DictId(self.dict);
        (lo < hi).then(|| KeyRange { dict, lo: self.up.cut(lo), hi: self.up.cut(hi) })
    }

    pub fn all_keys(&self) -> Option<KeyRange> {
        self.keys(&Cut::LOW, &Cut::HIGH)
    }

    /// The visit of a node that an edge or GOTO of this one shows in `[lo, hi)`.
    fn below(&self, id: NodeId, below_height: u16, (lo, hi): (&Cut, &Cut), to: &Translation) -> Visit {
        let (from, end) = (lo.max(&self.window.0), hi.min(&self.window.1));
        Visit {
            id,
            dict: self.dict,
            lo: to.cut(lo),
            hi: to.cut(hi),
            window: if from < end { (to.cut(from), to.cut(end)) } else { (Cut::HIGH, Cut::LOW) },
            below_height,
            longest_key: None,
            up: to.inverse(lo.bytes()).then(&self.up),
        }
    }
}

/// The number of references to a node found so far, and its shape.
#[derive(Default)]
pub(super) struct Found {
    pub references: u32,
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

/// The findings of everything in the trees that cannot be read. The caller has locked all structures.
///
/// # Errors
/// [`Error::ViewEnded`].
pub(crate) fn all_unreadable(engine: &Engine, structures: &[MutexGuard<'_, ()>]) -> Result<Vec<Finding>> {
    let (live, _) = engine.begin_fixed(structures);
    let mut all = Vec::new();
    let mut tell = |found: Finding| all.extend(Some(found).filter(|found| found.hides.is_some()));
    let walked = Walk::new(engine, &live, &mut tell).trees(&mut |_, _| ControlFlow::Continue(()));
    engine.end_view(&live);
    walked.map(|()| all)
}

/// A walk through the trees of an engine.
pub(super) struct Walk<'e, 't> {
    pub engine: &'e Engine,
    live: &'e Live,
    pub tell: &'t mut dyn FnMut(Finding),
    pub found: HashMap<NodeId, Found>,
    stack: Vec<Visit>,
    /// The number of nodes that may lead to others and could not be read, or not freed; and the first of
    /// them.
    pub unread: u64,
    pub first_unread: Option<NodeId>,
}

impl<'e, 't> Walk<'e, 't> {
    /// A walk through what `live` sees, whose versions of nodes are fixed.
    pub fn new(engine: &'e Engine, live: &'e Live, tell: &'t mut dyn FnMut(Finding)) -> Walk<'e, 't> {
        let (found, stack) = (HashMap::new(), Vec::new());
        Walk { engine, live, tell, found, stack, unread: 0, first_unread: None }
    }

    pub fn moment(&self, dict: &Dict) -> Moment<'e> {
        self.live.moment(dict.index)
    }

    pub fn height(&self, id: NodeId) -> Option<u8> {
        self.engine.table.lock().height(id)
    }

    pub fn place(&self, id: NodeId) -> Place {
        Place::node(id, self.engine.table.lock().place(id).map(|place| place.extent.place(0)))
    }

    fn problem(&mut self, code: Code, id: NodeId, what: impl core::fmt::Display) {
        let found = Finding::problem(code, self.place(id), format!("node {id}: {what}"));
        (self.tell)(found);
    }

    fn unreadable(&mut self, code: Code, id: NodeId, what: String, error: Error, keys: Option<KeyRange>) {
        let found = Finding::unreadable(code, self.place(id), what, error);
        (self.tell)(Finding { keys, ..found });
    }

    /// The visit of a dictionary's root.
    ///
    /// # Errors
    /// [`Error::ViewEnded`].
    fn root(&self, dict: &Dict) -> Result<Visit> {
        let moment = self.moment(dict);
        let id = {
            let state = dict.state.read();
            moment.refuse_if_ended()?;
            state.root_at(&moment)
        };
        let (dict, lo, hi) = (dict.index as u8, Cut::LOW, Cut::HIGH);
        let (window, up) = ((Cut::LOW, Cut::HIGH), Translation::default());
        Ok(Visit { id, dict, lo, hi, window, below_height: 256, longest_key: None, up })
    }

    /// Goes from each root down.
    ///
    /// # Errors
    /// [`Error::Interrupted`] by `progress`; [`Error::ViewEnded`].
    pub fn trees(&mut self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<()> {
        let total = self.engine.table.lock().nodes_len();
        let mut done = 0;
        for dict in &self.engine.dicts {
            self.stack.push(self.root(dict)?);
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
                if progress(done, total.max(done)).is_break() {
                    return Err(Error::Interrupted);
                }
                let shape = self.node(&visit)?;
                let is_shared = shape.is_some() && self.references_of(visit.id).0 > 1;
                self.found.entry(visit.id).or_default().shape = shape.filter(|_| is_shared);
            }
        }
        Ok(())
    }

    /// The version of a node as of the walk's moment, in memory and on the device.
    pub fn version(&self, dict: &Dict, id: NodeId) -> Result<(Option<Arc<Node>>, Option<NodePlace>)> {
        let moment = self.moment(dict);
        let state = dict.state.read();
        moment.refuse_if_ended()?;
        let place = self.engine.table.lock().place(id);
        Ok(state.places_at(id, &moment, place))
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
            self.unreadable(Code::EdgeTooWide, id, what, astray(id), visit.all_keys());
        }
        if let Some(bound) = visit.longest_key.filter(|bound| shape.longest_key > *bound as usize) {
            let what = format!(
                "a key of {} bytes is longer than its parent's bound, {bound}; height {} [{:?}, {:?}) seen as [{:?}, {:?})",
                shape.longest_key, shape.height, shape.lo, shape.hi, visit.lo, visit.hi
            );
            self.problem(Code::KeyOverBound, id, what);
        }
    }

    pub fn lacks(&mut self, id: NodeId) {
        self.unread += 1;
        self.first_unread.get_or_insert(id);
    }

    fn node(&mut self, visit: &Visit) -> Result<Option<Shape>> {
        let (id, engine) = (visit.id, self.engine);
        let Some(dict) = engine.dicts.get(usize::from(visit.dict)) else { return Ok(None) };
        // What is on the device is looked at there.
        let node = match self.version(dict, id)? {
            (_, Some(place)) => match self.stored_node(visit, &place) {
                Some(node) => node,
                None => return Ok(None),
            },
            (Some(node), None) => {
                self.behind_memory(visit, &node);
                (node, None)
            }
            (None, None) => {
                self.lacks(id);
                // A slot that the node table lost was reported when the table was read.
                if engine.table.lock().why_lost(id).is_none() {
                    let what = format!("node {id}: an edge leads to it, but the node table does not hold it");
                    self.unreadable(Code::DanglingEdge, id, what, dangling(id), visit.all_keys());
                }
                return Ok(None);
            }
        };
        let (node, unfit) = node;
        // Its children are not reported for their height too.
        let height = if unfit.is_some() { 256 } else { u16::from(node.height) };
        if let Some(error) = unfit {
            let what = format!("node {id}: {error}");
            self.unreadable(Code::NodeMismatch, id, what, error, visit.all_keys());
        }
        let longest_key = match &node.body {
            Body::Leaf(_) => self.leaf(visit, &node),
            Body::Interior(edges) => {
                edges.iter().map(|edge| self.edge(visit, node.id, height, edge)).max().unwrap_or(0)
            }
        };
        let shape = Shape { height: node.height, lo: node.lo.clone(), hi: node.hi.clone(), longest_key };
        self.compare(&shape, visit);
        Ok(Some(shape))
    }

    /// A node as it is on the device, and why it does not fit the node table; `None` if it cannot be read.
    fn stored_node(&mut self, visit: &Visit, place: &NodePlace) -> Option<(Arc<Node>, Option<Error>)> {
        let (id, engine) = (visit.id, self.engine);
        match engine.store.read_node(id, place, ReadScope::Header, Some(visit.dict)) {
            Ok(node) => {
                self.copies(id, place);
                let table = engine.table.lock();
                // A node that is freed meanwhile is in the table no more.
                let fit = if table.holds(id) {
                    fits(&table, &node, place)
                } else {
                    leads_down(&table, &node, place)
                };
                Some((node, fit.err()))
            }
            Err(error) => {
                if self.height(id) != Some(0) {
                    self.lacks(id);
                }
                let what = format!("node {id}: {error}");
                self.unreadable(Code::BadNode.by(&error), id, what, error, visit.all_keys());
                None
            }
        }
    }

    /// Reports the parts of a node of which one of two copies is bad.
    fn copies(&mut self, id: NodeId, place: &NodePlace) {
        // What cannot be compared for want of memory is no finding.
        let Ok(compared) = self.engine.store.read_copies(id, place) else { return };
        compared.one_bad.iter().for_each(|error| (self.tell)(one_bad_of_node(id, error)));
    }

    /// Checks an edge. Returns the length of the longest key that may lie behind it, in the node's
    /// coordinates.
    fn edge(&mut self, visit: &Visit, id: NodeId, below_height: u16, edge: &Edge) -> usize {
        let to = &edge.translation;
        if to.strip_len > shared_len(&edge.lo, &edge.hi) {
            let what = format!("the edge from {:?} strips more than its window shares", edge.lo);
            self.problem(Code::BadTranslation, id, what);
        }
        if let Some(child) = edge.child {
            let below = visit.below(child, below_height, (&edge.lo, &edge.hi), to);
            self.stack.push(Visit { longest_key: Some(edge.longest_key), ..below });
        }
        for goto in &edge.gotos {
            self.goto(visit, id, below_height, edge, goto);
        }
        let mut longest = (edge.longest_key as usize + to.strip_len).saturating_sub(to.prepend.len());
        let Some(piece) = &edge.partition else { return longest };
        match self.engine.store.run(piece) {
            Ok(run) => {
                self.known_damage(visit, id, &run);
                check_partition(edge, &run, &mut |what| {
                    self.problem(Code::PartitionContents, id, what);
                });
                let keys = run.longest_key() as usize;
                if edge.child.is_some() && keys > longest {
                    let what =
                        format!("a message's key is longer than the bound of the edge from {:?}", edge.lo);
                    self.problem(Code::KeyOverBound, id, what);
                }
                longest = longest.max(keys);
            }
            Err(error) => {
                self.bad_piece(id, &of_edge(id, edge), piece, &error, visit.keys(&edge.lo, &edge.hi));
            }
        }
        longest
    }

    fn goto(&mut self, visit: &Visit, id: NodeId, below_height: u16, edge: &Edge, goto: &Goto) {
        let height = self.height(goto.target);
        let above = edge.child.and_then(|child| self.height(child));
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
        let below = visit.below(goto.target, below_height, (&goto.lo, &goto.hi), &goto.translation);
        self.stack.push(Visit { longest_key: Some(goto.longest_key), ..below });
    }

    /// Checks a leaf. Returns the length of its longest key.
    fn leaf(&mut self, visit: &Visit, node: &Node) -> usize {
        let basements = node.basements();
        let mut longest = 0;
        for (index, basement) in basements.iter().enumerate() {
            let (begin, end) = bounds_of(node, index);
            let layers = match self.engine.store.layers(&basement.piece) {
                Ok(layers) => layers,
                Err(error) => {
                    let (place, keys) = (of_basement(node.id, index), visit.keys(&begin, &end));
                    self.bad_piece(node.id, &place, &basement.piece, &error, keys);
                    continue;
                }
            };
            for run in layers.newest_first() {
                self.known_damage(visit, node.id, run);
                check_basement_run(basement, run, &end, index, &mut |what| {
                    self.problem(Code::BasementContents, node.id, what);
                });
                longest = longest.max(run.longest_key() as usize);
            }
        }
        longest
    }

    /// Reports the known damage in a run of a node.
    fn known_damage(&mut self, visit: &Visit, id: NodeId, run: &Run) {
        for range in run.damage() {
            let error = range.lost();
            let found = Finding::note(Code::KnownDamage, self.place(id), format!("node {id}: {error}"));
            let keys = visit.keys(&range.lo, &range.hi);
            (self.tell)(Finding { hides: Some(error), keys, ..found });
        }
    }

    /// Reports each bad run of an unreadable piece.
    fn bad_piece(
        &mut self,
        id: NodeId,
        place: &str,
        piece: &Arc<Piece>,
        error: &Error,
        keys: Option<KeyRange>,
    ) {
        let mut all = self.engine.store.bad_runs(piece);
        if all.is_empty() {
            all.push(error.clone());
        }
        for bad in all {
            self.unreadable(Code::BadPiece, id, format!("{place}: {bad}"), error.clone(), keys.clone());
        }
    }

    /// Reports the bad runs of pieces in memory: the next version of their node may keep these runs.
    fn behind_memory(&mut self, visit: &Visit, node: &Node) {
        let id = node.id;
        match &node.body {
            Body::Leaf(basements) => {
                for (index, basement) in basements.iter().enumerate() {
                    let (begin, end) = bounds_of(node, index);
                    self.behind_piece(&basement.piece, &of_basement(id, index), id, visit.keys(&begin, &end));
                }
            }
            Body::Interior(edges) => {
                for edge in edges {
                    if let Some(piece) = &edge.partition {
                        self.behind_piece(piece, &of_edge(id, edge), id, visit.keys(&edge.lo, &edge.hi));
                    }
                }
            }
        }
    }

    fn behind_piece(&mut self, piece: &Arc<Piece>, place: &str, id: NodeId, keys: Option<KeyRange>) {
        // What is not in memory is read and reported as it is needed.
        if piece.is_resident() {
            for bad in self.engine.store.bad_runs(piece) {
                self.unreadable(Code::BadPiece, id, format!("{place}: {bad}"), bad.clone(), keys.clone());
            }
        }
    }
}

/// The finding of a part of a node of which another copy is good.
pub(super) fn one_bad_of_node(id: NodeId, error: &Error) -> Finding {
    let what = format!("node {id}: {error}; its other copy is good");
    Finding::problem(Code::BadNodeCopy, Place::node(id, error.offset()), what)
}

pub(super) fn of_basement(id: NodeId, index: usize) -> String {
    format!("node {id}, basement {index}")
}

pub(super) fn of_edge(id: NodeId, edge: &Edge) -> String {
    format!("node {id}, messages for the keys from {:?}", edge.lo)
}

/// The bounds of a basement, in the node's coordinates.
pub(super) fn bounds_of(node: &Node, index: usize) -> (Cut, Cut) {
    let first =
        |index: usize| node.basements().get(index).map(|basement| Cut::before(basement.first.clone()));
    let begin = if index == 0 { None } else { first(index) };
    (begin.unwrap_or_else(|| node.lo.clone()), first(index + 1).unwrap_or_else(|| node.hi.clone()))
}
