//! SplitMix64: a counter whose values are mixed (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
//! Generators, OOPSLA 2014).

use crate::Source;

/// 2^64 divided by the golden ratio, odd: the step of SplitMix64. Its multiples spread evenly.
pub const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: spreads a number over all bits.
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A generator of one word of state.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The generator of a stream of a seed.
    pub const fn of_stream(seed: u64, stream: u64) -> SplitMix64 {
        SplitMix64(mix(seed.wrapping_mul(GOLDEN_RATIO) ^ mix(stream.wrapping_add(1))))
    }
}

impl Source for SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_RATIO);
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published algorithm's output; computed apart from this code.
    const FIRST_OF_42: [u64; 3] = [0xbdd7_3226_2feb_6e95, 0x28ef_e333_b266_f103, 0x4752_6757_130f_9f52];

    #[test]
    fn a_seed_has_the_same_numbers_for_ever() {
        let mut rng = SplitMix64::new(42);
        assert_eq!([(); 3].map(|()| rng.next()), FIRST_OF_42);
    }
}
