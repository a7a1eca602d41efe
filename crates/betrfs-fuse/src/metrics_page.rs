//! The counters of a mount in Prometheus' text format (its exposition format, version 0.0.4).

use std::fmt::{self, Display, Write};

use crate::latency::Latency;
use crate::status::{OperationCount, Status};

/// The engine's values that may become smaller.
const GAUGES: [&str; 5] = ["height", "checkpoints_under_way", "log_used_bytes", "cache_bytes", "dirty_bytes"];

/// The powers of two of nanoseconds that end the buckets of latencies, from a microsecond to 17 seconds. No
/// bucket of a [`Latency`] crosses one.
const BUCKET_POWERS: std::ops::RangeInclusive<u32> = 10..=34;

/// Counters, gauges and histograms, each with the mount's directory as a label.
///
/// # Errors
/// None: strings take all that is written to them.
pub fn metrics_page(status: &Status) -> Result<String, fmt::Error> {
    let mount = [("mount", status.identity.mount_point.to_string_lossy().into_owned())];
    let mut page = Page { text: String::new(), common: &mount };
    let volume = status.identity.volume.to_string_lossy().into_owned();
    let about = [
        ("volume", volume),
        ("uuid", status.uuid.clone()),
        ("label", status.label.clone()),
        ("transport", status.transport.clone()),
    ];
    page.family("info", "gauge", "The volume that is mounted; always 1.")?;
    page.sample("info", &about, 1)?;
    page.single("uptime_seconds", "gauge", "Seconds since the mount.", status.uptime_seconds)?;
    let is_writable = u64::from(["writable", "frozen"].contains(&status.state.is.as_str()));
    page.single(
        "writable",
        "gauge",
        "1 if changes are taken, or wait for a thaw, 0 if they are refused.",
        is_writable,
    )?;
    if let Some(scrub) = &status.last_scrub {
        let at = u64::try_from(scrub.written).unwrap_or(0);
        page.single(
            "scrub_timestamp_seconds",
            "gauge",
            "When the record of the last scrub was written.",
            at,
        )?;
        page.single("scrub_problems", "gauge", "Problems that the last scrub found.", scrub.problems)?;
    }
    page.family("errors_total", "counter", "Errors that are counted on the volume, since they were reset.")?;
    for (kind, errors) in status.errors.kinds() {
        page.sample("errors_total", &[("kind", kind.to_owned())], errors.count)?;
    }
    page.family("error_timestamp_seconds", "gauge", "When the last error of a kind came; 0 without any.")?;
    for (kind, errors) in status.errors.kinds() {
        page.sample("error_timestamp_seconds", &[("kind", kind.to_owned())], errors.last.unwrap_or(0))?;
    }
    let read_only = status.errors.read_only.as_ref();
    let at = read_only.and_then(|was| u64::try_from(was.since).ok()).unwrap_or(0);
    let help = "When a failure last made the volume read-only; 0 if none did.";
    page.single("read_only_timestamp_seconds", "gauge", help, at)?;
    let room = &status.room;
    for (name, help, bytes) in [
        ("size_bytes", "The room on the volume but for log and superblocks.", room.total_bytes),
        ("used_bytes", "What is used, or owed to changes in memory.", room.used_bytes()),
        ("available_bytes", "What a writer can get.", room.available_bytes),
        ("log_size_bytes", "The size of the log.", room.log_bytes),
    ] {
        page.single(name, "gauge", help, bytes)?;
    }
    page.family("requests_total", "counter", "Requests of the kernel.")?;
    for (kind, requests) in &status.requests {
        page.sample("requests_total", &[("kind", kind.clone())], requests.count)?;
    }
    page.family("request_errors_total", "counter", "Requests of the kernel that were answered by an error.")?;
    for (kind, requests) in &status.requests {
        page.sample("request_errors_total", &[("kind", kind.clone())], requests.errors)?;
    }
    page.family(
        "request_duration_seconds",
        "histogram",
        "Time of the server for a request of the kernel, without the kernel's queue.",
    )?;
    for (kind, latency) in &status.latencies {
        page.histogram("request_duration_seconds", kind, latency)?;
    }
    for (name, help, bytes) in [
        ("read_bytes_total", "Bytes of files given to readers by requests.", status.data.read_bytes),
        ("write_bytes_total", "Bytes of files taken from writers by requests.", status.data.write_bytes),
    ] {
        page.single(name, "counter", help, bytes)?;
    }
    type Part = fn(&OperationCount) -> u64;
    let parts: [(&str, &str, Part); 4] = [
        ("operations_total", "Operations of the file system.", |cost| cost.calls),
        ("operation_queries_total", "Point queries of operations.", |cost| cost.queries),
        ("operation_scans_total", "Range queries of operations.", |cost| cost.scans),
        ("operation_commits_total", "Batches that operations committed.", |cost| cost.commits),
    ];
    for (name, help, part) in parts {
        page.family(name, "counter", help)?;
        for (kind, cost) in &status.operations {
            page.sample(name, &[("kind", kind.clone())], part(cost))?;
        }
    }
    for (name, count) in &status.engine {
        if GAUGES.contains(&name.as_str()) {
            page.single(&format!("engine_{name}"), "gauge", "A value of the engine at this moment.", *count)?;
        } else {
            page.single(&format!("engine_{name}_total"), "counter", "A counter of the engine.", *count)?;
        }
    }
    Ok(page.text)
}

struct Page<'a> {
    text: String,
    common: &'a [(&'static str, String)],
}

impl Page<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) -> fmt::Result {
        writeln!(self.text, "# HELP betrfs_{name} {help}\n# TYPE betrfs_{name} {kind}")
    }

    fn sample(&mut self, name: &str, labels: &[(&str, String)], value: impl Display) -> fmt::Result {
        let labels =
            self.common.iter().map(|(name, value)| (*name, value)).chain(labels.iter().map(|(n, v)| (*n, v)));
        let labels: Vec<String> =
            labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        writeln!(self.text, "betrfs_{name}{{{}}} {value}", labels.join(","))
    }

    /// The samples of one kind of request in a histogram.
    fn histogram(&mut self, name: &str, kind: &str, latency: &Latency) -> fmt::Result {
        let kind = ("kind", kind.to_owned());
        for power in BUCKET_POWERS {
            let end_ns = (1_u64 << power) - 1;
            let count: u64 = latency.buckets.range(..=end_ns).map(|(_, count)| count).sum();
            let le = ("le", seconds(end_ns).to_string());
            self.sample(&format!("{name}_bucket"), &[kind.clone(), le], count)?;
        }
        let all = ("le", "+Inf".to_owned());
        self.sample(&format!("{name}_bucket"), &[kind.clone(), all], latency.count)?;
        self.sample(&format!("{name}_sum"), std::slice::from_ref(&kind), seconds(latency.sum_ns))?;
        self.sample(&format!("{name}_count"), &[kind], latency.count)
    }

    /// A family of one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, kind, help)?;
        self.sample(name, &[], value)
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A label's value as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn buckets_of_a_histogram_count_all_times_up_to_their_end() {
        let mut page = Page { text: String::new(), common: &[] };
        let buckets = BTreeMap::from([(1023, 2), (1087, 5), (1 << 35, 1)]);
        page.histogram("h", "read", &Latency::of(1_500_000_000, buckets)).unwrap();
        let lines: Vec<&str> = page.text.lines().collect();
        assert_eq!(lines[0], "betrfs_h_bucket{kind=\"read\",le=\"0.000001023\"} 2");
        assert_eq!(lines[1], "betrfs_h_bucket{kind=\"read\",le=\"0.000002047\"} 7");
        assert_eq!(lines[24], "betrfs_h_bucket{kind=\"read\",le=\"17.179869183\"} 7");
        let rest =
            ["_bucket{kind=\"read\",le=\"+Inf\"} 8", "_sum{kind=\"read\"} 1.5", "_count{kind=\"read\"} 8"];
        assert_eq!(lines[25..], rest.map(|end| format!("betrfs_h{end}")));
    }

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\\b \"c\"\nd"), "a\\\\b \\\"c\\\"\\nd");
    }
}
