//! The output of each subcommand for whole volumes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Golden, list, number, text, with};

#[test]
fn super_shows_the_copies_and_what_the_newest_says() {
    let volume = Golden::new("label");
    let document = volume.whole("super", &[]);
    let copies: Vec<_> = list(&document["copies"])
        .iter()
        .map(|copy| (number(&copy["offset"]), number(&copy["generation"]), copy["current"] == true))
        .collect();
    assert_eq!(copies, [(0, 6, true), (4096, 6, true), (8192, 5, false), (12288, 5, false)]);
    let superblock = &document["superblock"];
    assert_eq!(superblock["label"], "another label, 日本語");
    assert_eq!(superblock["uuid"], "01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(superblock["made_by"], "betrfs 0.1.0");
    assert_eq!((&superblock["version"], &superblock["closed"]), (&json!(6), &json!(true)));
    assert_eq!(superblock["volume_bytes"], volume.bytes.len());
    assert_eq!(superblock["features"], json!({ "compat": 0, "ro_compat": 0, "incompat": 0 }));
    let names: Vec<&str> =
        list(&superblock["dictionaries"]).iter().map(|dictionary| text(&dictionary["name"])).collect();
    assert_eq!(names, ["meta", "data", "links", "user"]);
    let data = with(&superblock["dictionaries"], "name", "data");
    assert_eq!((text(&data["upsert"]), text(&data["root"])), ("block", "1.1"));

    let lines = volume.lines("super", &[]);
    for line in [
        "copy 1 at byte 4096     generation 6, current\n",
        "label         \"another label, 日本語\"\n",
        "incompat      none\n",
        "dictionary 2  links  root 2.1, applied up to msn 8, upserts `block` version 1\n",
    ] {
        assert!(lines.contains(line), "{line} is not in\n{lines}");
    }
}

/// The log of this volume has every kind of change.
#[test]
fn log_shows_segments_records_and_the_end() {
    let volume = Golden::new("log");
    let document = volume.whole("log", &["--records"]);
    let segments: Vec<_> = list(&document["segments"])
        .iter()
        .map(|s| {
            ["number", "offset", "bytes", "first_msn", "last_msn", "record_count"].map(|f| number(&s[f]))
        })
        .collect();
    assert_eq!(
        segments,
        [[1, 16384, 8192, 325, 329, 2], [2, 24576, 4096, 330, 358, 7], [3, 28672, 12288, 359, 364, 2]]
    );
    let second = &document["segments"][1];
    let counts = json!({ "put": 10, "delete": 7, "upsert": 2, "range-delete": 5, "clone": 5 });
    assert_eq!(second["changes"], counts);
    let records = list(&second["records"]);
    assert_eq!(records.len(), 7);
    let upsert = &records[0]["changes"][0];
    assert_eq!((&upsert["kind"], &upsert["dictionary"]), (&json!("upsert"), &json!("data")));
    assert_eq!(upsert["at"]["is"], "/large, block 2");
    assert_eq!(upsert["at"]["key"], "\\x00\\x00large\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02");
    let end = &document["end"];
    assert_eq!((&end["reason"], &end["segments"]), (&json!("end"), &json!(3)));
    assert_eq!((&end["number"], &end["offset"]), (&json!(4), &json!(40960)));
    assert!(volume.whole("log", &[])["segments"][1].get("records").is_none());

    let lines = volume.lines("log", &["--records"]);
    assert!(lines.contains("    delete meta /tree/outer0/inner0/file3\n"), "{lines}");
    assert!(
        lines.contains("ends after 3 segments, at msn 364: segment 4 of epoch 3 is not at byte 40960"),
        "{lines}"
    );

    let closed = Golden::new("plain").whole("log", &[]);
    assert_eq!((&closed["closed"], list(&closed["segments"]).len()), (&json!(true), 0));
}

/// Nodes and roots name each node as often as the node table counts.
#[test]
fn nodes_and_their_edges_agree_with_the_node_table() {
    let volume = Golden::new("clones");
    let all = volume.whole("nodes", &[]);
    let mut references: BTreeMap<String, u64> = BTreeMap::new();
    let mut refer = |id: &Value| {
        if let Some(id) = id.as_str() {
            *references.entry(id.to_owned()).or_default() += 1;
        }
    };
    let roots = volume.whole("super", &[]);
    list(&roots["superblock"]["dictionaries"]).iter().for_each(|dictionary| refer(&dictionary["root"]));
    let (mut gotos, mut translations, mut messages) = (0, 0, 0);
    for listed in list(&all["nodes"]) {
        let shown = volume.whole("node", &[text(&listed["id"]), "--messages"]);
        assert_eq!(&shown["node"], listed);
        let mut run_count = 0;
        let mut runs = |runs: &Value| {
            for run in list(runs) {
                run_count += 1;
                assert_eq!(run["count"], list(&run["messages"]).len());
                messages += list(&run["messages"]).len();
            }
        };
        if listed["height"] == 0 {
            list(&shown["basements"]).iter().for_each(|basement| runs(&basement["runs"]));
        } else {
            let mut lo = &shown["lo"];
            for edge in list(&shown["edges"]) {
                assert_eq!(&edge["lo"], lo, "the edges are contiguous");
                lo = &edge["hi"];
                refer(&edge["child"]);
                gotos += list(&edge["gotos"]).len();
                list(&edge["gotos"]).iter().for_each(|goto| refer(&goto["target"]));
                translations += usize::from(number(&edge["translation"]["strip_bytes"]) > 0);
                runs(&edge["runs"]);
            }
            assert_eq!(lo, &shown["hi"]);
        }
        assert_eq!(listed["runs"], run_count);
    }
    let counted: BTreeMap<String, u64> = list(&all["nodes"])
        .iter()
        .map(|node| (text(&node["id"]).to_owned(), number(&node["references"])))
        .collect();
    assert_eq!(references, counted);
    assert!(gotos >= 3 && translations >= 10 && messages > 200, "{gotos} {translations} {messages}");

    let slots: Vec<u32> = list(&all["nodes"])
        .iter()
        .map(|n| text(&n["id"]).split('.').next().unwrap().parse().unwrap())
        .collect();
    assert!(slots.is_sorted());
    let of_dict = |name| list(&volume.whole("nodes", &["--dict", name])["nodes"]).clone();
    let by_dict: usize = ["meta", "data", "links", "user"].map(|name| of_dict(name).len()).iter().sum();
    assert_eq!(by_dict, counted.len());
    assert!(of_dict("meta").iter().all(|node| node["dictionary"] == "meta"));

    let lines = volume.lines("node", &["36", "--messages"]);
    let goto = "  GOTO from before \"copy0\\x00clone inside\\x00\" to after \"copy0\\x00clone inside\\x00\": node 27.1, \
                strip 19 bytes\n";
    assert!(lines.contains(goto), "{lines}");
    assert!(lines.contains("msn 310 upsert \"copy0"), "{lines}");
    assert_eq!(volume.lines("nodes", &[]).lines().count(), counted.len() + 1);
}

#[test]
fn a_node_that_is_not_there_is_reported() {
    let volume = Golden::new("plain");
    for (id, code, why) in
        [("900", 1, "no node in slot 900"), ("0.77", 1, "in its slot is node 0."), ("x", 2, "7.2")]
    {
        let output = volume.run("node", &[id]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && told.contains(why), "{told}");
    }
    assert_eq!(volume.run("nodes", &["--dict", "none"]).status.code(), Some(2));
}

/// The last component that is shown of a path.
fn last(document: &Value) -> &Value {
    list(&document["components"]).last().unwrap()
}

/// A snapshot's file is shared with clones: the ways have translations, and lead to the values that the
/// library reads (see fixtures/format-6/snapshots.txt).
#[test]
fn key_shows_components_records_and_ways() {
    let volume = Golden::new("snapshots");
    let path = "/renamed/outer1/.betrfs-snapshots/of a part 0/inner0/file2";
    let document = volume.whole("key", &[path]);
    let found: Vec<&str> =
        list(&document["components"]).iter().map(|component| text(&component["found"])).collect();
    assert_eq!(found, ["record", "record", "record", "snapshots", "record", "record", "record"]);
    let record = &document["record"];
    assert_eq!(
        (&record["type"], &record["mode"], &record["uid"]),
        (&json!("regular"), &json!("0644"), &json!(1000))
    );
    assert_eq!(
        (&record["size_bytes"], &record["crtime_ns"]),
        (&json!(1800), &json!(1_767_225_600_000_033_000_u64))
    );
    for (dictionary, value_bytes) in [("meta", 128), ("data", 1800)] {
        let key = with(&document["keys"], "dictionary", dictionary);
        assert_eq!(key["value_bytes"], value_bytes);
        let way = list(&key["way"]);
        let heights: Vec<u64> = way.iter().map(|step| number(&step["height"])).collect();
        assert!(heights.len() > 3 && heights.is_sorted_by(|a, b| a > b) && heights.last() == Some(&0));
        for two in way.windows(2) {
            assert_eq!(two[0]["passed"]["child"], two[1]["node"]);
        }
        assert!(way.iter().any(|step| step["passed"]["translation"]["strip_bytes"].as_u64() > Some(0)));
        let pair = &way.last().unwrap()["pending"][0];
        assert_eq!(
            (&pair["kind"], &pair["msn"], &pair["value_bytes"]),
            (&json!("put"), &json!(0), &json!(value_bytes))
        );
    }
    let meta = with(&document["keys"], "dictionary", "meta");
    assert_eq!(meta["at"]["is"], path);
    assert_eq!(meta["at"]["key"], last(&document)["key"]);

    let linked = Golden::new("links").whole("key", &["a/b/other0"]);
    let found: Vec<&str> =
        list(&linked["components"]).iter().map(|component| text(&component["found"])).collect();
    assert_eq!(found, ["record", "record", "record", "redirect", "record"]);
    assert_eq!(linked["components"][3]["fields"]["object_id"], 1);
    assert_eq!((&linked["record"]["id"], &linked["record"]["links"]), (&json!(4), &json!(2)));
    assert_eq!(with(&linked["keys"], "dictionary", "data")["at"]["is"], "the linked file 1, block 0");

    let none = volume.whole("key", &["/renamed/nobody/nothing"]);
    assert_eq!((&last(&none)["name"], &last(&none)["found"]), (&json!("nobody"), &json!("nothing")));
    assert_eq!(with(&none["keys"], "dictionary", "meta")["value_bytes"], Value::Null);

    // A block in the middle of a file, and the note about the log.
    let log = Golden::new("log");
    let block = log.whole("key", &["/large", "--block", "3"]);
    assert_eq!(with(&block["keys"], "dictionary", "data")["at"]["is"], "/large, block 3");
    assert_eq!(with(&block["keys"], "dictionary", "data")["value_bytes"], 4096);
    assert!(text(&block["notes"][0]).contains("betrfs debug log"));
    let lines = log.lines("key", &["/large"]);
    assert!(
        lines.contains("large  key \"\\x00\\x00large\"  record: type regular")
            && lines.contains("\n    pair of "),
        "{lines}"
    );
}

#[test]
fn map_covers_the_device_and_names_each_node() {
    for name in ["clones", "log", "plain"] {
        let volume = Golden::new(name);
        let document = volume.whole("map", &[]);
        let mut next = 0;
        let mut nodes: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        let mut free = 0;
        for range in list(&document["ranges"]) {
            assert_eq!(number(&range["offset"]), next);
            let bytes = number(&range["bytes"]);
            match text(&range["owner"]) {
                "node" => nodes.entry(text(&range["node"])).or_default().push((next, bytes)),
                "free" => free += bytes,
                _ => {}
            }
            next += bytes;
        }
        assert_eq!((next, free), (volume.bytes.len() as u64, number(&document["free_bytes"])));
        assert_eq!(
            (text(&document["ranges"][0]["owner"]), text(&document["ranges"][1]["owner"])),
            ("superblocks", "log")
        );
        let listed = volume.whole("nodes", &[]);
        assert_eq!(nodes.len(), list(&listed["nodes"]).len());
        for node in list(&listed["nodes"]) {
            let extent = list(&node["extent"]).iter().map(|r| (number(&r["offset"]), number(&r["bytes"])));
            let mut extent: Vec<_> = extent.collect();
            extent.sort_unstable();
            assert_eq!(nodes[text(&node["id"])], extent);
        }
        let lines = volume.lines("map", &[]);
        assert!(
            lines.contains("bytes  directory of the node table\n") && lines.contains(" bytes  free\n"),
            "{lines}"
        );
    }
}

/// Runs compressed by zstd are read too.
#[test]
fn each_codec_is_read() {
    for (name, codec) in [("zstd", "zstd"), ("lz4", "lz4"), ("uncompressed", "none")] {
        let volume = Golden::new(name);
        let nodes = volume.whole("nodes", &[]);
        let mut codecs = Vec::new();
        for node in list(&nodes["nodes"]).iter().filter(|node| node["height"] == 0) {
            let shown = volume.whole("node", &[text(&node["id"]), "--messages"]);
            let runs = list(&shown["basements"]).iter().flat_map(|basement| list(&basement["runs"]).clone());
            codecs.extend(runs.map(|run| text(&run["codec"]).to_owned()));
        }
        assert!(codecs.iter().any(|found| found == codec), "{name}: {codecs:?}");
    }
}

/// Who only reads a volume keeps nobody from looking into it; who may change it does.
#[test]
fn a_volume_is_shown_beside_readers_and_refused_beside_writers() {
    let volume = Golden::new("label");
    let reader = std::fs::File::open(&volume.path).unwrap();
    reader.lock_shared().unwrap();
    volume.whole("super", &[]);
    reader.unlock().unwrap();
    reader.lock().unwrap();
    let refused = volume.run("super", &[]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
}
