//! Numbers and bytes as functions of a seed, for tests, simulations and benchmarks.
//!
//! A seed is a bug report: the numbers of [`Rng`] and the text of [`bytes`] never change, because histories
//! and lists of seeds to replay depend on them.
#![forbid(unsafe_code)]

mod bytes;
mod effort;
mod splitmix;
mod xoshiro;

pub use bytes::bytes;
pub use effort::{effort, is_long};
pub use splitmix::{GOLDEN_RATIO, SplitMix64, mix};
pub use xoshiro::Xoshiro256;

/// A stream of 64-bit numbers.
pub trait Source {
    /// The next number.
    fn next(&mut self) -> u64;
}

/// Draws from a stream of numbers; without a type parameter, from that of xoshiro256**.
#[derive(Clone, Debug)]
pub struct Rng<S = Xoshiro256> {
    source: S,
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { source: Xoshiro256::new(seed) }
    }
}

impl Rng<SplitMix64> {
    /// One of many independent generators: `seed` distinguishes users, `stream` for instance threads.
    pub fn of_stream(seed: u64, stream: u64) -> Rng<SplitMix64> {
        Rng { source: SplitMix64::of_stream(seed, stream) }
    }
}

impl<S: Source> Rng<S> {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.source.next()
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below_u64(&mut self, bound: u64) -> u64 {
        // The high half of the product is uniform up to one part in 2^64 / bound, and needs no division.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.below_u64(bound as u64) as usize
    }

    /// A number in `[lo, hi]`.
    pub fn between(&mut self, lo: usize, hi: usize) -> usize {
        lo + self.below(hi - lo + 1)
    }

    /// Whether an event of this probability in percent happens.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One element of a list.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len());
        &from[index]
    }

    /// A number above 0 and up to 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_them() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[rng.between(1, 5) - 1] += 1;
            assert_eq!(rng.below(1), 0);
        }
        assert!(seen.iter().all(|n| (130..270).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!(!rng.percent(0) && rng.percent(100));
    }

    #[test]
    fn streams_depend_on_seed_and_number() {
        let first = |seed, stream| Rng::of_stream(seed, stream).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        let mut all = [first(1, 2), first(2, 1), first(1, 1), first(0, 0), first(0, 1), first(1, 0)];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn each_number_below_a_bound_comes_equally_often() {
        let mut rng = Rng::of_stream(1, 1);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[rng.below(10)] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
