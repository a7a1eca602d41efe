//! Values that expire, as they are stored: the time stands before the stored form of the value.
//!
//! The engine asks any value when it expires, without its key, so each says so itself. The parts of a large
//! value do too: they leave the tree as the pair does that refers to them.
//!
//! The time belongs to the key until a put or a delete takes its place: it stays where a merge changes or
//! removes the value. So the value of before the time can be forgotten after it, though deltas that were made
//! before may still come to it: they make something that has expired, whatever it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::value::MARK;

/// Nanoseconds since 1970-01-01 00:00 UTC.
pub(crate) type TimeNs = i64;

/// What follows the mark: a value to which no deltas come, one to which they may come, and no value.
const ALONE: u8 = 3;
const WITH_DELTAS: u8 = 4;
const ABSENT: u8 = 5;
/// What a delta begins with that says when it was made. No merge has this number.
pub(crate) const TIMED_DELTA: [u8; 4] = *b"\xe5tim";

/// Whether deltas may come to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deltas {
    Never,
    Perhaps,
}

/// A stored value, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed<'v> {
    /// When it expires; `None` if never.
    pub expires_ns: Option<TimeNs>,
    /// The stored form of the value without the time; `None` if there is no value.
    pub inner: Option<&'v [u8]>,
}

impl<'v> Timed<'v> {
    /// Of a stored value.
    pub fn of(stored: &'v [u8]) -> Timed<'v> {
        match parsed(stored) {
            None => Timed { expires_ns: None, inner: Some(stored) },
            Some((kind, expires_ns, rest)) => {
                Timed { expires_ns: Some(expires_ns), inner: Some(rest).filter(|_| kind != ABSENT) }
            }
        }
    }
}

/// Kind, time and the rest of a stored value that expires.
fn parsed(stored: &[u8]) -> Option<(u8, TimeNs, &[u8])> {
    let (kind, rest) = stored.strip_prefix(&MARK)?.split_first()?;
    let (time, rest) = rest.split_first_chunk()?;
    [ALONE, WITH_DELTAS, ABSENT].contains(kind).then(|| (*kind, TimeNs::from_le_bytes(*time), rest))
}

fn with_kind(kind: u8, expires_ns: TimeNs, inner: &[u8]) -> Vec<u8> {
    [&MARK[..], &[kind], &expires_ns.to_le_bytes(), inner].concat()
}

/// The stored form of a value that expires, from that of the value.
pub(crate) fn expiring(expires_ns: TimeNs, deltas: Deltas, inner: &[u8]) -> Vec<u8> {
    let kind = match deltas {
        Deltas::Never => ALONE,
        Deltas::Perhaps => WITH_DELTAS,
    };
    with_kind(kind, expires_ns, inner)
}

/// The stored form of a value that a merge has removed before it expired.
pub(crate) fn absent_until(expires_ns: TimeNs) -> Vec<u8> {
    with_kind(ABSENT, expires_ns, &[])
}

/// When a stored value expires; `None` if never.
pub(crate) fn expires_ns(stored: &[u8]) -> Option<TimeNs> {
    Timed::of(stored).expires_ns
}

/// When the value in what was read of a key expires; `None` if never, or if there is none.
pub(crate) fn expiry_of(read: Option<Vec<u8>>) -> Option<SystemTime> {
    let read = read?;
    let Timed { expires_ns, inner } = Timed::of(&read);
    inner.and(expires_ns).map(time_of)
}

/// What has to stay of a stored value that has expired, for deltas that were made before.
pub(crate) fn left_of_expired(stored: &[u8]) -> Option<Vec<u8>> {
    let (kind, expires_ns, _) = parsed(stored)?;
    (kind != ALONE).then(|| absent_until(expires_ns))
}

/// A delta that says when it was made.
pub(crate) fn timed_delta(made_ns: TimeNs, delta: &[u8]) -> Vec<u8> {
    [&TIMED_DELTA[..], &made_ns.to_le_bytes(), delta].concat()
}

/// When a delta was made, if it says so, and the rest of it.
pub(crate) fn made(delta: &[u8]) -> (Option<TimeNs>, &[u8]) {
    let timed = delta.strip_prefix(&TIMED_DELTA).and_then(|rest| rest.split_first_chunk());
    timed.map_or((None, delta), |(time, rest)| (Some(TimeNs::from_le_bytes(*time)), rest))
}

/// The time as the engine has it. One beyond the years 1677 to 2262 is the last of these.
pub(crate) fn ns_of(time: SystemTime) -> TimeNs {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => TimeNs::try_from(since.as_nanos()).unwrap_or(TimeNs::MAX),
        Err(before) => TimeNs::try_from(before.duration().as_nanos()).map_or(TimeNs::MIN, |ns| -ns),
    }
}

/// The time of the engine's.
pub(crate) fn time_of(ns: TimeNs) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// So much later, or the last time that there is.
pub(crate) fn later(ns: TimeNs, by: Duration) -> TimeNs {
    ns.saturating_add(TimeNs::try_from(by.as_nanos()).unwrap_or(TimeNs::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_with_its_time_and_what_is_cut_off_has_none() {
        for inner in [&b""[..], b"value", &MARK] {
            for deltas in [Deltas::Never, Deltas::Perhaps] {
                let stored = expiring(-7, deltas, inner);
                assert_eq!(Timed::of(&stored), Timed { expires_ns: Some(-7), inner: Some(inner) });
                let left = left_of_expired(&stored);
                assert_eq!(left, (deltas == Deltas::Perhaps).then(|| absent_until(-7)));
            }
            assert_eq!(Timed::of(inner), Timed { expires_ns: None, inner: Some(inner) });
        }
        let absent = absent_until(9);
        assert_eq!(Timed::of(&absent), Timed { expires_ns: Some(9), inner: None });
        assert_eq!(left_of_expired(&absent).as_ref(), Some(&absent));
        for len in 0..absent.len() {
            assert_eq!(expires_ns(&absent[..len]), None);
        }
        let unknown = with_kind(ABSENT + 1, 9, b"");
        assert_eq!((expires_ns(&unknown), left_of_expired(b"value")), (None, None));
    }

    #[test]
    fn times_that_the_engine_cannot_have_are_its_first_and_its_last() {
        let second = Duration::from_secs(1);
        assert_eq!(ns_of(UNIX_EPOCH + second), 1_000_000_000);
        assert_eq!(ns_of(UNIX_EPOCH - second), -1_000_000_000);
        assert_eq!(ns_of(UNIX_EPOCH + Duration::from_secs(1 << 40)), TimeNs::MAX);
        assert_eq!(ns_of(UNIX_EPOCH - Duration::from_secs(1 << 40)), TimeNs::MIN);
        for ns in [TimeNs::MIN + 1, -1, 0, 1, TimeNs::MAX] {
            assert_eq!(ns_of(time_of(ns)), ns);
        }
        assert_eq!((later(5, second), later(5, Duration::MAX)), (1_000_000_005, TimeNs::MAX));
    }

    #[test]
    fn a_delta_says_when_it_was_made() {
        assert_eq!(made(&timed_delta(-3, b"delta")), (Some(-3), &b"delta"[..]));
        assert_eq!(made(b"delta"), (None, &b"delta"[..]));
        assert_eq!(made(&TIMED_DELTA), (None, &TIMED_DELTA[..]));
    }
}
