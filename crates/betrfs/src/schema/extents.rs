//! The existing blocks of a sparse file, as runs in its record.
//!
//! Keeping them takes no query: a write adds its blocks, a hole removes some. They are exact while they are
//! few. If there are too many runs, those with the smallest holes between them are joined. The joined run
//! still counts its blocks, but how many blocks of a later write inside it are new is unknown, and the
//! expected number is counted. So the count may be wrong within such a run, but no block is outside of the
//! runs. The record has fewer runs than memory has.

use alloc::vec::Vec;

use crate::FILE_BYTES_MAX;
use crate::schema::block::BLOCK;

/// The most runs in memory: 16 KiB, which each change of the file copies.
const RUNS_MAX: usize = 512;
/// The most runs in a record, about four bytes each.
const STORED_RUNS_MAX: usize = 128;
/// Fractions of a block in which blocks are counted, so that expected numbers add up.
const PARTS: u64 = 256;
/// The most blocks of a file.
const BLOCKS_MAX: u64 = FILE_BYTES_MAX / BLOCK;

/// The blocks of a sparse file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    /// In order, not empty, without overlaps.
    runs: Vec<Run>,
}

/// A part of a file. No block is outside of all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Its first block.
    first: u64,
    /// Number of blocks it would have without holes, at least 1.
    span: u64,
    /// Number of blocks in it, in [`PARTS`].
    parts: u64,
    /// Whether the number is exact.
    is_exact: bool,
}

impl Run {
    fn whole(first: u64, end: u64) -> Run {
        let span = end - first;
        Run { first, span, parts: span * PARTS, is_exact: true }
    }

    fn end(&self) -> u64 {
        self.first + self.span
    }

    /// Whether it certainly has no hole.
    fn is_whole(&self) -> bool {
        self.is_exact && self.parts == self.span * PARTS
    }

    /// The run from this one's start to the other's end.
    fn joined(self, other: Run) -> Run {
        Run {
            first: self.first,
            span: other.end() - self.first,
            parts: self.parts + other.parts,
            is_exact: self.is_exact && other.is_exact,
        }
    }

    /// The run before a block inside it, and the run from that block on, each with its share of the blocks.
    fn split(self, at: u64) -> (Run, Run) {
        let span = at - self.first;
        let parts = (u128::from(self.parts) * u128::from(span) / u128::from(self.span)) as u64;
        let is_exact = self.is_whole();
        let before = Run { first: self.first, span, parts, is_exact };
        let behind = Run { first: at, span: self.span - span, parts: self.parts - parts, is_exact };
        (before, behind)
    }
}

impl Extents {
    /// The extents of a file with its first `blocks` blocks.
    pub fn of_blocks(blocks: u64) -> Extents {
        let mut extents = Extents::default();
        extents.add(0, blocks);
        extents
    }

    /// The parts that have blocks: the first block and the number of blocks of each.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|run| (run.first, run.span))
    }

    /// Number of blocks, about.
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.parts.div_ceil(PARTS)).fold(0, u64::saturating_add)
    }

    /// Adds the blocks `[first, end)`.
    pub fn add(&mut self, first: u64, end: u64) {
        let end = end.min(BLOCKS_MAX);
        if first >= end {
            return;
        }
        let at = self.runs.partition_point(|run| run.end() <= first);
        if self.runs.get(at).is_some_and(|run| run.first <= first && run.end() >= end && run.is_whole()) {
            return;
        }
        let at = self.take(first, end);
        self.runs.insert(at, Run::whole(first, end));
        self.join_whole(at);
        if let Some(before) = at.checked_sub(1) {
            self.join_whole(before);
        }
        self.limit(RUNS_MAX);
    }

    /// Removes the blocks `[first, end)`.
    pub fn remove(&mut self, first: u64, end: u64) {
        if first < end {
            self.take(first, end);
            self.limit(RUNS_MAX);
        }
    }

    /// Notes that `[first, end)` is shared with another file, which has these extents, or all its blocks if
    /// `None`.
    pub fn share(&mut self, from: Option<&Extents>, first: u64, end: u64) {
        let Some(from) = from else { return self.add(first, end) };
        let at = self.take(first, end);
        let mut shared = from.clone();
        shared.take(end, u64::MAX);
        shared.take(0, first);
        self.runs.splice(at..at, shared.runs);
        self.limit(RUNS_MAX);
    }

    /// Removes the runs in `[first, end)`; returns the index at which they were.
    fn take(&mut self, first: u64, end: u64) -> usize {
        self.cut(first);
        self.cut(end);
        let from = self.runs.partition_point(|run| run.first < first);
        let to = self.runs.partition_point(|run| run.first < end);
        self.runs.drain(from..to.max(from));
        from
    }

    /// Splits the run with this block inside.
    fn cut(&mut self, block: u64) {
        let at = self.runs.partition_point(|run| run.end() <= block);
        let Some(run) = self.runs.get_mut(at).filter(|run| run.first < block) else { return };
        let (before, behind) = run.split(block);
        *run = before;
        self.runs.insert(at + 1, behind);
    }

    /// Joins a run to the next one if they touch and neither has a hole.
    fn join_whole(&mut self, at: usize) {
        let (Some(run), Some(next)) = (self.runs.get(at).copied(), self.runs.get(at + 1).copied()) else {
            return;
        };
        if run.end() == next.first && run.is_whole() && next.is_whole() {
            self.runs.remove(at + 1);
            if let Some(joined) = self.runs.get_mut(at) {
                *joined = run.joined(next);
            }
        }
    }

    /// Joins the runs with the smallest holes between them until there are no more than `most`.
    fn limit(&mut self, most: usize) {
        if self.runs.len() > most {
            self.runs = self.joined_to(most);
        }
    }

    /// At most `most` runs, with the largest holes between them.
    fn joined_to(&self, most: usize) -> Vec<Run> {
        let Some(last_joined) = self.runs.len().saturating_sub(most).checked_sub(1) else {
            return self.runs.clone();
        };
        let hole = |(run, next): (&Run, &Run)| next.first - run.end();
        let mut holes: Vec<u64> = self.runs.iter().zip(self.runs.iter().skip(1)).map(hole).collect();
        let (smaller, largest, _) = holes.select_nth_unstable(last_joined);
        let largest = *largest;
        // Not all holes of this size need to be closed.
        let mut as_large = smaller.iter().filter(|hole| **hole == largest).count() + 1;
        let mut kept: Vec<Run> = Vec::with_capacity(most);
        for run in &self.runs {
            let hole = kept.last().map(|last| run.first - last.end());
            let is_joined = hole.is_some_and(|hole| hole < largest || hole == largest && as_large > 0);
            match kept.last_mut() {
                Some(last) if is_joined => {
                    as_large -= usize::from(hole == Some(largest));
                    *last = last.joined(*run);
                }
                _ => kept.push(*run),
            }
        }
        kept
    }

    /// Appends the bytes of the record.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let stored = self.joined_to(STORED_RUNS_MAX);
        put(bytes, stored.len() as u64);
        let mut end = 0;
        for run in &stored {
            put(bytes, run.first - end);
            let kind = if run.is_whole() { WHOLE } else { HOLEY + u64::from(!run.is_exact) };
            put(bytes, run.span * KINDS + kind);
            if kind != WHOLE {
                put(bytes, run.parts);
            }
            end = run.end();
        }
    }

    /// Takes extents off the front of `bytes`; `None` if no file can have them.
    pub fn parse(bytes: &mut &[u8]) -> Option<Extents> {
        let count = usize::try_from(get(bytes)?).ok().filter(|count| *count <= STORED_RUNS_MAX)?;
        let mut runs = Vec::with_capacity(count);
        let mut end = 0u64;
        for _ in 0..count {
            let first = end.checked_add(get(bytes)?)?;
            let word = get(bytes)?;
            let (span, kind) = (word / KINDS, word % KINDS);
            end = first.checked_add(span).filter(|end| span > 0 && *end <= BLOCKS_MAX)?;
            let whole = Run::whole(first, end);
            runs.push(match kind {
                WHOLE => whole,
                HOLEY | ESTIMATED => {
                    let parts = get(bytes).filter(|parts| *parts <= whole.parts)?;
                    Run { parts, is_exact: kind == HOLEY, ..whole }
                }
                _ => return None,
            });
        }
        Some(Extents { runs })
    }

    /// Begins a comparison with the blocks in the tree.
    pub fn recount(&self) -> Recount<'_> {
        Recount { runs: self.runs.iter(), run: None, found: 0, wrong: None }
    }
}

/// Kinds of runs, and the number of kinds that a word has room for.
const WHOLE: u64 = 0;
const HOLEY: u64 = 1;
const ESTIMATED: u64 = 2;
const KINDS: u64 = 4;

/// A comparison with the blocks in the tree, in their order.
pub(crate) struct Recount<'e> {
    runs: core::slice::Iter<'e, Run>,
    run: Option<&'e Run>,
    found: u64,
    /// The first block of a run with a difference.
    wrong: Option<u64>,
}

impl Recount<'_> {
    /// The next block in the tree.
    pub fn found(&mut self, block: u64) {
        while self.run.is_none_or(|run| block >= run.end()) {
            self.end_run();
            self.run = self.runs.next();
            if self.run.is_none() {
                break;
            }
        }
        match self.run {
            Some(run) if block >= run.first => self.found += 1,
            _ => {
                self.wrong.get_or_insert(block);
            }
        }
    }

    /// The first block with a difference, after the last block was given.
    pub fn finish(mut self) -> Option<u64> {
        self.end_run();
        while let Some(run) = self.runs.next() {
            self.run = Some(run);
            self.end_run();
        }
        self.wrong
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take()
            && run.is_exact
            && self.found * PARTS != run.parts
        {
            self.wrong.get_or_insert(run.first);
        }
        self.found = 0;
    }
}

/// Adds a number, seven bits a byte.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number of up to 63 bits off the front.
fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use seeded::Rng;

    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn wrong(extents: &Extents, blocks: &BTreeSet<u64>) -> Option<u64> {
        let mut recount = extents.recount();
        blocks.iter().for_each(|block| recount.found(*block));
        recount.finish()
    }

    fn stored(extents: &Extents) -> Extents {
        let mut bytes = Vec::new();
        extents.encode(&mut bytes);
        let mut rest = &bytes[..];
        let back = Extents::parse(&mut rest).unwrap();
        assert!(rest.is_empty());
        back
    }

    #[derive(Clone, Debug)]
    enum Change {
        Add(u64, u64),
        Remove(u64, u64),
        Share(Vec<(u64, u64)>, u64, u64),
        Store,
    }

    fn range(blocks: u64) -> impl Strategy<Value = (u64, u64)> {
        (0..blocks, 1..blocks / 10).prop_map(|(first, len)| (first, first + len))
    }

    fn change(blocks: u64) -> impl Strategy<Value = Change> {
        prop_oneof![
            3 => range(blocks).prop_map(|(first, end)| Change::Add(first, end)),
            2 => range(blocks).prop_map(|(first, end)| Change::Remove(first, end)),
            1 => (proptest::collection::vec(range(blocks), 0..6), range(blocks))
                .prop_map(|(from, (first, end))| Change::Share(from, first, end)),
            1 => Just(Change::Store),
        ]
    }

    proptest! {
        #[test]
        fn few_runs_are_exact(changes in proptest::collection::vec(change(500), 1..60)) {
            let (mut extents, mut blocks) = (Extents::default(), BTreeSet::new());
            for change in changes {
                match change {
                    Change::Add(first, end) => {
                        extents.add(first, end);
                        blocks.extend(first..end);
                    }
                    Change::Remove(first, end) => {
                        extents.remove(first, end);
                        blocks.retain(|block| !(first..end).contains(block));
                    }
                    Change::Share(from, first, end) => {
                        let mut other = Extents::default();
                        from.iter().for_each(|(first, end)| other.add(*first, *end));
                        extents.share(Some(&other), first, end);
                        blocks.retain(|block| !(first..end).contains(block));
                        let theirs = from.iter().flat_map(|(first, end)| *first..*end);
                        blocks.extend(theirs.filter(|block| (first..end).contains(block)));
                    }
                    Change::Store => extents = stored(&extents),
                }
                prop_assert_eq!(extents.blocks(), blocks.len() as u64);
                prop_assert_eq!(wrong(&extents, &blocks), None);
            }
        }

        #[test]
        fn many_runs_stay_few_and_no_block_is_outside_of_them(
            changes in proptest::collection::vec(change(1 << 20), 1..400),
        ) {
            let mut extents = Extents::default();
            for change in changes {
                match change {
                    // Single blocks, for as many runs as possible.
                    Change::Add(first, end) => (first..end).step_by(211).take(99).for_each(|at| extents.add(at, at + 1)),
                    Change::Remove(first, end) => extents.remove(first, end),
                    Change::Share(_, first, end) => extents.share(None, first, end),
                    Change::Store => extents = stored(&extents),
                }
                prop_assert!(extents.runs.len() <= RUNS_MAX);
                prop_assert!(extents.runs.iter().all(|run| run.span > 0 && run.parts <= run.span * PARTS));
                prop_assert!(extents.runs.windows(2).all(|pair| pair[0].end() <= pair[1].first));
            }
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(extents) = Extents::parse(&mut &bytes[..]) {
                extents.blocks();
                let mut changed = extents.clone();
                changed.add(5, 1 << 40);
                changed.remove(7, u64::MAX);
                prop_assert_eq!(stored(&extents), extents);
            }
        }
    }

    /// As programs do that make many holes: every other block, in any order.
    #[test]
    fn many_single_blocks_are_counted_as_they_are() {
        let mut in_order = Extents::default();
        (0..100_000).for_each(|i| in_order.add(2 * i, 2 * i + 1));
        assert_eq!(in_order.blocks(), 100_000);
        assert_eq!(stored(&in_order).blocks(), 100_000);
        let mut bytes = Vec::new();
        in_order.encode(&mut bytes);
        assert!(bytes.len() < 1024, "{} bytes", bytes.len());
        assert_eq!(wrong(&in_order, &(0..100_000).map(|i| 2 * i).collect()), None);
        assert_eq!(wrong(&in_order, &(1..100_000).map(|i| 2 * i).collect()), Some(0));

        let (mut at_random, mut blocks, mut rng) = (Extents::default(), BTreeSet::new(), Rng::new(1));
        while blocks.len() < 20_000 {
            let block = rng.below_u64(100_000);
            at_random.add(block, block + 1);
            blocks.insert(block);
        }
        let counted = at_random.blocks();
        assert!((19_000..21_000).contains(&counted), "{counted} blocks");
    }

    #[test]
    fn a_whole_file_is_one_run_and_more_than_a_file_has_is_none() {
        assert_eq!(Extents::of_blocks(0), Extents::default());
        let mut extents = Extents::of_blocks(10);
        extents.add(10, 20);
        extents.add(5, 15);
        assert_eq!(extents, Extents::of_blocks(20));
        extents.add(BLOCKS_MAX - 1, u64::MAX);
        assert_eq!(extents.blocks(), 21);
        assert_eq!(stored(&extents), extents);
        extents.remove(1, u64::MAX);
        assert_eq!(extents, Extents::of_blocks(1));
    }
}
