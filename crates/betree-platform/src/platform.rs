//! The clock and the random numbers.

/// Time and randomness of the place where the file system runs.
pub trait Platform: Send + Sync {
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    fn now_ns(&self) -> i64;

    /// 64 bits that no other call has returned, as far as chance allows.
    fn random_u64(&self) -> u64;
}
