//! Builds basements from pairs in order.

use alloc::vec::Vec;

use crate::cache::{Cache, Piece};
use crate::message::Kind;
use crate::node::Basement;
use crate::run::{Pairs, Run, RunBuilder};

/// Packs pairs, pushed in the order of their keys, into basements of about equal size.
pub(crate) struct LeafBuilder<'c> {
    cache: &'c Cache,
    basement_bytes: usize,
    first: Vec<u8>,
    run: RunBuilder,
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
            done: Vec::new(),
            longest_key: 0,
            cut_bytes: 0,
        }
    }

    /// Adds the next pair.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        if !self.run.is_empty() && self.run.bytes() + RunBuilder::bytes_of(key, value) > self.basement_bytes {
            self.cut();
        }
        if self.run.is_empty() {
            self.first.clear();
            self.first.extend_from_slice(key);
        }
        self.longest_key = self.longest_key.max(key.len());
        self.run.push(key, 0, Kind::Put, value);
    }

    /// Adds the pairs in `[from, to)` of a run, which come next.
    pub fn push_pairs(&mut self, pairs: &Run, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let room = self.basement_bytes.saturating_sub(self.run.bytes());
            let fit = pairs.points_that_take(at, to, room);
            if fit == 0 && !self.run.is_empty() {
                self.cut();
                continue;
            }
            // A pair larger than a basement gets one to itself.
            let until = at + fit.max(1);
            if self.run.is_empty() {
                self.first.clear();
                self.first.extend_from_slice(pairs.key(at));
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

    /// Shares a basement of another leaf.
    pub fn share(&mut self, basement: &Basement) {
        self.cut();
        self.done.push(basement.clone());
    }

    fn cut(&mut self) {
        if !self.run.is_empty() {
            let run = self.run.finish();
            self.cut_bytes += run.as_bytes().len();
            self.done.push(Basement { first: self.first.clone(), piece: Piece::new(self.cache, run) });
        }
    }

    /// The basements, and the length of the longest key that was pushed.
    pub fn finish(mut self) -> (Vec<Basement>, u32) {
        self.cut();
        (self.done, self.longest_key as u32)
    }
}

impl Pairs for LeafBuilder<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8]) {
        self.push(key, value);
    }

    fn pairs(&mut self, run: &Run, from: usize, to: usize) {
        self.push_pairs(run, from, to);
    }
}
