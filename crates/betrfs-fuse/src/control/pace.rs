//! The bound of the rate at which a scrub reads.

use std::time::Duration;

/// How long to wait after a read of `bytes` that took `took`, so that no more than `bytes_per_second` are
/// read. What a slow read took longer is not made up for.
pub(super) fn pause(bytes: u64, bytes_per_second: u64, took: Duration) -> Duration {
    let due_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(due_ns).unwrap_or(u64::MAX)).saturating_sub(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_and_its_pause_take_as_long_as_the_rate_says() {
        let ms = Duration::from_millis;
        assert_eq!(pause(1 << 20, 50 << 20, ms(0)), ms(20));
        assert_eq!(pause(1 << 20, 50 << 20, ms(15)), ms(5));
        assert_eq!(pause(1 << 20, 50 << 20, ms(400)), ms(0));
        assert_eq!(pause(u64::MAX, 0, ms(0)), Duration::from_nanos(u64::MAX));
    }
}
