//! `betrfs kv`: pairs of a store file from the command line.
#![forbid(unsafe_code)]
// Also in helpers outside of `#[test]` functions.
#![allow(clippy::unwrap_used)]

use std::io::Write;
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
    let stat: serde_json::Value =
        serde_json::from_str(&kv.prints(&["stat", "--format", "json"], b"")).unwrap();
    assert_eq!(stat["dictionaries"][1]["name"], "other");
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
fn a_wrong_line_is_told_and_what_stands_before_it_is_loaded() {
    let kv = Kv::new();
    let told = kv.fails(&["load"], b"a,1\nb,2\nc\nd,4\n");
    assert_eq!(told, "betrfs: standard input, line 3: it has no comma; the 2 pairs before it are loaded\n");
    assert_eq!(kv.prints(&["dump"], b""), "a,1\nb,2\n");
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
    store.close().unwrap();
    let told = kv.fails(&["stat"], b"");
    assert!(told.contains("\"last\": the merge \"replace\" is not registered"), "{told}");
}
