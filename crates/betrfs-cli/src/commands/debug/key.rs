//! `betrfs debug key`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betree::DictId;
use betree::debug::{Inspector, Passed, Pending, PendingWhat, Step};
use betrfs::debug::{Component, DATA, Field, Fields, Found as InMeta, META, block_key, resolve};
use serde_json::{Map, Value, json};

use super::page::{Found, Page};
use super::words;

/// Shows the components of a path, its record, and the ways to the record and to one of its blocks.
pub fn show(volume: &Inspector, path: &Path, block: u64, page: &mut Page, found: &Found) {
    if !volume.superblock().clean {
        found.note("not shown: changes in the log since the last checkpoint (`betrfs debug log`)".to_owned());
    }
    let components = resolve(volume, path.as_os_str().as_bytes());
    page.list("components");
    for component in &components {
        page.item(|| component_json(component), || component_line(component));
    }
    page.end_list();
    let Some(last) = components.last() else { return };
    if let InMeta::Record(fields) = &last.found {
        page.field("record", &fields_json(fields));
        page.line("record");
        for (name, field) in fields {
            page.line(format_args!("  {name:<14} {}", field_text(field)));
        }
    }
    let of_block = last.may_have_blocks().then(|| (DATA, block_key(&last.key, block)));
    page.list("keys");
    for (dict, key) in last.has_own_key().then(|| (META, last.key.clone())).into_iter().chain(of_block) {
        let steps = volume.way(dict, &key, &mut found.tell());
        page.item(|| way_json(volume, dict, &key, &steps), || way_lines(volume, dict, &key, &steps));
    }
    page.end_list();
}

fn component_json(component: &Component) -> Value {
    let Component { name, key, found } = component;
    let mut document = json!({ "name": words::bytes(name), "key": words::bytes(key) });
    let (is, why, fields) = match found {
        InMeta::Nothing => ("nothing", None, None),
        InMeta::Record(fields) => ("record", None, Some(fields)),
        InMeta::Redirect(fields) => ("redirect", None, Some(fields)),
        InMeta::Snapshots => ("snapshots", None, None),
        InMeta::Unreadable(error) => ("unreadable", Some(error.to_string()), None),
    };
    document["found"] = json!(is);
    document["why"] = json!(why);
    document["fields"] = fields.map_or(Value::Null, fields_json);
    document
}

fn component_line(component: &Component) -> String {
    let Component { name, key, found } = component;
    let name = if name.is_empty() { "/".to_owned() } else { words::bytes(name) };
    let of = |fields: &Fields, names: &[&str]| {
        let wanted = fields.iter().filter(|(name, _)| names.contains(name));
        wanted.map(|(name, field)| format!(" {name} {}", field_text(field))).collect::<String>()
    };
    let what = match found {
        InMeta::Nothing => "nothing".to_owned(),
        InMeta::Record(fields) => format!("record:{}", of(fields, &["type", "id", "salt"])),
        InMeta::Redirect(fields) => {
            format!("name of a linked file:{}", of(fields, &["type", "object_id", "inode_number"]))
        }
        InMeta::Snapshots => "the snapshots of the directory".to_owned(),
        InMeta::Unreadable(error) => format!("cannot be read: {error}"),
    };
    format!("{name}  key \"{}\"  {what}", words::bytes(key))
}

fn fields_json(fields: &Fields) -> Value {
    let value = |field: &Field| match field {
        Field::Number(number) => json!(number),
        Field::Time(ns) => json!(ns),
        Field::Text(text) => json!(text),
        Field::Texts(texts) => json!(texts),
    };
    Value::Object(
        fields.iter().map(|(name, field)| ((*name).to_owned(), value(field))).collect::<Map<_, _>>(),
    )
}

fn field_text(field: &Field) -> String {
    match field {
        Field::Number(number) => number.to_string(),
        Field::Time(ns) => ns.to_string(),
        Field::Text(text) => text.clone(),
        Field::Texts(texts) => texts.join(", "),
    }
}

/// The length of a key's value, or the reason why it cannot be read.
fn value(volume: &Inspector, dict: DictId, key: &[u8]) -> Result<Option<u64>, String> {
    let value = volume.get(dict, key).map_err(|error| error.to_string())?;
    Ok(value.map(|value| value.len() as u64))
}

fn way_json(volume: &Inspector, dict: DictId, key: &[u8], steps: &[Step]) -> Value {
    let value = value(volume, dict, key);
    json!({
        "dictionary": words::dict(dict),
        "at": words::key_json(key),
        "value_bytes": value.as_ref().ok(),
        "why": value.as_ref().err(),
        "way": steps.iter().map(step_json).collect::<Vec<_>>(),
    })
}

fn step_json(step: &Step) -> Value {
    let passed = match &step.passed {
        None => Value::Null,
        Some(Passed::Edge { index, lo, hi, child, translation }) => json!({
            "by": "edge",
            "index": index,
            "lo": words::cut_json(lo),
            "hi": words::cut_json(hi),
            "child": child.map(words::id_json),
            "translation": words::translation_json(translation),
        }),
        Some(Passed::Goto { index, lo, hi, target, translation }) => json!({
            "by": "goto",
            "index": index,
            "lo": words::cut_json(lo),
            "hi": words::cut_json(hi),
            "child": words::id_json(*target),
            "translation": words::translation_json(translation),
        }),
        Some(Passed::Basement { index, first }) => {
            json!({ "by": "basement", "index": index, "first": words::key_json(first) })
        }
    };
    json!({
        "node": words::id_json(step.id),
        "height": step.height,
        "key": words::bytes(&step.key),
        "passed": passed,
        "pending": step.pending.iter().map(pending_json).collect::<Vec<_>>(),
    })
}

fn pending_json(pending: &Pending) -> Value {
    let Pending { msn, run_offset, what } = pending;
    match what {
        PendingWhat::Point { kind, value_bytes } => json!({
            "kind": words::kind(*kind),
            "msn": msn,
            "value_bytes": value_bytes,
            "run_offset": run_offset,
        }),
        PendingWhat::Range { lo, hi } => json!({
            "kind": "range-delete",
            "msn": msn,
            "lo": words::cut_json(lo),
            "hi": words::cut_json(hi),
            "run_offset": run_offset,
        }),
    }
}

fn way_lines(volume: &Inspector, dict: DictId, key: &[u8], steps: &[Step]) -> String {
    let value = match value(volume, dict, key) {
        Ok(Some(len)) => format!("a value of {len} bytes"),
        Ok(None) => "no value".to_owned(),
        Err(why) => format!("cannot be read: {why}"),
    };
    let mut lines = format!("{} key \"{}\": {value}", words::dict(dict), words::bytes(key));
    for step in steps {
        let passed = match &step.passed {
            None => "ends here".to_owned(),
            Some(Passed::Edge { index, lo, hi, child, translation }) => format!(
                "edge {index} from {} to {}: {}{}",
                words::cut(lo),
                words::cut(hi),
                child.map_or("nothing".to_owned(), |child| format!("node {child}")),
                words::translation(translation)
            ),
            Some(Passed::Goto { index, lo, hi, target, translation }) => format!(
                "GOTO at edge {index} from {} to {}: node {target}{}",
                words::cut(lo),
                words::cut(hi),
                words::translation(translation)
            ),
            Some(Passed::Basement { index, first }) => {
                format!("basement {index} from {}", words::short(first))
            }
        };
        lines.push_str(&format!("\n  node {} of height {}, {passed}", step.id, step.height));
        for Pending { msn, run_offset, what } in &step.pending {
            let what = match what {
                PendingWhat::Point { value_bytes, .. } if *msn == 0 => format!("pair of {value_bytes} bytes"),
                PendingWhat::Point { kind, value_bytes } => {
                    format!("msn {msn} {}, {value_bytes} bytes", words::kind(*kind))
                }
                PendingWhat::Range { lo, hi } => {
                    format!("msn {msn} range-delete {} to {}", words::cut(lo), words::cut(hi))
                }
            };
            lines.push_str(&format!("\n    {what}, in the run at byte {run_offset}"));
        }
    }
    lines
}
