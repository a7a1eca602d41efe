//! `betrfs debug node`.

use betree::debug::{Entries, Goto, Inspector, Message, Node, NodeId, RunRef, StoredAs, StoredEdge};
use betree::{Cut, DictId};
use serde_json::{Value, json};

use super::nodes;
use super::page::{Found, Page};
use super::words::{self, NodeName};
use crate::failure::{Failure, Outcome};

/// The node that is shown.
struct Shown<'n> {
    volume: &'n Inspector,
    node: &'n Node,
    with_messages: bool,
    found: &'n Found,
}

/// Shows a node with its edges or basements.
pub fn show(
    volume: &Inspector,
    name: NodeName,
    with_messages: bool,
    page: &mut Page,
    found: &Found,
) -> Outcome {
    let missing =
        || Failure::new(format!("there is no node in slot {}: `betrfs debug nodes` lists them", name.slot));
    let id = match name.generation {
        Some(generation) => NodeId { slot: name.slot, generation },
        None => volume.id_in_slot(name.slot).ok_or_else(missing)?,
    };
    if !volume.holds(id) {
        return Err(match volume.id_in_slot(id.slot) {
            Some(other) => Failure::new(format!("there is no node {id}: in its slot is node {other}")),
            None => missing(),
        });
    }
    let Some(node) = volume.node(id, &mut found.tell()) else { return Ok(()) };
    page.field("node", &nodes::node_json(&node));
    page.line(format_args!("node {id}: {}; {} references", words::extent(&node.extent), node.references));
    if !node.copy.is_empty() {
        page.line(format_args!("second copy: {}", words::extent(&node.copy)));
    }
    let Some(header) = &node.header else { return Ok(()) };
    page.line(format_args!(
        "{} of height {}, written for checkpoint {}, from {} to {}",
        words::dict(DictId(header.origin.dict)),
        header.height,
        header.origin.checkpoint,
        words::cut(&header.lo),
        words::cut(&header.hi)
    ));
    page.field("lo", &words::cut_json(&header.lo));
    page.field("hi", &words::cut_json(&header.hi));
    let shown = Shown { volume, node: &node, with_messages, found };
    match &header.entries {
        Entries::Leaf(basements) => {
            page.list("basements");
            for (index, (first, runs)) in basements.iter().enumerate() {
                page.item(
                    || json!({ "first": words::key_json(first), "runs": shown.runs_json(runs) }),
                    || format!("basement {index} from {}{}", words::short(first), shown.run_lines(runs)),
                );
            }
        }
        Entries::Interior(edges) => {
            page.list("edges");
            let mut lo = &header.lo;
            for (index, edge) in edges.iter().enumerate() {
                page.item(|| shown.edge_json(lo, edge), || shown.edge_lines(index, lo, edge));
                lo = &edge.hi;
            }
        }
    }
    page.end_list();
    page.list("sections");
    for section in &header.sections {
        page.item(
            || json!({ "kind": section.kind, "offset": node.device_offset(section.offset), "bytes": section.len }),
            || {
                let at = node.device_offset(section.offset);
                format!("section of kind {:x} at byte {at}, {} bytes", section.kind, section.len)
            },
        );
    }
    page.end_list();
    Ok(())
}

fn stored_as(run: &RunRef) -> &'static str {
    match run.stored_as {
        StoredAs::Raw => "none",
        StoredAs::Lz4 => "lz4",
        StoredAs::Zstd => "zstd",
    }
}

fn goto_json(goto: &Goto) -> Value {
    json!({
        "lo": words::cut_json(&goto.lo),
        "hi": words::cut_json(&goto.hi),
        "target": words::id_json(goto.target),
        "translation": words::translation_json(&goto.translation),
        "longest_key_bytes": goto.longest_key,
    })
}

impl Shown<'_> {
    fn edge_json(&self, lo: &Cut, edge: &StoredEdge) -> Value {
        json!({
            "lo": words::cut_json(lo),
            "hi": words::cut_json(&edge.hi),
            "child": edge.child.map(words::id_json),
            "translation": words::translation_json(&edge.translation),
            "longest_key_bytes": edge.longest_key,
            "gotos": edge.gotos.iter().map(goto_json).collect::<Vec<_>>(),
            "runs": self.runs_json(&edge.partition),
        })
    }

    fn edge_lines(&self, index: usize, lo: &Cut, edge: &StoredEdge) -> String {
        let child = edge.child.map_or("nothing".to_owned(), |child| format!("node {child}"));
        let mut lines = format!(
            "edge {index} from {} to {}: {child}{}",
            words::cut(lo),
            words::cut(&edge.hi),
            words::translation(&edge.translation)
        );
        for goto in &edge.gotos {
            lines.push_str(&format!(
                "\n  GOTO from {} to {}: node {}{}",
                words::cut(&goto.lo),
                words::cut(&goto.hi),
                goto.target,
                words::translation(&goto.translation)
            ));
        }
        lines + &self.run_lines(&edge.partition)
    }

    fn runs_json(&self, runs: &[RunRef]) -> Value {
        let document = |run: &RunRef| {
            let mut points = 0u64;
            let mut messages = Vec::new();
            if self.with_messages {
                self.each_message(run, &mut |message| messages.push(message_json(&message)));
                points = messages.len() as u64;
            }
            let mut document = json!({
                "offset": self.node.device_offset(run.offset),
                "stored_bytes": run.stored_len,
                "raw_bytes": run.raw_len,
                "codec": stored_as(run),
                "range_deletes": run.ranges,
                "last_msn": run.last_msn,
            });
            if self.with_messages {
                document["count"] = json!(points);
                document["messages"] = Value::Array(messages);
            }
            document
        };
        runs.iter().map(document).collect()
    }

    fn run_lines(&self, runs: &[RunRef]) -> String {
        let mut lines = String::new();
        for run in runs {
            let newest = match run.last_msn {
                0 => "pairs".to_owned(),
                msn => format!("messages up to msn {msn}, {} range deletes", run.ranges),
            };
            lines.push_str(&format!(
                "\n  run at byte {}: {} bytes, {} stored, codec {}; {newest}",
                self.node.device_offset(run.offset),
                run.raw_len,
                run.stored_len,
                stored_as(run)
            ));
            if self.with_messages {
                self.each_message(run, &mut |message| lines.push_str(&message_line(&message)));
            }
        }
        lines
    }

    fn each_message(&self, run: &RunRef, each: &mut dyn FnMut(Message<'_>)) {
        self.volume.messages(self.node, run, each, &mut self.found.tell());
    }
}

fn message_json(message: &Message<'_>) -> Value {
    match message {
        Message::Point { key, msn, kind, value } => json!({
            "kind": words::kind(*kind),
            "msn": msn,
            "at": words::key_json(key),
            "value_bytes": value.len(),
        }),
        Message::Range { lo, hi, msn } => json!({
            "kind": "range-delete",
            "msn": msn,
            "lo": words::cut_json(lo),
            "hi": words::cut_json(hi),
        }),
    }
}

fn message_line(message: &Message<'_>) -> String {
    match message {
        Message::Point { key, msn: 0, value, .. } => {
            format!("\n    {}: {} bytes", words::short(key), value.len())
        }
        Message::Point { key, msn, kind, value } => {
            format!("\n    msn {msn} {} {}: {} bytes", words::kind(*kind), words::short(key), value.len())
        }
        Message::Range { lo, hi, msn } => {
            format!("\n    msn {msn} range-delete {} to {}", words::cut(lo), words::cut(hi))
        }
    }
}
