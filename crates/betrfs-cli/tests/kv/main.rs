//! `betrfs kv`: pairs of a store file from the command line.
#![forbid(unsafe_code)]
// Also in helpers outside of `#[test]` functions.
#![allow(clippy::unwrap_used)]

#[path = "../mount/schemas.rs"]
mod schemas;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use betree_store::{DictOptions, Store};
use tempfile::TempDir;

struct Kv {
    folder: TempDir,
    file: PathBuf,
}

impl Kv {
    fn new() -> Kv {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        Kv { folder, file }
    }

    /// The document of `stat`.
    fn stat(&self) -> serde_json::Value {
        let stat = serde_json::from_str(&self.prints(&["stat", "--format", "json"], b"")).unwrap();
        schemas::valid("kv-stat", &stat);
        stat
    }

    fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
        command.arg("kv").arg(&self.file).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may have ended.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// What it prints, where it succeeds.
    fn prints(&self, arguments: &[&str], input: &[u8]) -> String {
        let done = self.run(arguments, input);
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(
            done.stderr.is_empty(),
            "progress is for terminals: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap()
    }

    /// What it says, where it fails.
    fn fails(&self, arguments: &[&str], input: &[u8]) -> String {
        let done = self.run(arguments, input);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}");
        assert!(done.stdout.is_empty());
        String::from_utf8(done.stderr).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn betrfs(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_betrfs")).args(arguments).output().unwrap();
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn a_store_and_a_volume_are_told_apart() {
    let kv = Kv::new();
    kv.prints(&["load"], b"ada,1815\n");
    let store = kv.file.to_str().unwrap();
    let [dir, new] = ["dir", "new"].map(|name| kv.path(name).display().to_string());
    std::fs::create_dir(&dir).unwrap();
    for command in [&["check", store][..], &["mount", store, &dir], &["rescue", store, &new], &["df", store]]
    {
        let told = betrfs(command);
        assert!(told.contains(store) && told.contains("it is a key-value store"), "{command:?}: {told}");
        assert!(told.contains("`betrfs kv`"), "{command:?}: {told}");
    }
    let volume = kv.path("volume");
    betrfs(&["mkfs", volume.to_str().unwrap(), "64M", "-q"]);
    let volume = Kv { folder: tempfile::tempdir().unwrap(), file: volume };
    for command in [&["scan"][..], &["load"], &["stat"], &["check"]] {
        let told = volume.fails(command, b"ada,1815\n");
        assert!(told.contains("is not a store: it is a BetrFS volume with files"), "{command:?}: {told}");
        assert!(told.contains("`betrfs mount`"), "{command:?}: {told}");
    }
}

/// Flips a bit in each block that holds something, of the log and of nodes.
fn damage(store: &Path) {
    let file = std::fs::File::options().read(true).write(true).open(store).unwrap();
    let mut flipped = 0;
    let end = file.metadata().unwrap().len();
    for block in (1 << 20..end).step_by(4096) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, block + 100).unwrap();
        if byte != [0] {
            file.write_all_at(&[byte[0] ^ 1], block + 100).unwrap();
            flipped += 1;
        }
    }
    assert!(flipped > 10, "{flipped}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn pairs_are_put_read_and_removed() {
    let kv = Kv::new();
    assert_eq!(kv.prints(&["put", "ada", "1815"], b""), "");
    kv.prints(&["put", "alan"], b"1912");
    kv.prints(&["put", "bob", "1"], b"");
    assert_eq!(kv.prints(&["get", "alan"], b""), "1912");
    assert_eq!(kv.fails(&["get", "nobody"], b""), "betrfs: dictionary \"main\" has no key \"nobody\"\n");
    assert_eq!(kv.prints(&["scan"], b""), "ada,1815\nalan,1912\nbob,1\n");
    assert_eq!(kv.prints(&["scan", "--prefix", "a", "--reverse"], b""), "alan,1912\nada,1815\n");
    assert_eq!(kv.prints(&["scan", "--from", "al", "--until", "b"], b""), "alan,1912\n");
    assert_eq!(kv.prints(&["scan", "--from", "al", "--limit", "1"], b""), "alan,1912\n");
    kv.prints(&["del", "bob", "nobody"], b"");
    kv.prints(&["del", "--prefix", "al"], b"");
    assert!(kv.prints(&["compact", "--from", "a"], b"").starts_with("wrote "));
    assert!(kv.fails(&["compact", "--dict", "third"], b"").contains("no dictionary \"third\""));
    assert_eq!(kv.prints(&["dump"], b""), "ada,1815\n");
    assert_eq!(kv.run(&["del"], b"").status.code(), Some(2), "of what?");
}

#[test]
fn dictionaries_are_apart_and_listed() {
    let kv = Kv::new();
    kv.prints(&["put", "k", "main's"], b"");
    kv.prints(&["put", "--dict", "other", "k", "the other's"], b"");
    assert_eq!(kv.prints(&["get", "k", "--dict", "other"], b""), "the other's");
    assert_eq!(kv.prints(&["get", "k"], b""), "main's");
    assert!(kv.fails(&["scan", "--dict", "third"], b"").contains("no dictionary \"third\""));
    let listed = kv.prints(&["stat"], b"");
    let names: Vec<&str> = listed.lines().skip(4).filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["main", "other"], "{listed}");
    let stat = kv.stat();
    assert_eq!(stat["dictionaries"][1]["name"], "other");
    assert_eq!(stat["dictionaries"][1]["pairs"], 1);
    assert!(stat["used_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn what_is_dumped_can_be_loaded_in_both_forms() {
    let kv = Kv::new();
    let mut csv = String::new();
    for i in 0..20_000 {
        csv += &format!("key {i:05},\"a value, with a \"\"quote\"\"\nand a line, {i}\"\n");
    }
    let input = kv.path("input.csv");
    std::fs::write(&input, &csv).unwrap();
    assert_eq!(kv.prints(&["load", text(&input)], b""), "loaded 20000 pairs into \"main\"\n");
    assert_eq!(kv.prints(&["dump"], b""), csv);
    let framed = kv.run(&["dump", "--form", "framed"], b"").stdout;
    let loaded = kv.prints(&["load", "--form", "framed", "--dict", "copy"], &framed);
    assert_eq!(loaded, "loaded 20000 pairs into \"copy\"\n");
    assert_eq!(kv.prints(&["dump", "--dict", "copy"], b""), csv);
}

#[test]
fn no_store_is_made_where_the_input_cannot_be_read() {
    let kv = Kv::new();
    let refused = kv.run(&["load", "/no/such/file"], b"");
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && told.contains("cannot read /no/such/file"), "{told}");
    assert!(!kv.file.exists());
}

#[test]
fn a_wrong_line_is_told_and_what_stands_before_it_is_loaded() {
    let kv = Kv::new();
    let told = kv.fails(&["load"], b"a,1\nb,2\nc\nd,4\n");
    assert_eq!(told, "betrfs: standard input, line 3: it has no comma; the 2 pairs before it are loaded\n");
    assert_eq!(kv.prints(&["dump"], b""), "a,1\nb,2\n");
}

#[test]
fn of_two_values_of_a_key_the_later_is_loaded_in_any_order() {
    let kv = Kv::new();
    let line = |key: u32, value: &str| format!("{key:05},{value}\n");
    let sorted: String = (0..20_000).map(|key| line(key, "first")).collect();
    let rest: String = (0..2000).rev().map(|key| line(key * 7, "second")).collect();
    assert_eq!(kv.prints(&["load"], (sorted + &rest).as_bytes()), "loaded 22000 pairs into \"main\"\n");
    let expected: String = (0..20_000)
        .map(|key| line(key, if key % 7 == 0 && key < 14_000 { "second" } else { "first" }))
        .collect();
    assert_eq!(kv.prints(&["dump"], b""), expected);
    // Over what is there, and a doubled key.
    assert_eq!(kv.prints(&["load"], b"00003,x\n00004,y\n00004,z\n"), "loaded 3 pairs into \"main\"\n");
    assert_eq!(
        kv.prints(&["scan", "--from", "00002", "--limit", "4"], b""),
        "00002,first\n00003,x\n00004,z\n00005,first\n"
    );
    let told = kv.fails(&["load"], b"a,1\nb,2\na,3\nc\n");
    assert_eq!(told, "betrfs: standard input, line 4: it has no comma; the 3 pairs before it are loaded\n");
    assert_eq!(kv.prints(&["scan", "--from", "a"], b""), "a,3\nb,2\n");
}

#[test]
fn what_is_no_store_is_told_in_a_sentence() {
    let kv = Kv::new();
    assert!(kv.fails(&["get", "k"], b"").contains("there is no store"));
    assert!(!kv.file.exists());
    std::fs::write(&kv.file, "a text").unwrap();
    assert!(kv.fails(&["put", "k", "v"], b"").contains("is not a store"));
    assert_eq!(std::fs::read(&kv.file).unwrap(), b"a text");
}

#[test]
fn a_store_of_another_program_is_told_with_its_holder_or_its_merge() {
    let kv = Kv::new();
    let replace = |_: Option<&[u8]>, delta: &[u8]| Some(delta.to_vec());
    let store = Store::options().merge("replace", replace).open(&kv.file).unwrap();
    store.create("last", &DictOptions::new().merge("replace")).unwrap();
    let told = kv.fails(&["put", "k", "v"], b"");
    assert!(told.contains("is open already") && told.contains(&std::process::id().to_string()), "{told}");
    // Its merge is told where a value needs it; all else works.
    store.open_dict("last").unwrap().put("put", "value").unwrap();
    store.close().unwrap();
    kv.prints(&["upsert", "--dict", "last", "k", "delta"], b"");
    let told = kv.fails(&["get", "--dict", "last", "k"], b"");
    assert_eq!(told, "betrfs: dictionary \"last\": the merge \"replace\" is not registered\n");
    assert!(kv.run(&["scan", "--dict", "last"], b"").status.code() == Some(1));
    assert_eq!(kv.prints(&["get", "--dict", "last", "put"], b""), "value");
    kv.prints(&["put", "k", "v"], b"");
    assert_eq!(kv.prints(&["dicts", "list"], b""), "last\nmain\n");
    assert!(kv.prints(&["stat"], b"").contains("last"));
    let copy = kv.path("copy");
    kv.prints(&["backup", text(&copy)], b"");
    for file in [&kv.file, &copy] {
        let store = Store::options().merge("replace", replace).open(file).unwrap();
        assert_eq!(store.open_dict("last").unwrap().get("k").unwrap().unwrap(), "delta");
    }
}

#[test]
fn dictionaries_with_the_store_s_own_merges_are_changed_without_reading() {
    let kv = Kv::new();
    for (dict, merge) in
        [("u", "add_u64"), ("i", "add_i64"), ("s", "union_set"), ("a", "append"), ("m", "max")]
    {
        kv.prints(&["dicts", "create", dict, "--merge", &format!("betree.{merge}")], b"");
    }
    for _ in 0..2 {
        kv.prints(&["upsert", "--dict", "u", "k", "3", "--form", "u64"], b"");
        kv.prints(&["upsert", "--dict", "i", "k", "-3", "--form", "i64"], b"");
        kv.prints(&["upsert", "--dict", "s", "k", "member", "--form", "member"], b"");
        kv.prints(&["upsert", "--dict", "a", "k", "ab"], b"");
        kv.prints(&["upsert", "--dict", "m", "k", "most"], b"");
    }
    let store = Store::open(&kv.file).unwrap();
    let value = |dict: &str| store.open_dict(dict).unwrap().get("k").unwrap().unwrap().into_vec();
    assert_eq!(value("u"), 6_u64.to_le_bytes());
    assert_eq!(value("i"), (-6_i64).to_le_bytes());
    assert_eq!(value("s"), b"\x06\0\0\0member");
    assert_eq!((value("a"), value("m")), (b"abab".to_vec(), b"most".to_vec()));
    drop(store);
    let told = kv.fails(&["upsert", "--dict", "u", "k", "-3", "--form", "u64"], b"");
    assert!(told.contains("\"-3\" is no number from 0 on"), "{told}");
    kv.prints(&["put", "k", "v"], b"");
    assert!(kv.fails(&["upsert", "k", "v"], b"").contains("\"main\" was made without a merge"));
    let told = kv.fails(&["dicts", "create", "x", "--merge", "other"], b"");
    assert!(told.contains("the merge \"other\" is not registered"), "{told}");
}

#[test]
fn dictionaries_are_renamed_cloned_and_dropped() {
    let kv = Kv::new();
    kv.prints(&["put", "k", "v"], b"");
    kv.prints(&["dicts", "clone", "main", "copy"], b"");
    kv.prints(&["dicts", "rename", "main", "first"], b"");
    kv.prints(&["put", "--dict", "copy", "k", "changed"], b"");
    assert_eq!(kv.prints(&["dicts", "list"], b""), "copy\nfirst\n");
    assert_eq!(kv.prints(&["get", "--dict", "first", "k"], b""), "v");
    kv.prints(&["dicts", "drop", "copy"], b"");
    assert_eq!(kv.prints(&["dicts", "list"], b""), "first\n");
    assert!(kv.fails(&["dicts", "drop", "copy"], b"").contains("no dictionary \"copy\""));
    assert!(kv.fails(&["dicts", "rename", "first", ""], b"").contains("between 1 and 255"));
    assert!(kv.fails(&["dicts", "create", "first"], b"").contains("\"first\" already"));
}

#[test]
fn a_store_is_copied_and_checked() {
    let kv = Kv::new();
    let mut csv = String::new();
    (0..20_000).for_each(|i| csv += &format!("{i:05},{}\n", "v".repeat(200)));
    kv.prints(&["load"], csv.as_bytes());
    let copy = kv.path("copy");
    let told = kv.prints(&["backup", text(&copy)], b"");
    assert!(
        told.starts_with("copied 20000 pairs, ") && told.ends_with(&format!("to {}\n", text(&copy))),
        "{told}"
    );
    assert!(kv.fails(&["backup", text(&copy)], b"").contains("already"));
    let copied = Kv { folder: tempfile::tempdir().unwrap(), file: copy };
    assert_eq!(copied.prints(&["dump"], b""), csv);
    assert_eq!(copied.prints(&["check"], b""), format!("{}: no problem found\n", text(&copied.file)));
    damage(&copied.file);
    let damaged = copied.run(&["check"], b"");
    assert_eq!(damaged.status.code(), Some(1));
    assert!(!damaged.stdout.is_empty());
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("problem"));
}

#[test]
fn values_expire_at_the_time_that_was_given() {
    let kv = Kv::new();
    kv.prints(&["put", "past", "v", "--until", "2001-02-03T04:05:06Z"], b"");
    kv.prints(&["put", "far", "v", "--until", "2200-02-03T04:05:06.5Z"], b"");
    kv.prints(&["put", "soon", "v", "--for", "1 day 12h"], b"");
    kv.prints(&["put", "stays", "a,b"], b"");
    assert!(kv.fails(&["get", "past"], b"").contains("no key"));
    assert_eq!(kv.prints(&["get", "far", "--expiry"], b""), "2200-02-03T04:05:06.5Z\n");
    assert_eq!(kv.prints(&["get", "stays", "--expiry"], b""), "\n");
    let listed = kv.prints(&["scan", "--expiry"], b"");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[1].starts_with("soon,v,20") && lines[1].ends_with('Z'), "{listed}");
    assert_eq!([lines[0], lines[2]], ["far,v,2200-02-03T04:05:06.5Z", "stays,\"a,b\","], "{listed}");
    assert_eq!(kv.prints(&["scan", "--reverse", "--limit", "1", "--expiry"], b""), "stays,\"a,b\",\n");
    kv.prints(&["dicts", "create", "counts", "--merge", "betree.add_u64", "--expiring"], b"");
    kv.prints(&["put", "--dict", "counts", "k", "12345678", "--for", "2h"], b"");
    kv.prints(&["upsert", "--dict", "counts", "k", "1", "--form", "u64"], b"");
    assert_eq!(kv.prints(&["get", "--dict", "counts", "k"], b""), "22345678");
    assert!(kv.prints(&["get", "--dict", "counts", "k", "--expiry"], b"").ends_with("Z\n"));

    kv.prints(&["put", "--dict", "plain", "k", "v"], b"");
    let refused = kv.fails(&["put", "--dict", "plain", "k", "v", "--for", "30s"], b"");
    assert!(refused.contains("was not made for values that expire"), "{refused}");
    let stat = kv.stat();
    let expiring = ["counts", "main", "plain"].map(|name| {
        let dicts = stat["dictionaries"].as_array().unwrap();
        dicts.iter().find(|dict| dict["name"] == name).unwrap()["expiring"].as_bool().unwrap()
    });
    assert_eq!(expiring, [true, true, false]);
    for wrong in [["--for", "soon"], ["--for", "-3s"], ["--until", "tomorrow"]] {
        assert_eq!(kv.run(&["put", "k", "v", wrong[0], wrong[1]], b"").status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(
        kv.run(&["put", "k", "--for", "3s", "--until", "2200-01-01T00:00:00Z"], b"").status.code(),
        Some(2)
    );
}
