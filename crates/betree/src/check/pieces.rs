//! The rules for the messages of a partition and the contents of a basement.

use alloc::format;
use alloc::string::String;

use crate::key::Cut;
use crate::message::RangeDelete;
use crate::node::{Basement, Edge};
use crate::run::Run;

pub(super) fn check_basement_run(
    basement: &Basement,
    run: &Run,
    end: &Cut,
    index: usize,
    problem: &mut dyn FnMut(String),
) {
    if run.is_empty() {
        problem(format!("basement {index} has an empty run"));
    }
    if run.is_pairs() && run.points(0, run.len()).any(|pair| !pair.kind.is_put()) {
        problem(format!("basement {index} has a message among its pairs"));
    }
    let first_pair = run.points(0, 1).next().map(|pair| pair.key.into_owned());
    let damaged = run.damage().next().and_then(|range| range.lo.first_key_behind());
    let first = first_pair.into_iter().chain(damaged).min();
    if !basement.piece.has_messages() && first.as_ref() != Some(&basement.first) {
        problem(format!("basement {index} does not begin with its first key"));
    }
    let is_below_first = |lo: &Cut| lo.first_key_behind().is_none_or(|key| key < basement.first);
    if run.damage().any(|range| is_below_first(&range.lo) || range.hi > *end) {
        problem(format!("basement {index} has known damage outside of its bounds"));
    }
    if run.points(0, run.len()).any(|point| *point.key < *basement.first || !end.is_above(&point.key)) {
        problem(format!("basement {index} holds a key outside of its bounds"));
    }
}

pub(super) fn check_partition(edge: &Edge, run: &Run, problem: &mut dyn FnMut(String)) {
    if run.is_empty() {
        problem(format!("the partition from {:?} is stored though it is empty", edge.lo));
    }
    let outside = |key: &[u8]| edge.lo.is_above(key) || !edge.hi.is_above(key);
    if (0..run.len()).any(|i| outside(run.key(i))) {
        problem(format!("the partition from {:?} holds a message outside of its window", edge.lo));
    }
    if run.ranges().iter().any(|r| r.lo < edge.lo || r.hi > edge.hi) {
        problem(format!("the partition from {:?} holds a range outside of its window", edge.lo));
    }
    if run.ranges().iter().any(|r| edge.gotos.iter().any(|g| g.clip(&r.lo, &r.hi).is_some())) {
        problem(format!("the partition from {:?} holds a range that a GOTO overlaps", edge.lo));
    }
    if edge.child.is_none() && !run.ranges().iter().all(RangeDelete::is_damage) {
        problem(format!("the null edge from {:?} holds a range", edge.lo));
    }
    for point in run.points(0, run.len()) {
        if run.range_over(&point.key).is_some_and(|range| range.msn > point.msn) {
            problem(format!("the partition from {:?} holds a message older than a range over it", edge.lo));
        }
    }
}
