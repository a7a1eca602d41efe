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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::cache::{Cache, Piece};
    use crate::key::Translation;
    use crate::message::{Goto, Kind, PairCompression};
    use crate::node_id::NodeId;
    use crate::run::RunBuilder;

    const PUT: Kind = Kind::Put(PairCompression::Usual);
    const CHILD: NodeId = NodeId { slot: 1, generation: 0 };

    fn before(key: &str) -> Cut {
        Cut::before(key)
    }

    fn range(lo: &str, hi: &str, msn: u64) -> RangeDelete {
        RangeDelete { lo: before(lo), hi: before(hi), msn }
    }

    fn run(points: &[(&str, u64)], ranges: &[RangeDelete]) -> Run {
        let mut out = RunBuilder::default();
        points.iter().for_each(|(key, msn)| out.push(key.as_bytes(), *msn, PUT, b"value"));
        out.set_ranges(ranges.to_vec());
        out.finish()
    }

    /// What is wrong with messages for the window from d to p, in which a GOTO stands from g to h.
    fn of_partition(child: Option<NodeId>, points: &[(&str, u64)], ranges: &[RangeDelete]) -> Vec<String> {
        let translation = Translation::default();
        let goto = Goto { lo: before("g"), hi: before("h"), translation, target: CHILD, longest_key: 1 };
        let gotos = child.map(|_| goto).into_iter().collect();
        let edge = Edge { child, gotos, ..Edge::null(before("d"), before("p")) };
        let mut found = Vec::new();
        check_partition(&edge, &run(points, ranges), &mut |what| found.push(what));
        found
    }

    #[test]
    fn messages_belong_to_their_edge() {
        let points = [("d", 5), ("g", 6), ("o", 7)];
        let ranges = [range("d", "e", 5), range("h", "p", 4)];
        assert_eq!(of_partition(Some(CHILD), &points, &ranges), Vec::<String>::new());
        assert_eq!(of_partition(None, &points, &[range("d", "p", 0)]), Vec::<String>::new());
        let wrong = |child, points: &[(&str, u64)], ranges: &[RangeDelete], what: &str| {
            let found = of_partition(child, points, ranges);
            assert!(found.len() == 1 && found[0].contains(what), "{found:?} is not: {what}");
        };
        wrong(Some(CHILD), &[], &[], "though it is empty");
        for outside in [("c", 5), ("p", 5)] {
            wrong(Some(CHILD), &[outside], &[], "a message outside of its window");
        }
        for outside in [range("c", "e", 5), range("o", "q", 5)] {
            wrong(Some(CHILD), &[], &[outside], "a range outside of its window");
        }
        wrong(Some(CHILD), &[], &[range("f", "gg", 5)], "a range that a GOTO overlaps");
        wrong(None, &[("e", 5)], &[range("d", "e", 5)], "the null edge");
        wrong(Some(CHILD), &[("e", 5)], &[range("d", "f", 6)], "older than a range over it");
    }

    /// What is wrong with the newest run of a basement that begins with d and ends before p.
    fn of_basement(older: Option<Run>, newest: &Run) -> Vec<String> {
        let cache = Cache::new(1 << 20, 4);
        let messages = run(&[("e", 1)], &[]);
        let piece = Piece::new(&cache, older.unwrap_or(messages));
        let basement = Basement { first: b"d".to_vec(), piece };
        let mut found = Vec::new();
        check_basement_run(&basement, newest, &before("p"), 3, &mut |what| found.push(what));
        found
    }

    #[test]
    fn pairs_belong_to_their_basement() {
        let pairs = |points: &[(&str, u64)], ranges: &[RangeDelete]| {
            of_basement(Some(run(points, ranges)), &run(points, ranges))
        };
        assert_eq!(pairs(&[("d", 0), ("o", 0)], &[]), Vec::<String>::new());
        assert_eq!(pairs(&[("o", 0)], &[range("d", "e", 0)]), Vec::<String>::new());
        // Beside messages, the first key may be that of another run.
        assert_eq!(of_basement(None, &run(&[("e", 2)], &[])), Vec::<String>::new());
        let wrong = |found: Vec<String>, what: &str| {
            assert!(found.iter().any(|sentence| sentence.contains(what)), "{found:?} is not: {what}");
        };
        wrong(of_basement(None, &run(&[], &[])), "has an empty run");
        wrong(pairs(&[("e", 0)], &[]), "does not begin with its first key");
        wrong(pairs(&[("e", 0)], &[range("f", "g", 0)]), "does not begin with its first key");
        wrong(pairs(&[("d", 0), ("p", 0)], &[]), "a key outside of its bounds");
        wrong(of_basement(None, &run(&[("c", 2)], &[])), "a key outside of its bounds");
        for outside in [range("c", "e", 0), range("o", "q", 0)] {
            wrong(pairs(&[("d", 0)], &[outside]), "known damage outside of its bounds");
        }
        let mut deleted = RunBuilder::default();
        deleted.push(b"d", 0, Kind::Delete, b"");
        wrong(of_basement(None, &deleted.finish()), "a message among its pairs");
    }
}
