//! What happened between two samples of a mount.

use std::time::Instant;

use betrfs_fuse::{Latency, Status};

/// The status of a mount, and when it was told.
pub struct Sample {
    pub status: Status,
    pub at: Instant,
}

/// See the module.
pub struct Between<'a> {
    pub before: &'a Status,
    pub now: &'a Status,
    /// The time between the two.
    pub seconds: f64,
}

impl<'a> Between<'a> {
    /// What happened between one sample and a later one.
    pub fn new(before: &'a Sample, now: &'a Sample) -> Between<'a> {
        // Not the interval: the server may have taken its time to answer.
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
        Between { before: &before.status, now: &now.status, seconds }
    }

    /// The rate of a count.
    pub fn per_second(&self, count: impl Fn(&Status) -> u64) -> f64 {
        self.difference(count) as f64 / self.seconds
    }

    /// How much a count has grown.
    pub fn difference(&self, count: impl Fn(&Status) -> u64) -> u64 {
        count(self.now).saturating_sub(count(self.before))
    }

    /// A counter of the engine for each second.
    pub fn engine(&self, name: &str) -> f64 {
        self.per_second(|status| engine(status, name))
    }

    /// Point queries of all operations for each second.
    pub fn queries(&self) -> f64 {
        self.per_second(|status| status.operations.values().map(|cost| cost.queries).sum())
    }

    /// Range queries of all operations for each second.
    pub fn scans(&self) -> f64 {
        self.per_second(|status| status.operations.values().map(|cost| cost.scans).sum())
    }

    /// Bytes to the device for each byte of users; `None` if they wrote none.
    pub fn amplification_now(&self) -> Option<f64> {
        ratio(self.difference(device_bytes), self.difference(user_bytes))
    }

    /// The same since the mount.
    pub fn amplification_since_mount(&self) -> Option<f64> {
        ratio(device_bytes(self.now), user_bytes(self.now))
    }

    /// The times of the requests of a kind that came between.
    pub fn latency(&self, kind: &str) -> Latency {
        let none = Latency::default();
        let of = |status: &Status| status.latencies.get(kind).cloned();
        of(self.now).unwrap_or_default().since(&of(self.before).unwrap_or(none))
    }
}

fn device_bytes(status: &Status) -> u64 {
    engine(status, "device_write_bytes")
}

fn user_bytes(status: &Status) -> u64 {
    status.data.write_bytes
}

fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// A counter of the engine.
pub fn engine(status: &Status, name: &str) -> u64 {
    status.engine.get(name).copied().unwrap_or(0)
}

/// The number of requests of a kind.
pub fn count(status: &Status, kind: &str) -> u64 {
    status.requests.get(kind).map_or(0, |requests| requests.count)
}

/// The number of requests of a kind that failed.
pub fn errors(status: &Status, kind: &str) -> u64 {
    status.requests.get(kind).map_or(0, |requests| requests.errors)
}
