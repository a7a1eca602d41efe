//! `betrfs stats --format prometheus`, read as strictly as the format is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::mounted::{Mounted, betrfs, ok};

/// The values of a page by `name{labels}`; fails where the page is not in the format.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    let mut helped = None;
    let is_name = |name: &str| {
        name.starts_with("betrfs_")
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && families.insert(name.to_owned()), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(helped.take().as_deref(), Some(name), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            family = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap();
            let (of, kind) = family.as_ref().unwrap();
            assert!(name.starts_with(of), "{line} in {of}");
            let end = &name[of.len()..];
            let ends = if kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
            assert!(is_name(name) && ends.contains(&end), "{line}");
            assert_eq!(labels.contains("le=\""), end == "_bucket", "{line}");
            let labels = labels.strip_suffix('}').unwrap();
            for label in labels.split("\",") {
                let (name, value) = label.split_once("=\"").unwrap();
                assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
                assert!(!value.trim_end_matches('"').contains('"'), "{line}");
            }
            assert!(values.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line} twice");
        }
    }
    values
}

/// Asserts that the buckets of a histogram only grow, and end with its count, which is returned.
fn counted(text: &str, name: &str, labels: &str) -> f64 {
    let values = parsed(text);
    // In the order of the page.
    let begin = format!("{name}_bucket{{{labels},le=\"");
    let buckets: Vec<(f64, f64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&begin))
        .map(|rest| rest.split_once("\"} ").unwrap())
        .map(|(le, count)| (le.trim_start_matches('+').parse().unwrap(), count.parse().unwrap()))
        .collect();
    assert!(buckets.len() > 2 && buckets.is_sorted(), "{name}: {buckets:?}");
    assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{name}: {buckets:?}");
    let count = values[&format!("{name}_count{{{labels}}}")];
    assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, count), "{name}");
    assert!(values[&format!("{name}_sum{{{labels}}}")] > 0.0, "{name}");
    count
}

#[test]
fn latencies_of_all_requests_are_told_in_each_form() {
    let mounted = Mounted::new();
    for n in 0..20 {
        fs::write(mounted.path(format!("file{n}")), [7; 1000]).unwrap();
    }
    assert_eq!(fs::read(mounted.path("file3")).unwrap(), [7; 1000]);
    // No request is under way, and to ask is none.
    let stats = mounted.stats();
    assert!(stats["latencies"]["create"]["count"].as_u64().unwrap() >= 20, "{stats}");
    for (kind, requests) in stats["requests"].as_object().unwrap() {
        let latency = &stats["latencies"][kind];
        assert!(latency["count"].as_u64().unwrap() <= requests["count"].as_u64().unwrap(), "{kind}");
        let times = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| latency[name].as_u64());
        assert!(times[0] > Some(0) && times.is_sorted(), "{kind}: {times:?}");
        let buckets = latency["buckets"].as_object().unwrap();
        let sum: u64 = buckets.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(Some(sum), latency["count"].as_u64(), "{kind}");
    }
    for kind in ["create", "write", "read"] {
        assert_eq!(stats["latencies"][kind]["count"], stats["requests"][kind]["count"], "{kind}");
    }
    assert_eq!(stats["data"], serde_json::json!({ "read_bytes": 1000, "write_bytes": 20_000 }));
    let told = |more: &[&str]| {
        let output = betrfs().arg("stats").arg(&mounted.dir).args(more).output().unwrap();
        ok(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    let page = told(&["--format", "prometheus"]);
    let labels = format!("mount=\"{}\",kind=\"create\"", mounted.dir.display());
    let count = counted(&page, "betrfs_request_duration_seconds", &labels);
    assert_eq!(Some(count), stats["latencies"]["create"]["count"].as_f64());
    let text = told(&[]);
    let create = text.lines().find(|line| line.starts_with("  create")).unwrap();
    let times = create.split_whitespace().filter(|word| ["ns", "µs", "ms", "s"].contains(word)).count();
    assert_eq!(times, 5, "{create}");
    assert!(text.contains("bytes written          20000  (19.5 KiB)"), "{text}");
}

#[test]
fn metrics_are_in_the_format_of_prometheus_and_say_what_the_counters_say() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), b"text").unwrap();
    let before = mounted.stats();
    let output = betrfs().arg("stats").arg(&mounted.dir).args(["--format", "prometheus"]).output().unwrap();
    ok(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let values = parsed(&text);
    let mount = format!("mount=\"{}\"", mounted.dir.display());
    let value = |name: &str, more: &str| values[&format!("betrfs_{name}{{{mount}{more}}}")];
    assert_eq!(value("writable", ""), 1.0);
    let uuid = before["uuid"].as_str().unwrap();
    assert!(text.lines().any(|line| line.starts_with("betrfs_info{") && line.contains(uuid)), "{text}");
    for (kind, requests) in before["requests"].as_object().unwrap() {
        let told = value("requests_total", &format!(",kind=\"{kind}\""));
        // To ask takes requests too.
        assert!(told >= requests["count"].as_f64().unwrap(), "{kind}");
        assert!(value("request_errors_total", &format!(",kind=\"{kind}\"")) >= 0.0);
    }
    for (kind, cost) in before["operations"].as_object().unwrap() {
        for (name, part) in [("operations_total", "calls"), ("operation_commits_total", "commits")] {
            let told = value(name, &format!(",kind=\"{kind}\""));
            assert!(told >= cost[part].as_f64().unwrap(), "{kind} {name}");
        }
    }
    assert_eq!(value("engine_commits_total", ""), before["engine"]["commits"].as_f64().unwrap());
    assert_eq!(value("engine_height", ""), before["engine"]["height"].as_f64().unwrap());
    assert_eq!(value("size_bytes", ""), before["room"]["total_bytes"].as_f64().unwrap());
    assert!(value("available_bytes", "") <= value("size_bytes", ""));
}
