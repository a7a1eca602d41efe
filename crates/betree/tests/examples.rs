//! The examples run on volumes in temporary files, and print the expected lines.
#![allow(clippy::unwrap_used)]
// The tests call `run` of each example, which has a `main` only for `cargo run --example`.

use std::error::Error;
use std::io::Write;
use std::path::Path;

#[path = "../examples/batches.rs"]
mod batches;
#[path = "../examples/counter.rs"]
mod counter;
#[path = "../examples/first_steps.rs"]
mod first_steps;
#[path = "../examples/ranges.rs"]
mod ranges;

type Run = fn(&Path, &mut dyn Write) -> Result<(), Box<dyn Error>>;

/// The output of an example.
fn printed(run: Run) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    run(&dir.path().join("volume"), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn first_steps_finds_its_pairs_after_opening_again() {
    let expected = "a banana is yellow\nbanana: yellow\ncherry: red\n";
    assert_eq!(printed(first_steps::run), expected);
}

#[test]
fn batches_survive_the_end_of_a_process() {
    let expected = "replayed batches: 1\norder 1: three plums\nin the index: true\n";
    assert_eq!(printed(batches::run), expected);
}

#[test]
fn counters_are_added_to_without_a_query() {
    let expected = "queries of the additions: 0\nvisits of page 0: 3334\n";
    assert_eq!(printed(counter::run), expected);
}

#[test]
fn ranges_are_cloned_and_deleted_whole() {
    let expected = "src/ has 20000, copy/ has 20000\n\
                    the clone wrote less than 300 kB of 2 MB: true\n\
                    src/ has 0, copy/ has 20000\n";
    assert_eq!(printed(ranges::run), expected);
}
