//! What each request about a file or directory as a whole requires of its caller, and how a change is made.
//!
//! The kernel does not tell a server through which mount a request came, and does not know which ioctls
//! change something: a process could change by ioctl(2) what it sees through a read-only bind mount. It does
//! check a setxattr(2). So a change is the value of an attribute with the name [`CHANGE`], which nothing
//! stores. A permit proves the same for a request that needs an answer, or comes by the control socket.

use super::ioctl::{
    EMPTY, EMPTY_WITH_SNAPSHOTS, FILL, FOREIGN, GET_FLAGS, GET_VERSION, GET_XATTR, HELD, MAY_RESTORE, PERMIT,
    RESTORE, SET_FLAGS, SET_XATTR, SOURCE, TRIM, USAGE, WRITTEN_BACK,
};
use super::properties::{GET_PROPERTIES, SET_PROPERTIES};
use super::quota::{CLEAR_QUOTA, GET_QUOTA, NEXT_QUOTA};
use super::recompress::{CHECKPOINT, RECOMPRESS};

/// The attribute whose value is a change: its number, then its argument. Set with the flags `XATTR_CREATE`
/// and `XATTR_REPLACE` together, which a server that does not know it refuses with `EINVAL`.
pub const CHANGE: &[u8] = b"system.betrfs.change";

/// What a request requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requires {
    /// No more than the handler checks: an ioctl that only reads, or syncs.
    Nothing,
    /// `CAP_SYS_ADMIN`, or the user who mounted: an ioctl that changes nothing that users see.
    Administration,
    /// That the kernel has checked the mount and the owner, as it does for the ioctls of chattr(1).
    CheckByKernel,
    /// A mount for writing, by [`CHANGE`]: it is not an ioctl.
    Change,
    /// A mount for writing, by a permit in the argument, unless it only counts: an ioctl.
    Permit,
}

/// What the request with a number requires; `None` for a number that is not in use.
pub fn requires(cmd: u32) -> Option<Requires> {
    Some(match cmd {
        SOURCE | WRITTEN_BACK | USAGE | HELD | FOREIGN | MAY_RESTORE | GET_FLAGS | GET_VERSION
        | GET_XATTR | GET_PROPERTIES | GET_QUOTA | NEXT_QUOTA | CHECKPOINT => Requires::Nothing,
        TRIM => Requires::Administration,
        SET_FLAGS | SET_XATTR => Requires::CheckByKernel,
        FILL | EMPTY | EMPTY_WITH_SNAPSHOTS | RESTORE | CLEAR_QUOTA | SET_PROPERTIES | PERMIT => {
            Requires::Change
        }
        RECOMPRESS => Requires::Permit,
        _ => return None,
    })
}

/// Encodes a change.
pub fn change_bytes(cmd: u32, argument: &[u8]) -> Vec<u8> {
    [&cmd.to_le_bytes(), argument].concat()
}

/// Decodes a change: its number and its argument.
pub fn change_of(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (cmd, argument) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*cmd), argument))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back() {
        assert_eq!(change_of(&change_bytes(FILL, b"12345678")), Some((FILL, &b"12345678"[..])));
        assert_eq!(change_of(&change_bytes(EMPTY, b"")), Some((EMPTY, &b""[..])));
        assert_eq!(change_of(&[1, 2, 3]), None);
    }

    #[test]
    fn a_number_that_is_not_in_use_has_no_requirement() {
        assert_eq!(requires(EMPTY), Some(Requires::Change));
        assert_eq!((requires(0), requires(u32::MAX)), (None, None));
    }
}
