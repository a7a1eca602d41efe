//! Which blocks of an extent later extents have inherited.

use alloc::vec::Vec;
use core::ops::Range;

use crate::planted::{self, Bug};

/// The inheritance of one extent. A block has one at most: then no two nodes name the same block, neither now
/// nor on the device.
#[derive(Default)]
pub(super) struct Inheritance {
    /// Nodes other than the extent's own may inherit blocks.
    pub is_reusable: bool,
    /// Inherited ranges: disjoint, in order.
    taken: Vec<Range<u64>>,
}

impl Inheritance {
    /// Inherits the blocks of a range that have no heir yet, and returns them.
    pub fn take(&mut self, wanted: Range<u64>) -> Vec<Range<u64>> {
        if planted::is(Bug::BlocksTakenOverTwice) {
            return Vec::from([wanted]);
        }
        let mut got = Vec::new();
        let mut at = wanted.start;
        for taken in self.taken.iter().filter(|taken| taken.end > wanted.start && taken.start < wanted.end) {
            if at < taken.start {
                got.push(at..taken.start);
            }
            at = taken.end;
        }
        if at < wanted.end {
            got.push(at..wanted.end);
        }
        self.taken.extend(got.iter().cloned());
        self.taken.sort_unstable_by_key(|taken| taken.start);
        got
    }

    /// Gives back a range that [`take`](Inheritance::take) returned.
    pub fn release(&mut self, got: &Range<u64>) {
        self.taken.retain(|taken| taken != got);
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use seeded::Rng;

    use super::*;

    #[test]
    fn each_block_has_one_heir_until_it_is_given_up() {
        for seed in 0..200u64 {
            let mut rng = Rng::new(seed);
            let mut below = |n: u64| rng.below_u64(n);
            let mut inheritance = Inheritance::default();
            let mut taken = [false; 40];
            let mut held: Vec<Range<u64>> = Vec::new();
            for _ in 0..60 {
                if below(3) == 0 && !held.is_empty() {
                    let got = held.swap_remove(below(held.len() as u64) as usize);
                    inheritance.release(&got);
                    got.for_each(|block| taken[block as usize] = false);
                    continue;
                }
                let start = below(40);
                let wanted = start..start + below(41 - start);
                let expected: Vec<u64> = wanted.clone().filter(|block| !taken[*block as usize]).collect();
                let got = inheritance.take(wanted);
                assert_eq!(got.iter().cloned().flatten().collect::<Vec<_>>(), expected, "seed {seed}");
                expected.iter().for_each(|block| taken[*block as usize] = true);
                held.extend(got);
            }
        }
    }
}
