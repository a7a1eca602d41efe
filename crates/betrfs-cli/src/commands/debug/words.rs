//! Keys, bounds, nodes and places, for people and for programs.

use std::str::FromStr;

use betree::debug::{BlockRange, Kind, NodeId, Translation};
use betree::{Cut, DictId};
use betree_platform::BLOCK_BYTES;
use serde_json::{Value, json};

/// Longer texts are shortened, in characters.
const SHORT_CHARS: usize = 60;

/// A node on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Its slot in the node table.
    pub slot: u32,
    /// Its generation; `None` for the slot's current node.
    pub generation: Option<u32>,
}

/// Reads `7.2` or `7`.
pub fn parse_node(text: &str) -> Result<NodeName, String> {
    let wrong = |_| format!("`{text}` is no node: write its slot and its generation, as in 7.2");
    let (slot, generation) = match text.split_once('.') {
        Some((slot, generation)) => (slot, Some(u32::from_str(generation).map_err(wrong)?)),
        None => (text, None),
    };
    Ok(NodeName { slot: slot.parse().map_err(wrong)?, generation })
}

/// Reads the name of a dictionary.
pub fn parse_dict(text: &str) -> Result<DictId, String> {
    betrfs::debug::dict_of_name(text)
        .ok_or_else(|| format!("`{text}` is no dictionary: there are meta, data, links and user"))
}

/// A dictionary's name, or its number where it has none.
pub fn dict(dict: DictId) -> String {
    betrfs::debug::dict_name(dict).map_or_else(|| dict.0.to_string(), str::to_owned)
}

/// The name of a kind of message.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Put(_) => "put",
        Kind::Delete => "delete",
        Kind::Upsert(_) => "upsert",
    }
}

/// Bytes for programs: ASCII with escapes.
pub fn bytes(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// A key for people: a path if it has that form, else its bytes; shortened, on one line.
pub fn short(key: &[u8]) -> String {
    match betrfs::debug::describe(key) {
        Some(text) => shortened(&text.chars().flat_map(on_one_line).collect::<String>()),
        None => format!("\"{}\"", shortened(&bytes(key))),
    }
}

/// A character; escaped if it controls a terminal.
fn on_one_line(char: char) -> impl Iterator<Item = char> {
    let (as_it_is, escaped) =
        if char.is_control() { (None, Some(char.escape_default())) } else { (Some(char), None) };
    as_it_is.into_iter().chain(escaped.into_iter().flatten())
}

/// Leaves out the middle of a long text: both ends tell keys apart.
fn shortened(text: &str) -> String {
    let chars = text.chars().count();
    if chars <= SHORT_CHARS {
        return text.to_owned();
    }
    let half = SHORT_CHARS / 2;
    let front: String = text.chars().take(half).collect();
    let back: String = text.chars().skip(chars - half).collect();
    format!("{front}[...]{back}")
}

/// A bound for people.
pub fn cut(cut: &Cut) -> String {
    if *cut == Cut::LOW {
        return "start".to_owned();
    }
    if *cut == Cut::HIGH {
        return "end".to_owned();
    }
    format!("{} {}", side(cut), short(cut.bytes()))
}

fn side(cut: &Cut) -> &'static str {
    if cut.is_after() { "after" } else { "before" }
}

/// A bound for programs.
pub fn cut_json(cut: &Cut) -> Value {
    json!({ "side": side(cut), "key": bytes(cut.bytes()) })
}

/// A key for programs, with its path if it has that form.
pub fn key_json(key: &[u8]) -> Value {
    json!({ "key": bytes(key), "is": betrfs::debug::describe(key) })
}

/// A translation for people; empty if it changes nothing.
pub fn translation(translation: &Translation) -> String {
    let Translation { strip_len, prepend } = translation;
    let strip = if *strip_len > 0 { format!(", strip {strip_len} bytes") } else { String::new() };
    let prepend = if prepend.is_empty() {
        String::new()
    } else {
        format!(", prepend \"{}\"", shortened(&bytes(prepend)))
    };
    format!("{strip}{prepend}")
}

/// A translation for programs.
pub fn translation_json(translation: &Translation) -> Value {
    json!({ "strip_bytes": translation.strip_len, "prepend": bytes(&translation.prepend) })
}

/// A node's id for programs.
pub fn id_json(id: NodeId) -> Value {
    json!(id.to_string())
}

/// The first byte of blocks, and their number of bytes.
pub fn bytes_of(blocks: BlockRange) -> (u64, u64) {
    let block = BLOCK_BYTES as u64;
    (blocks.start_block.saturating_mul(block), blocks.len_blocks.saturating_mul(block))
}

/// An extent in words.
pub fn extent(extent: &[BlockRange]) -> String {
    let places = extent.iter().map(|blocks| {
        let (offset, len) = bytes_of(*blocks);
        format!("{len} bytes at byte {offset}")
    });
    places.collect::<Vec<_>>().join(", ")
}

/// An extent for programs.
pub fn extent_json(extent: &[BlockRange]) -> Value {
    extent
        .iter()
        .map(|blocks| {
            let (offset, len) = bytes_of(*blocks);
            json!({ "offset": offset, "bytes": len })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_short_and_on_one_line() {
        assert_eq!(short(b"\0a\0\0b"), "/a/b");
        assert_eq!(short(b"\0a\0\0b\n\x1b[2J"), "/a/b\\n\\u{1b}[2J");
        assert_eq!(short(b"\xff\0"), "\"\\xff\\x00\"");
        let long = [&b"\0\0"[..], &[b'x'; 200], b"end"].concat();
        assert!(short(&long).ends_with("xxend") && short(&long).chars().count() < 70);
        assert_eq!((cut(&Cut::LOW), cut(&Cut::HIGH)), ("start".to_owned(), "end".to_owned()));
        assert_eq!(cut(&Cut::after(*b"\0\0a")), "after /a");
    }

    #[test]
    fn nodes_are_read_with_and_without_generation() {
        assert_eq!(parse_node("7.2"), Ok(NodeName { slot: 7, generation: Some(2) }));
        assert_eq!(parse_node("7"), Ok(NodeName { slot: 7, generation: None }));
        for wrong in ["", ".", "7.", "x", "-1", "7.2.1", "4294967296"] {
            assert!(parse_node(wrong).is_err(), "{wrong}");
        }
    }
}
