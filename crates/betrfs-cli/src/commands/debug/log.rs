//! `betrfs debug log`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use betree::DictId;
use betree::debug::{Change, LogEnd, LogRecord, LogSegment, Superblock};
use betree_std::FileDevice;
use serde_json::{Value, json};

use super::page::{Found, Page};
use super::words;

/// Shows the segments that a replay reads, and its end with the reason.
pub fn show(
    device: &Arc<FileDevice>,
    superblock: &Superblock,
    with_records: bool,
    page: &mut Page,
    found: &Found,
) {
    let start = &superblock.log_start;
    page.field("offset", &json!(superblock.log_offset));
    page.field("bytes", &json!(superblock.geometry.log_bytes));
    page.field("closed", &json!(superblock.clean));
    page.line(format_args!(
        "log at byte {}, {} bytes; replay from epoch {}, segment {}, position {}",
        superblock.log_offset, superblock.geometry.log_bytes, start.epoch, start.seq, start.position
    ));
    if superblock.clean {
        page.line("the volume was closed: nothing is replayed");
    }
    page.list("segments");
    let mut each = |segment: &LogSegment<'_>| {
        // Records are parsed in any case, to report bad ones.
        let (mut documents, mut lines) = (Vec::new(), String::new());
        let mut counts = BTreeMap::new();
        let mut record = |record: &LogRecord<'_>| {
            for (_, change) in record.changes() {
                let count: &mut u64 = counts.entry(name(&change)).or_default();
                *count = count.saturating_add(1);
            }
            if with_records {
                documents.push(record_json(record));
                record_lines(record, &mut lines);
            }
        };
        segment.each_record(&mut record, &mut found.tell());
        page.item(
            || {
                let mut document = segment_json(segment);
                document["changes"] = json!(counts);
                if with_records {
                    document["records"] = Value::Array(documents);
                }
                document
            },
            || {
                let counts: Vec<String> =
                    counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
                let lines = lines.trim_end_matches('\n');
                let counts = counts.join(", ");
                let separator = if lines.is_empty() { "" } else { "\n" };
                format!("{}: {counts}{separator}{lines}", segment_line(segment))
            },
        );
    };
    let end = betree::debug::log(device.clone(), superblock, &mut each, &mut found.tell());
    page.end_list();
    page.field("end", &end.as_ref().map_or(Value::Null, |end| end_json(end, superblock)));
    page.line(end.map_or_else(
        || "the log cannot be read to its end".to_owned(),
        |end| {
            format!(
                "the replay ends after {} segments, at msn {}: {}",
                end.segments,
                end.last_msn,
                reason(&end, superblock).1
            )
        },
    ));
}

/// The reason why a replay ends, for programs and for people.
fn reason(end: &LogEnd, superblock: &Superblock) -> (&'static str, String) {
    let at = superblock.log_offset.saturating_add(end.next.position);
    let (epoch, seq) = (end.next.epoch, end.next.seq);
    match (end.torn, &end.lost) {
        (_, Some(error)) => ("lost", error.to_string()),
        (Some(at), None) => (
            "torn",
            format!(
                "segment {seq} at byte {at} has a wrong checksum: a crash cut its write short, or it is damaged"
            ),
        ),
        (None, None) => ("end", format!("segment {seq} of epoch {epoch} is not at byte {at}")),
    }
}

fn end_json(end: &LogEnd, superblock: &Superblock) -> Value {
    let (reason, what) = reason(end, superblock);
    json!({
        "reason": reason,
        "what": what,
        "segments": end.segments,
        "last_msn": end.last_msn,
        "epoch": end.next.epoch,
        "number": end.next.seq,
        "offset": end.torn.unwrap_or_else(|| superblock.log_offset.saturating_add(end.next.position)),
    })
}

fn segment_json(segment: &LogSegment<'_>) -> Value {
    json!({
        "offset": segment.offset,
        "bytes": segment.len_bytes,
        "epoch": segment.epoch,
        "number": segment.seq,
        "durable_below": segment.durable_seq,
        "first_msn": segment.first_msn,
        "last_msn": segment.last_msn,
        "record_count": segment.records,
        "record_bytes": segment.records_bytes,
    })
}

fn segment_line(segment: &LogSegment<'_>) -> String {
    format!(
        "segment {} of epoch {} at byte {}, {} bytes: msn {} to {}, {} records of {} bytes",
        segment.seq,
        segment.epoch,
        segment.offset,
        segment.len_bytes,
        segment.first_msn,
        segment.last_msn,
        segment.records,
        segment.records_bytes
    )
}

fn name(change: &Change<'_>) -> &'static str {
    match change {
        Change::Put { .. } => "put",
        Change::Delete { .. } => "delete",
        Change::Upsert { .. } => "upsert",
        Change::DeleteRange { .. } => "range-delete",
        Change::CloneRange { .. } => "clone",
    }
}

fn record_json(record: &LogRecord<'_>) -> Value {
    let changes: Vec<Value> = record.changes().map(|(dict, change)| change_json(dict, &change)).collect();
    json!({ "first_msn": record.first_msn, "bytes": record.len_bytes(), "changes": changes })
}

fn change_json(dict: DictId, change: &Change<'_>) -> Value {
    let mut document = match change {
        Change::Put { key, value, .. } => json!({ "at": words::key_json(key), "value_bytes": value.len() }),
        Change::Delete { key } => json!({ "at": words::key_json(key) }),
        Change::Upsert { key, delta, .. } => {
            json!({ "at": words::key_json(key), "value_bytes": delta.len() })
        }
        Change::DeleteRange { lo, hi } => json!({ "lo": words::cut_json(lo), "hi": words::cut_json(hi) }),
        Change::CloneRange { from, to, lo, hi } => json!({
            "from": words::key_json(from),
            "to": words::key_json(to),
            "lo": words::cut_json(lo),
            "hi": words::cut_json(hi),
        }),
    };
    document["kind"] = json!(name(change));
    document["dictionary"] = json!(words::dict(dict));
    document
}

fn record_lines(record: &LogRecord<'_>, out: &mut String) {
    // A String takes all that is written to it.
    let _ = writeln!(out, "  record of msn {}, {} bytes", record.first_msn, record.len_bytes());
    for (dict, change) in record.changes() {
        let what = match &change {
            Change::Put { key, value, .. } => format!("{}, {} bytes", words::short(key), value.len()),
            Change::Delete { key } => words::short(key),
            Change::Upsert { key, delta, .. } => format!("{}, {} bytes", words::short(key), delta.len()),
            Change::DeleteRange { lo, hi } => format!("{} to {}", words::cut(lo), words::cut(hi)),
            Change::CloneRange { from, to, lo, hi } => format!(
                "{} to {}, of it {} to {}",
                words::short(from),
                words::short(to),
                words::cut(lo),
                words::cut(hi)
            ),
        };
        let _ = writeln!(out, "    {} {} {what}", name(&change), words::dict(dict));
    }
}
