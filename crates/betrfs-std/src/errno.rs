//! Conversion of the library's errors to error numbers of the system, in this one place.

use betrfs::Error;
pub use rustix::io::Errno;

/// The error number for a failure of the library, as a mount reports it.
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotADirectory => Errno::NOTDIR,
        Error::IsADirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::Invalid(_) => Errno::INVAL,
        Error::TooManyLinks => Errno::MLINK,
        Error::NoSpace | Error::StateGivenUp => Errno::NOSPC,
        Error::QuotaExceeded => Errno::DQUOT,
        Error::OtherQuota | Error::LinkedOutside { .. } => Errno::XDEV,
        Error::Uncounted => Errno::AGAIN,
        Error::FileTooLarge => Errno::FBIG,
        Error::NoData => Errno::NODATA,
        Error::RangeTooSmall => Errno::RANGE,
        Error::NotSupported => Errno::OPNOTSUPP,
        Error::Stale | Error::SearchGivenUp { .. } => Errno::STALE,
        Error::Busy | Error::HeldBySnapshots => Errno::BUSY,
        Error::NoSuchPlace => Errno::NXIO,
        Error::ReadOnly { .. } | Error::InSnapshot => Errno::ROFS,
        Error::Protected | Error::NotPermitted => Errno::PERM,
        Error::Engine(error) => engine(error),
        // All others are failures of the volume.
        _ => Errno::IO,
    }
}

fn engine(error: &betree::Error) -> Errno {
    match error {
        betree::Error::NoSpace | betree::Error::DeviceFull(_) => Errno::NOSPC,
        betree::Error::Device(error) if error.is_full() => Errno::NOSPC,
        betree::Error::ReadOnly { .. } => Errno::ROFS,
        betree::Error::Forked { .. } => Errno::BADF,
        betree::Error::KeyTooLong { .. } => Errno::NAMETOOLONG,
        betree::Error::TooLarge { .. } | betree::Error::TooHigh { .. } => Errno::OVERFLOW,
        betree::Error::NoMemory { .. } => Errno::NOMEM,
        _ => Errno::IO,
    }
}
