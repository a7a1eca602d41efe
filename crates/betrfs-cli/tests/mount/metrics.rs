//! Metrics by `betrfs stats --format prometheus` and by HTTP, read as strictly as their format is written
//! down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::mounted::{Mounted, betrfs, ended_with, ok, refused, told};
use crate::schemas::valid;

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
    // No request is under way then, and to ask is none.
    let stats = mounted.stats_after_releases();
    valid("stats", &stats);
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
    let before = mounted.stats_after_releases();
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

/// The answer to a request by HTTP.
fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The address at which a mount serves its metrics.
fn address(mounted: &Mounted) -> SocketAddr {
    mounted.stats()["metrics"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_mount_serves_its_metrics_until_it_ends() {
    let mounted = Mounted::unmounted();
    ok(&mounted.try_mount(&["--metrics", "0"]));
    fs::write(mounted.path("file"), b"text").unwrap();
    let at = address(&mounted);
    assert!(at.ip().is_loopback() && at.port() > 0, "{at}");
    let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = asked(at, get);
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", page.len())), "{head}");
    let values = parsed(page);
    let mount = format!("mount=\"{}\"", mounted.dir.display());
    assert_eq!(values[&format!("betrfs_write_bytes_total{{{mount}}}")], 4.0);
    assert!(asked(at, &get.replace("GET", "DELETE")).starts_with("HTTP/1.1 405 "));
    assert!(asked(at, &get.replace("/metrics", "/")).starts_with("HTTP/1.1 404 "));
    let text = betrfs().arg("stats").arg(&mounted.dir).output().unwrap();
    let line = format!("metrics      http://{at}/metrics");
    assert!(String::from_utf8(text.stdout).unwrap().lines().any(|told| told == line));
    // A client that says nothing keeps neither others nor the unmount waiting.
    let mut silent = TcpStream::connect(at).unwrap();
    assert!(asked(at, get).starts_with("HTTP/1.1 200 "));
    mounted.umount();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    TcpListener::bind(at).unwrap();
}

#[test]
fn metrics_are_an_option_of_fstab_and_a_port_in_use_is_said() {
    let (one, other) = (Mounted::unmounted(), Mounted::unmounted());
    ok(&one.try_mount(&["-o", "noatime,metrics=127.0.0.1:0"]));
    let at = address(&one);
    assert!(asked(at, "HEAD /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
    let in_use = other.try_mount(&["--metrics", &at.port().to_string()]);
    refused(&in_use, &[&format!("cannot serve metrics on {at}"), "in use", "--metrics"]);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(other.dir.to_str().unwrap()));
    other.mount();
    assert_eq!(other.stats()["metrics"], serde_json::Value::Null);
    valid("stats", &one.stats());
    for wrong in [&["--metrics", "localhost:1"][..], &["-o", "metrics=:1"]] {
        ended_with(&one.try_mount(wrong), 2, &["is no address for metrics", "[::1]:9469"]);
    }
}

#[test]
fn whoever_opens_metrics_to_others_is_warned() {
    let mounted = Mounted::unmounted();
    ok(&mounted.try_mount(&["--metrics", "0.0.0.0:0"]));
    assert!(mounted.log().contains("whoever reaches this address reads them"), "{}", mounted.log());
    let at = SocketAddr::from(([127, 0, 0, 1], address(&mounted).port()));
    assert!(asked(at, "GET /metrics HTTP/1.1\r\n\r\n").contains("betrfs_info{"));
}

/// All names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("betrfs_")).collect()
}

#[test]
fn the_dashboard_names_only_metrics_that_there_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), b"text").unwrap();
    // There are metrics of scrubs only after one.
    ok(&betrfs().arg("scrub").arg(&mounted.dir).output().unwrap());
    valid("stats", &mounted.stats());
    let output = betrfs().arg("stats").arg(&mounted.dir).args(["--format", "prometheus"]).output().unwrap();
    assert!(told(&output).is_empty());
    let page = String::from_utf8(output.stdout).unwrap();
    let there = names(&page);
    let mut seen = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let named = names(target["expr"].as_str().unwrap());
            assert!(!named.is_empty(), "{target}");
            named.iter().for_each(|name| assert!(there.contains(name), "{name} in {target}"));
            seen += named.len();
        }
    }
    assert!(seen > 20, "{seen}");
    let mounts = &dashboard["templating"]["list"][1]["query"];
    assert!(names(mounts.as_str().unwrap()).is_subset(&there), "{mounts}");
}
