//! The examples do what they say, on volumes in temporary files.
#![allow(clippy::unwrap_used)]
// The tests call `run` of each example, which has a `main` only for `cargo run --example`.

#[path = "../examples/notes.rs"]
mod notes;
#[path = "../examples/sandbox.rs"]
mod sandbox;

/// What an example prints.
macro_rules! printed {
    ($run:path) => {{
        let dir = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        $run(&dir.path().join("volume"), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }};
}

#[test]
fn notes_are_branched_and_read() {
    let mut lines: Vec<String> = printed!(notes::run).lines().map(str::to_owned).collect();
    lines.sort();
    let expected = [
        "/draft/2026/monday: 2 to call",
        "/draft/2026/tuesday: 1 to call",
        "/notes/2026/monday: 1 to call",
        "/notes/2026/tuesday: 1 to call",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_change_that_fails_is_thrown_away() {
    let expected =
        "bad: cannot rename style to style.css: no such entry\ngood: published\nthe site has version 2\n";
    assert_eq!(printed!(sandbox::run), expected);
}
