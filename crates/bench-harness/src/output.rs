//! Output: results to standard output, progress and warnings to standard error.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Prints a line, or several. A reader that has closed its end is no error.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: impl Display) -> Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints a line on standard error. Errors are ignored: cleaning up, and saving figures, must go on.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
