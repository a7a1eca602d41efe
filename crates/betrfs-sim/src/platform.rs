//! The clock and the random numbers of a simulated volume.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use betree_platform::Platform;
use seeded::{GOLDEN_RATIO, mix};

/// The time at which each history begins, in nanoseconds since 1970.
pub const START_NS: i64 = 1_000_000_000_000;

/// A clock that stands still within an operation, so that the model knows each time, and random numbers from
/// a counter.
pub struct SimPlatform {
    now_ns: AtomicI64,
    drawn: AtomicU64,
}

impl SimPlatform {
    /// The platform of a history with this seed.
    pub fn new(seed: u64) -> SimPlatform {
        SimPlatform { now_ns: AtomicI64::new(START_NS), drawn: AtomicU64::new(mix(seed)) }
    }

    /// Moves the clock on and returns the new time.
    pub fn pass(&self, by_ns: i64) -> i64 {
        self.now_ns.fetch_add(by_ns, Relaxed).wrapping_add(by_ns)
    }
}

impl Platform for SimPlatform {
    fn now_ns(&self) -> i64 {
        self.now_ns.load(Relaxed)
    }

    fn random_u64(&self) -> u64 {
        mix(self.drawn.fetch_add(GOLDEN_RATIO, Relaxed))
    }
}
