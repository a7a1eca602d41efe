//! Keys and values, functions of numbers: a check computes them again, in any order.

use std::iter;

use seeded::GOLDEN_RATIO;

/// The size of every key.
pub const KEY_BYTES: usize = 16;
/// The size of the counter at the start of a value, little-endian.
pub const COUNTER_BYTES: usize = 8;

/// A key.
pub type Key = [u8; KEY_BYTES];

/// A set of pairs, numbered by rank in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// The number of pairs.
    pub pairs: u64,
    /// The size of every value.
    pub value_bytes: usize,
}

/// Spreads a number over all bits.
pub fn mix(number: u64) -> u64 {
    seeded::mix(number.wrapping_add(GOLDEN_RATIO))
}

impl Data {
    /// The key of a rank; one past the last is above all keys.
    pub fn key(&self, rank: u64) -> Key {
        let high = rank * (u64::MAX / (self.pairs + 1));
        let mut key = [0; KEY_BYTES];
        let (front, back) = key.split_at_mut(KEY_BYTES / 2);
        front.copy_from_slice(&high.to_be_bytes());
        back.copy_from_slice(&mix(rank).to_be_bytes());
        key
    }

    /// The first value of a rank: a counter, then half random bytes and half one byte repeated, as
    /// compressible as the values of RocksDB's `db_bench`.
    pub fn value(&self, rank: u64, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&self.counter(rank).to_le_bytes());
        let random_bytes = self.value_bytes / 2;
        let words = (1..).map(|number| mix(rank.wrapping_mul(0x1000).wrapping_add(number)).to_le_bytes());
        for word in words.take((random_bytes.saturating_sub(COUNTER_BYTES)).div_ceil(8)) {
            value.extend_from_slice(&word);
        }
        value.truncate(random_bytes.max(COUNTER_BYTES));
        value.extend(iter::repeat_n(rank as u8, self.value_bytes.saturating_sub(value.len())));
    }

    /// The first counter of a rank.
    pub fn counter(&self, rank: u64) -> u64 {
        rank * 7
    }

    /// The size of one pair.
    pub fn pair_bytes(&self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    /// The `number`th rank of an order without pattern that has each rank once.
    pub fn shuffled(&self, number: u64) -> u64 {
        let bits = u64::BITS - (self.pairs - 1).leading_zeros();
        let (half, mask) = (bits.div_ceil(2), (1_u64 << bits.div_ceil(2)) - 1);
        let mut rank = number;
        loop {
            // A Feistel network is a permutation; a result outside the ranks goes through it once more.
            let (mut left, mut right) = (rank >> half, rank & mask);
            for round in 0..4 {
                (left, right) = (right, left ^ (mix(right ^ (round << 56)) & mask));
            }
            rank = left << half | right;
            if rank < self.pairs {
                return rank;
            }
        }
    }

    /// The rank of the `number`th query of a sequence that repeats ranks.
    pub fn any(&self, number: u64) -> u64 {
        mix(number ^ 0x5bd1_e995) % self.pairs
    }

    /// The ranks that a check compares: about `count`, evenly spread, or all.
    pub fn sample(&self, count: u64) -> impl Iterator<Item = u64> {
        let step = (self.pairs / count).max(1);
        (0..self.pairs).step_by(step as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_shuffle_has_every_rank_once() {
        for pairs in [1, 2, 3, 100, 1024, 1025] {
            let data = Data { pairs, value_bytes: 100 };
            let seen: BTreeSet<u64> = (0..pairs).map(|number| data.shuffled(number)).collect();
            assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..pairs).collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_ranks() {
        let data = Data { pairs: 1000, value_bytes: 100 };
        assert!((0..1000).all(|rank| data.key(rank) < data.key(rank + 1)));
    }

    #[test]
    fn a_value_has_its_size_and_its_counter_in_front() {
        for value_bytes in [8, 15, 100, 1000] {
            let mut value = Vec::new();
            Data { pairs: 9, value_bytes }.value(3, &mut value);
            assert_eq!(value.len(), value_bytes);
            assert_eq!(value.first_chunk(), Some(&21_u64.to_le_bytes()));
        }
    }
}
