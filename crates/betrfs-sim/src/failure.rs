//! What can be wrong with a step.

use betree::Error;

/// Why a step was not as it should be.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The engine said or kept something wrong.
    Wrong(String),
    /// The engine failed, which is right only where the disk did or the volume is full.
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
