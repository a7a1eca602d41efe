//! xoshiro256** (Blackman, Vigna: Scrambled Linear Pseudorandom Number Generators, 2021).

use crate::{Source, SplitMix64};

/// xoshiro256**, seeded by SplitMix64.
#[derive(Clone, Debug)]
pub struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Xoshiro256 {
        let mut seeds = SplitMix64::new(seed);
        Xoshiro256 { state: [(); 4].map(|()| seeds.next()) }
    }
}

impl Source for Xoshiro256 {
    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        self.state = [a ^ d ^ b, b ^ c ^ a, c ^ a ^ (b << 17), (d ^ b).rotate_left(45)];
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published algorithm's output; computed apart from this code.
    const FIRST_OF_42: [u64; 3] = [0x1578_0b2e_0c2e_c716, 0x6104_d986_6d11_3a7e, 0xae17_5332_39e4_99a1];

    #[test]
    fn a_seed_has_the_same_numbers_for_ever() {
        let mut rng = Xoshiro256::new(42);
        assert_eq!([(); 3].map(|()| rng.next()), FIRST_OF_42);
    }
}
