//! One measurement for programs: what a frame shows, in bytes, nanoseconds and counts each second.

use std::collections::BTreeMap;

use betrfs_fuse::VolumeState;
use serde::Serialize;

use super::between::{Between, count, engine, errors};
use crate::name::Name;

/// The rates between two samples, and what the later one says.
#[derive(Serialize)]
pub struct Document<'a> {
    #[serde(flatten)]
    volume: Name,
    #[serde(flatten)]
    dir: Name,
    uptime_seconds: u64,
    /// The time between the two samples.
    seconds: f64,
    state: &'a VolumeState,
    /// By kind; only those that came.
    requests: BTreeMap<&'a str, Requests>,
    requests_per_second: f64,
    files: Bytes,
    tree: Tree,
    device: Device,
    write_amplification: Amplification,
    cache: Cache,
    log: Log,
    room: Room,
}

#[derive(Serialize)]
struct Requests {
    per_second: f64,
    /// Of those that came between, as all percentiles.
    p50_ns: u64,
    p99_ns: u64,
    errors_per_second: f64,
}

#[derive(Serialize)]
struct Bytes {
    read_bytes_per_second: f64,
    write_bytes_per_second: f64,
}

#[derive(Serialize)]
struct Tree {
    queries_per_second: f64,
    scans_per_second: f64,
    commits_per_second: f64,
    flushes_per_second: f64,
}

#[derive(Serialize)]
struct Device {
    reads_per_second: f64,
    writes_per_second: f64,
    syncs_per_second: f64,
    #[serde(flatten)]
    bytes: Bytes,
}

/// Bytes to the device for each byte that users wrote; null where they wrote none.
#[derive(Serialize)]
struct Amplification {
    now: Option<f64>,
    since_mount: Option<f64>,
}

#[derive(Serialize)]
struct Cache {
    bytes: u64,
    dirty_bytes: u64,
}

#[derive(Serialize)]
struct Log {
    used_bytes: u64,
    total_bytes: u64,
    /// Since the mount.
    checkpoints: u64,
    checkpoint_under_way: bool,
}

#[derive(Serialize)]
struct Room {
    used_bytes: u64,
    total_bytes: u64,
    available_bytes: u64,
}

impl<'a> Document<'a> {
    /// The measurement of the mount of a volume at a directory.
    pub fn new(volume: Name, dir: Name, between: &Between<'a>) -> Document<'a> {
        let now = between.now;
        let kinds = now.requests.keys().filter(|kind| between.difference(|s| count(s, kind)) > 0);
        let requests: BTreeMap<&str, Requests> = kinds
            .map(|kind| {
                let latency = between.latency(kind);
                let requests = Requests {
                    per_second: between.per_second(|s| count(s, kind)),
                    p50_ns: latency.p50_ns,
                    p99_ns: latency.p99_ns,
                    errors_per_second: between.per_second(|s| errors(s, kind)),
                };
                (kind.as_str(), requests)
            })
            .collect();
        Document {
            volume,
            dir,
            uptime_seconds: now.uptime_seconds,
            seconds: between.seconds,
            state: &now.state,
            // A sum of nothing is -0.0.
            requests_per_second: requests.values().fold(0.0, |all, of| all + of.per_second),
            requests,
            files: Bytes {
                read_bytes_per_second: between.per_second(|s| s.data.read_bytes),
                write_bytes_per_second: between.per_second(|s| s.data.write_bytes),
            },
            tree: Tree {
                queries_per_second: between.queries(),
                scans_per_second: between.scans(),
                commits_per_second: between.engine("commits"),
                flushes_per_second: between.engine("flushes"),
            },
            device: Device {
                reads_per_second: between.engine("device_reads"),
                writes_per_second: between.engine("device_writes"),
                syncs_per_second: between.engine("device_syncs"),
                bytes: Bytes {
                    read_bytes_per_second: between.engine("device_read_bytes"),
                    write_bytes_per_second: between.engine("device_write_bytes"),
                },
            },
            write_amplification: Amplification {
                now: between.amplification_now(),
                since_mount: between.amplification_since_mount(),
            },
            cache: Cache { bytes: engine(now, "cache_bytes"), dirty_bytes: engine(now, "dirty_bytes") },
            log: Log {
                used_bytes: engine(now, "log_used_bytes"),
                total_bytes: now.room.log_bytes,
                checkpoints: engine(now, "checkpoints"),
                checkpoint_under_way: engine(now, "checkpoints_under_way") > 0,
            },
            room: Room {
                used_bytes: now.room.used_bytes(),
                total_bytes: now.room.total_bytes,
                available_bytes: now.room.available_bytes,
            },
        }
    }
}
