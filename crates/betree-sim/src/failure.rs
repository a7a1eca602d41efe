//! Failures of steps.

use betree::Error;

/// Why a step failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The engine returned or kept something wrong.
    Wrong(String),
    /// The engine returned an error, which is right only if the disk failed or the volume is full.
    Engine(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Wrong(what) => f.write_str(what),
            Failure::Engine(error) => write!(f, "the engine failed: {error}"),
        }
    }
}

/// A [`Failure::Wrong`] as a result.
pub(crate) fn wrong<T>(what: String) -> Result<T, Failure> {
    Err(Failure::Wrong(what))
}
