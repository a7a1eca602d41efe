//! The errors of the library, with place and cause.

use alloc::string::String;

/// The result of the library's calls.
pub type Result<T> = core::result::Result<T, Error>;

/// The errors of the file system. Unless a call says otherwise, nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of that name, or its directory was removed.
    #[error("no such entry")]
    NotFound,
    /// The name is taken.
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
    /// The directory has snapshots, or one is still to be made of it; or that is so of a directory below it,
    /// and everything below was to be removed.
    #[error(
        "snapshots hold the directory: `betrfs snapshot delete` removes one, `betrfs rm-tree --snapshots` all \
         together with the directory"
    )]
    HeldBySnapshots,
    /// A name, a path or the key of a path is over its limit.
    #[error("the name is too long")]
    NameTooLong,
    /// The object is in a snapshot, which cannot be changed.
    #[error("it is in a snapshot, which cannot be changed")]
    InSnapshot,
    /// The flags of the object, or of its directory, forbid it ([`InodeFlags`](crate::InodeFlags)).
    #[error("flags forbid it: `lsattr -d` shows them, `chattr` changes them")]
    Protected,
    /// The caller may not do this.
    #[error("the caller may not do this")]
    NotPermitted,
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The file cannot have one more name.
    #[error("too many links")]
    TooManyLinks,
    /// The volume has not enough room.
    #[error("no space left on the volume")]
    NoSpace,
    /// A quota of a directory above has no room for it.
    #[error("a quota is used up: `betrfs quota get` shows it")]
    QuotaExceeded,
    /// The two places do not count for the same quota: what moves between them is to be copied.
    #[error("the two places are in different quotas")]
    OtherQuota,
    /// What is in a directory changed in ways that could not be followed while it was counted for a quota.
    #[error("what is in it changed while it was counted for a quota: try again")]
    Uncounted,
    /// A file below the directory has a name outside of it too, so that it could not count for its quota.
    #[error("a file in it has a name outside of it too: {name}")]
    LinkedOutside {
        /// The name inside, as a path from the volume's root.
        name: String,
    },
    /// The file would be over the size limit.
    #[error("the file is too large")]
    FileTooLarge,
    /// There is no extended attribute of that name.
    #[error("no such attribute")]
    NoData,
    /// The result does not fit into the caller's room.
    #[error("the result does not fit")]
    RangeTooSmall,
    /// The file system does not offer this.
    #[error("not supported")]
    NotSupported,
    /// The file was removed, or the identity is of an earlier mount.
    #[error("the file is no longer there")]
    Stale,
    /// An object was not found by its inode number among so many names that the search was given up.
    #[error("the search for an inode number was given up after {names} names")]
    SearchGivenUp {
        /// The number of names looked at.
        names: u64,
    },
    /// The object is in use.
    #[error("in use")]
    Busy,
    /// There is nothing at or behind the requested place.
    #[error("no such place in the file")]
    NoSuchPlace,
    /// The volume refuses changes.
    #[error("the volume is read-only: {why}")]
    ReadOnly {
        /// The cause.
        why: String,
    },
    /// The device has no volume that this version can open.
    #[error("this is not a BetrFS volume: {why}")]
    NotAVolume {
        /// How that was found.
        why: String,
    },
    /// Space got short, and the state that was being read was given up for it. The volume is sound.
    #[error(
        "space got so short meanwhile that the state being read was given up for it: free some, or try again"
    )]
    StateGivenUp,
    /// The engine failed: the device, corruption, memory.
    #[error(transparent)]
    Engine(betree::Error),
    /// A stored record or key is of a kind that only later versions of this program know.
    #[error(
        "{at}: it has a {what} {kind:#04x}, which this version does not know: a later version of betrfs made it"
    )]
    UnknownKind {
        /// The path or the key.
        at: String,
        /// The thing of that kind.
        what: &'static str,
        /// The kind.
        kind: u8,
    },
    /// Data from the engine are not what was stored.
    #[error("damaged: {what}: {why}")]
    Damaged {
        /// The path or the key.
        what: String,
        /// The contradiction.
        why: String,
    },
}

impl Error {
    /// Whether it says that what was stored is lost, or that a repair has noted so. A read that fails on the
    /// device may succeed the next time, and is none.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            Error::Damaged { .. } => true,
            Error::Engine(error) => error.is_damage(),
            _ => false,
        }
    }

    /// Whether there is no room, on the volume or on the disk below it.
    pub(crate) fn is_want_of_space(&self) -> bool {
        matches!(self, Error::NoSpace | Error::Engine(betree::Error::DeviceFull(_)))
    }

    /// Whether it says that a repair has noted the loss of what was asked for.
    pub fn is_known_damage(&self) -> bool {
        matches!(self, Error::Engine(error) if error.is_known_damage())
    }

    /// Whether a query would have had to wait for the device, and was not to.
    pub(crate) fn is_not_in_memory(&self) -> bool {
        *self == Error::Engine(betree::Error::NotInMemory)
    }
}

/// How the upserts of a `betree-store` begin their description.
const STORE: &str = "`betree-store` ";

impl From<betree::Error> for Error {
    fn from(error: betree::Error) -> Error {
        match error {
            betree::Error::NoSpace => Error::NoSpace,
            betree::Error::ReadOnly { why } => Error::ReadOnly { why },
            betree::Error::KeyTooLong { .. } => Error::NameTooLong,
            betree::Error::NotAVolume { why } => Error::NotAVolume { why },
            betree::Error::OtherUpsert { made_with, .. } if made_with.starts_with(STORE) => {
                Error::NotAVolume { why: "it is a key-value store: use `betrfs kv`".into() }
            }
            betree::Error::ViewEnded => Error::StateGivenUp,
            other => Error::Engine(other),
        }
    }
}
