//! The counters of a mount in Prometheus' text format (its exposition format, version 0.0.4).

use std::fmt::{self, Write};

use betrfs_fuse::{OperationCount, Status};

/// The engine's values that may become smaller.
const GAUGES: [&str; 3] = ["height", "cache_bytes", "dirty_bytes"];

/// Counters and gauges, each with the mount's directory as a label.
pub fn metrics(status: &Status) -> Result<String, fmt::Error> {
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
    let is_writable = u64::from(status.state.is == "writable");
    page.single("writable", "gauge", "1 if changes are taken, 0 if they are refused.", is_writable)?;
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

    fn sample(&mut self, name: &str, labels: &[(&str, String)], value: u64) -> fmt::Result {
        let labels =
            self.common.iter().map(|(name, value)| (*name, value)).chain(labels.iter().map(|(n, v)| (*n, v)));
        let labels: Vec<String> =
            labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        writeln!(self.text, "betrfs_{name}{{{}}} {value}", labels.join(","))
    }

    /// A family of one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, kind, help)?;
        self.sample(name, &[], value)
    }
}

/// A label's value as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\\b \"c\"\nd"), "a\\\\b \\\"c\\\"\\nd");
    }
}
