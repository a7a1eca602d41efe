//! `betrfs debug nodes`.

use betree::DictId;
use betree::debug::{Entries, Header, Inspector, Node, RunRef};
use serde_json::{Value, json};

use super::page::{Found, Page};
use super::words;

/// The sums of a header.
#[derive(Default)]
struct Sums {
    entries: usize,
    children: usize,
    gotos: usize,
    runs: usize,
    stored_bytes: u64,
    raw_bytes: u64,
}

impl Sums {
    fn of(header: &Header) -> Sums {
        let mut sums = Sums::default();
        match &header.entries {
            Entries::Leaf(basements) => {
                sums.entries = basements.len();
                basements.iter().for_each(|(_, runs)| sums.add(runs));
            }
            Entries::Interior(edges) => {
                sums.entries = edges.len();
                for edge in edges {
                    sums.children += usize::from(edge.child.is_some());
                    sums.gotos += edge.gotos.len();
                    sums.add(&edge.partition);
                }
            }
        }
        sums
    }

    fn add(&mut self, runs: &[RunRef]) {
        self.runs += runs.len();
        self.stored_bytes += runs.iter().map(|run| u64::from(run.stored_len)).sum::<u64>();
        self.raw_bytes += runs.iter().map(|run| u64::from(run.raw_len)).sum::<u64>();
    }
}

/// Lists the nodes of a dictionary, or all, by slot. The dictionary of an unreadable node is not known.
pub fn show(volume: &Inspector, dict: Option<DictId>, page: &mut Page, found: &Found) {
    page.line(format_args!(
        "{:<10}{:<7}{:>6}{:>6}{:>14}{:>10}{:>9}{:>10}{:>7}{:>6}{:>12}{:>12}",
        "node",
        "dict",
        "height",
        "refs",
        "at byte",
        "bytes",
        "entries",
        "children",
        "gotos",
        "runs",
        "contents",
        "stored"
    ));
    page.list("nodes");
    for id in volume.ids() {
        let Some(node) = volume.node(id, &mut found.tell()) else { continue };
        let of_dict = node.header.as_ref().map(|header| DictId(header.origin.dict));
        if dict.is_none() || of_dict == dict {
            page.item(|| node_json(&node), || line(&node));
        }
    }
    page.end_list();
}

/// A node's slot in the node table and the sums of its header, for programs.
pub fn node_json(node: &Node) -> Value {
    let mut document = json!({
        "id": words::id_json(node.id),
        "height": node.height,
        "references": node.references,
        "extent": words::extent_json(&node.extent),
        "copy": words::extent_json(&node.copy),
        "readable": node.header.is_some(),
    });
    if let Some(header) = &node.header {
        let sums = Sums::of(header);
        document["dictionary"] = json!(words::dict(DictId(header.origin.dict)));
        document["checkpoint"] = json!(header.origin.checkpoint);
        document["entries"] = json!(sums.entries);
        document["children"] = json!(sums.children);
        document["gotos"] = json!(sums.gotos);
        document["runs"] = json!(sums.runs);
        document["contents_bytes"] = json!(sums.raw_bytes);
        document["stored_bytes"] = json!(sums.stored_bytes);
    }
    document
}

fn line(node: &Node) -> String {
    let places: Vec<(u64, u64)> = node.extent.iter().map(|blocks| words::bytes_of(*blocks)).collect();
    let at = places.first().map_or(0, |(offset, _)| *offset);
    let bytes: u64 = places.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len));
    let dict = node.header.as_ref().map_or("?".to_owned(), |h| words::dict(DictId(h.origin.dict)));
    let (id, height, references) = (node.id.to_string(), node.height, node.references);
    let known = format!("{id:<10}{dict:<7}{height:>6}{references:>6}{at:>14}{bytes:>10}");
    let Some(header) = &node.header else { return format!("{known}  cannot be read") };
    let Sums { entries, children, gotos, runs, stored_bytes, raw_bytes } = Sums::of(header);
    let ranges = if places.len() > 1 { format!("  in {} block ranges", places.len()) } else { String::new() };
    format!("{known}{entries:>9}{children:>10}{gotos:>7}{runs:>6}{raw_bytes:>12}{stored_bytes:>12}{ranges}")
}
