//! Dice.

use seeded::{GOLDEN_RATIO, mix};

/// A seeded generator (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_RATIO);
        mix(self.0)
    }

    pub fn roll(&mut self, below: u64) -> u64 {
        self.next() % below
    }
}
