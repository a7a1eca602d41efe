//! The one place where a failure of the library becomes an error number of the kernel.

use betrfs::Error;
pub use rustix::io::Errno;

/// What the kernel is told of a failure.
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
        Error::NoSpace => Errno::NOSPC,
        Error::FileTooLarge => Errno::FBIG,
        Error::NoData => Errno::NODATA,
        Error::RangeTooSmall => Errno::RANGE,
        Error::NotSupported => Errno::OPNOTSUPP,
        Error::Stale => Errno::STALE,
        Error::Busy | Error::HeldBySnapshots => Errno::BUSY,
        Error::NoSuchPlace => Errno::NXIO,
        Error::ReadOnly { .. } | Error::InSnapshot => Errno::ROFS,
        Error::Engine(error) => engine(error),
        // What has no error number of its own is trouble with the volume.
        _ => Errno::IO,
    }
}

fn engine(error: &betree::Error) -> Errno {
    match error {
        betree::Error::NoSpace | betree::Error::DeviceFull(_) => Errno::NOSPC,
        betree::Error::Device(error) if error.is_full() => Errno::NOSPC,
        betree::Error::ReadOnly { .. } => Errno::ROFS,
        betree::Error::KeyTooLong { .. } => Errno::NAMETOOLONG,
        betree::Error::TooLarge { .. } | betree::Error::TooHigh { .. } => Errno::OVERFLOW,
        betree::Error::NoMemory { .. } => Errno::NOMEM,
        _ => Errno::IO,
    }
}

/// Whether a failure says that the volume or its device is in trouble, so that it belongs in the
/// log and not only in the answer to whoever asked.
pub fn is_alarming(error: &Error) -> bool {
    errno(error) == Errno::IO
}

/// Whether a failure says that the volume takes no changes any more since a write or sync of it failed.
pub fn is_of_read_only(error: &Error) -> bool {
    matches!(error, Error::ReadOnly { .. } | Error::Engine(betree::Error::ReadOnly { .. }))
}

/// Whether a failure says that what is on a volume is not what was written to it.
pub fn is_damage(error: &Error) -> bool {
    use betree::Error::{BadRecord, Corrupt};
    matches!(error, Error::Damaged { .. } | Error::Engine(Corrupt { .. } | BadRecord))
}

/// Whether an answer tells of a server that is dead, or dying just now.
pub(crate) fn is_dead(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_with_the_volume_is_alarming() {
        let damaged = Error::Damaged { what: "/a".into(), why: "a block is missing".into() };
        assert_eq!((errno(&damaged), is_alarming(&damaged), is_damage(&damaged)), (Errno::IO, true, true));
        let device = betree::Error::Device(betree_platform::DeviceError {
            op: betree_platform::DeviceOp::Read,
            offset: 0,
            len: 4096,
            errno: 5,
        });
        let device = Error::from(device);
        assert!(is_alarming(&device) && !is_damage(&device));
        for (error, number) in [
            (Error::NotFound, Errno::NOENT),
            (Error::NameTooLong, Errno::NAMETOOLONG),
            (Error::from(betree::Error::NoSpace), Errno::NOSPC),
            (Error::from(betree::Error::NoMemory { bytes: 1 }), Errno::NOMEM),
            (Error::from(betree::Error::ReadOnly { why: String::new() }), Errno::ROFS),
        ] {
            assert_eq!((errno(&error), is_alarming(&error)), (number, false));
        }
    }
}
