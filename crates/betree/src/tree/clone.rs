//! Clones of key ranges: captures the contents of a prefix, and puts them behind another prefix.
//!
//! A source is *carved* out, not flushed (the dissertation flushes it, §5.2.1): the messages pending for it
//! are collected from the root down to the first node whose edges part inside it. A new node is made there of
//! these edges, narrowed, with the collected messages applied. The source's own path stays as it is.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::AtomicU64;

use super::apply_messages::{Applied, Messages};
use super::build::{Lift, Share};
use super::leaf_builder::LeafBuilder;
use super::rebalance::HEIGHT_MAX;
use super::{Cursor, Tree, TreeChange};
use crate::batch::RangeChange;
use crate::error::{Error, Result};
use crate::key::{Cut, Translation};
use crate::message::{Goto, Kind, Msn, PairCompression, Point, RangeDelete};
use crate::node::{Body, Edge, Node};
use crate::planted::{self, Bug};

/// A source smaller than this part of a node is copied as messages: windows of nodes full of small
/// directories would cost more than they save.
const SMALL_PARTS: usize = 4;
/// How many nodes of a level are read to see whether a source is lower than they are. A source that lies
/// across the bound of two nodes ends in the middle of one on either side.
const TALL_MAX: usize = 3;

/// A key, its value, and the compression that it asks for.
type CapturedPair = (Vec<u8>, Vec<u8>, PairCompression);

/// The contents of a source, without its prefix.
enum Captured {
    /// A small source: its pairs.
    Pairs(Vec<CapturedPair>),
    /// A large source: edges that show all of it.
    Edges(Vec<Edge>),
}

impl Captured {
    /// A bound of key lengths without the prefix, in bytes.
    fn longest_key(&self) -> Option<usize> {
        match self {
            Captured::Pairs(pairs) => pairs.iter().map(|(key, ..)| key.len()).max(),
            Captured::Edges(edges) => edges.iter().map(|edge| edge.longest_key_here() as usize).max(),
        }
    }
}

/// The messages pending for a source at one node on the way, in the root's coordinates.
#[derive(Default)]
struct Pending {
    points: Vec<(Vec<u8>, Msn, Kind, Vec<u8>)>,
    ranges: Vec<RangeDelete>,
    gotos: Vec<Goto>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty() && self.gotos.is_empty()
    }

    fn as_batch(&self, to: &Translation, back: &Translation) -> Messages<'_> {
        let points = self.points.iter().map(|(key, msn, kind, value)| Point {
            key: to.key(key),
            msn: *msn,
            kind: *kind,
            value,
        });
        Messages {
            points: points.collect(),
            ranges: self.ranges.iter().map(|range| range.translate(to)).collect(),
            gotos: self.gotos.iter().map(|goto| goto.rebase(to, back)).collect(),
        }
    }
}

/// Translations between a dictionary's keys and their parts behind a prefix.
fn under_prefix(prefix: &[u8]) -> Lift {
    Lift {
        to: Translation::strip(prefix.len()),
        back: Translation { strip_len: 0, prepend: prefix.to_vec() },
    }
}

/// The error of a clone whose keys may be longer than any key that can be put.
fn refuse_too_long(longest_key: Option<usize>, most: usize) -> Result<()> {
    match longest_key {
        Some(len) if len > most => Err(Error::KeyTooLong { bytes: len as u64, limit_bytes: most as u64 }),
        _ => Ok(()),
    }
}

impl Tree<'_> {
    /// The tree's new nodes for the numbered changes of one batch; every earlier message is in the tree
    /// already. All sources are captured before anything changes. Then deletes take effect, then clones in
    /// their order; none may produce a key over `key_bytes_max`. Nothing is visible until the change is
    /// installed.
    ///
    /// Called with the structure lock held.
    pub fn change_ranges(
        &self,
        changes: &[(Msn, RangeChange<'_>)],
        key_bytes_max: usize,
    ) -> Result<TreeChange> {
        if planted::is(Bug::ChangesMadeOneByOne) && changes.len() > 1 {
            for change in changes.chunks(1) {
                let change = self.change_ranges(change, key_bytes_max)?;
                self.install_ranges(&mut self.views.lock(), change);
            }
            return Ok(TreeChange::default());
        }
        let mut applied = Applied::default();
        match self.root_with(changes, key_bytes_max, &mut applied) {
            Ok(root) => applied.change.changed.push(root),
            Err(error) => {
                self.cancel(&applied.change);
                return Err(error);
            }
        }
        Ok(applied.change)
    }

    /// The next version of the root after changes of ranges.
    fn root_with(
        &self,
        changes: &[(Msn, RangeChange<'_>)],
        key_bytes_max: usize,
        applied: &mut Applied,
    ) -> Result<Arc<Node>> {
        let mut at_sources = Vec::new();
        let mut captured = Vec::new();
        let root = self.dict.state.read().root;
        let root = self.node(root)?;
        for (msn, change) in changes {
            if let RangeChange::Clone { from, to, lo, hi } = change
                && from != to
            {
                let part = [lo.with_prefix(from), hi.with_prefix(from)];
                let source = self.capture(&root, from, part, applied, &mut at_sources)?;
                captured.push((*msn, to, [lo.with_prefix(to), hi.with_prefix(to)], source));
            }
        }
        if planted::is(Bug::CopiesMadeLast) {
            captured.sort_by_key(|(.., source)| matches!(source, Captured::Pairs(_)));
        }
        let mut at = self.with_gotos(root, &at_sources, applied)?;
        for (msn, change) in changes {
            if let RangeChange::Delete { lo, hi } = change {
                at = self.without(&at, lo, hi, *msn, applied)?;
            }
        }
        if planted::is(Bug::SourceBackAfterDelete) {
            at = self.with_gotos(at, &at_sources, applied)?;
        }
        for (msn, to, part, source) in captured {
            refuse_too_long(source.longest_key().map(|len| to.len() + len), key_bytes_max)?;
            at = self.put_under_prefix(&at, to, part, source, msn, applied)?;
        }
        Ok(at)
    }

    /// Gives back the reserved ids of nodes that a change would have added.
    pub fn cancel(&self, change: &TreeChange) {
        let mut table = self.table.lock();
        change.added.iter().for_each(|node| table.release_reserved(node.id));
    }

    /// The root's next version with messages applied.
    fn with_messages_applied(
        &self,
        root: &Arc<Node>,
        messages: &Messages<'_>,
        applied: &mut Applied,
    ) -> Result<Arc<Node>> {
        let body = self.apply_messages(root, messages, true, applied)?;
        Ok(self.with_body(root, body))
    }

    /// The root's next version with GOTOs applied, each newer than those before it.
    fn with_gotos(&self, root: Arc<Node>, gotos: &[Goto], applied: &mut Applied) -> Result<Arc<Node>> {
        gotos.iter().try_fold(root, |root, goto| {
            let messages = Messages { gotos: Vec::from([goto.clone()]), ..Messages::default() };
            self.with_messages_applied(&root, &messages, applied)
        })
    }

    fn without(
        &self,
        root: &Arc<Node>,
        lo: &Cut,
        hi: &Cut,
        msn: Msn,
        applied: &mut Applied,
    ) -> Result<Arc<Node>> {
        let ranges = Vec::from([RangeDelete { lo: lo.clone(), hi: hi.clone(), msn }]);
        self.with_messages_applied(root, &Messages { ranges, ..Messages::default() }, applied)
    }

    fn put_under_prefix(
        &self,
        root: &Arc<Node>,
        prefix: &[u8],
        [lo, hi]: [Cut; 2],
        source: Captured,
        msn: Msn,
        applied: &mut Applied,
    ) -> Result<Arc<Node>> {
        match source {
            Captured::Pairs(pairs) => {
                let root = self.without(root, &lo, &hi, msn, applied)?;
                let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, ..)| [prefix, key].concat()).collect();
                let points = keys.iter().zip(&pairs).map(|(key, (_, value, asked))| Point {
                    key: Cow::Borrowed(key.as_slice()),
                    msn,
                    kind: Kind::Put(*asked),
                    value,
                });
                let messages = Messages { points: points.collect(), ..Messages::default() };
                self.with_messages_applied(&root, &messages, applied)
            }
            Captured::Edges(edges) => {
                let out_of_prefix = under_prefix(prefix);
                let lift = Lift { to: out_of_prefix.back, back: out_of_prefix.to };
                let mut edges = edges.iter().map(|e| self.lift_edge(e, &lift)).collect::<Result<Vec<_>>>()?;
                if planted::is(Bug::PiecesWithoutMessages) {
                    edges.iter_mut().for_each(|e| (e.partition, e.gotos) = (None, Vec::new()));
                }
                if let [only] = edges.as_slice()
                    && !only.has_pending()
                    && let Some(goto) = only.to_goto()
                {
                    let messages = Messages { gotos: Vec::from([goto]), ..Messages::default() };
                    return self.with_messages_applied(root, &messages, applied);
                }
                let all = self.insert_edges(root.edges(), &lo, &hi, edges)?;
                Ok(self.with_body(root, Body::Interior(all)))
            }
        }
    }

    /// The contents of `[lo, hi)` without the prefix, in the tree under `root`. New nodes go to `applied`.
    /// Where one of them holds messages that were pending for the source, a GOTO to it, for the source
    /// itself, goes to `at_sources`: the next clone of the source finds it there.
    fn capture(
        &self,
        root: &Arc<Node>,
        prefix: &[u8],
        [lo, hi]: [Cut; 2],
        applied: &mut Applied,
        at_sources: &mut Vec<Goto>,
    ) -> Result<Captured> {
        let small_bytes = self.geometry.node_bytes as usize / SMALL_PARTS;
        let mut whole = Edge::null(Cut::LOW, Cut::HIGH);
        whole.child = Some(root.id);
        whole.longest_key = root.longest_key();
        if self.estimate(&whole, root, &lo, &hi, small_bytes)? <= small_bytes {
            match self.pairs(&lo, &hi, prefix.len()) {
                // Known damage cannot be copied as pairs; edges show it.
                Err(Error::KnownDamage { .. }) => {}
                pairs => return Ok(Captured::Pairs(pairs?)),
            }
        }
        let mut direction = Edge { lo: lo.clone(), hi: hi.clone(), ..whole };
        let mut collected: Vec<Pending> = Vec::new();
        let mut at_root = true;
        let parts = loop {
            let Some(id) = direction.child else { break Vec::from([direction]) };
            let node = if at_root { root.clone() } else { self.node(id)? };
            if node.height == 0 {
                break Vec::from([direction]);
            }
            let mut parts = self.edges_of(&node, &direction, &Lift::out_of_child(&direction))?;
            let [part] = parts.as_mut_slice() else { break parts };
            let (next, pending) = self.step(part, &lo, &hi)?;
            if next.child.is_none() && at_root {
                break parts;
            }
            if let Some(child) = next.child {
                // A leaf, or a node no higher than a collected GOTO's target, cannot hold the collected
                // messages.
                let mut least = 0;
                for goto in collected.iter().chain([&pending]).flat_map(|p| &p.gotos) {
                    least = least.max(self.height_of(goto.target, &applied.change)?.saturating_add(1));
                }
                let is_low = self.height_of(child, &applied.change)? < least;
                if is_low && !planted::is(Bug::GotosCarriedIntoLeaf) {
                    break parts;
                }
            }
            collected.push(pending);
            direction = next;
            at_root = false;
            if let Some(child) = direction.child
                && collected.iter().all(Pending::is_empty)
            {
                let child = self.node(child)?;
                if direction.shown() == (child.lo.clone(), child.hi.clone()) {
                    break Vec::from([direction]);
                }
            }
        };
        // At most as many edges as an interior node has.
        let most = (self.geometry.fanout_max as usize).pow(2);
        let parts = if parts.len() > 1 { self.flatten_edges(parts, TALL_MAX, most)? } else { parts };
        // If all of them lead lower than the root, one node below the root can hold them.
        let is_low = parts.len() > 1 && self.height_of_tree(&parts) < root.height;
        let is_whole = matches!(parts.as_slice(), [only] if !only.has_pending()
            && (only.child.is_none() || !self.is_windowed_leaf(only)?));
        let nothing_collected = collected.iter().all(Pending::is_empty);
        let lift = under_prefix(prefix);
        let lift_all = |parts: &[Edge]| -> Result<Vec<Edge>> {
            parts.iter().map(|part| self.lift_edge(part, &lift)).collect()
        };
        if nothing_collected && (at_root && !is_low || is_whole) {
            return Ok(Captured::Edges(lift_all(&parts)?));
        }
        // The root can name only lower nodes; otherwise one node becomes wider than usual.
        let fits = self.height_of_tree(&parts) < root.height || planted::is(Bug::CarvedNodeAsHighAsRoot);
        let parts = if fits { self.bundle_edges(parts, &mut applied.change)? } else { parts };
        let target = self.carve(&lo, &hi, &parts, &collected, applied)?;
        at_sources.extend(target.to_goto());
        Ok(Captured::Edges(lift_all(&[target])?))
    }

    /// Follows the single edge that covers a source. Returns the edge to follow and the messages pending here
    /// for the source.
    fn step(&self, part: &Edge, lo: &Cut, hi: &Cut) -> Result<(Edge, Pending)> {
        let mut pending = Pending::default();
        let mut next = Edge { partition: None, gotos: Vec::new(), ..part.clone() };
        if let Some(piece) = &part.partition {
            let run = self.run(piece)?;
            let points = run.points(0, run.len());
            pending.points = points.map(|p| (p.key.into_owned(), p.msn, p.kind, p.value.to_vec())).collect();
            pending.ranges = run.ranges().to_vec();
        }
        match (part.gotos.as_slice(), pending.ranges.as_slice()) {
            ([goto], _) if goto.lo == *lo && goto.hi == *hi => {
                next.translation = goto.translation.clone();
                next.child = Some(goto.target);
                next.longest_key = goto.longest_key;
            }
            (_, [range]) if range.lo <= *lo && range.hi >= *hi => {
                next = Edge::null(lo.clone(), hi.clone());
                // Known damage is all that is there.
                pending.ranges.retain(RangeDelete::is_damage);
            }
            _ => pending.gotos = part.gotos.clone(),
        }
        Ok((next, pending))
    }

    /// Whether an edge shows only a part of a leaf.
    fn is_windowed_leaf(&self, edge: &Edge) -> Result<bool> {
        let Some(id) = edge.child else { return Ok(false) };
        let child = self.node(id)?;
        Ok(child.height == 0 && edge.shown() != (child.lo.clone(), child.hi.clone()))
    }

    /// Makes a node of the parts of a source, with the messages collected above applied, oldest first;
    /// `collected` has the newest first. Returns the edge to it, in the root's coordinates.
    fn carve(
        &self,
        lo: &Cut,
        hi: &Cut,
        parts: &[Edge],
        collected: &[Pending],
        applied: &mut Applied,
    ) -> Result<Edge> {
        let leaf = match parts {
            [only] => match only.child {
                Some(id) if !only.has_pending() && self.height_of(id, &applied.change)? == 0 => {
                    Some((only, id))
                }
                _ => None,
            },
            _ => None,
        };
        // The walk also ends above a leaf that is no lower than the target of a collected GOTO.
        let is_plain = collected.iter().all(|pending| pending.gotos.is_empty());
        let (mut node, edge) = match leaf.filter(|_| is_plain || planted::is(Bug::GotosCarriedIntoLeaf)) {
            Some((edge, id)) => {
                // The new leaf keeps the coordinates of the old one, so most basements are shared.
                let child = self.node(id)?;
                let (from, to) = edge.shown();
                let share = if self.store.may_keep_blocks() { Share::All } else { Share::Pairs };
                let mut out = LeafBuilder::new(&self.store.cache, self.geometry.basement_bytes);
                self.copy_pairs(&child, &from, &to, &Lift::default(), share, &mut out)?;
                let node = self.new_node(0, from, to, Body::Leaf(out.finish().0));
                let into = Lift { to: edge.translation.clone(), back: edge.up() };
                self.edge_to(node, lo, hi, into, edge.longest_key)
            }
            None => {
                let named = parts.iter().flat_map(Edge::references);
                let collected = collected.iter().flat_map(|p| p.gotos.iter().map(|goto| goto.target));
                let collected = collected.filter(|_| !planted::is(Bug::CarvedNodeTooLow));
                let height = self.height_over(named.chain(collected), &applied.change)?;
                if height > HEIGHT_MAX {
                    // The leaves are a level too.
                    let (levels, limit_levels) = (u64::from(height) + 1, u64::from(HEIGHT_MAX) + 1);
                    return Err(Error::TooHigh { levels, limit_levels });
                }
                self.build_interior(height, lo, hi, parts)?
            }
        };
        let mut edge = edge;
        let (to, back) = (edge.translation.clone(), edge.up());
        for pending in collected.iter().rev() {
            let messages = pending.as_batch(&to, &back);
            let longest = messages.points.iter().map(|p| p.key.len() as u32).max().unwrap_or(0);
            let gotos = messages.gotos.iter().map(Goto::longest_key_here).max().unwrap_or(0);
            edge.longest_key = edge.longest_key.max(longest).max(gotos);
            // Some of the node's children may be new, too.
            let body = self.apply_messages(&node, &messages, true, applied)?;
            node = self.with_body(&node, body);
        }
        applied.change.added.push(node);
        Ok(edge)
    }

    /// Estimates the bytes of pairs and messages that `[lo, hi)` holds behind an edge; stops once the result
    /// exceeds `most`.
    fn estimate(&self, edge: &Edge, node: &Arc<Node>, lo: &Cut, hi: &Cut, most: usize) -> Result<usize> {
        let (from, to) = (edge.translation.cut((&edge.lo).max(lo)), edge.translation.cut((&edge.hi).min(hi)));
        let mut bytes = node.content_bytes_within(&from, &to);
        if node.height == 0 || bytes > most {
            return Ok(bytes);
        }
        let shown: Vec<&Edge> = node.edges().iter().filter(|e| e.lo < to && e.hi > from).collect();
        if shown.len() > 2 {
            return Ok(most + 1);
        }
        for edge in shown {
            if edge.gotos.iter().any(|goto| goto.lo < to && goto.hi > from) {
                return Ok(most + 1);
            }
            if let Some(child) = edge.child {
                bytes += self.estimate(edge, &self.node(child)?, &from, &to, most)?;
            }
            if bytes > most {
                break;
            }
        }
        Ok(bytes)
    }

    /// The pairs of a range, with the first `strip_len` bytes of their keys removed.
    fn pairs(&self, lo: &Cut, hi: &Cut, strip_len: usize) -> Result<Vec<CapturedPair>> {
        let queries = AtomicU64::new(0);
        let mut cursor = Cursor::new(Some(*self), lo.clone(), hi.clone(), &queries);
        let mut pairs = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            let (key, value) = (key.get(strip_len..).unwrap_or_default().to_vec(), value.to_vec());
            pairs.push((key, value, cursor.asked()));
        }
        Ok(pairs)
    }
}
