//! Numbers and bytes that look random and are given by a seed alone.

/// The step of splitmix64.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const WORD_BYTES: u64 = 8;

/// The finalizer of splitmix64: near numbers become far ones.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// `len` bytes from `offset` of an endless text that a seed names; nothing in it can be compressed.
/// Every part can be had without what is before it.
pub fn bytes(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let skip = (offset % WORD_BYTES) as usize;
    let first = offset / WORD_BYTES;
    let words = (skip + len).div_ceil(WORD_BYTES as usize);
    let mut out = Vec::with_capacity(words * WORD_BYTES as usize);
    let seed = mix(seed);
    for word in first..first + words as u64 {
        out.extend_from_slice(&mix(seed.wrapping_add(word.wrapping_mul(STEP))).to_le_bytes());
    }
    out.drain(..skip);
    out.truncate(len);
    out
}

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// One of many independent sequences: `seed` tells users apart, `stream` for instance threads.
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng(mix(seed.wrapping_mul(STEP) ^ mix(stream.wrapping_add(1))))
    }

    /// Any number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below a bound, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: evener than a remainder, and no division.
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A place in a list that is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// From above 0 up to 1.
    fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A size by the gamma distribution of shape 1.5, which is filebench's for files; at least 1.
    pub fn size(&mut self, mean: u64) -> u64 {
        // Gamma(1.5) is the sum of Gamma(1), an exponential, and Gamma(0.5), half a squared normal.
        let exponential = -self.unit().ln();
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        let shape = 1.5;
        ((exponential + normal * normal / 2.0) * mean as f64 / shape).max(1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_text_is_the_same_as_of_the_whole() {
        let whole = bytes(7, 0, 1000);
        for (offset, len) in [(0, 1000), (1, 999), (8, 8), (13, 1), (17, 500), (999, 1), (500, 0)] {
            assert_eq!(bytes(7, offset as u64, len), whole[offset..offset + len], "{len} from {offset}");
        }
        assert_ne!(bytes(8, 0, 1000), whole);
    }

    #[test]
    fn sequences_are_given_by_seed_and_stream() {
        let first = |seed, stream| Rng::new(seed, stream).word();
        assert_eq!(first(1, 2), first(1, 2));
        let mut all = vec![first(1, 2), first(2, 1), first(1, 1), first(0, 0), first(0, 1), first(1, 0)];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn numbers_reach_every_place_below_their_bound() {
        let mut rng = Rng::new(1, 1);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[rng.index(10)] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn sizes_have_their_mean() {
        let mut rng = Rng::new(3, 3);
        let total: u64 = (0..100_000).map(|_| rng.size(1 << 17)).sum();
        let mean = total as f64 / 100_000.0;
        assert!((mean / f64::from(1 << 17) - 1.0).abs() < 0.02, "{mean}");
    }
}
