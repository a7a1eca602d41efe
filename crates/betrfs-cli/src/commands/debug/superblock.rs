//! `betrfs debug super`.

use std::sync::Arc;

use betree::debug::{Features, Superblock, SuperblockCopy, Superblocks, bit_numbers, superblocks};
use betree::{DictId, Identity};
use betree_std::FileDevice;
use betrfs_fuse::ErrorStatus;
use serde_json::{Value, json};

use super::page::{Found, Page};
use super::{failed, words};
use crate::errors;
use crate::failure::Outcome;
use crate::name::hex;

/// Shows the copies, and the fields of the current superblock.
pub fn show(device: &Arc<FileDevice>, page: &mut Page, found: &Found, shown: &str) -> Outcome {
    let all = superblocks(device.clone(), &mut found.tell()).map_err(|error| failed(shown, error))?;
    let Superblocks { copies, current, .. } = all;
    let newest = current.as_ref().ok().map(|superblock| superblock.generation);
    page.list("copies");
    for (index, copy) in copies.iter().enumerate() {
        page.item(|| copy_json(copy, newest), || copy_line(index, copy, newest));
    }
    page.end_list();
    page.field("superblock", &current.as_ref().map_or(Value::Null, superblock_json));
    let superblock = current.map_err(|error| failed(shown, error))?;
    lines(&superblock, page);
    Ok(())
}

fn copy_json(copy: &SuperblockCopy, newest: Option<u64>) -> Value {
    let good = copy.found.as_ref().ok();
    json!({
        "offset": copy.offset,
        "valid": copy.found.is_ok(),
        "generation": good.map(|superblock| superblock.generation),
        "current": good.is_some_and(|superblock| Some(superblock.generation) == newest),
        "why": copy.found.as_ref().err(),
    })
}

fn copy_line(index: usize, copy: &SuperblockCopy, newest: Option<u64>) -> String {
    let is = match &copy.found {
        Ok(good) if Some(good.generation) == newest => format!("generation {}, current", good.generation),
        Ok(good) => format!("generation {}", good.generation),
        Err(why) => format!("not valid: {why}"),
    };
    format!("copy {index} at byte {:<8} {is}", copy.offset)
}

fn superblock_json(superblock: &Superblock) -> Value {
    let Superblock { identity, features, geometry, table, log_start, .. } = superblock;
    let extent = table.parts();
    let tags: Vec<Value> = superblock
        .tail
        .iter()
        .map(|(tag, value)| json!({ "tag": tag, "bytes": value.len(), "value": words::bytes(value) }))
        .collect();
    json!({
        "version": betree::FORMAT_VERSION,
        "generation": superblock.generation,
        "closed": superblock.clean,
        "volume_id": hex(&identity.volume_id),
        "uuid": identity.uuid.to_string(),
        "label": identity.label,
        "made_ns": identity.made_ns,
        "made_by": identity.made_by,
        "features": {
            "compat": features.compat,
            "ro_compat": features.ro_compat,
            "incompat": features.incompat,
        },
        "volume_bytes": superblock.volume_bytes,
        "node_bytes": geometry.node_bytes,
        "basement_bytes": geometry.basement_bytes,
        "children_max": geometry.fanout_max,
        "table_page_bytes": superblock.table_page_bytes,
        "log": {
            "offset": superblock.log_offset,
            "bytes": geometry.log_bytes,
            "epoch": log_start.epoch,
            "number": log_start.seq,
            "position": log_start.position,
        },
        "next_msn": superblock.next_msn,
        "table_directory": { "bytes": table.len, "extent": words::extent_json(&extent) },
        "dictionaries": dictionaries(superblock).collect::<Vec<Value>>(),
        "errors": ErrorStatus::from(superblock.errors()),
        "tags": tags,
    })
}

const INCOMPAT_NAMES: [(u64, &str); 4] = [
    (Features::KNOWN_DAMAGE, "known damage"),
    (Features::PAIR_COMPRESSION, "pairs that ask for a compression"),
    (Features::NODE_COPIES, "nodes with two copies"),
    (Features::OPEN_ENDED, "an open end"),
];

fn dictionaries(superblock: &Superblock) -> impl Iterator<Item = Value> + '_ {
    (0..).zip(superblock.dicts.iter().zip(&superblock.upserts)).map(|(index, (root, upsert))| {
        json!({
            "number": index,
            "name": betrfs::debug::dict_name(DictId(index)),
            "root": format!("{}.{}", root.slot, root.generation),
            "applied_msn": root.applied_msn,
            "upsert": upsert.name,
            "upsert_version": upsert.version,
        })
    })
}

/// The bits of a feature word; `known` are those with a name.
fn features(bits: u64, known: &[(u64, &str)]) -> String {
    let names = known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_owned());
    let mut told: Vec<String> = names.collect();
    let others = known.iter().fold(bits, |bits, (bit, _)| bits & !bit);
    if others != 0 {
        told.push(format!("{} (not known to this version)", bit_numbers(others)));
    }
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

fn lines(superblock: &Superblock, page: &mut Page) {
    let Superblock { identity, geometry, table, log_start, .. } = superblock;
    let Identity { uuid, label, made_ns, made_by, .. } = identity;
    let log_end = superblock.log_offset.saturating_add(geometry.log_bytes);
    let extent = words::extent(&table.parts());
    page.line(format_args!("\nversion       {}", betree::FORMAT_VERSION));
    page.line(format_args!("generation    {}", superblock.generation));
    page.line(format_args!(
        "state         {}",
        if superblock.clean { "closed; the log is empty" } else { "not closed; the log is to be replayed" }
    ));
    page.line(format_args!("volume id     {}", hex(&identity.volume_id)));
    page.line(format_args!("uuid          {uuid}"));
    page.line(format_args!("label         {label:?}"));
    page.line(format_args!("made          by {}, {made_ns} ns after 1970", made_by.escape_debug()));
    page.line(format_args!("compat        {}", features(superblock.features.compat, &[])));
    page.line(format_args!("ro_compat     {}", features(superblock.features.ro_compat, &[])));
    page.line(format_args!("incompat      {}", features(superblock.features.incompat, &INCOMPAT_NAMES)));
    page.line(format_args!("volume        {} bytes", superblock.volume_bytes));
    page.line(format_args!(
        "nodes         of {} bytes, basements of {}, at most {} children, table pages of {}",
        geometry.node_bytes, geometry.basement_bytes, geometry.fanout_max, superblock.table_page_bytes
    ));
    page.line(format_args!("log           bytes {} to {log_end}", superblock.log_offset));
    page.line(format_args!(
        "replay from   epoch {}, segment {}, position {}",
        log_start.epoch, log_start.seq, log_start.position
    ));
    page.line(format_args!("next msn      {}", superblock.next_msn));
    page.line(format_args!("node table    directory of {} bytes in {extent}", table.len));
    for (index, (root, upsert)) in (0..).zip(superblock.dicts.iter().zip(&superblock.upserts)) {
        page.line(format_args!(
            "dictionary {index}  {:<6} root {}.{}, applied up to msn {}, upserts {}",
            words::dict(DictId(index)),
            root.slot,
            root.generation,
            root.applied_msn,
            if upsert.name.is_empty() { "none yet".to_owned() } else { upsert.to_string() }
        ));
    }
    page.line(format_args!("errors        {}", errors::sentence(&superblock.errors().into())));
    for (tag, value) in superblock.tail.iter() {
        page.line(format_args!("tag {tag:<10} {} bytes: {}", value.len(), words::bytes(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_named_as_far_as_they_are_known() {
        let known = [(Features::KNOWN_DAMAGE, "known damage")];
        assert_eq!(features(0, &known), "none");
        assert_eq!(features(1, &known), "known damage");
        assert_eq!(features(5, &known), "known damage, 2 (not known to this version)");
    }
}
