//! Requests to a mount by ioctl(2) about the quotas of directories: numbers and arguments.

use betrfs::{Quota, QuotaLimits, QuotaUse};
use rustix::ioctl::opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// On a directory: returns the quota that it is in; `ENODATA` if there is none.
pub const GET_QUOTA: u32 = opcode::read::<QuotaBytes>(b'B', 13);
/// On a directory: takes its quota away; `ENODATA` if it has none.
pub const CLEAR_QUOTA: u32 = opcode::none(b'B', 15);
/// On a directory, with the place behind which to look: the next directory below it, or itself, that has a
/// quota. `ENODATA` behind the last one, `ENAMETOOLONG` if its path does not fit.
pub const NEXT_QUOTA: u32 = opcode::read_write::<NextQuota>(b'B', 16);

/// Bytes for a path in a request about quotas.
pub const PATH_BYTES: usize = 16_000;

/// A number that stands for no limit.
const ANY: u64 = u64::MAX;

/// A quota.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QuotaBytes {
    limit_bytes: u64,
    limit_objects: u64,
    used_bytes: u64,
    used_objects: u64,
    levels_up: u64,
}

/// The argument and the answer of [`NEXT_QUOTA`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NextQuota {
    /// The next quota.
    pub quota: QuotaBytes,
    /// 1 if `path` is that of the last one, 0 to begin.
    pub has_last: u64,
    /// The path of the last directory, then of the next, relative to the one that is asked, ended by a zero
    /// byte; empty for that one itself.
    pub path: [u8; PATH_BYTES],
}

impl QuotaBytes {
    fn limits(self) -> QuotaLimits {
        let limit = |number| (number != ANY).then_some(number);
        QuotaLimits { bytes: limit(self.limit_bytes), objects: limit(self.limit_objects) }
    }
}

impl From<Quota> for QuotaBytes {
    fn from(quota: Quota) -> QuotaBytes {
        let Quota { limits, used, levels_up } = quota;
        QuotaBytes {
            limit_bytes: limits.bytes.unwrap_or(ANY),
            limit_objects: limits.objects.unwrap_or(ANY),
            used_bytes: used.bytes,
            used_objects: used.objects,
            levels_up,
        }
    }
}

impl From<QuotaBytes> for Quota {
    fn from(bytes: QuotaBytes) -> Quota {
        let used = QuotaUse { bytes: bytes.used_bytes, objects: bytes.used_objects };
        Quota { limits: bytes.limits(), used, levels_up: bytes.levels_up }
    }
}

/// A path in its place, ended by a zero byte; `None` if it does not fit.
pub fn path_bytes(path: &[u8]) -> Option<[u8; PATH_BYTES]> {
    let mut bytes = [0; PATH_BYTES];
    bytes.get_mut(..PATH_BYTES - 1)?.get_mut(..path.len())?.copy_from_slice(path);
    Some(bytes)
}

/// The path in its place.
pub fn path_of(bytes: &[u8; PATH_BYTES]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_and_paths_come_back_and_what_does_not_fit_is_refused() {
        let used = QuotaUse { bytes: 5, objects: 6 };
        for limits in [QuotaLimits::default(), QuotaLimits { bytes: Some(0), objects: Some(7) }] {
            let quota = Quota { limits, used, levels_up: 3 };
            assert_eq!(Quota::from(QuotaBytes::from(quota)), quota);
        }
        let longest = [b'n'; PATH_BYTES - 1];
        for path in [&b""[..], b"a/b", &longest] {
            assert_eq!(path_of(&path_bytes(path).unwrap()), path);
        }
        assert_eq!(path_bytes(&[b'n'; PATH_BYTES]), None);
    }
}
