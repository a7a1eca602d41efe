//! Where the pairs and messages of a range of keys lie: in memory, or in which blocks.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::cache::{OnDevice, Piece};
use crate::env::View;
use crate::error::Result;
use crate::format::node::{RunRef, StoredAs};
use crate::key::{Cut, Translation};
use crate::message::{Kind, Msn, PairCompression, Point};
use crate::node::{Body, Edge};
use crate::node_id::NodeId;
use crate::occupancy::Sharing;
use crate::settings::DictId;
use crate::tree::{Tree, dangling};

/// How many messages of a memtable are looked at while its writers wait.
const POINTS_AT_ONCE: usize = 256;

/// A sorted array of pairs or messages on the device, which is read and verified as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// Its places: first byte on the device and length in bytes of each part.
    pub places: Vec<(u64, u64)>,
    /// Its length as stored, in bytes.
    pub stored_bytes: u64,
    /// Its length before compression, in bytes.
    pub raw_bytes: u64,
    /// The compression.
    pub stored_as: StoredAs,
    /// The compression that most of its bytes ask for. Where it does not pay, the run is stored as it is.
    pub asked: PairCompression,
}

/// The depth at which keys lie; a greater one has newer values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A basement of a leaf.
    Leaf,
    /// A message in the buffer of an interior node of this height.
    Buffer(u8),
    /// A message in a memtable, and in the log.
    Memtable,
}

/// What is stored of keys at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Their whole values.
    Values,
    /// Upserts: what is below has the rest of the values.
    Deltas,
}

/// Where the values of keys lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The first of the keys.
    pub lo: Cut,
    /// The end of the keys. For a leaf not each key between is there.
    pub hi: Cut,
    /// The depth.
    pub level: Level,
    /// What of the values lies there.
    pub holds: Holds,
    /// The compression that they ask for: of a message its own, of a basement that of most of its bytes.
    /// `None` if its layers do not agree.
    pub asked: Option<PairCompression>,
    /// The runs in which they are stored, the oldest first; none for what is in memory and in the log alone.
    pub runs: Vec<Arc<StoredRun>>,
    /// Whether several edges or GOTOs lead to the node, or to one on the way to it.
    pub sharing: Sharing,
}

/// A part of a node to look at.
struct Visit {
    id: NodeId,
    /// The range, in the node's coordinates.
    lo: Cut,
    hi: Cut,
    /// From the node's coordinates to the dictionary's.
    up: Translation,
    sharing: Sharing,
}

impl View {
    /// Where the pairs and messages of the keys in `[lo, hi)` lie. Calls `each` with those of a leaf by
    /// basements, with messages key by key, the older ones of a key first where they are of one level;
    /// deletes are left out. Reads the headers of nodes on the way, and the partitions of interior nodes in
    /// which messages wait; no basement.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{Batch, Cut, DictId, Level};
    ///
    /// let mut batch = Batch::new();
    /// batch.put(DictId(0), b"apple", b"red");
    /// env.commit(&batch)?;
    /// let mut levels = Vec::new();
    /// env.view().locate(DictId(0), &Cut::LOW, &Cut::HIGH, &mut |found| levels.push(found.level))?;
    /// assert_eq!(levels, [Level::Memtable]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ViewEnded`](crate::Error::ViewEnded), the device's, or corruption.
    pub fn locate(&self, dict: DictId, lo: &Cut, hi: &Cut, each: &mut dyn FnMut(Located)) -> Result<()> {
        self.fix_versions();
        let tree = self.tree(dict)?;
        let root = tree.root()?;
        let (lo_of_root, hi_of_root) = (lo.clone(), hi.clone());
        let mut stack = Vec::from([Visit {
            id: root,
            lo: lo_of_root,
            hi: hi_of_root,
            up: Translation::default(),
            sharing: Sharing::Own,
        }]);
        while let Some(visit) = stack.pop() {
            let (node, _) = tree.version_at(visit.id)?.ok_or_else(|| dangling(visit.id))?;
            match &node.body {
                Body::Leaf(basements) => {
                    let ends = basements.iter().skip(1).map(|b| Cut::before(b.first.clone()));
                    for (basement, end) in basements.iter().zip(ends.chain([Cut::HIGH])) {
                        let from = Cut::before(basement.first.clone()).max(visit.lo.clone());
                        let to = end.min(visit.hi.clone());
                        if from < to {
                            let stored = basement.piece.stored();
                            let runs: Vec<_> = stored.iter().flat_map(runs_of).collect();
                            let asked = asked_by(&tree, &basement.piece, &runs);
                            each(visit.located((&from, &to), (Level::Leaf, Holds::Values, asked), runs));
                        }
                    }
                }
                Body::Interior(edges) => {
                    for edge in edges.iter().filter(|edge| edge.lo < visit.hi && edge.hi > visit.lo) {
                        if let Some(partition) = &edge.partition {
                            messages(&tree, partition, &visit, Level::Buffer(node.height), each)?;
                        }
                        visit.below(&tree, edge, &mut stack);
                    }
                }
            }
        }
        in_memtables(&tree, lo, hi, each)
    }
}

impl Visit {
    fn located(
        &self,
        (from, to): (&Cut, &Cut),
        (level, holds, asked): (Level, Holds, Option<PairCompression>),
        runs: Vec<Arc<StoredRun>>,
    ) -> Located {
        let (lo, hi) = (self.up.cut(from), self.up.cut(to));
        Located { lo, hi, level, holds, asked, runs, sharing: self.sharing }
    }

    /// Adds the nodes that an edge shows in this part: GOTOs hide what the child has.
    fn below(&self, tree: &Tree<'_>, edge: &Edge, stack: &mut Vec<Visit>) {
        let mut see = |id, translation: &Translation, from: &Cut, to: &Cut| {
            let (from, to) = (from.max(&self.lo), to.min(&self.hi));
            if from < to {
                let is_own = self.sharing == Sharing::Own && tree.references_at(id) <= 1;
                stack.push(Visit {
                    id,
                    lo: translation.cut(from),
                    hi: translation.cut(to),
                    up: translation.inverse(from.bytes()).then(&self.up),
                    sharing: if is_own { Sharing::Own } else { Sharing::Shared },
                });
            }
        };
        let mut from = &edge.lo;
        for goto in &edge.gotos {
            see(goto.target, &goto.translation, &goto.lo, &goto.hi);
            if let Some(child) = edge.child {
                see(child, &edge.translation, from, &goto.lo);
            }
            from = &goto.hi;
        }
        if let Some(child) = edge.child {
            see(child, &edge.translation, from, &edge.hi);
        }
    }
}

/// The runs of a stored piece, the oldest first.
fn runs_of(at: &OnDevice) -> Vec<Arc<StoredRun>> {
    let run = |run: &RunRef| {
        Arc::new(StoredRun {
            places: at.extent.places(run.offset.into(), run.stored_len.into()).collect(),
            stored_bytes: run.stored_len.into(),
            raw_bytes: run.raw_len.into(),
            stored_as: run.stored_as,
            asked: run.asked,
        })
    };
    at.runs.iter().map(run).collect()
}

/// What a basement asks for: stored in these runs, or in memory alone.
fn asked_by(tree: &Tree<'_>, basement: &Piece, runs: &[Arc<StoredRun>]) -> Option<PairCompression> {
    let in_memory = if runs.is_empty() { basement.layers() } else { None };
    let layers = in_memory.iter().flat_map(|layers| layers.newest_first());
    let mut all = runs.iter().map(|run| run.asked).chain(layers.map(|run| tree.store.asked_by(run)));
    let first = all.next()?;
    all.all(|asked| asked == first).then_some(first)
}

/// What a message has of its key's value; `None` for a delete.
fn holds_of(point: &Point<'_>) -> Option<Holds> {
    match point.kind {
        Kind::Put(_) => Some(Holds::Values),
        Kind::Upsert(_) => Some(Holds::Deltas),
        Kind::Delete => None,
    }
}

/// The messages of a partition in a part of its node.
fn messages(
    tree: &Tree<'_>,
    partition: &Arc<Piece>,
    visit: &Visit,
    level: Level,
    each: &mut dyn FnMut(Located),
) -> Result<()> {
    // Looked at first: it may be written meanwhile, but not join what is newer.
    let stored = partition.stored();
    let stored: Vec<(Msn, Arc<StoredRun>)> = match &stored {
        Some(at) => at.runs.iter().map(|run| run.last_msn).zip(runs_of(at)).collect(),
        None => Vec::new(),
    };
    let layers = tree.store.layers(partition)?;
    let layers: Vec<_> = layers.newest_first().collect();
    for run in layers.into_iter().rev() {
        let points = run.points(run.first_behind(&visit.lo), run.first_behind(&visit.hi));
        for point in points {
            let Some(holds) = holds_of(&point) else { continue };
            // Each run has messages newer than all in the runs before.
            let home = stored.iter().find(|(last_msn, _)| *last_msn >= point.msn);
            let runs = home.map(|(_, run)| run.clone()).into_iter().collect();
            let (from, to) = (Cut::before(point.key.to_vec()), Cut::just_after(&point.key));
            each(visit.located((&from, &to), (level, holds, Some(point.kind.asked())), runs));
        }
    }
    Ok(())
}

/// The messages that have not come to the tree.
fn in_memtables(tree: &Tree<'_>, lo: &Cut, hi: &Cut, each: &mut dyn FnMut(Located)) -> Result<()> {
    let mut from = lo.clone();
    while from < *hi {
        let mut to = hi.clone();
        let mut keys: Vec<(Vec<u8>, Holds, PairCompression)> = Vec::new();
        {
            let state = tree.dict.state.read();
            tree.at.refuse_if_ended()?;
            // A few at a time: writers wait meanwhile.
            for memtable in state.memtables(&tree.at) {
                let too_many = memtable.points_within(&from, &to, tree.at.msn).nth(POINTS_AT_ONCE);
                to = too_many.map_or(to, |point| Cut::just_after(&point.key));
            }
            let memtables: Vec<_> = state.memtables(&tree.at).collect();
            for memtable in memtables.into_iter().rev() {
                let points = memtable.points_within(&from, &to, tree.at.msn);
                keys.extend(
                    points.filter_map(|point| {
                        Some((point.key.to_vec(), holds_of(&point)?, point.kind.asked()))
                    }),
                );
            }
        }
        for (key, holds, asked) in keys {
            let (lo, hi) = (Cut::before(key.clone()), Cut::just_after(&key));
            let (level, asked, runs) = (Level::Memtable, Some(asked), Vec::new());
            each(Located { lo, hi, level, holds, asked, runs, sharing: Sharing::Own });
        }
        from = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
