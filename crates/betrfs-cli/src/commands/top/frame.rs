//! One frame: the difference of two samples in words.

use std::time::Duration;

use betrfs_fuse::Status;

use super::between::{Between, Sample, count, engine, errors};
use crate::commands::stats;
use crate::size;
use crate::span;

/// The ratio; `-` if there is none.
fn amplification(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn bytes(per_second: f64) -> String {
    format!("{}/s", size::show(per_second.round() as u64))
}

/// The lines of a frame. The interval is the one that was asked for.
pub fn lines(before: &Sample, now: &Sample, interval: Duration) -> Vec<String> {
    let between = Between::new(before, now);
    let status = &now.status;
    let identity = &status.identity;
    let mut lines = vec![
        format!(
            "{} on {}, up {} s, every {} s",
            identity.volume.display(),
            identity.mount_point.display(),
            status.uptime_seconds,
            interval.as_secs_f64()
        ),
        format!("state  {}", stats::told_of(&status.state)),
        String::new(),
        format!("{:<18}{:>12}{:>10}{:>10}{:>12}", "requests", "per second", "p50", "p99", "errors/s"),
    ];
    lines.extend(requests(&between));
    lines.push(String::new());
    lines.extend([
        format!(
            "files   {} read, {} written",
            bytes(between.per_second(|s| s.data.read_bytes)),
            bytes(between.per_second(|s| s.data.write_bytes))
        ),
        format!(
            "tree    {:.1} queries/s, {:.1} scans/s, {:.1} commits/s, {:.1} flushes/s",
            between.queries(),
            between.scans(),
            between.engine("commits"),
            between.engine("flushes")
        ),
        format!(
            "device  {:.1} reads/s, {}; {:.1} writes/s, {}; {:.1} syncs/s",
            between.engine("device_reads"),
            bytes(between.engine("device_read_bytes")),
            between.engine("device_writes"),
            bytes(between.engine("device_write_bytes")),
            between.engine("device_syncs")
        ),
        format!(
            "        write amplification {} now, {} since the mount",
            amplification(between.amplification_now()),
            amplification(between.amplification_since_mount())
        ),
        format!(
            "cache   {}, {} of it dirty",
            size::show(engine(status, "cache_bytes")),
            size::show(engine(status, "dirty_bytes"))
        ),
        log(status),
        format!(
            "room    {} used of {}, {} available",
            size::show(status.room.used_bytes()),
            size::show(status.room.total_bytes),
            size::show(status.room.available_bytes)
        ),
    ]);
    lines.into_iter().map(|line| line.replace(char::is_control, "\u{fffd}")).collect()
}

/// Kinds of requests by their rate, and their sum.
fn requests(between: &Between<'_>) -> Vec<String> {
    let kinds = between.now.requests.keys().map(|kind| (between.per_second(|s| count(s, kind)), kind));
    let mut kinds: Vec<_> = kinds.filter(|(rate, _)| *rate > 0.0).collect();
    kinds.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut lines: Vec<String> = kinds
        .iter()
        .map(|(rate, kind)| {
            let latency = between.latency(kind);
            let errors = between.per_second(|s| errors(s, kind));
            let (p50, p99) = (span::show(latency.p50_ns), span::show(latency.p99_ns));
            format!("  {kind:<16}{rate:>12.1}{p50:>10}{p99:>10}{errors:>12.1}")
        })
        .collect();
    // A sum of nothing is -0.0.
    let all = kinds.iter().fold(0.0, |all, (rate, _)| all + rate);
    lines.push(format!("  {:<16}{all:>12.1}", "all"));
    lines
}

fn log(status: &Status) -> String {
    let (used, all) = (engine(status, "log_used_bytes"), status.room.log_bytes);
    let percent = used.saturating_mul(100).checked_div(all).unwrap_or(0);
    let (done, under_way) = (engine(status, "checkpoints"), engine(status, "checkpoints_under_way"));
    let now = if under_way > 0 { ", one under way" } else { "" };
    format!("log     {} of {} ({percent} %); checkpoints {done}{now}", size::show(used), size::show(all))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use betrfs_fuse::Latency;
    use serde_json::json;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn sample(
        at: Instant,
        count: u64,
        buckets: &[(u64, u64)],
        engine: &[(&str, u64)],
        written: u64,
    ) -> Sample {
        let mut status: Status = serde_json::from_value(json!({
            "pid": 1, "volume": "/v\u{1b}[2J", "mount_point": "/m", "label": "", "uuid": "", "transport": "device",
            "uptime_seconds": 7, "state": { "is": "writable" },
            "requests": { "write": { "count": count, "errors": count / 10 }, "read": { "count": 4, "errors": 0 } },
            "operations": { "write": { "calls": 1, "queries": count * 2, "scans": 0, "commits": 0 } },
            "engine": BTreeMap::from_iter(engine.iter().copied()),
        }))
        .unwrap();
        status.latencies.insert("write".into(), Latency::of(0, buckets.iter().copied().collect()));
        status.data.write_bytes = written;
        status.room.log_bytes = 64 * MIB;
        Sample { status, at }
    }

    #[test]
    fn a_frame_shows_what_happened_between_two_samples() {
        let start = Instant::now();
        let engine = [("device_write_bytes", 3 * MIB), ("device_writes", 10), ("log_used_bytes", 0)];
        let before = sample(start, 100, &[(1023, 100)], &engine, MIB);
        let engine = [
            ("device_write_bytes", 6 * MIB),
            ("device_writes", 14),
            ("log_used_bytes", 16 * MIB),
            ("checkpoints", 3),
            ("checkpoints_under_way", 1),
        ];
        let buckets = [(1023, 100), (8191, 149), (1_048_575, 1)];
        let now = sample(start + Duration::from_secs(2), 250, &buckets, &engine, 3 * MIB);
        let told = lines(&before, &now, Duration::from_secs(2)).join("\n");
        for line in [
            "/v\u{fffd}[2J on /m, up 7 s, every 2 s",
            "state  writable",
            "  write                   75.0    8.2 µs    8.2 µs         7.5",
            "  all                     75.0",
            "files   0 B/s read, 1.0 MiB/s written",
            "tree    150.0 queries/s, 0.0 scans/s, 0.0 commits/s, 0.0 flushes/s",
            "device  0.0 reads/s, 0 B/s; 2.0 writes/s, 1.5 MiB/s; 0.0 syncs/s",
            "        write amplification 1.50 now, 2.00 since the mount",
            "log     16.0 MiB of 64.0 MiB (25 %); checkpoints 3, one under way",
        ] {
            assert!(told.lines().any(|told| told == line), "`{line}` is not in\n{told}");
        }
        assert!(!told.contains("  read "), "none came between:\n{told}");
    }

    /// As after a remount.
    #[test]
    fn counters_that_began_anew_are_no_rate() {
        let start = Instant::now();
        let before = sample(start, 100, &[(1023, 100)], &[("device_reads", 9)], MIB);
        let now = sample(start, 0, &[], &[], 0);
        let told = lines(&before, &now, Duration::from_secs(2)).join("\n");
        assert!(told.contains("device  0.0 reads/s") && told.contains("amplification - now"), "{told}");
        assert!(told.contains("  all                      0.0"), "{told}");
    }
}
