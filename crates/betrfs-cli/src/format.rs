//! Output: text or JSON on standard output.
//!
//! Anybody may have chosen the names in it. Text never has a control character of a name, on a terminal or in
//! a pipe, whose end may be a terminal; nor has JSON, which escapes it. Only a command that prints nothing
//! but names, one a line, prints them byte for byte where standard output is no terminal.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;
use crate::plain_text::{in_lines, json_escaped, on_one_line};

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
    let text = serde_json::to_string_pretty(&Versioned { schema_version: SCHEMA_VERSION, document })?;
    print(json_escaped(&text))
}

/// Prints one or more lines on standard output, in which a terminal obeys nothing but line breaks and tabs. A
/// closed pipe is no failure; any other write error is one.
pub fn print(text: impl Display) -> Result<(), Failure> {
    judged(writeln!(io::stdout().lock(), "{}", in_lines(&text.to_string())))
}

/// Prints lines that have a form of their own for programs: as they are, unless standard output is a
/// terminal.
pub fn print_for_programs(text: impl Display) -> Result<(), Failure> {
    match io::stdout().is_terminal() {
        true => print(text),
        false => judged(writeln!(io::stdout().lock(), "{text}")),
    }
}

/// Prints a name on a line of its own: for programs byte for byte, on a terminal so that it is one line.
pub fn print_name(name: &OsStr) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    judged(match out.is_terminal() {
        true => writeln!(out, "{}", on_one_line(&name.to_string_lossy())),
        false => out.write_all(name.as_bytes()).and_then(|()| out.write_all(b"\n")),
    })
}

fn judged(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}
