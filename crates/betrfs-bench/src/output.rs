//! What is printed and told.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Prints a line, or several. That whoever reads it has seen enough is no failure.
///
/// # Errors
/// What is printed cannot be written.
pub fn print(text: impl Display) -> Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Tells a line on standard error. Whoever undoes things or keeps figures goes on where nobody reads any more.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
