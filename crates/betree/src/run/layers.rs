//! Runs over each other: those of a partition or basement.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Run, RunBuilder};
use crate::message::{Msn, Point, RangeDelete, subtract};

/// The number of points at the front with the same key.
pub(crate) fn same_key(points: &[Point<'_>]) -> usize {
    let Some(first) = points.first() else { return 0 };
    points.iter().take_while(|p| p.key == first.key).count()
}

/// The messages of one key that still matter, oldest first.
pub(crate) fn live<'s, 'm>(messages: &'s [Point<'m>]) -> &'s [Point<'m>] {
    let last_base = messages.iter().rposition(|p| !p.kind.is_upsert()).unwrap_or(0);
    messages.get(last_base..).unwrap_or_default()
}

/// Merges a run of messages with a newer one.
pub(crate) fn with_newer(older: Option<&Run>, points: &[Point<'_>], ranges: &[RangeDelete]) -> Run {
    let most = points.iter().map(|p| RunBuilder::bytes_of(&p.key, p.value)).sum::<usize>();
    let mut out = RunBuilder::with_room(most + older.map_or(0, |run| run.as_bytes().len()));
    let mut push = |p: &Point<'_>| out.push(&p.key, p.msn, p.kind, p.value);
    let mut newer = points;
    let empty = RunBuilder::default().finish();
    let older = older.unwrap_or(&empty);
    let mut index = 0;
    let mut covers = ranges;
    while index < older.len() {
        let key = older.key(index);
        while newer.first().is_some_and(|p| *p.key < *key) {
            let (group, rest) = newer.split_at_checked(same_key(newer)).unwrap_or_default();
            live(group).iter().for_each(&mut push);
            newer = rest;
        }
        let from = index;
        while index < older.len() && older.key(index) == key {
            index += 1;
        }
        while covers.first().is_some_and(|r| !r.hi.is_above(key)) {
            covers = covers.get(1..).unwrap_or_default();
        }
        let covered = covers.first().is_some_and(|r| r.covers(key));
        let group = if newer.first().is_some_and(|p| *p.key == *key) { same_key(newer) } else { 0 };
        let (group, rest) = newer.split_at_checked(group).unwrap_or_default();
        newer = rest;
        if !covered && group.iter().all(|p| p.kind.is_upsert()) {
            older.points(from, index).for_each(|p| push(&p));
        }
        live(group).iter().for_each(&mut push);
    }
    while !newer.is_empty() {
        let (group, rest) = newer.split_at_checked(same_key(newer)).unwrap_or_default();
        live(group).iter().for_each(&mut push);
        newer = rest;
    }
    let mut all = subtract(older.ranges(), ranges);
    all.extend_from_slice(ranges);
    all.sort_by(|a, b| a.lo.cmp(&b.lo));
    out.set_ranges(all);
    out.finish()
}

/// The runs of a partition or basement in memory: one run, and over it others, each of newer messages than
/// those before.
#[derive(Clone)]
pub(crate) struct Layers {
    oldest: Arc<Run>,
    newer: Vec<Arc<Run>>,
}

impl From<Run> for Layers {
    fn from(run: Run) -> Layers {
        Layers::from(Arc::new(run))
    }
}

impl From<Arc<Run>> for Layers {
    fn from(oldest: Arc<Run>) -> Layers {
        Layers { oldest, newer: Vec::new() }
    }
}

impl Layers {
    /// Layers of runs, the oldest first; `None` if there are no runs.
    pub fn of(runs: &[Arc<Run>]) -> Option<Layers> {
        let (oldest, newer) = runs.split_first()?;
        Some(Layers { oldest: oldest.clone(), newer: newer.to_vec() })
    }

    /// With newer messages over them.
    pub fn under(mut self, newer: Option<Arc<Run>>) -> Layers {
        self.newer.extend(newer);
        self
    }

    /// The run with the newest messages; the pairs, if there are no messages.
    pub fn newest(&self) -> &Arc<Run> {
        self.newer.last().unwrap_or(&self.oldest)
    }

    /// The memory of all runs, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.newest_first().map(|run| run.memory_bytes()).sum()
    }

    /// The pairs and the run over them; `None` if there are no pairs, or several runs over them.
    pub fn pairs_and_messages(&self) -> Option<(Arc<Run>, Option<Arc<Run>>)> {
        match self.newer.as_slice() {
            [] if self.oldest.is_pairs() => Some((self.oldest.clone(), None)),
            [messages] if self.oldest.is_pairs() => Some((self.oldest.clone(), Some(messages.clone()))),
            _ => None,
        }
    }

    /// The run, if there is but one.
    pub fn only(&self) -> Option<&Arc<Run>> {
        self.newer.is_empty().then_some(&self.oldest)
    }

    /// The runs, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.newer.iter().rev().chain([&self.oldest])
    }

    /// The pairs of a basement, if it has pairs, and all messages over them as one run, if it has messages.
    pub fn into_pairs_and_messages(self) -> (Option<Arc<Run>>, Option<Arc<Run>>) {
        if !self.oldest.is_pairs() {
            return (None, Some(self.joined()));
        }
        let messages = Layers::of(&self.newer).map(|messages| messages.joined());
        (Some(self.oldest), messages)
    }

    /// The runs, the oldest first.
    pub fn into_runs(self) -> Vec<Arc<Run>> {
        let mut runs = self.newer;
        runs.insert(0, self.oldest);
        runs
    }

    /// All messages as one run. Neighbours are merged in rounds, so each message is copied as often as the
    /// number of runs can be halved.
    pub fn joined(&self) -> Arc<Run> {
        let mut runs = self.clone().into_runs();
        while let [_, _, ..] = runs.as_slice() {
            let two = |runs: &[Arc<Run>]| match runs {
                [older, newer, ..] => {
                    let points: Vec<_> = newer.points(0, newer.len()).collect();
                    Some(Arc::new(with_newer(Some(older), &points, newer.ranges())))
                }
                [last] => Some(last.clone()),
                [] => None,
            };
            runs = runs.chunks(2).filter_map(two).collect();
        }
        runs.pop().unwrap_or_else(|| self.oldest.clone())
    }
}

/// The messages of `run` newer than `msn`. Applied to the run as it was at `msn`, they give the run as it is
/// now.
pub(crate) fn newer_than(run: &Arc<Run>, msn: Msn) -> Arc<Run> {
    let mut points = run.points(0, run.len());
    if points.all(|point| point.msn > msn) && run.ranges().iter().all(|range| range.msn > msn) {
        return run.clone();
    }
    let mut out = RunBuilder::default();
    for point in run.points(0, run.len()).filter(|point| point.msn > msn) {
        out.push(&point.key, point.msn, point.kind, point.value);
    }
    out.set_ranges(run.ranges().iter().filter(|range| range.msn > msn).cloned().collect());
    Arc::new(out.finish())
}
