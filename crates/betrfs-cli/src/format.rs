//! Output: text or JSON on standard output.

use std::fmt::Display;
use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// The forms of output on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON document, for programs
    Json,
}

/// The version of all JSON documents: it grows when a field goes or changes its meaning; fields may be added.
/// `docs/schemas` has a schema of each.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, D> {
    schema_version: u32,
    #[serde(flatten)]
    document: &'a D,
}

/// Prints a document with named fields as JSON, behind the version of its form.
pub fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    print(serde_json::to_string_pretty(&Versioned { schema_version: SCHEMA_VERSION, document })?)
}

/// A sentence with names of files, on one line: a name may have line breaks, and what a terminal obeys.
pub fn on_one_line(sentence: &str) -> String {
    let mut line = String::with_capacity(sentence.len());
    for c in sentence.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Prints one or more lines on standard output. A closed pipe is no failure; any other write error is one.
pub fn print(text: impl Display) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}
