//! Why a command ends with exit code 1.

use std::fmt;

/// A sentence for whoever gave the command: what failed, where, and what to do about it.
#[derive(Debug)]
pub struct Failure(String);

/// How a command ends.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with the sentence to print.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}
