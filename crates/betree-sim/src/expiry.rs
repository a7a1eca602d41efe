//! Values that expire in histories, and the clock by which they do.

use std::sync::atomic::{AtomicI64, Ordering};

use betree_platform::Platform;

/// What a value that expires begins with, and a delta that says when it was made. Ends of random values must
/// not look so.
const TIMED: [u8; 4] = *b"\xe5exp";
/// What a value that expires and gets no deltas begins with.
const TIMED_ALONE: [u8; 4] = *b"\xe4exp";
/// A mark and a time.
const HEAD_BYTES: usize = 12;

/// A clock that histories set.
#[derive(Debug, Default)]
pub struct SimClock(AtomicI64);

impl SimClock {
    /// Lets time pass.
    pub fn pass(&self, by_ns: i64) {
        self.0.fetch_add(by_ns, Ordering::SeqCst);
    }
}

impl Platform for SimClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn random_u64(&self) -> u64 {
        0
    }
}

/// A value that expires at a time, or a delta that was made then.
pub(crate) fn timed(time_ns: i64, rest: &[u8]) -> Vec<u8> {
    [&TIMED[..], &time_ns.to_be_bytes()[..], rest].concat()
}

/// A value that expires at a time, in a dictionary without deltas.
pub(crate) fn timed_alone(time_ns: i64, rest: &[u8]) -> Vec<u8> {
    [&TIMED_ALONE[..], &time_ns.to_be_bytes()[..], rest].concat()
}

/// The time in a value or a delta, and the rest; `None` without one.
pub(crate) fn time_and_rest(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (mark, rest) = bytes.split_first_chunk()?;
    let (time_ns, rest) = rest.split_first_chunk()?;
    [TIMED, TIMED_ALONE].contains(mark).then_some((i64::from_be_bytes(*time_ns), rest))
}

/// Whether a value has expired at a time.
pub(crate) fn has_expired(value: &[u8], at_ns: i64) -> bool {
    time_and_rest(value).is_some_and(|(time_ns, _)| time_ns <= at_ns)
}

/// What stays of a value that has expired.
pub(crate) fn left_of(value: &[u8]) -> Option<Vec<u8>> {
    value.get(..HEAD_BYTES).filter(|head| head.starts_with(&TIMED)).map(<[u8]>::to_vec)
}
