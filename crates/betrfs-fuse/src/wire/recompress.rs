//! Requests to a mount by ioctl(2) to write data anew, compressed as wanted now: numbers and arguments.

use betrfs::{Recompress, Recompressed};
use rustix::ioctl::opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// On a file: writes a part of it anew, or counts what would be. See [`betrfs::Volume::recompress`].
pub const RECOMPRESS: u32 = opcode::read_write::<RecompressBytes>(b'B', 17);
/// On a file or directory: makes a checkpoint, so that what is in memory comes to the device.
pub const CHECKPOINT: u32 = opcode::none(b'B', 18);

/// The place behind the last byte of any file.
const END: u64 = u64::MAX;

/// The argument and the answer of [`RECOMPRESS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecompressBytes {
    /// Of the argument the first byte to look at, of the answer the first that was not.
    from: u64,
    /// 0 counts, 1 writes what nothing shares, 2 writes all.
    what: u64,
    /// Of the argument the token of a permit, unless it counts.
    stored_bytes: u64,
    own_bytes: u64,
    shared_bytes: u64,
    written_bytes: u64,
}

impl RecompressBytes {
    /// The argument.
    pub fn argument(from: u64, what: Recompress, permit: u64) -> RecompressBytes {
        let what = match what {
            Recompress::Count => 0,
            Recompress::Own => 1,
            Recompress::OwnAndShared => 2,
        };
        RecompressBytes { from, what, stored_bytes: permit, ..RecompressBytes::default() }
    }

    /// The parts of an argument; `None` for one that this version does not know.
    pub fn parts(&self) -> Option<(u64, Recompress, u64)> {
        let what = match self.what {
            0 => Recompress::Count,
            1 => Recompress::Own,
            2 => Recompress::OwnAndShared,
            _ => return None,
        };
        Some((self.from, what, self.stored_bytes))
    }

    /// The answer.
    pub fn answer(found: &Recompressed) -> RecompressBytes {
        let Recompressed { next, stored_bytes, own_bytes, shared_bytes, written_bytes } = *found;
        let from = next.unwrap_or(END);
        RecompressBytes { from, what: 0, stored_bytes, own_bytes, shared_bytes, written_bytes }
    }
}

impl From<RecompressBytes> for Recompressed {
    fn from(answer: RecompressBytes) -> Recompressed {
        let RecompressBytes { from, what: _, stored_bytes, own_bytes, shared_bytes, written_bytes } = answer;
        let next = (from != END).then_some(from);
        Recompressed { next, stored_bytes, own_bytes, shared_bytes, written_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_answers_come_back_and_others_are_refused() {
        for what in [Recompress::Count, Recompress::Own, Recompress::OwnAndShared] {
            assert_eq!(RecompressBytes::argument(4096, what, 7).parts(), Some((4096, what, 7)));
        }
        assert_eq!(RecompressBytes { what: 3, ..RecompressBytes::default() }.parts(), None);
        for next in [None, Some(0), Some(1 << 62)] {
            let found =
                Recompressed { next, stored_bytes: 1, own_bytes: 2, shared_bytes: 3, written_bytes: 4 };
            assert_eq!(Recompressed::from(RecompressBytes::answer(&found)), found);
        }
    }
}
