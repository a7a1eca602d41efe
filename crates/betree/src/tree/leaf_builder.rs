//! Builds basements from pairs in order, and from the known damage between them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cache::{Cache, Piece};
use crate::key::Cut;
use crate::message::{Kind, PairCompression, RangeDelete};
use crate::node::Basement;
use crate::run::{Pairs, Run, RunBuilder};

/// Packs pairs, pushed in the order of their keys, into basements of about equal size.
pub(crate) struct LeafBuilder<'c> {
    cache: &'c Cache,
    basement_bytes: usize,
    first: Vec<u8>,
    run: RunBuilder,
    /// Known damage that is in no basement yet, in order.
    damage: VecDeque<RangeDelete>,
    done: Vec<Basement>,
    longest_key: usize,
    /// Bytes of the finished runs.
    cut_bytes: usize,
}

impl<'c> LeafBuilder<'c> {
    /// An empty leaf.
    pub fn new(cache: &'c Cache, basement_bytes: u32) -> LeafBuilder<'c> {
        LeafBuilder {
            cache,
            basement_bytes: basement_bytes as usize,
            first: Vec::new(),
            run: RunBuilder::with_room(basement_bytes as usize),
            damage: VecDeque::new(),
            done: Vec::new(),
            longest_key: 0,
            cut_bytes: 0,
        }
    }

    /// Adds the next pair, with the compression that it asks for.
    pub fn push(&mut self, key: &[u8], value: &[u8], asked: PairCompression) {
        if !self.run.is_empty() && self.run.bytes() + RunBuilder::bytes_of(key, value) > self.basement_bytes {
            self.cut(Some(&Cut::before(key)));
        }
        if self.run.is_empty() {
            self.begin(key);
        }
        self.longest_key = self.longest_key.max(key.len());
        self.run.push(key, 0, Kind::Put(asked), value);
    }

    /// Adds the pairs in `[from, to)` of a run, which come next.
    pub fn push_pairs(&mut self, pairs: &Run, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let room = self.basement_bytes.saturating_sub(self.run.bytes());
            let fit = pairs.points_that_take(at, to, room);
            if fit == 0 && !self.run.is_empty() {
                self.cut(Some(&Cut::before(pairs.key(at))));
                continue;
            }
            // A pair larger than a basement gets one to itself.
            let until = at + fit.max(1);
            if self.run.is_empty() {
                self.begin(pairs.key(at));
            }
            let longest = (at..until).map(|index| pairs.key(index).len()).max();
            self.longest_key = self.longest_key.max(longest.unwrap_or(0));
            self.run.push_pairs(pairs, at, until);
            at = until;
        }
    }

    /// Bytes of pairs, without those of shared basements.
    pub fn pushed_bytes(&self) -> usize {
        self.cut_bytes + self.run.bytes()
    }

    /// Adds known damage, in order, before all pairs behind its lower bounds.
    pub fn push_damage(&mut self, ranges: impl IntoIterator<Item = RangeDelete>) {
        self.damage.extend(ranges.into_iter().filter(has_keys));
    }

    /// Shares a basement of another leaf.
    pub fn share(&mut self, basement: &Basement) {
        self.cut(Some(&Cut::before(basement.first.as_slice())));
        self.done.push(basement.clone());
    }

    /// Begins a basement with a pair, or with the damage before it.
    fn begin(&mut self, key: &[u8]) {
        let damaged = self.damage.front().and_then(|range| range.lo.first_key_behind());
        match damaged.filter(|first| first.as_slice() < key) {
            Some(first) => self.first = first,
            None => {
                self.first.clear();
                self.first.extend_from_slice(key);
            }
        }
    }

    /// Ends the basement before the first key of the next one. The damage before that is in it.
    fn cut(&mut self, next: Option<&Cut>) {
        let mut damage = Vec::new();
        while let Some(range) = self.damage.pop_front() {
            let Some(next) = next.filter(|next| range.hi > **next) else {
                damage.push(range);
                continue;
            };
            damage.extend(range.clip(&Cut::LOW, next).filter(has_keys));
            if let Some(rest) = range.clip(next, &Cut::HIGH).filter(has_keys) {
                self.damage.push_front(rest);
            }
            break;
        }
        if self.run.is_empty() {
            let first = damage.first().and_then(|range| range.lo.first_key_behind());
            let Some(first) = first else { return };
            self.first = first;
        }
        self.run.set_ranges(damage);
        let run = self.run.finish();
        self.cut_bytes += run.as_bytes().len();
        self.done.push(Basement { first: self.first.clone(), piece: Piece::new(self.cache, run) });
    }

    /// The basements, and the length of the longest key that was pushed.
    pub fn finish(mut self) -> (Vec<Basement>, u32) {
        self.cut(None);
        (self.done, self.longest_key as u32)
    }
}

/// Whether any key is in a range: between two bounds there may be none.
fn has_keys(range: &RangeDelete) -> bool {
    range.lo.first_key_behind().is_some_and(|first| range.hi.is_above(&first))
}

impl Pairs for LeafBuilder<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8], asked: PairCompression) {
        self.push(key, value, asked);
    }

    fn pairs(&mut self, run: &Run, from: usize, to: usize) {
        self.push_pairs(run, from, to);
    }

    fn damage(&mut self, ranges: Vec<RangeDelete>) {
        self.push_damage(ranges);
    }
}
