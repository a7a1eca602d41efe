//! What can go wrong, with where and why.

use alloc::string::String;

/// The result of the library's calls.
pub type Result<T> = core::result::Result<T, Error>;

/// What can go wrong in the file system. Unless it says otherwise, nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of that name, or its directory was removed.
    #[error("no such entry")]
    NotFound,
    /// There is an entry of that name already.
    #[error("the entry exists")]
    Exists,
    /// The operation needs a directory.
    #[error("not a directory")]
    NotADirectory,
    /// The operation is not for directories.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The directory has snapshots, or one below it has where all of that was to go.
    #[error(
        "snapshots hold the directory: `betrfs snapshot delete` removes one, `betrfs rm-tree --snapshots` all \
         together with the directory"
    )]
    HeldBySnapshots,
    /// A name, a path or the key of a path is over its limit.
    #[error("the name is too long")]
    NameTooLong,
    /// It is in a snapshot, which cannot be changed.
    #[error("it is in a snapshot, which cannot be changed")]
    InSnapshot,
    /// An argument makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file cannot have one more name.
    #[error("too many links")]
    TooManyLinks,
    /// No room for what was asked.
    #[error("no space left on the volume")]
    NoSpace,
    /// The file would be larger than files can be.
    #[error("the file is too large")]
    FileTooLarge,
    /// There is no extended attribute of that name.
    #[error("no such attribute")]
    NoData,
    /// The caller's room does not suffice for the result.
    #[error("the result does not fit")]
    RangeTooSmall,
    /// The file system does not offer this.
    #[error("not supported")]
    NotSupported,
    /// The file was removed, or the identity is of an earlier mount.
    #[error("the file is no longer there")]
    Stale,
    /// The object is in use.
    #[error("in use")]
    Busy,
    /// There is nothing at or behind the place that was asked for.
    #[error("no such place in the file")]
    NoSuchPlace,
    /// The volume takes no changes.
    #[error("the volume is read-only: {why}")]
    ReadOnly {
        /// The cause.
        why: String,
    },
    /// The device holds no such volume.
    #[error("this is not a BetrFS volume: {why}")]
    NotAVolume {
        /// How that was seen.
        why: String,
    },
    /// The engine failed: the device, corruption, memory.
    #[error(transparent)]
    Engine(betree::Error),
    /// What is stored is of a kind that only later versions of this program know.
    #[error("{at}: it has a {what} {kind:#04x}, which this version does not know")]
    UnknownKind {
        /// The path or the key.
        at: String,
        /// What has the kind.
        what: &'static str,
        /// The kind.
        kind: u8,
    },
    /// What the engine gave back cannot be what was stored.
    #[error("damaged: {what}: {why}")]
    Damaged {
        /// The path or the key.
        what: String,
        /// What does not fit.
        why: String,
    },
}

impl From<betree::Error> for Error {
    fn from(error: betree::Error) -> Error {
        match error {
            betree::Error::NoSpace => Error::NoSpace,
            betree::Error::ReadOnly { why } => Error::ReadOnly { why },
            betree::Error::KeyTooLong { .. } => Error::NameTooLong,
            betree::Error::NotAVolume { why } => Error::NotAVolume { why },
            other => Error::Engine(other),
        }
    }
}
