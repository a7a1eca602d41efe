//! The examples do what they say, on stores in temporary files.
#![allow(clippy::unwrap_used)]
// The tests call `run` of each example, which has a `main` only for `cargo run --example`.

use std::error::Error;
use std::io::Write;
use std::path::Path;

#[path = "../examples/branch.rs"]
mod branch;
#[path = "../examples/counters.rs"]
mod counters;
#[path = "../examples/documents.rs"]
mod documents;
#[path = "../examples/queue.rs"]
mod queue;
#[path = "../examples/time_series.rs"]
mod time_series;

type Run = fn(&Path, &mut dyn Write) -> Result<(), Box<dyn Error>>;

/// What an example prints.
fn printed(run: Run) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    run(&dir.path().join("store"), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_queue_goes_on_after_the_end_of_its_program() {
    let expected = "done before the crash: Some(b\"sweep\")\nresults: 3, jobs left: 0\n";
    assert_eq!(printed(queue::run), expected);
}

#[test]
fn counters_are_added_to_without_a_query() {
    let expected = "queries of 12000 additions: 0\nvisits of all pages: 12000\n";
    assert_eq!(printed(counters::run), expected);
}

#[test]
fn an_index_belongs_to_its_documents_in_each_view() {
    let expected = "documents: 20, by author: 20\nviews in which they differed: 0\n";
    assert_eq!(printed(documents::run), expected);
}

#[test]
fn months_of_a_series_are_deleted_at_once() {
    let expected = "reads of the deletion: 0\nleft: 2016 of 4032\n2026-06-28T23 23\n2026-06-28T22 23\n";
    assert_eq!(printed(time_series::run), expected);
}

#[test]
fn a_branch_is_taken_or_thrown_away() {
    let expected = "less 50: an article would cost less than nothing\n\
                    less 5: article 7 costs 12, until now 17\n\
                    [\"prices\"]: article 7 costs 12\n";
    assert_eq!(printed(branch::run), expected);
}
