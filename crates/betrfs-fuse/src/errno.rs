//! The classes of failures that the mount treats in different ways.

use betrfs::Error;
pub use betrfs_std::{Errno, errno};

/// Whether the volume or its device failed, so that the error belongs in the log as well as in the answer.
pub fn is_alarming(error: &Error) -> bool {
    errno(error) == Errno::IO
}

/// Whether the volume is read-only because a write or sync of it failed.
pub fn is_of_read_only(error: &Error) -> bool {
    matches!(error, Error::ReadOnly { .. } | Error::Engine(betree::Error::ReadOnly { .. }))
}

/// Whether data on the volume is damaged.
pub fn is_damage(error: &Error) -> bool {
    use betree::Error::{BadRecord, Corrupt, KnownDamage};
    let is_contradiction = matches!(
        error,
        Error::Damaged { .. } | Error::Engine(Corrupt { .. } | KnownDamage { .. } | BadRecord)
    );
    is_contradiction || is_truncated(error)
}

/// Whether the device is shorter than the volume: no repair mends that, and the error says what does.
pub fn is_truncated(error: &Error) -> bool {
    matches!(error, Error::Engine(betree::Error::Truncated { .. }))
}

/// Whether an answer means that the server is dead or dying.
pub(crate) fn is_dead(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_volume_are_alarming() {
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
            (Error::from(betree::Error::ViewEnded), Errno::NOSPC),
            (Error::from(betree::Error::NoMemory { bytes: 1 }), Errno::NOMEM),
            (Error::from(betree::Error::ReadOnly { why: String::new() }), Errno::ROFS),
        ] {
            assert_eq!((errno(&error), is_alarming(&error)), (number, false));
        }
    }
}
