//! The one source of chance.

/// A pseudo-random generator (xoshiro256**, seeded by SplitMix64) that gives the same numbers for
/// the same seed in every version of this program, so that a seed stays a bug report.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng { state: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        self.state = [a ^ d ^ b, b ^ c ^ a, c ^ a ^ (b << 17), (d ^ b).rotate_left(45)];
        result
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is uniform up to one part in 2^64 / bound.
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// A number in `[lo, hi]`.
    pub fn between(&mut self, lo: usize, hi: usize) -> usize {
        lo + self.below(hi - lo + 1)
    }

    /// Whether an event of this probability in percent happens.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len());
        &from[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(42);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, FIRST_OF_42);
    }

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

    /// The published algorithm's output; computed apart from this code.
    const FIRST_OF_42: [u64; 3] = [0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1];
}
