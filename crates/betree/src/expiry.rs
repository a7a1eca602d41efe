//! Values that expire.
//!
//! [`Upsert::expires_at_ns`] tells when a value does. Readers hide it from then on, each by the time at which
//! it reads: a view by that of its beginning. It leaves the tree where pairs of a leaf are written anew
//! anyway, once it has expired for the oldest live view, so that nothing is read for it.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use betree_platform::Platform;
use betree_platform::sync::atomic::{AtomicI64, Ordering};

use crate::planted::{self, Bug};
use crate::upsert::Upsert;

/// Nanoseconds since 1970-01-01 00:00 UTC.
pub(crate) type TimeNs = i64;

/// Before all times: at it nothing has expired.
pub(crate) const BEFORE_ALL: TimeNs = TimeNs::MIN;

/// The platform's clock, as the engine sees it: it never goes back.
#[derive(Default)]
pub(crate) struct Clock {
    platform: Option<Arc<dyn Platform>>,
    latest_ns: AtomicI64,
}

impl Clock {
    /// The clock of a platform; without one there is no time, and nothing expires.
    pub fn of(platform: Option<Arc<dyn Platform>>) -> Clock {
        Clock { platform, latest_ns: AtomicI64::new(BEFORE_ALL) }
    }

    /// The time now, no earlier than any that it has told.
    pub fn now_ns(&self) -> Option<TimeNs> {
        let now_ns = self.platform.as_ref()?.now_ns();
        Some(self.latest_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns))
    }
}

/// The time by which values have expired.
#[derive(Clone, Copy)]
enum By<'e> {
    /// That of the clock whenever it is asked.
    Now(&'e Clock),
    /// A fixed one; none where nothing expires.
    Fixed(Option<TimeNs>),
}

/// What has expired at a time.
#[derive(Clone, Copy)]
pub(crate) struct Expiry<'e> {
    pub upsert: &'e dyn Upsert,
    by: By<'e>,
}

impl<'e> Expiry<'e> {
    /// By the clock.
    pub fn now(upsert: &'e dyn Upsert, clock: &'e Clock) -> Expiry<'e> {
        Expiry { upsert, by: if clock.platform.is_some() { By::Now(clock) } else { By::Fixed(None) } }
    }

    /// At a time; `None` where nothing expires.
    pub fn at(upsert: &'e dyn Upsert, time_ns: Option<TimeNs>) -> Expiry<'e> {
        Expiry { upsert, by: By::Fixed(time_ns) }
    }

    /// Whether nothing has expired, whatever the values are.
    pub fn is_idle(&self) -> bool {
        matches!(self.by, By::Fixed(None | Some(BEFORE_ALL)))
    }

    /// Whether a value has expired.
    pub fn has_expired(&self, value: &[u8]) -> bool {
        if self.is_idle() {
            return false;
        }
        let Some(expires_ns) = self.upsert.expires_at_ns(value) else { return false };
        let time_ns = match self.by {
            By::Now(clock) => clock.now_ns(),
            By::Fixed(time_ns) => time_ns,
        };
        time_ns.is_some_and(|time_ns| expires_ns <= time_ns)
    }

    /// What stays of a value in a tree; `None` if nothing.
    pub fn kept<'v>(&self, value: Cow<'v, [u8]>) -> Option<Cow<'v, [u8]>> {
        if !self.has_expired(&value) {
            return Some(value);
        }
        let left = self.upsert.left_of_expired(&value).map(Cow::Owned);
        left.filter(|_| !planted::is(Bug::NothingLeftOfExpired))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upsert::Replace;

    struct Times(AtomicI64);

    impl Platform for Times {
        fn now_ns(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }

        fn random_u64(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_clock_stands_still_where_that_of_the_platform_goes_back() {
        let times = Arc::new(Times(AtomicI64::new(5)));
        let clock = Clock::of(Some(times.clone()));
        let mut told = |time| {
            times.0.store(time, Ordering::Relaxed);
            clock.now_ns()
        };
        assert_eq!([5, 3, -1, 6].map(&mut told), [Some(5), Some(5), Some(5), Some(6)]);
        assert_eq!(Clock::of(None).now_ns(), None);
        assert!(Expiry::now(&Replace, &Clock::of(None)).is_idle());
    }
}
