//! What is shown of damaged volumes: each unreadable part is told, and all else is there.

use betree_sim::Rng;
use serde_json::{Value, json};

use super::{BLOCK_BYTES, Golden, list, number, text, with};

/// The one problem that a subcommand tells.
fn problem(volume: &Golden, subcommand: &str, more: &[&str]) -> (Value, Value) {
    let (document, code) = volume.document(subcommand, more);
    assert_eq!((code, list(&document["problems"]).len()), (1, 1), "{document:#}");
    assert_eq!(document["error"], Value::Null);
    let problem = document["problems"][0].clone();
    let output = volume.run(subcommand, more);
    let line = format!("{} [{}]", text(&problem["what"]), text(&problem["code"]));
    assert!(String::from_utf8(output.stdout).unwrap().contains(&line), "{line}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("is damaged (1 found)"));
    (document, problem)
}

#[test]
fn a_superblock_with_a_flipped_byte_is_reported_and_its_twin_shown() {
    let mut volume = Golden::new("label");
    volume.flip(4096 + 70);
    let (document, problem) = problem(&volume, "super", &[]);
    assert_eq!((&problem["code"], &problem["offset"]), (&json!("bad-superblock"), &json!(4096)));
    let copy = &document["copies"][1];
    assert_eq!((&copy["valid"], &copy["generation"]), (&json!(false), &Value::Null));
    assert!(text(&copy["why"]).contains("checksum"));
    assert_eq!(document["superblock"]["generation"], 6);

    for copy in [0, 2, 3] {
        volume.flip(copy * 4096 + 70);
    }
    let (document, code) = volume.document("super", &[]);
    assert_eq!((code, list(&document["problems"]).len(), &document["superblock"]), (1, 4, &Value::Null));
    assert!(text(&document["error"]).contains("no copy is good"));
    for (subcommand, more) in
        [("log", None), ("nodes", None), ("node", Some("0")), ("key", Some("/")), ("map", None)]
    {
        let more: Vec<&str> = more.into_iter().collect();
        let (document, code) = volume.document(subcommand, &more);
        assert_eq!((code, list(&document["problems"]).len()), (1, 4), "{subcommand}");
    }
}

/// A crash leaves that, if it comes while the copy is written.
#[test]
fn a_copy_of_the_superblock_that_may_be_torn_is_no_damage() {
    let mut volume = Golden::new("label");
    volume.flip(4096 + 900);
    let document = volume.whole("super", &[]);
    assert_eq!(document["copies"][1]["valid"], false);
    assert!(text(&document["notes"][0]).contains("a crash while it is written"), "{document:#}");
}

/// A superblock of a later version is told with its version, by `super` too.
#[test]
fn what_is_no_volume_is_reported() {
    let mut volume = Golden::new("label");
    let mut later = volume.bytes.clone();
    for block in later.chunks_mut(BLOCK_BYTES).take(4) {
        block[8] = 7;
        let sum = xxhash_rust::xxh3::xxh3_64(&block[..BLOCK_BYTES - 8]);
        block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    }
    for (bytes, why) in [
        (later, "format version 7"),
        (vec![7; 1 << 20], "not a BetrFS volume"),
        (Vec::new(), "not a BetrFS volume"),
    ] {
        volume.set(bytes);
        for subcommand in ["super", "log", "nodes", "map"] {
            let (document, code) = volume.document(subcommand, &[]);
            assert_eq!((code, list(&document["problems"]).len()), (1, 0), "{subcommand}: {document:#}");
            assert!(text(&document["error"]).contains(why), "{subcommand}: {document:#}");
        }
    }
}

#[test]
fn a_node_whose_header_has_a_flipped_byte_is_reported_and_the_others_are_shown() {
    let mut volume = Golden::new("clones");
    let whole = volume.whole("nodes", &[]);
    let node = &list(&whole["nodes"])[5];
    let (id, at) = (text(&node["id"]), number(&node["extent"][0]["offset"]));
    volume.flip(at + 70);
    let (document, found) = problem(&volume, "nodes", &[]);
    assert_eq!((&found["code"], &found["place"]), (&json!("bad-node"), &json!("node")));
    assert_eq!(number(&found["offset"]), at);
    assert!(text(&found["what"]).contains(id));
    assert_eq!(list(&document["nodes"]).len(), list(&whole["nodes"]).len());
    let bad = with(&document["nodes"], "id", id);
    assert_eq!((&bad["readable"], &bad["references"]), (&json!(false), &node["references"]));
    let (shown, found) = problem(&volume, "node", &[id]);
    assert_eq!((&shown["node"]["readable"], &found["code"]), (&json!(false), &json!("bad-node")));
    assert_eq!(volume.whole("map", &[])["free_bytes"], Golden::new("clones").whole("map", &[])["free_bytes"]);
}

/// Of a leaf with a piece that cannot be read, header and other pieces are shown.
#[test]
fn a_run_with_a_flipped_byte_is_reported() {
    let mut volume = Golden::new("plain");
    let document = volume.whole("key", &["/of70000", "--block", "2"]);
    let data = with(&document["keys"], "dictionary", "data");
    let way = list(&data["way"]);
    let leaf = way.last().unwrap();
    let at = number(&leaf["pending"][0]["run_offset"]);
    volume.flip(at + 20);
    let (document, code) = volume.document("key", &["/of70000", "--block", "2"]);
    assert_eq!((code, &document["problems"][0]["code"]), (1, &json!("bad-piece")));
    assert!(text(&document["problems"][0]["what"]).contains(&format!("byte {at}")));
    let broken = with(&document["keys"], "dictionary", "data");
    assert_eq!((list(&broken["way"]).len(), &broken["value_bytes"]), (way.len(), &Value::Null));
    assert!(text(&broken["why"]).contains("checksum"));
    assert_eq!(with(&document["keys"], "dictionary", "meta")["value_bytes"], 128);
    let (shown, _) = problem(&volume, "node", &[text(&leaf["node"]), "--messages"]);
    let basements = list(&shown["basements"]);
    let is_empty = |basement: &&Value| basement["runs"][0]["count"] == 0;
    assert_eq!(basements.iter().filter(is_empty).count(), 1);
    assert!(basements.len() > 1);
    // Its header can be read.
    volume.whole("nodes", &[]);
}

#[test]
fn a_log_record_with_a_flipped_byte_ends_the_replay() {
    let mut volume = Golden::new("log");
    // The last segment: as if a crash had torn it.
    volume.flip(28672 + 300);
    let torn = volume.whole("log", &[]);
    assert_eq!(list(&torn["segments"]).len(), 2);
    assert_eq!((&torn["end"]["reason"], &torn["end"]["offset"]), (&json!("torn"), &json!(28672)));
    // One of which a later segment tells that it was durable.
    let mut volume = Golden::new("log");
    volume.flip(16384 + 300);
    let (document, found) = problem(&volume, "log", &[]);
    assert_eq!((&found["code"], &found["offset"]), (&json!("bad-log"), &json!(16384)));
    assert_eq!((&document["end"]["reason"], list(&document["segments"]).len()), (&json!("lost"), 0));
}

#[test]
fn a_node_table_with_a_flipped_byte_is_reported_and_what_is_left_of_it_shown() {
    let mut volume = Golden::new("names");
    let whole = volume.whole("map", &[]);
    let of = |owner: &str| with(&whole["ranges"], "owner", owner).clone();
    let (page, directory) = (of("table-page"), of("table-directory"));
    volume.flip(number(&page["offset"]) + 500);
    let (document, found) = problem(&volume, "nodes", &[]);
    assert_eq!((&found["code"], &found["place"]), (&json!("bad-node-table"), &json!("node-table")));
    assert_eq!(found["offset"], page["offset"]);
    assert!(list(&document["nodes"]).len() < list(&volume_nodes("names")["nodes"]).len());
    let (key, _) = volume.document("key", &["/"]);
    assert_eq!(key["components"][0]["found"], "unreadable", "{key:#}");

    let mut volume = Golden::new("names");
    volume.flip(number(&directory["offset"]) + 20);
    for subcommand in ["nodes", "map"] {
        let (_, found) = problem(&volume, subcommand, &[]);
        assert_eq!(found["offset"], directory["offset"]);
    }
}

fn volume_nodes(name: &str) -> Value {
    Golden::new(name).whole("nodes", &[])
}

/// Rot in many places of what is written: every subcommand ends with an exit code and a document.
#[test]
fn volumes_with_many_flipped_bytes() {
    let (mut told, mut all) = (0, 0);
    for (seed, name) in (0..24).zip(["clones", "log", "snapshots", "names"].iter().cycle()) {
        let mut volume = Golden::new(name);
        let mut rng = Rng::new(seed);
        let blocks = volume.bytes.chunks(BLOCK_BYTES).enumerate();
        let written: Vec<usize> =
            blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)).map(|(at, _)| at).collect();
        let mut rotten = volume.bytes.clone();
        for _ in 0..1 + rng.below(100) {
            let at = written[rng.below(written.len())] * BLOCK_BYTES + rng.below(BLOCK_BYTES);
            rotten[at] ^= 1 << rng.below(8);
        }
        volume.set(rotten);
        let (listed, _) = volume.document("nodes", &[]);
        let some = list_or_none(&listed["nodes"]).first().map_or("0", |node| text(&node["id"])).to_owned();
        for (subcommand, more) in [
            ("super", &[][..]),
            ("log", &["--records"]),
            ("nodes", &["--dict", "meta"]),
            ("node", &[some.as_str(), "--messages"]),
            ("key", &["/renamed/outer1/inner1/file3"]),
            ("map", &[]),
        ] {
            let (document, code) = volume.document(subcommand, more);
            let is_told = !list(&document["problems"]).is_empty() || document["error"].is_string();
            assert_eq!(code == 1, is_told, "{name}, {seed}, {subcommand}: {document:#}");
            told += usize::from(is_told);
            all += 1;
            volume.run(subcommand, more);
        }
    }
    assert!(told > all / 4 && told < all, "{told} of {all} were told of");
}

fn list_or_none(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}
