//! Failures of commands, and their messages.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use rustix::io::Errno;

use crate::plain_text::in_lines;

/// A failure with a sentence for the user: what failed, where, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    kind: Kind,
}

/// The kinds of failure that exit codes distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A volume was found damaged, and nothing else failed.
    Damage,
    /// The user lacks permission.
    Permission,
    /// The system is out of memory, processes or open files.
    System,
    /// The user interrupted it.
    Interrupted,
    /// The command line is wrong.
    Usage,
    /// Anything else.
    Other,
    /// A part of a volume could not be copied out, and all else was.
    Missing,
    /// A volume was damaged, and is repaired.
    Mended,
    /// A volume was damaged, and is repaired in part.
    MendedInPart,
}

impl Kind {
    /// All kinds; a server's announcement names one by its index.
    pub const ALL: [Kind; 9] = [
        Kind::Damage,
        Kind::Permission,
        Kind::System,
        Kind::Interrupted,
        Kind::Usage,
        Kind::Other,
        Kind::Missing,
        Kind::Mended,
        Kind::MendedInPart,
    ];
}

/// The outcome of a command.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with the sentence to print.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure::of(Kind::Other, sentence)
    }

    /// A failure of this kind.
    pub fn of(kind: Kind, sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), kind }
    }

    /// The volume was found damaged.
    pub fn damage(sentence: impl Into<String>) -> Failure {
        Failure::of(Kind::Damage, sentence)
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let kind_and_way_out = errno_in(&error).map(judge);
        let (kind, way_out) = kind_and_way_out.unwrap_or((Kind::Other, ""));
        Failure::of(kind, format!("{error}{way_out}"))
    }
}

/// The system's error number in an error or its causes.
fn errno_in(error: &(dyn Error + 'static)) -> Option<Errno> {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let number = |error: &(dyn Error + 'static)| match error.downcast_ref::<io::Error>() {
        Some(error) => error.raw_os_error().map(Errno::from_raw_os_error),
        None => error.downcast_ref::<Errno>().copied(),
    };
    causes.into_iter().find_map(number)
}

/// The kind for an error number, and the advice to add to the sentence.
fn judge(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::MFILE => (Kind::System, "; raise the limit of open files (`ulimit -n`)"),
        Errno::NFILE => (Kind::System, "; the whole machine has too many files open (fs.file-max)"),
        Errno::AGAIN => {
            (Kind::System, "; raise the limit of processes (`ulimit -u`, or pids.max of the control group)")
        }
        Errno::NOMEM => (Kind::System, "; there is too little memory for it"),
        Errno::PERM | Errno::ACCESS => (Kind::Permission, ""),
        _ => (Kind::Other, ""),
    }
}

/// Prints a warning on standard error.
pub fn warn(sentence: &str) {
    say(&format!("warning: {sentence}"));
}

/// Prints a sentence on standard error, in which names of files are not obeyed by a terminal.
pub fn say(sentence: &str) {
    // A failure to print is ignored.
    let _ = writeln!(std::io::stderr(), "betrfs: {}", in_lines(sentence));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_resources_is_named_with_the_way_out() {
        let failure = Failure::from(io::Error::from(Errno::MFILE));
        assert!(failure.kind() == Kind::System && failure.to_string().contains("ulimit -n"));
        let inner = betrfs_fuse::MountError::Io { doing: "start threads", source: Errno::AGAIN.into() };
        let failure = Failure::from(inner);
        assert!(failure.kind() == Kind::System && failure.to_string().contains("ulimit -u"), "{failure}");
        assert_eq!(Failure::from(Errno::PERM).kind(), Kind::Permission);
        assert_eq!(Failure::from(fmt::Error).kind(), Kind::Other);
    }
}
