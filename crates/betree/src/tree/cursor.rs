//! The range query: a place in a key range that moves both ways.
//!
//! A cursor works a *region* at a time: the largest piece of the key space around its place that one
//! basement, one null edge or one range delete serves. It merges, for the region alone, what the
//! memtables and the partitions above hold with the pairs of the basement, newest first, and copies
//! the result; no node is ever changed for a read (§3.4.4), and no lock is held between steps.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use core::cmp::Ordering;

use betree_sys::sync::atomic::AtomicU64;
use betree_sys::sync::atomic::Ordering::Relaxed;

use super::Tree;
use super::arrive::fold;
use crate::cache::Piece;
use crate::dict::DictState;
use crate::error::Result;
use crate::format::run::Run;
use crate::key::{Cut, Translation};
use crate::memtable::Memtable;
use crate::message::{Kind, Point, RangeDelete};
use crate::node::{Body, Node, NodeId};

/// A region takes no more messages of one memtable than a basement would hold that are this small,
/// in bytes.
const SMALL_MESSAGE_BYTES: u32 = 16;
/// Nor more than this many.
const MEMTABLE_POINTS_MAX: usize = 256;

/// The pairs of a region, copied out of the tree.
#[derive(Default)]
pub(crate) struct Region {
    pub lo: Option<Cut>,
    pub hi: Option<Cut>,
    bytes: Vec<u8>,
    /// Where each pair's key and value end in `bytes`.
    ends: Vec<(usize, usize)>,
}

impl Region {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// How many pairs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The pair at `index`; empty past the end.
    pub fn pair(&self, index: usize) -> (&[u8], &[u8]) {
        let start = index.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |e| e.1);
        let (key_end, end) = self.ends.get(index).copied().unwrap_or((start, start));
        (self.bytes.get(start..key_end).unwrap_or_default(), self.bytes.get(key_end..end).unwrap_or_default())
    }

    /// The index of the first pair behind the cut.
    fn first_behind(&self, cut: &Cut) -> usize {
        let (mut lo, mut hi) = (0, self.len());
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            if cut.is_above(self.pair(middle).0) { lo = middle + 1 } else { hi = middle }
        }
        lo
    }
}

/// Which way a cursor looks from its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// The window that is left of a walk, in the dictionary's coordinates and in the node's.
struct Window {
    lo: Cut,
    hi: Cut,
}

impl Window {
    fn meet(&mut self, lo: &Cut, hi: &Cut) {
        if *lo > self.lo {
            self.lo = lo.clone();
        }
        if *hi < self.hi {
            self.hi = hi.clone();
        }
    }
}

/// Messages of one buffer for a region.
struct Source {
    points: Points,
    ranges: Vec<RangeDelete>,
    /// The key of the next point, in the dictionary's coordinates, if `more`.
    head: Vec<u8>,
    more: bool,
}

enum Points {
    /// Copied out of a memtable.
    Copied { points: Vec<(Vec<u8>, u64, Kind, Vec<u8>)>, next: usize },
    /// In a partition or basement, with the way to the dictionary's coordinates.
    Run { run: Arc<Run>, up: Translation, next: usize, end: usize },
}

impl Source {
    fn new(points: Points, ranges: Vec<RangeDelete>) -> Source {
        Source { points, ranges, head: Vec::new(), more: false }
    }

    /// Leaves out the points outside of the window, which all lie before or behind the others.
    fn clip(&mut self, window: &Window) {
        match &mut self.points {
            Points::Copied { points, next } => {
                *next = points.partition_point(|p| window.lo.is_above(&p.0));
                points.truncate(points.partition_point(|p| window.hi.is_above(&p.0)));
            }
            Points::Run { run, up, next, end } => {
                let (from, to) = (*next, *end);
                *next = run.partition_point(from, to, |key| window.lo.is_above(&up.key(key)));
                *end = run.partition_point(*next, to, |key| window.hi.is_above(&up.key(key)));
            }
        }
        self.look();
    }

    /// Looks at the next point.
    fn look(&mut self) {
        self.head.clear();
        match &self.points {
            Points::Copied { points, next } => {
                let point = points.get(*next);
                self.more = point.is_some();
                self.head.extend_from_slice(point.map_or(&[], |p| &p.0));
            }
            Points::Run { run, up, next, end } => {
                self.more = next < end;
                if self.more {
                    up.append_key(run.key(*next), &mut self.head);
                }
            }
        }
    }

    /// The value of the next point, if that is all there is of its key here and it is a put.
    fn single_put(&self) -> Option<&[u8]> {
        match &self.points {
            Points::Copied { points, next } => {
                let (key, _, kind, value) = points.get(*next)?;
                let alone = points.get(*next + 1).is_none_or(|p| p.0 != *key);
                (alone && *kind == Kind::Put).then_some(value)
            }
            Points::Run { run, next, end, .. } => {
                let point = run.point(*next);
                let alone = *next + 1 >= *end || run.key(*next + 1) != &*point.key;
                (alone && point.kind == Kind::Put).then_some(point.value)
            }
        }
    }

    fn step(&mut self) {
        let (Points::Copied { next, .. } | Points::Run { next, .. }) = &mut self.points;
        *next += 1;
        self.look();
    }

    /// Takes the points for the key at hand, oldest first.
    fn take<'s>(&'s mut self, key: &[u8], out: &mut Vec<Point<'s>>) {
        match &mut self.points {
            Points::Copied { points, next } => {
                let from = *next;
                while points.get(*next).is_some_and(|p| p.0 == key) {
                    *next += 1;
                }
                out.extend(points.get(from..*next).unwrap_or_default().iter().map(
                    |(key, msn, kind, value)| Point {
                        key: Cow::Borrowed(key.as_slice()),
                        msn: *msn,
                        kind: *kind,
                        value,
                    },
                ));
            }
            Points::Run { run, next, end, .. } => {
                let here = run.key(*next);
                let from = *next;
                while *next < *end && run.key(*next) == here {
                    *next += 1;
                }
                out.extend(run.points(from, *next));
            }
        }
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|r| r.covers(key))
    }
}

/// A partition or basement on the way, with the coordinates of its node.
struct Level {
    piece: Arc<Piece>,
    /// To the dictionary's coordinates.
    up: Translation,
    /// The cursor's place in the node's coordinates.
    at: Cut,
    /// The window after this level's edge, in the node's coordinates.
    window: Window,
}

impl Tree<'_> {
    /// Fills `region` with what lies around `at` on the side of `way`, inside `[lo, hi)`.
    fn read_region(&self, lo: &Cut, hi: &Cut, at: &Cut, way: Way, region: &mut Region) -> Result<()> {
        loop {
            if self.try_region(lo, hi, at, way, region)? {
                return Ok(());
            }
        }
    }

    /// As above; `false` if a node had to be read and the walk must begin anew.
    fn try_region(&self, lo: &Cut, hi: &Cut, at: &Cut, way: Way, region: &mut Region) -> Result<bool> {
        let mut window = Window { lo: lo.clone(), hi: hi.clone() };
        let mut levels: Vec<Level> = Vec::new();
        let mut sources: Vec<Source> = Vec::new();
        let mut missing: Option<NodeId> = None;
        let mut leaf: Option<(Arc<Node>, usize)> = None;
        {
            let state = self.dict.state.read();
            self.walk(&state, at, way, &mut window, &mut levels, &mut missing, &mut leaf);
            // Only what lies ahead: else a memtable of many messages would give the same ones again.
            match way {
                Way::Up => window.meet(at, &Cut::HIGH),
                Way::Down => window.meet(&Cut::LOW, at),
            }
            let small = (self.geometry.basement_bytes / SMALL_MESSAGE_BYTES) as usize;
            let points_max = small.clamp(1, MEMTABLE_POINTS_MAX);
            let memtables = core::iter::once(&state.active).chain(state.frozen.iter().rev().map(|m| &**m));
            for memtable in memtables {
                sources.push(copy_memtable(memtable, way, points_max, &mut window));
            }
        }
        if let Some((leaf, index)) = &leaf {
            self.read_ahead(leaf, *index, way)?;
        }
        let basement = if leaf.is_some() { levels.pop() } else { None };
        let mut covered = false;
        for level in &levels {
            let run = self.store.run(&level.piece)?;
            if let Some(range) = range_around(&run, &level.at, way) {
                // What is below is hidden here: the region ends with the range.
                let part = range.clip(&level.window.lo, &level.window.hi);
                if let Some(part) = part {
                    window.meet(&level.up.cut(&part.lo), &level.up.cut(&part.hi));
                }
                sources.push(source_of(run, level, way));
                covered = true;
                break;
            }
            sources.push(source_of(run, level, way));
        }
        if !covered {
            if let Some(id) = missing {
                self.find(id)?;
                return Ok(false);
            }
            if let Some(level) = basement {
                sources.push(source_of(self.store.run(&level.piece)?, &level, way));
            }
        }
        self.merge_region(sources, &window, region);
        region.lo = Some(window.lo);
        region.hi = Some(window.hi);
        Ok(true)
    }

    /// From the root towards the place, through what is in memory, narrowing the window.
    #[allow(clippy::too_many_arguments)]
    fn walk(
        &self,
        state: &DictState,
        at: &Cut,
        way: Way,
        window: &mut Window,
        levels: &mut Vec<Level>,
        missing: &mut Option<NodeId>,
        leaf: &mut Option<(Arc<Node>, usize)>,
    ) {
        let mut id = state.root;
        let mut up = Translation::default();
        let mut place = at.clone();
        // The window in the coordinates of the node at hand.
        let mut here = Window { lo: Cut::LOW, hi: Cut::HIGH };
        loop {
            let Some(node) = state.node(id) else {
                *missing = Some(id);
                return;
            };
            match &node.body {
                Body::Interior(edges) => {
                    let index = match way {
                        Way::Up => edges.partition_point(|e| e.hi <= place),
                        Way::Down => edges.partition_point(|e| e.hi < place),
                    };
                    let Some(edge) = edges.get(index) else { return };
                    here.meet(&edge.lo, &edge.hi);
                    window.meet(&up.cut(&here.lo), &up.cut(&here.hi));
                    if let Some(piece) = &edge.partition {
                        levels.push(Level {
                            piece: piece.clone(),
                            up: up.clone(),
                            at: place.clone(),
                            window: Window { lo: here.lo.clone(), hi: here.hi.clone() },
                        });
                    }
                    let Some(child) = edge.child else { return };
                    let down = &edge.translation;
                    up = down.inverse(edge.lo.bytes()).then(&up);
                    place = down.cut(&place);
                    here = Window { lo: down.cut(&here.lo), hi: down.cut(&here.hi) };
                    id = child;
                }
                Body::Leaf(basements) => {
                    let index = match way {
                        Way::Up => basements.partition_point(|b| Cut::before(b.first.as_slice()) <= place),
                        Way::Down => basements.partition_point(|b| Cut::before(b.first.as_slice()) < place),
                    }
                    .saturating_sub(1);
                    let Some(basement) = basements.get(index) else { return };
                    if index > 0 {
                        here.meet(&Cut::before(basement.first.as_slice()), &Cut::HIGH);
                    }
                    if let Some(next) = basements.get(index + 1) {
                        here.meet(&Cut::LOW, &Cut::before(next.first.as_slice()));
                    }
                    window.meet(&up.cut(&here.lo), &up.cut(&here.hi));
                    levels.push(Level { piece: basement.piece.clone(), up, at: place, window: here });
                    *leaf = Some((node.clone(), index));
                    return;
                }
            }
        }
    }

    /// A basement that is not in memory, next to one that is: somebody is scanning, and the rest of
    /// the leaf is read in one go.
    fn read_ahead(&self, leaf: &Node, index: usize, way: Way) -> Result<()> {
        let basements = leaf.basements();
        if basements.get(index).is_none_or(|b| b.piece.is_resident()) {
            return Ok(());
        }
        let (before, rest) = match way {
            Way::Up => (index.checked_sub(1), basements.get(index..)),
            Way::Down => (Some(index + 1), basements.get(..=index)),
        };
        let scanning = before.and_then(|i| basements.get(i)).is_some_and(|b| b.piece.is_resident());
        if !scanning {
            return Ok(());
        }
        let pieces: Vec<_> = rest.unwrap_or_default().iter().map(|b| b.piece.clone()).collect();
        self.store.load_together(leaf.id, &pieces)
    }

    /// Merges the sources, newest first, for the window.
    fn merge_region(&self, mut sources: Vec<Source>, window: &Window, region: &mut Region) {
        region.clear();
        sources.iter_mut().for_each(|source| source.clip(window));
        let mut key: Vec<u8> = Vec::new();
        loop {
            let mut first: Option<(usize, &Source)> = None;
            let mut holders = 0;
            for (index, source) in sources.iter().enumerate().filter(|(_, s)| s.more) {
                match first.map(|(_, s)| source.head.cmp(&s.head)) {
                    None | Some(Ordering::Less) => (first, holders) = (Some((index, source)), 1),
                    Some(Ordering::Equal) => holders += 1,
                    Some(Ordering::Greater) => {}
                }
            }
            let Some((index, source)) = first else { return };
            let newer = sources.get(..index).unwrap_or_default();
            if holders == 1
                && let Some(value) = source.single_put()
            {
                if !newer.iter().any(|s| s.covers(&source.head)) {
                    region.push(&source.head, value);
                }
                if let Some(source) = sources.get_mut(index) {
                    source.step();
                }
                continue;
            }
            key.clear();
            key.extend_from_slice(&source.head);
            self.merge_key(&key, &mut sources, region);
            for source in sources.iter_mut().filter(|s| s.more && s.head == key) {
                source.look();
            }
        }
    }

    /// Merges what several sources, or several messages, say of one key.
    fn merge_key(&self, key: &[u8], sources: &mut [Source], region: &mut Region) {
        // Newest buffer first, so that a base ends the search; oldest message first in each.
        let mut groups: Vec<Vec<Point<'_>>> = Vec::new();
        let mut ended = false;
        for source in sources {
            let covered = source.covers(key);
            let mut group = Vec::new();
            if source.more && source.head == key {
                source.take(key, &mut group);
            }
            if !ended {
                ended = covered || group.iter().any(|p| p.kind != Kind::Upsert);
                groups.push(group);
            }
        }
        let messages: Vec<Point<'_>> = groups.into_iter().rev().flatten().collect();
        if let Some(value) = fold(None, &messages, self.upsert) {
            region.push(key, &value);
        }
    }
}

/// The messages of a memtable in the window, which is narrowed if there are many.
fn copy_memtable(memtable: &Memtable, way: Way, points_max: usize, window: &mut Window) -> Source {
    let mut points: Vec<(Vec<u8>, u64, Kind, Vec<u8>)> = Vec::new();
    let mut keep = |point: Point<'_>| -> Option<Vec<u8>> {
        let known = points.last().is_some_and(|last| *last.0 == *point.key);
        if points.len() >= points_max && !known {
            return Some(point.key.into_owned());
        }
        points.push((point.key.into_owned(), point.msn, point.kind, point.value.to_vec()));
        None
    };
    match way {
        Way::Up => {
            let too_many = memtable.points_within(&window.lo, &window.hi).find_map(&mut keep);
            if let Some(key) = too_many {
                window.hi = Cut::before(key);
            }
        }
        Way::Down => {
            let too_many = memtable.points_within(&window.lo, &window.hi).rev().find_map(&mut keep);
            if let Some(key) = too_many {
                window.lo = Cut::just_after(&key);
            }
            points.reverse();
        }
    }
    let ranges = memtable.ranges_within(&window.lo, &window.hi);
    Source::new(Points::Copied { points, next: 0 }, ranges)
}

/// The range of a partition that covers the keys next to the place.
fn range_around<'r>(run: &'r Run, at: &Cut, way: Way) -> Option<&'r RangeDelete> {
    match way {
        Way::Up => {
            let index = run.ranges().partition_point(|r| r.hi <= *at);
            run.ranges().get(index).filter(|r| r.lo <= *at)
        }
        Way::Down => {
            let index = run.ranges().partition_point(|r| r.hi < *at);
            run.ranges().get(index).filter(|r| r.lo < *at)
        }
    }
}

/// What a level holds for its window ahead of the place.
fn source_of(run: Arc<Run>, level: &Level, way: Way) -> Source {
    let (lo, hi) = match way {
        Way::Up => ((&level.window.lo).max(&level.at), &level.window.hi),
        Way::Down => (&level.window.lo, (&level.window.hi).min(&level.at)),
    };
    let ranges = run.ranges().iter().filter_map(|r| r.clip(lo, hi)).map(|r| r.translate(&level.up)).collect();
    let (next, end) = (run.first_behind(lo), run.first_behind(hi));
    Source::new(Points::Run { run, up: level.up.clone(), next, end }, ranges)
}

/// A place in a key range of a dictionary. It moves both ways. It is not a snapshot: each region is
/// seen as it was when it was read, and what was committed since is sure to be seen after a
/// [`seek`](Cursor::seek).
pub struct Cursor<'e> {
    /// None: a dictionary that is not there, and empty.
    tree: Option<Tree<'e>>,
    queries: &'e AtomicU64,
    lo: Cut,
    hi: Cut,
    at: Cut,
    region: Region,
}

impl<'e> Cursor<'e> {
    pub(crate) fn new(tree: Option<Tree<'e>>, lo: Cut, hi: Cut, queries: &'e AtomicU64) -> Cursor<'e> {
        Cursor { tree, queries, at: lo.clone(), lo, hi, region: Region::default() }
    }

    fn read(&mut self, way: Way) -> Result<()> {
        self.queries.fetch_add(1, Relaxed);
        match &self.tree {
            Some(tree) => tree.read_region(&self.lo, &self.hi, &self.at, way, &mut self.region),
            None => {
                (self.region.lo, self.region.hi) = (Some(self.lo.clone()), Some(self.hi.clone()));
                Ok(())
            }
        }
    }

    /// Moves to a place, clipped to the cursor's range. What was read before is read anew.
    pub fn seek(&mut self, to: &Cut) {
        self.at = to.clone().max(self.lo.clone()).min(self.hi.clone());
        self.region.lo = None;
    }

    /// Steps over the next pair and gives it, or `None` at the end of the range.
    ///
    /// # Errors
    /// The device's, or corruption; the cursor has not moved.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            if self.at >= self.hi {
                return Ok(None);
            }
            let known = matches!((&self.region.lo, &self.region.hi),
                (Some(lo), Some(hi)) if *lo <= self.at && self.at < *hi);
            if !known {
                self.read(Way::Up)?;
            }
            let index = self.region.first_behind(&self.at);
            if index < self.region.len() {
                let (key, value) = self.region.pair(index);
                self.at = Cut::just_after(key);
                return Ok(Some((key, value)));
            }
            self.at = self.region.hi.clone().unwrap_or(Cut::HIGH);
        }
    }

    /// Steps back over the pair before the cursor and gives it, or `None` at the range's start.
    ///
    /// # Errors
    /// The device's, or corruption; the cursor has not moved.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            if self.at <= self.lo {
                return Ok(None);
            }
            let known = matches!((&self.region.lo, &self.region.hi),
                (Some(lo), Some(hi)) if *lo < self.at && self.at <= *hi);
            if !known {
                self.read(Way::Down)?;
            }
            if let Some(index) = self.region.first_behind(&self.at).checked_sub(1) {
                let (key, value) = self.region.pair(index);
                self.at = Cut::before(key);
                return Ok(Some((key, value)));
            }
            self.at = self.region.lo.clone().unwrap_or(Cut::LOW);
        }
    }
}
