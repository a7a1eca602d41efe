//! Why an operation is refused.

use betrfs::Error;
use betrfs_fuse::Errno;

/// The kind of an error of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in `betrfs::Error`")]
pub enum Why {
    NotFound,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    HeldBySnapshots,
    InSnapshot,
    Protected,
    Invalid,
    NoData,
    NotSupported,
    Stale,
    NoSuchPlace,
    FileTooLarge,
    RangeTooSmall,
    NoSpace,
    QuotaExceeded,
    OtherQuota,
    LinkedOutside,
    /// An error that no rule of the file system explains: of the device, or a damage.
    Other,
}

impl Why {
    /// The kind of an error.
    pub fn of(error: &Error) -> Why {
        match error {
            Error::NotFound => Why::NotFound,
            Error::Exists => Why::Exists,
            Error::NotADirectory => Why::NotADirectory,
            Error::IsADirectory => Why::IsADirectory,
            Error::NotEmpty => Why::NotEmpty,
            Error::HeldBySnapshots => Why::HeldBySnapshots,
            Error::InSnapshot => Why::InSnapshot,
            Error::Protected => Why::Protected,
            Error::Invalid(_) => Why::Invalid,
            Error::NoData => Why::NoData,
            Error::NotSupported => Why::NotSupported,
            Error::Stale => Why::Stale,
            Error::NoSuchPlace => Why::NoSuchPlace,
            Error::FileTooLarge => Why::FileTooLarge,
            Error::RangeTooSmall => Why::RangeTooSmall,
            Error::NoSpace => Why::NoSpace,
            Error::QuotaExceeded => Why::QuotaExceeded,
            Error::OtherQuota => Why::OtherQuota,
            Error::LinkedOutside { .. } => Why::LinkedOutside,
            _ => Why::Other,
        }
    }
}

impl Why {
    /// The error number by which a mount tells it.
    pub fn errno(self) -> Errno {
        match self {
            Why::NotFound => Errno::NOENT,
            Why::Exists => Errno::EXIST,
            Why::NotADirectory => Errno::NOTDIR,
            Why::IsADirectory => Errno::ISDIR,
            Why::NotEmpty => Errno::NOTEMPTY,
            Why::HeldBySnapshots => Errno::BUSY,
            Why::InSnapshot => Errno::ROFS,
            Why::Protected => Errno::PERM,
            Why::Invalid => Errno::INVAL,
            Why::NoData => Errno::NODATA,
            Why::NotSupported => Errno::OPNOTSUPP,
            Why::Stale => Errno::STALE,
            Why::NoSuchPlace => Errno::NXIO,
            Why::FileTooLarge => Errno::FBIG,
            Why::RangeTooSmall => Errno::RANGE,
            Why::NoSpace => Errno::NOSPC,
            Why::QuotaExceeded => Errno::DQUOT,
            Why::OtherQuota | Why::LinkedOutside => Errno::XDEV,
            Why::Other => Errno::IO,
        }
    }
}

/// An operation that does not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// With an error of one of these kinds.
    With(Vec<Why>),
    /// The model does not say what the operation does; a history leaves it out.
    Unsaid,
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Refusal {
        Refusal::With(vec![why])
    }
}

/// Refuses with an error of this kind if `is_so`.
pub fn refuse_if(is_so: bool, why: Why) -> Result<(), Refusal> {
    if is_so { Err(why.into()) } else { Ok(()) }
}
