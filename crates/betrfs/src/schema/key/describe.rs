//! Keys as messages name them.

use alloc::string::String;

use betree::Cut;

use super::{
    DataTag, MARKER, OBJECT, ROOT_KEY, SNAPSHOT, VOLUME_KEY, components, detached_number, marker_id,
    object_id, split_data, split_entry,
};
use crate::types::SNAPSHOTS_NAME;

/// A key for messages: its path if it has one.
pub(crate) fn describe(key: &[u8]) -> String {
    described(key).unwrap_or_else(|| alloc::format!("the key \"{}\"", key.escape_ascii()))
}

/// As [`describe`]; `None` if no key has this form.
pub(crate) fn described(key: &[u8]) -> Option<String> {
    if key == ROOT_KEY {
        return Some(String::from("/"));
    }
    if key == VOLUME_KEY {
        return Some(String::from("the volume's record"));
    }
    if let Some(components) = components(key) {
        let mut text = String::new();
        for component in components {
            text.push('/');
            // The empty component of a snapshot's path.
            let component = if component.is_empty() { SNAPSHOTS_NAME } else { component };
            text.push_str(&String::from_utf8_lossy(component));
        }
        return Some(text);
    }
    if let Some(oid) = object_id(key) {
        return Some(alloc::format!("the linked file {oid}"));
    }
    if let Some(number) = marker_id(key) {
        return Some(alloc::format!("the marker {number} of an unlinked file or a detached tree"));
    }
    if let Some(number) = detached_number(key) {
        return Some(alloc::format!("the detached tree {number}"));
    }
    let (own, tag) = split_data(key)?;
    let own = describe(own);
    Some(match tag {
        DataTag::Block(number) => alloc::format!("{own}, block {number}"),
        DataTag::Xattr(name) => alloc::format!("{own}, attribute {}", String::from_utf8_lossy(name)),
        DataTag::QuotaUse => alloc::format!("{own}, use of its quota"),
        DataTag::Reserved(tag) => alloc::format!("{own}, tag {tag:02x}"),
    })
}

/// A place between keys of `meta` for messages; `end` describes the place behind the last key.
pub(crate) fn describe_cut(cut: &Cut, end: &str) -> String {
    match cut.bytes() {
        [] => String::from(end),
        [first @ (0 | SNAPSHOT), ..] if split_entry(cut.bytes()).is_none() => {
            // A part of a key: the path as far as it goes.
            let mut text = String::from(if *first == SNAPSHOT { "the snapshots of " } else { "" });
            for component in cut.bytes().split(|b| *b == 0).skip(1).filter(|component| !component.is_empty())
            {
                text.push('/');
                text.push_str(&String::from_utf8_lossy(component));
            }
            if text.is_empty() { String::from("/") } else { text }
        }
        [OBJECT, ..] if object_id(cut.bytes()).is_none() => String::from("the linked files"),
        [MARKER, ..] if marker_id(cut.bytes()).is_none() => String::from("the unlinked files"),
        bytes => describe(bytes),
    }
}
