//! Failures of histories.

use betrfs::Error;
use betrfs_fuse::Errno;

use crate::client::Failed;

/// Why a step failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The library did or kept something wrong.
    Wrong(String),
    /// The library returned an error that no rule explains.
    Library(Error),
    /// A request had an error that no rule explains.
    Request(Errno),
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Failure {
        match failed {
            Failed::Library(error) => Failure::Library(error),
            Failed::Request(errno) => Failure::Request(errno),
            Failed::Wrong(what) => Failure::Wrong(what),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Wrong(what) => f.write_str(what),
            Failure::Library(error) => write!(f, "the library failed: {error}"),
            Failure::Request(errno) => write!(f, "a request failed: {errno}"),
        }
    }
}

/// A [`Failure::Wrong`] as a result.
pub(crate) fn wrong<T>(what: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Wrong(what.into()))
}
