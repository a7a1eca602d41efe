//! About how many pairs a range of keys has, without reading them all.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::cache::Piece;
use crate::env::View;
use crate::error::Result;
use crate::key::Cut;
use crate::message::{Kind, RangeDelete, subtract};
use crate::node::{Basement, Body, Edge};
use crate::node_id::NodeId;
use crate::run::{Layers, Run};
use crate::settings::DictId;
use crate::tree::{Tree, dangling};

/// How many messages of a memtable are looked at while its writers wait.
const POINTS_AT_ONCE: usize = 256;
/// How many pieces are read where a bound of the range, a clone or a range delete cuts them.
const CUT_PIECES_MAX: u32 = 32;
/// How many basements are read for the mean size of a pair.
const SAMPLES_MAX: usize = 8;

/// The number of pairs in a range of keys, as far as it is known without reading them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairEstimate {
    /// The number of pairs.
    pub pairs: u64,
    /// The part of `pairs` that was not counted, but follows from the sizes of pieces on the device and the
    /// mean size of a pair in those that were looked at.
    pub reckoned: u64,
    /// How many messages wait above pairs. A put counts as a new pair and a delete as one less, because
    /// nobody has looked whether the key is there: so `pairs` may be wrong by this number.
    pub waiting: u64,
}

/// What was found so far. Bytes are those of runs before compression.
#[derive(Clone, Copy, Default)]
struct Tally {
    pairs: u64,
    /// Of basements that were not looked at.
    unread_bytes: u64,
    /// Waiting puts less waiting deletes.
    more: i64,
    waiting: u64,
    /// Of partitions that were not looked at.
    waiting_unread_bytes: u64,
}

impl Tally {
    // A store of clones of clones may show more than a number holds.
    fn add(&mut self, other: Tally) {
        self.pairs = self.pairs.saturating_add(other.pairs);
        self.unread_bytes = self.unread_bytes.saturating_add(other.unread_bytes);
        self.more = self.more.saturating_add(other.more);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.waiting_unread_bytes = self.waiting_unread_bytes.saturating_add(other.waiting_unread_bytes);
    }

    fn message(&mut self, kind: Kind) {
        self.add(Tally {
            waiting: 1,
            more: match kind {
                Kind::Put(_) => 1,
                Kind::Delete => -1,
                Kind::Upsert(_) => 0,
            },
            ..Tally::default()
        });
    }
}

/// Bytes of entries that were looked at, and how many there were.
#[derive(Clone, Copy, Default)]
struct Mean {
    bytes: u64,
    entries: u64,
}

impl Mean {
    fn add(&mut self, run: &Run) {
        self.bytes += run.as_bytes().len() as u64;
        self.entries += run.len() as u64;
    }

    /// How many entries this many bytes have.
    fn entries_in(self, bytes: u64) -> u64 {
        let many = u128::from(bytes) * u128::from(self.entries) / u128::from(self.bytes.max(1));
        u64::try_from(many).unwrap_or(u64::MAX)
    }
}

/// A few of many pieces, evenly spread: each one after so many others.
struct Spread {
    pieces: Vec<Arc<Piece>>,
    seen: usize,
    step: usize,
}

impl Spread {
    fn add(&mut self, piece: &Arc<Piece>) {
        if self.seen.is_multiple_of(self.step) {
            if self.pieces.len() == SAMPLES_MAX {
                let mut number = 0;
                self.pieces.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.step *= 2;
            }
            if self.seen.is_multiple_of(self.step) {
                self.pieces.push(piece.clone());
            }
        }
        self.seen += 1;
    }
}

/// A walk through the nodes of a range.
struct Walk<'t> {
    tree: Tree<'t>,
    /// Of what was in memory or cut.
    mean: Mean,
    unread: Spread,
    /// How many more cut pieces may be read.
    reads_left: u32,
    /// What parts of nodes have: several edges may lead to one.
    known: HashMap<(NodeId, Cut, Cut), Tally>,
}

impl View {
    /// About how many pairs there are in `[lo, hi)` as of the view's moment.
    ///
    /// Reads headers of nodes, as [`usage`](View::usage) does, and at most 40 pieces of them: 32 that a bound
    /// of the range, a clone or a range delete cuts (a further one counts as if half of it were in the
    /// range), and 8 basements, evenly spread, for the mean size of a pair, by which all is reckoned that is
    /// not in memory. Where pairs are of about one size and no messages wait, the estimate of some thousand
    /// pairs and more is within a few percent; `waiting` bounds what messages add to that. Values that have
    /// expired count until they are removed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// # let mut batch = betree::Batch::new();
    /// # (0..10_u8).for_each(|number| batch.put(betree::DictId(0), &[number], b"value"));
    /// use betree::{Cut, DictId};
    ///
    /// env.commit(&batch)?;
    /// let estimate = env.view().estimate_pairs(DictId(0), &Cut::before([2]), &Cut::before([7]))?;
    /// assert_eq!(estimate.pairs, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ViewEnded`](crate::Error::ViewEnded), the device's, or corruption.
    pub fn estimate_pairs(&self, dict: DictId, lo: &Cut, hi: &Cut) -> Result<PairEstimate> {
        self.fix_versions();
        let mut walk = Walk {
            tree: self.tree(dict)?,
            mean: Mean::default(),
            unread: Spread { pieces: Vec::new(), seen: 0, step: 1 },
            reads_left: CUT_PIECES_MAX,
            known: HashMap::new(),
        };
        let (mut found, hiding) = walk.memtables(lo, hi)?;
        let root = walk.tree.root()?;
        for part in shown(lo, hi, &hiding) {
            found.add(walk.node(root, &part.lo, &part.hi)?);
        }
        let mean = walk.mean_pair()?;
        let reckoned = mean.entries_in(found.unread_bytes);
        let unread = mean.entries_in(found.waiting_unread_bytes);
        let more = found.more.saturating_add_unsigned(unread);
        let pairs = found.pairs.saturating_add(reckoned).saturating_add_signed(more);
        Ok(PairEstimate { pairs, reckoned, waiting: found.waiting.saturating_add(unread) })
    }
}

/// The parts of `[lo, hi)` that ranges leave.
fn shown(lo: &Cut, hi: &Cut, hiding: &[RangeDelete]) -> Vec<RangeDelete> {
    let whole = RangeDelete { lo: lo.clone(), hi: hi.clone(), msn: 0 };
    if lo < hi { subtract(&[whole], hiding) } else { Vec::new() }
}

impl Walk<'_> {
    /// What memtables have, and the ranges that they hide.
    fn memtables(&self, lo: &Cut, hi: &Cut) -> Result<(Tally, Vec<RangeDelete>)> {
        let (mut found, mut hiding, mut from) = (Tally::default(), Vec::new(), lo.clone());
        while from < *hi {
            let state = self.tree.dict.state.read();
            self.tree.at.refuse_if_ended()?;
            // A few at a time: writers wait meanwhile.
            let mut to = hi.clone();
            for memtable in state.memtables(&self.tree.at) {
                let too_many = memtable.points_within(&from, &to, self.tree.at.msn).nth(POINTS_AT_ONCE);
                let end = too_many.map(|point| Cut::just_after(&point.key));
                to = end.unwrap_or(to);
            }
            for memtable in state.memtables(&self.tree.at) {
                let points = memtable.points_within(&from, &to, self.tree.at.msn);
                points.for_each(|point| found.message(point.kind));
                hide(&mut hiding, &memtable.ranges_within(&from, &to, self.tree.at.msn));
            }
            from = to;
        }
        Ok((found, hiding))
    }

    /// What is in and below a part of a node, in its coordinates.
    fn node(&mut self, id: NodeId, lo: &Cut, hi: &Cut) -> Result<Tally> {
        let (node, _) = self.tree.version_at(id)?.ok_or_else(|| dangling(id))?;
        let (lo, hi) = (lo.max(&node.lo), hi.min(&node.hi));
        let part = (id, lo.clone(), hi.clone());
        if let Some(found) = self.known.get(&part) {
            return Ok(*found);
        }
        let mut found = Tally::default();
        match &node.body {
            Body::Leaf(basements) => found = self.leaf(basements, lo, hi)?,
            Body::Interior(edges) => {
                for edge in edges.iter().filter(|edge| edge.lo < *hi && edge.hi > *lo) {
                    found.add(self.edge(edge, lo.max(&edge.lo), hi.min(&edge.hi))?);
                }
            }
        }
        self.known.insert(part, found);
        Ok(found)
    }

    /// What an edge shows in a part of its window.
    fn edge(&mut self, edge: &Edge, lo: &Cut, hi: &Cut) -> Result<Tally> {
        let (mut found, mut hiding) = (Tally::default(), Vec::new());
        if let Some(piece) = &edge.partition {
            let is_whole = *lo <= edge.lo && *hi >= edge.hi;
            match self.layers(piece, !is_whole || piece.ranges() > 0)? {
                Some(layers) => hiding = self.messages(&layers, lo, hi, &mut found),
                None => found.waiting_unread_bytes += unread_bytes(piece, is_whole),
            }
        }
        for part in shown(lo, hi, &hiding) {
            let mut from = part.lo.clone();
            for goto in edge.gotos.iter().filter(|goto| goto.lo < part.hi && goto.hi > part.lo) {
                let (begin, end) = ((&goto.lo).max(&part.lo), (&goto.hi).min(&part.hi));
                found.add(self.child(edge, &from, begin)?);
                let (lo, hi) = (goto.translation.cut(begin), goto.translation.cut(end));
                found.add(self.node(goto.target, &lo, &hi)?);
                from = end.clone();
            }
            found.add(self.child(edge, &from, &part.hi)?);
        }
        Ok(found)
    }

    fn child(&mut self, edge: &Edge, lo: &Cut, hi: &Cut) -> Result<Tally> {
        match edge.child {
            Some(child) if lo < hi => self.node(child, &edge.translation.cut(lo), &edge.translation.cut(hi)),
            _ => Ok(Tally::default()),
        }
    }

    fn leaf(&mut self, basements: &[Basement], lo: &Cut, hi: &Cut) -> Result<Tally> {
        let mut found = Tally::default();
        let ends = basements.iter().skip(1).map(|b| Cut::before(b.first.clone())).chain([Cut::HIGH]);
        for (basement, end) in basements.iter().zip(ends) {
            let first = Cut::before(basement.first.clone());
            if first >= *hi || end <= *lo {
                continue;
            }
            let is_whole = first >= *lo && end <= *hi;
            let Some(layers) = self.layers(&basement.piece, !is_whole)? else {
                found.unread_bytes += unread_bytes(&basement.piece, is_whole);
                self.unread.add(&basement.piece);
                continue;
            };
            let hiding = self.messages(&layers, lo, hi, &mut found);
            let oldest = layers.newest_first().last().filter(|oldest| oldest.is_pairs());
            let Some(pairs) = oldest else { continue };
            for part in shown(lo, hi, &hiding) {
                let (from, to) = (pairs.first_behind(&part.lo), pairs.first_behind(&part.hi));
                found.pairs += to.saturating_sub(from) as u64;
            }
        }
        Ok(found)
    }

    /// Notes the messages in `[lo, hi)` of runs, and returns the ranges that they hide.
    fn messages(&mut self, layers: &Layers, lo: &Cut, hi: &Cut, found: &mut Tally) -> Vec<RangeDelete> {
        let mut hiding = Vec::new();
        for run in layers.newest_first() {
            self.mean.add(run);
            if !run.is_pairs() {
                let points = run.points(run.first_behind(lo), run.first_behind(hi));
                points.for_each(|point| found.message(point.kind));
                hide(&mut hiding, run.ranges());
            }
        }
        hiding
    }

    /// The contents of a piece, if they are in memory, or it is cut and may be read.
    fn layers(&mut self, piece: &Arc<Piece>, is_cut: bool) -> Result<Option<Layers>> {
        if !piece.is_resident() {
            if !is_cut || self.reads_left == 0 {
                return Ok(None);
            }
            self.reads_left -= 1;
        }
        self.tree.store.layers(piece).map(Some)
    }

    /// The mean size of what was not read, by some of it; of what was seen otherwise.
    fn mean_pair(&self) -> Result<Mean> {
        let mut mean = Mean::default();
        for piece in &self.unread.pieces {
            self.tree.store.layers(piece)?.newest_first().for_each(|run| mean.add(run));
        }
        Ok(if mean.entries > 0 { mean } else { self.mean })
    }
}

/// The bytes of a piece that is not read: all, or half of one that is cut.
fn unread_bytes(piece: &Piece, is_whole: bool) -> u64 {
    piece.raw_bytes() as u64 / if is_whole { 1 } else { 2 }
}

/// Adds ranges to disjoint ones in order.
fn hide(hiding: &mut Vec<RangeDelete>, ranges: &[RangeDelete]) {
    if !ranges.is_empty() {
        *hiding = subtract(hiding, ranges);
        hiding.extend_from_slice(ranges);
        hiding.sort_by(|one, other| one.lo.cmp(&other.lo));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::run::RunBuilder;

    #[test]
    fn a_spread_takes_the_first_and_reaches_to_the_end() {
        let cache = Cache::new(usize::MAX, 16);
        for many in [1_usize, 8, 9, 100, 1000] {
            let mut spread = Spread { pieces: Vec::new(), seen: 0, step: 1 };
            let pieces: Vec<_> =
                (0..many).map(|_| Piece::new(&cache, RunBuilder::with_room(0).finish())).collect();
            pieces.iter().for_each(|piece| spread.add(piece));
            let place = |piece| pieces.iter().position(|other| Arc::ptr_eq(piece, other)).unwrap();
            let places: Vec<usize> = spread.pieces.iter().map(place).collect();
            assert!(places.len() > SAMPLES_MAX / 2 || places.len() == many, "{places:?} of {many}");
            assert!(places.len() <= SAMPLES_MAX && places[0] == 0, "{places:?} of {many}");
            assert!(*places.last().unwrap() + spread.step >= many, "{places:?} of {many}");
        }
    }
}
