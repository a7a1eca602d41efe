//! The messages of one buffer that a chunk takes in, in the order in which the cursor meets them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::walk::{Direction, Window};
use crate::key::{Cut, Translation};
use crate::message::{Bytes, Kind, RangeDelete};
use crate::run::Run;

/// Messages that were copied out of a memtable, in the order of their keys, with keys in the reader's
/// coordinates. Large values are shared.
#[derive(Default)]
pub(super) struct Copied {
    bytes: Vec<u8>,
    points: Vec<CopiedPoint>,
}

/// Where a copied message stands: its key is `bytes[start..key_end]`, and its value follows up to `end`,
/// unless it is shared.
struct CopiedPoint {
    start: usize,
    key_end: usize,
    end: usize,
    kind: Kind,
    shared: Option<Bytes>,
}

impl Copied {
    /// Adds a message whose key `up` translates.
    pub fn push(&mut self, key: &[u8], up: &Translation, kind: Kind, value: &Bytes) {
        let start = self.bytes.len();
        up.append_key(key, &mut self.bytes);
        let key_end = self.bytes.len();
        let shared = value.share();
        if shared.is_none() {
            self.bytes.extend_from_slice(value);
        }
        self.points.push(CopiedPoint { start, key_end, end: self.bytes.len(), kind, shared });
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// The key of the message that was added last.
    pub fn last_key(&self) -> Option<&[u8]> {
        Some(self.key(self.points.len().checked_sub(1)?))
    }

    /// Whether there is a message for a key.
    pub fn has(&self, key: &[u8]) -> bool {
        (0..self.points.len()).any(|index| self.key(index) == key)
    }

    /// Puts messages in order that were added in the opposite one.
    pub fn reverse(&mut self) {
        self.points.reverse();
    }

    fn key(&self, index: usize) -> &[u8] {
        self.points.get(index).and_then(|p| self.bytes.get(p.start..p.key_end)).unwrap_or_default()
    }

    fn kind(&self, index: usize) -> Kind {
        self.points.get(index).map_or(Kind::Delete, |point| point.kind)
    }

    fn value(&self, index: usize) -> &[u8] {
        match self.points.get(index) {
            Some(CopiedPoint { shared: Some(value), .. }) => value,
            Some(point) => self.bytes.get(point.key_end..point.end).unwrap_or_default(),
            None => &[],
        }
    }
}

/// Where the messages are.
enum Points {
    Copied(Copied),
    /// In a partition or basement, which stays in memory; `up` leads to the reader's coordinates.
    Run {
        run: Arc<Run>,
        up: Translation,
    },
}

impl Points {
    fn len(&self) -> usize {
        match self {
            Points::Copied(copied) => copied.len(),
            Points::Run { run, .. } => run.len(),
        }
    }

    /// The key of a point in the buffer's coordinates.
    fn key(&self, point: usize) -> &[u8] {
        match self {
            Points::Copied(copied) => copied.key(point),
            Points::Run { run, .. } => run.key(point),
        }
    }

    fn is_before(&self, point: usize, cut: &Cut) -> bool {
        match self {
            Points::Copied(copied) => cut.is_above(copied.key(point)),
            Points::Run { run, .. } => run.is_before(point, cut),
        }
    }

    fn first_behind(&self, cut: &Cut) -> usize {
        match self {
            Points::Copied(copied) => {
                (0..copied.len()).take_while(|at| cut.is_above(copied.key(*at))).count()
            }
            Points::Run { run, .. } => run.first_behind(cut),
        }
    }
}

/// The messages of one buffer for a chunk.
pub(super) struct Source {
    points: Points,
    direction: Direction,
    /// The points that the cursor has not passed yet.
    left: Range<usize>,
    /// Where the chunk's window ends, in the buffer's coordinates, unless all of `left` lies before. Each
    /// point is compared with it: that is cheaper than a search for the end, which few cursors reach.
    end: Option<Cut>,
    /// Disjoint, in order, in the reader's coordinates.
    ranges: Vec<RangeDelete>,
    /// The key of the next point in the reader's coordinates, if there is one.
    head: Vec<u8>,
}

impl Source {
    /// The messages of a memtable in a window; `ranges` are in the reader's coordinates.
    pub fn of_memtable(
        copied: Copied,
        ranges: &[RangeDelete],
        window: &Window,
        direction: Direction,
    ) -> Source {
        let ranges = clipped(ranges, &window.lo, &window.hi).collect();
        Source::new(Points::Copied(copied), direction, window, &Translation::default(), ranges)
    }

    /// The messages of a run in a window. `down` leads from the reader's coordinates to those of the run, and
    /// `up` back.
    pub fn of_run(
        run: Arc<Run>,
        (down, up): (&Translation, &Translation),
        window: &Window,
        direction: Direction,
    ) -> Source {
        let ranges = match run.ranges() {
            [] => Vec::new(),
            ranges => {
                let (lo, hi) = (down.cut_ref(&window.lo), down.cut_ref(&window.hi));
                clipped(ranges, &lo, &hi).map(|range| range.translate(up)).collect()
            }
        };
        Source::new(Points::Run { run, up: up.clone() }, direction, window, down, ranges)
    }

    fn new(
        points: Points,
        direction: Direction,
        window: &Window,
        down: &Translation,
        ranges: Vec<RangeDelete>,
    ) -> Source {
        let (lo, hi) = (down.cut_ref(&window.lo), down.cut_ref(&window.hi));
        // As a rule a window ends with its basement.
        let (left, end) = match direction {
            Direction::Forward => {
                let last = points.len().checked_sub(1);
                let is_inside = last.is_none_or(|last| points.is_before(last, &hi));
                (points.first_behind(&lo)..points.len(), (!is_inside).then(|| hi.into_owned()))
            }
            Direction::Backward => {
                let is_inside = points.len() == 0 || !points.is_before(0, &lo);
                (0..points.first_behind(&hi), (!is_inside).then(|| lo.into_owned()))
            }
        };
        let mut source = Source { points, direction, left, end, ranges, head: Vec::new() };
        source.look();
        source
    }

    /// Whether there is nothing in it for the chunk.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty() && self.ranges.is_empty()
    }

    /// Whether it has range deletes.
    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// The key of the next point in the reader's coordinates; `None` if there is none.
    pub fn head(&self) -> Option<&[u8]> {
        (!self.left.is_empty()).then_some(self.head.as_slice())
    }

    /// The value of a point.
    pub fn value(&self, point: usize) -> &[u8] {
        match &self.points {
            Points::Copied(copied) => copied.value(point),
            Points::Run { run, .. } => run.point(point).value,
        }
    }

    /// The kind of a point.
    pub fn kind(&self, point: usize) -> Kind {
        match &self.points {
            Points::Copied(copied) => copied.kind(point),
            Points::Run { run, .. } => run.point(point).kind,
        }
    }

    /// Whether a range delete of the buffer covers a key of the reader's. The buffer's own points are newer.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.range_over(key).is_some()
    }

    /// The range that covers a key of the reader's, if one does.
    pub fn range_over(&self, key: &[u8]) -> Option<&RangeDelete> {
        let at = self.ranges.partition_point(|range| !range.hi.is_above(key));
        self.ranges.get(at).filter(|range| range.covers(key))
    }

    /// The next point if it is a put and the only message for its key here.
    pub fn single_put(&self) -> Option<usize> {
        let point = self.next_point();
        if !self.kind(point).is_put() {
            return None;
        }
        let has_one_a_key = match &self.points {
            Points::Copied(_) => false,
            Points::Run { run, .. } => run.is_pairs(),
        };
        (has_one_a_key || self.group().len() == 1).then_some(point)
    }

    /// Passes over the next point and leaves its key in `key`.
    pub fn pass(&mut self, key: &mut Vec<u8>) {
        core::mem::swap(key, &mut self.head);
        match self.direction {
            Direction::Forward => self.left.start += 1,
            Direction::Backward => self.left.end = self.left.end.saturating_sub(1),
        }
        self.look();
    }

    /// Passes over all points of the next key, and returns them, oldest first.
    pub fn pass_group(&mut self) -> Range<usize> {
        let group = self.group();
        match self.direction {
            Direction::Forward => self.left.start = group.end,
            Direction::Backward => self.left.end = group.start,
        }
        self.look();
        group
    }

    fn next_point(&self) -> usize {
        match self.direction {
            Direction::Forward => self.left.start,
            Direction::Backward => self.left.end.saturating_sub(1),
        }
    }

    /// The points of the next key.
    fn group(&self) -> Range<usize> {
        let point = self.next_point();
        let is_same = |other: &usize| self.points.key(*other) == self.points.key(point);
        match self.direction {
            Direction::Forward => {
                let more = (point + 1..self.left.end).take_while(is_same).count();
                point..(point + 1 + more).min(self.left.end)
            }
            Direction::Backward => {
                let more = (self.left.start..point).rev().take_while(is_same).count();
                point - more..self.left.end
            }
        }
    }

    fn look(&mut self) {
        self.head.clear();
        if self.left.is_empty() {
            return;
        }
        let point = self.next_point();
        let is_here = self.end.as_ref().is_none_or(|end| match self.direction {
            Direction::Forward => self.points.is_before(point, end),
            Direction::Backward => !self.points.is_before(point, end),
        });
        match &self.points {
            _ if !is_here => self.left = 0..0,
            Points::Copied(copied) => self.head.extend_from_slice(copied.key(point)),
            Points::Run { run, up } => up.append_key(run.key(point), &mut self.head),
        }
    }
}

/// The parts of ranges in `[lo, hi)`.
fn clipped<'r>(
    ranges: &'r [RangeDelete],
    lo: &'r Cut,
    hi: &'r Cut,
) -> impl Iterator<Item = RangeDelete> + 'r {
    let from = ranges.partition_point(|range| range.hi <= *lo);
    let behind = ranges.get(from..).unwrap_or_default();
    behind.iter().take_while(|range| range.lo < *hi).filter_map(|range| range.clip(lo, hi))
}
