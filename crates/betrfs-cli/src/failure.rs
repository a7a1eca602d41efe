//! Why a command fails, and what is told of it.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use rustix::io::Errno;

/// A sentence for whoever gave the command: what failed, where, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    kind: Kind,
}

/// What a failure is about, as far as exit codes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A volume was found damaged, and nothing else failed.
    Damage,
    /// The user may not do it.
    Permission,
    /// The system has too little of something: memory, processes, open files.
    System,
    /// The user has interrupted it.
    Interrupted,
    /// The command line is wrong.
    Usage,
    /// Anything else.
    Other,
}

impl Kind {
    /// All kinds, each told by its place.
    pub const ALL: [Kind; 6] =
        [Kind::Damage, Kind::Permission, Kind::System, Kind::Interrupted, Kind::Usage, Kind::Other];
}

/// How a command ends.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with the sentence to print.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure::of(Kind::Other, sentence)
    }

    /// A failure of a kind.
    pub fn of(kind: Kind, sentence: impl Into<String>) -> Failure {
        Failure { sentence: sentence.into(), kind }
    }

    /// A volume was found damaged.
    pub fn damage(sentence: impl Into<String>) -> Failure {
        Failure::of(Kind::Damage, sentence)
    }

    /// What it is about.
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

/// The system's error number in an error, or in what has caused it.
fn errno_in(error: &(dyn Error + 'static)) -> Option<Errno> {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let number = |error: &(dyn Error + 'static)| match error.downcast_ref::<io::Error>() {
        Some(error) => error.raw_os_error().map(Errno::from_raw_os_error),
        None => error.downcast_ref::<Errno>().copied(),
    };
    causes.into_iter().find_map(number)
}

/// What an error number is about, and what to do where there is too little of something.
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

/// Tells on standard error what is not as it should be, and no reason to stop.
pub fn warn(sentence: &str) {
    // Whoever cannot be told is not.
    let _ = writeln!(std::io::stderr(), "betrfs: warning: {sentence}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_system_lacks_is_told_with_the_way_out() {
        let failure = Failure::from(io::Error::from(Errno::MFILE));
        assert!(failure.kind() == Kind::System && failure.to_string().contains("ulimit -n"));
        let inner = betrfs_fuse::MountError::Io { doing: "start threads", source: Errno::AGAIN.into() };
        let failure = Failure::from(inner);
        assert!(failure.kind() == Kind::System && failure.to_string().contains("ulimit -u"), "{failure}");
        assert_eq!(Failure::from(Errno::PERM).kind(), Kind::Permission);
        assert_eq!(Failure::from(fmt::Error).kind(), Kind::Other);
    }
}
