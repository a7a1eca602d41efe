//! How long the server takes for requests, by kind.
//!
//! Each thread that answers has histograms of its own (as long as there are at most [`PLACES`] of them),
//! under a lock that only a reader of the status takes beside it.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::wire::Opcode;

/// Number of threads with histograms of their own; more of them share.
const PLACES: usize = 64;
/// Significant decimal digits of a time: 16 buckets for each doubling. A bucket is at most a 16th of its
/// times wide, and one kind takes 5 KiB for each thread.
const DIGITS: u8 = 1;
/// Longer times count as this one: an hour.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

thread_local! {
    /// This thread's place, modulo [`PLACES`].
    static PLACE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The times of requests of one kind, from when the server has a request until it has the answer: without the
/// wait in the kernel's queue and the way back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Requests.
    pub count: u64,
    /// The sum of their times, in nanoseconds.
    pub sum_ns: u64,
    /// Half of them took at most this time, in nanoseconds (each of these is the end of a bucket).
    pub p50_ns: u64,
    /// As `p50_ns`, for 90 in a hundred.
    pub p90_ns: u64,
    /// As `p50_ns`, for 99 in a hundred.
    pub p99_ns: u64,
    /// As `p50_ns`, for 999 in a thousand.
    pub p999_ns: u64,
    /// As `p50_ns`, for all.
    pub max_ns: u64,
    /// Requests by the longest time of their bucket, in nanoseconds; buckets without requests are left out.
    pub buckets: BTreeMap<u64, u64>,
}

impl Latency {
    /// The times of requests that took `sum_ns` together and fell into these buckets.
    pub fn of(sum_ns: u64, buckets: BTreeMap<u64, u64>) -> Latency {
        let count = buckets.values().sum();
        let at = |per_mille| quantile(&buckets, count, per_mille);
        let (p50_ns, p90_ns, p99_ns, p999_ns, max_ns) = (at(500), at(900), at(990), at(999), at(1000));
        Latency { count, sum_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, buckets }
    }

    /// The times of the requests that came after `earlier`, an earlier state of the same mount.
    pub fn since(&self, earlier: &Latency) -> Latency {
        let new = self.buckets.iter().map(|(end_ns, count)| {
            let old = earlier.buckets.get(end_ns).copied().unwrap_or(0);
            (*end_ns, count.saturating_sub(old))
        });
        let sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
        Latency::of(sum_ns, new.filter(|(_, count)| *count > 0).collect())
    }
}

/// The end of the bucket at which `per_mille` thousandths of all requests are reached; 0 if there are none.
fn quantile(buckets: &BTreeMap<u64, u64>, count: u64, per_mille: u64) -> u64 {
    let wanted = (u128::from(count) * u128::from(per_mille)).div_ceil(1000);
    let mut reached = 0_u128;
    let found = buckets.iter().find(|(_, count)| {
        reached += u128::from(**count);
        reached >= wanted
    });
    found.map_or(0, |(end_ns, _)| *end_ns)
}

/// The times of requests of one kind, as one thread took them.
struct Times {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

/// The histograms of one thread by opcode, on lines of the CPU's cache of their own.
#[repr(align(128))]
struct Place(Mutex<[Option<Box<Times>>; Opcode::END]>);

/// The times of all requests since the mount.
pub struct Latencies {
    places: [Place; PLACES],
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { places: array::from_fn(|_| Place(Mutex::new(array::from_fn(|_| None)))) }
    }
}

impl Latencies {
    /// Notes the time of a request that this thread has answered.
    pub fn add(&self, opcode: Opcode, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(TIME_NS_MAX);
        let Some(Place(place)) = self.places.get(PLACE.with(|place| *place) % PLACES) else { return };
        let mut kinds = place.lock();
        let Some(times) = kinds.get_mut(opcode as usize) else { return };
        if times.is_none() {
            // The bounds are constants, which it accepts.
            let Ok(histogram) = Histogram::new_with_max(TIME_NS_MAX, DIGITS) else { return };
            *times = Some(Box::new(Times { histogram, sum_ns: 0 }));
        }
        if let Some(times) = times {
            times.histogram.saturating_record(took_ns);
            times.sum_ns = times.sum_ns.saturating_add(took_ns);
        }
    }

    /// The times of all kinds that have come, by name.
    pub fn snapshot(&self) -> BTreeMap<String, Latency> {
        let seen = Opcode::ALL.iter().filter_map(|opcode| {
            let latency = self.of(*opcode);
            (latency.count > 0).then(|| (opcode.name().to_owned(), latency))
        });
        seen.collect()
    }

    fn of(&self, opcode: Opcode) -> Latency {
        let (mut sum_ns, mut buckets) = (0_u64, BTreeMap::new());
        for Place(place) in &self.places {
            let kinds = place.lock();
            let Some(Some(times)) = kinds.get(opcode as usize) else { continue };
            sum_ns = sum_ns.saturating_add(times.sum_ns);
            for bucket in times.histogram.iter_recorded() {
                let end_ns = times.histogram.highest_equivalent(bucket.value_iterated_to());
                *buckets.entry(end_ns).or_insert(0) += bucket.count_at_value();
            }
        }
        Latency::of(sum_ns, buckets)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn ns(times: impl IntoIterator<Item = u64>) -> Latencies {
        let latencies = Latencies::default();
        times.into_iter().for_each(|time| latencies.add(Opcode::Read, Duration::from_nanos(time)));
        latencies
    }

    #[test]
    fn quantiles_are_within_a_sixteenth_above_the_exact_ones() {
        let exact = 1..=1000_u64;
        let read = &ns(exact.clone().map(|n| n * 1000)).snapshot()["read"];
        assert_eq!((read.count, read.sum_ns), (1000, exact.sum::<u64>() * 1000));
        let told = [
            (read.p50_ns, 500_000),
            (read.p90_ns, 900_000),
            (read.p99_ns, 990_000),
            (read.p999_ns, 999_000),
            (read.max_ns, 1_000_000),
        ];
        for (told, exact) in told {
            assert!((exact..=exact + exact / 16).contains(&told), "{told} for {exact}");
        }
        assert_eq!(Latency::default(), Latency::of(0, BTreeMap::new()));
    }

    /// So a power of two bounds any coarser bucket without a guess.
    #[test]
    fn no_bucket_crosses_a_power_of_two() {
        for power in 10..40 {
            let at = |time: u64| ns([time]).snapshot()["read"].max_ns;
            assert_eq!(at((1 << power) - 1), (1 << power) - 1);
            assert!(at(1 << power) > (1 << power) - 1);
        }
    }

    #[test]
    fn the_longest_times_count_too() {
        let latencies = Latencies::default();
        latencies.add(Opcode::Fsync, Duration::MAX);
        let fsync = &latencies.snapshot()["fsync"];
        assert_eq!(fsync.count, 1);
        assert!(fsync.max_ns >= TIME_NS_MAX && fsync.max_ns < 2 * TIME_NS_MAX, "{}", fsync.max_ns);
    }

    #[test]
    fn all_threads_count_however_many_and_kinds_apart() {
        let latencies = Latencies::default();
        let threads = PLACES + 3;
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for n in 0..10 {
                        latencies.add(Opcode::Write, Duration::from_micros(n));
                    }
                    latencies.add(Opcode::Lookup, Duration::from_nanos(5));
                });
            }
        });
        let seen = latencies.snapshot();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen["write"].count, threads as u64 * 10);
        assert_eq!(seen["write"].sum_ns, threads as u64 * 45_000);
        assert_eq!(seen["lookup"].buckets, BTreeMap::from([(5, threads as u64)]));
    }

    #[test]
    fn what_came_between_two_moments_is_their_difference() {
        let latencies = ns([100, 200]);
        let before = latencies.snapshot()["read"].clone();
        [200, 3_000_000].into_iter().for_each(|time| latencies.add(Opcode::Read, Duration::from_nanos(time)));
        let new = latencies.snapshot()["read"].since(&before);
        let alone = &ns([200, 3_000_000]).snapshot()["read"];
        assert_eq!(&new, alone);
        assert_eq!(before.since(&before), Latency::default());
    }
}
