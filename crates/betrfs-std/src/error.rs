//! What can go wrong, with the operation and the paths.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use betree_std::OpenError;

use crate::errno::{Errno, errno};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure: the operation, the paths it was about, and its kind.
///
/// As a [`std::io::Error`] it is the system's error of the same number, with its kind, as `std::fs` returns
/// it; the paths stay behind.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let fs = betrfs_std::Fs::create(folder.path().join("volume"), 32 << 20)?;
/// let error = fs.read("letters/to-ada").unwrap_err();
/// assert_eq!(error.to_string(), "cannot read letters/to-ada: no such entry");
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Failure>);

struct Failure {
    operation: &'static str,
    paths: Vec<PathBuf>,
    kind: ErrorKind,
}

/// Why an operation failed. Unless the operation says otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file system refuses it, or the volume failed.
    #[error(transparent)]
    Volume(#[from] betrfs::Error),
    /// The volume's file or block device cannot be opened or made.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// The permissions of a directory on the way, or of what the operation is about, do not allow it.
    #[error("permission denied")]
    Denied,
    /// The caller must be its owner, or root, or the user who opened the volume.
    #[error("only another user may do that")]
    NotPermitted,
    /// More than 40 symbolic links on the way, or a link where none is to be followed.
    #[error("too many symbolic links")]
    TooManyLinks,
    /// The handle was not opened for reading, or not for writing.
    #[error("the file is not open for that")]
    NotOpenForThat,
    /// The contents are no UTF-8.
    #[error("the contents are no UTF-8")]
    NotText,
    /// The system starts no threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

/// The result of what does not know the operation's name.
pub(crate) type Kinded<T> = std::result::Result<T, ErrorKind>;

impl Error {
    fn new(operation: &'static str, paths: &[&Path], kind: ErrorKind) -> Error {
        Error(Box::new(Failure { operation, paths: paths.iter().map(PathBuf::from).collect(), kind }))
    }

    /// The operation that failed, as `rename`.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The paths as the caller gave them; of a handle the one that it was opened by.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0.paths
    }

    /// Why it failed.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The system's number for it.
    pub fn errno(&self) -> Errno {
        self.0.kind.errno()
    }
}

impl ErrorKind {
    /// The system's number for it, the same as a mount would report.
    pub fn errno(&self) -> Errno {
        match self {
            ErrorKind::Volume(error) => errno(error),
            ErrorKind::Device(OpenError::InUse { .. }) => Errno::BUSY,
            ErrorKind::Device(OpenError::Exists { .. }) => Errno::EXIST,
            ErrorKind::Device(OpenError::WrongKind { .. }) => Errno::INVAL,
            ErrorKind::Device(OpenError::WriteProtected { .. }) => Errno::ROFS,
            ErrorKind::Device(OpenError::Io { source, .. }) | ErrorKind::Threads(source) => {
                source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
            }
            ErrorKind::Denied => Errno::ACCESS,
            ErrorKind::NotPermitted => Errno::PERM,
            ErrorKind::TooManyLinks => Errno::LOOP,
            ErrorKind::NotOpenForThat => Errno::BADF,
            ErrorKind::NotText => Errno::ILSEQ,
        }
    }

    /// Whether there is no such entry.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, ErrorKind::Volume(betrfs::Error::NotFound))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { operation, paths, kind } = &*self.0;
        write!(f, "cannot {operation}")?;
        for (at, path) in paths.iter().enumerate() {
            write!(f, "{} {}", if at > 0 { " to" } else { "" }, path.display())?;
        }
        write!(f, ": {kind}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { operation, paths, kind } = &*self.0;
        f.debug_struct("Error")
            .field("operation", operation)
            .field("paths", paths)
            .field("kind", kind)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.kind)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error.kind() {
            ErrorKind::NotText => io::Error::new(io::ErrorKind::InvalidData, error),
            _ => error.errno().into(),
        }
    }
}

/// Names the operation and the paths of a failure.
pub(crate) trait Context<T> {
    /// Of one path.
    fn of(self, operation: &'static str, path: &Path) -> Result<T>;
    /// Of two.
    fn of_two(self, operation: &'static str, from: &Path, to: &Path) -> Result<T>;
}

impl<T, E: Into<ErrorKind>> Context<T> for std::result::Result<T, E> {
    fn of(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|kind| Error::new(operation, &[path], kind.into()))
    }

    fn of_two(self, operation: &'static str, from: &Path, to: &Path) -> Result<T> {
        self.map_err(|kind| Error::new(operation, &[from, to], kind.into()))
    }
}
