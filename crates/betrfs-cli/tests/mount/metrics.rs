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
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            family = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap();
            assert!(is_name(name) && Some(name) == family.as_ref().map(|(name, _)| name.as_str()), "{line}");
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
