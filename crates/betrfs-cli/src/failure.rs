//! Why a command ends with exit code 1.

use std::fmt;
use std::io::Write;

/// A sentence for whoever gave the command: what failed, where, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    is_damage: bool,
}

/// How a command ends.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with the sentence to print.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), is_damage: false }
    }

    /// A volume was found damaged.
    pub fn damage(sentence: impl Into<String>) -> Failure {
        Failure { is_damage: true, ..Failure::new(sentence) }
    }

    /// Whether a volume was found damaged, and nothing else failed.
    pub fn is_damage(&self) -> bool {
        self.is_damage
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}

/// Tells on standard error what is not as it should be, and no reason to stop.
pub fn warn(sentence: &str) {
    // Whoever cannot be told is not.
    let _ = writeln!(std::io::stderr(), "betrfs: warning: {sentence}");
}
