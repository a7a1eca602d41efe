//! `betrfs debug map`.

use betree::debug::{Inspector, Owned, Owner};
use serde_json::{Value, json};

use super::page::Page;
use super::words;

/// Shows the owners of the device's bytes, and sums.
pub fn show(volume: &Inspector, page: &mut Page) {
    let all = volume.map();
    page.list("ranges");
    for owned in &all {
        page.item(|| owned_json(owned), || line(owned));
    }
    page.end_list();
    let sum = |is: fn(&Owner) -> bool| {
        let these = all.iter().filter(|owned| is(&owned.owner));
        these.map(|owned| words::bytes_of(owned.blocks).1).fold(0u64, u64::saturating_add)
    };
    let nodes = sum(|owner| matches!(owner, Owner::Node(_)));
    let table = sum(|owner| matches!(owner, Owner::Page(_) | Owner::Directory));
    let free = sum(|owner| matches!(owner, Owner::Nobody));
    page.field("node_bytes", &json!(nodes));
    page.field("table_bytes", &json!(table));
    page.field("free_bytes", &json!(free));
    page.line(format_args!("nodes {nodes} bytes, node table {table}, free {free}"));
}

fn names(owner: Owner) -> (&'static str, String) {
    match owner {
        Owner::Superblocks => ("superblocks", "superblocks".to_owned()),
        Owner::Log => ("log", "log".to_owned()),
        Owner::Directory => ("table-directory", "directory of the node table".to_owned()),
        Owner::Page(index) => ("table-page", format!("page {index} of the node table")),
        Owner::Node(id) => ("node", format!("node {id}")),
        Owner::Nobody => ("free", "free".to_owned()),
    }
}

fn owned_json(owned: &Owned) -> Value {
    let (offset, len) = words::bytes_of(owned.blocks);
    let mut document = json!({ "offset": offset, "bytes": len, "owner": names(owned.owner).0 });
    match owned.owner {
        Owner::Node(id) => document["node"] = words::id_json(id),
        Owner::Page(index) => document["page"] = json!(index),
        _ => {}
    }
    document
}

fn line(owned: &Owned) -> String {
    let (offset, len) = words::bytes_of(owned.blocks);
    format!("{offset:>14} {len:>12} bytes  {}", names(owned.owner).1)
}
