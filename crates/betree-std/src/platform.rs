//! The system's clock and random numbers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use betree_platform::Platform;
use rustix::rand::{GetRandomFlags, getrandom};

/// The system's real-time clock and random number generator.
#[derive(Debug, Default)]
pub struct StdPlatform {
    /// Counts calls, so that two numbers differ on a system without randomness.
    calls: AtomicU64,
}

impl StdPlatform {
    /// The platform; all values are alike.
    pub fn new() -> StdPlatform {
        StdPlatform::default()
    }
}

impl Platform for StdPlatform {
    fn now_ns(&self) -> i64 {
        let ns = |since: std::time::Duration| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => ns(since),
            Err(before) => -ns(before.duration()),
        }
    }

    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match getrandom(rest, GetRandomFlags::empty()) {
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return self.without_randomness(),
            }
        }
        u64::from_ne_bytes(bytes)
    }
}

impl StdPlatform {
    /// The time and a counter, spread over all bits.
    fn without_randomness(&self) -> u64 {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut hasher = DefaultHasher::new();
        (self.now_ns(), calls).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_clock_stands_after_2020_and_does_not_stand_still() {
        let platform = StdPlatform::new();
        let before = platform.now_ns();
        assert!(before > 1_577_836_800_000_000_000);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(platform.now_ns() > before);
    }

    #[test]
    fn random_numbers_do_not_repeat() {
        let platform = StdPlatform::new();
        let seen: HashSet<u64> = (0..1000).map(|_| platform.random_u64()).collect();
        assert_eq!(seen.len(), 1000);
        let seen: HashSet<u64> = (0..1000).map(|_| platform.without_randomness()).collect();
        assert_eq!(seen.len(), 1000);
    }
}
