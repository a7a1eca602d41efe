//! An iterator of one buffer's messages, in the order of their keys.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::key::{Cut, Translation};
use crate::message::{Kind, Point, RangeDelete};
use crate::run::Run;

/// A range of keys that a walk narrows step by step.
pub(super) struct Window {
    pub lo: Cut,
    pub hi: Cut,
}

impl Window {
    /// Narrows the window to its part inside `[lo, hi)`.
    pub fn meet(&mut self, lo: &Cut, hi: &Cut) {
        if *lo > self.lo {
            self.lo = lo.clone();
        }
        if *hi < self.hi {
            self.hi = hi.clone();
        }
    }
}

/// The messages of one buffer for a chunk.
pub(super) struct MessageIter {
    points: Points,
    ranges: Vec<RangeDelete>,
    /// The key of the next point, in the dictionary's coordinates, if `more`.
    pub head: Vec<u8>,
    /// Whether there is a next point.
    pub more: bool,
}

pub(super) enum Points {
    /// Copied out of a memtable.
    Copied { points: Vec<(Vec<u8>, u64, Kind, Vec<u8>)>, next: usize },
    /// In a partition or basement; `up` leads to the dictionary's coordinates.
    Run { run: Arc<Run>, up: Translation, next: usize, end: usize },
}

impl MessageIter {
    /// The messages as they are; to be clipped before they are read.
    pub fn new(points: Points, ranges: Vec<RangeDelete>) -> MessageIter {
        MessageIter { points, ranges, head: Vec::new(), more: false }
    }

    /// Drops the points outside of the window, which all lie before or behind the others.
    pub fn clip(&mut self, window: &Window) {
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

    /// Moves to the next point.
    pub fn look(&mut self) {
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

    /// The value of the next point if it is a put and the only message for its key here.
    pub fn single_put(&self) -> Option<&[u8]> {
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

    /// The run of the next point, and its index there.
    pub fn place(&self) -> Option<(&Arc<Run>, usize)> {
        match &self.points {
            Points::Copied { .. } => None,
            Points::Run { run, next, .. } => Some((run, *next)),
        }
    }

    /// Passes over the next point.
    pub fn step(&mut self) {
        let (Points::Copied { next, .. } | Points::Run { next, .. }) = &mut self.points;
        *next += 1;
        self.look();
    }

    /// Takes the points for the key at hand, oldest first.
    pub fn take<'s>(&'s mut self, key: &[u8], out: &mut Vec<Point<'s>>) {
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

    /// Whether a range delete of the buffer covers the key.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|r| r.covers(key))
    }
}
