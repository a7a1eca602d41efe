//! How data is printed.

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// The forms of what is printed on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON document, for programs
    Json,
}

/// Prints a document as JSON.
pub fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(document)?);
    Ok(())
}
