//! Requests to a mount by ioctl(2): numbers and arguments. A process makes an empty file or directory under a
//! hidden name, and the server fills it as a copy.

use betrfs::{Held, InodeFlags};
use rustix::ioctl::opcode;

use super::Fsxattr;

/// chattr(1) and lsattr(1): an inode's flags. The numbers name a long, but an int is transferred.
pub const GET_FLAGS: u32 = opcode::read::<libc::c_long>(b'f', 1);
/// See [`GET_FLAGS`].
pub const SET_FLAGS: u32 = opcode::write::<libc::c_long>(b'f', 2);
/// lsattr(1) with `-v`: the generation of an inode's number. As with the flags, an int is transferred.
pub const GET_VERSION: u32 = opcode::read::<libc::c_long>(b'v', 1);
/// Flags, as other bits, and project.
pub const GET_XATTR: u32 = opcode::read::<Fsxattr>(b'X', 31);
/// See [`GET_XATTR`].
pub const SET_XATTR: u32 = opcode::write::<Fsxattr>(b'X', 32);

/// fstrim(8): first byte, bytes and shortest range to discard; the discarded bytes are the answer's second.
pub const TRIM: u32 = opcode::read_write::<[u64; 3]>(b'X', 121);

/// Flags and their bits in an [`Fsxattr`].
const XFLAGS: [(InodeFlags, u32); 4] = [
    (InodeFlags::IMMUTABLE, 0x08),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
];

/// On an open file or directory: returns a token for it as a source.
pub const SOURCE: u32 = opcode::read::<u64>(b'B', 1);
/// On the source, with the token: `EAGAIN` until data written to mappings of its files, before [`SOURCE`],
/// has arrived.
pub const WRITTEN_BACK: u32 = opcode::write::<u64>(b'B', 4);
/// On an empty file or directory, with the token: makes it a copy of the source.
pub const FILL: u32 = opcode::write::<u64>(b'B', 2);

/// On a directory: removes everything below it.
pub const EMPTY: u32 = opcode::none(b'B', 3);

/// On a directory: removes everything below it, with all snapshots of it and of directories below it.
pub const EMPTY_WITH_SNAPSHOTS: u32 = opcode::none(b'B', 6);

/// The answer to [`HELD`]: a count, then as many paths as fit, each ended by a zero byte.
pub type HeldBytes = [u8; 4096];
/// On a directory: returns the snapshots that hold it.
pub const HELD: u32 = opcode::read::<HeldBytes>(b'B', 7);

/// On a file or directory: returns its stored bytes, and the bytes that its removal would free.
pub const USAGE: u32 = opcode::read::<[u64; 2]>(b'B', 5);

/// Prefix of the name of an unfinished copy.
pub const UNFINISHED: &str = ".betrfs-clone-";

/// Encodes the answer to [`HELD`].
pub fn held_bytes(held: &Held) -> HeldBytes {
    let mut bytes = [0; size_of::<HeldBytes>()];
    let mut told = u32::try_from(held.count).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    for path in &held.paths {
        if told.len() + path.len() < bytes.len() {
            told.extend_from_slice(path);
            told.push(0);
        }
    }
    bytes.iter_mut().zip(told).for_each(|(to, byte)| *to = byte);
    bytes
}

/// Decodes the answer to [`HELD`].
pub fn held_of(bytes: &HeldBytes) -> Option<Held> {
    let (count, paths) = bytes.split_first_chunk()?;
    let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(Held { count: u32::from_le_bytes(*count) as usize, paths: paths.map(<[u8]>::to_vec).collect() })
}

/// The bits for an inode's flags in an [`Fsxattr`].
pub fn xflags_of(flags: InodeFlags) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags.has(*flag)).fold(0, |bits, (_, bit)| bits | bit)
}

/// The flags of these bits; `None` if one of them has no flag.
pub fn of_xflags(bits: u32) -> Option<InodeFlags> {
    let has = |bit: &u32| bits & bit != 0;
    let flags =
        XFLAGS.iter().filter(|(_, bit)| has(bit)).fold(InodeFlags::NONE, |all, (flag, _)| all.union(*flag));
    (xflags_of(flags) == bits).then_some(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_linux() {
        assert_eq!((GET_FLAGS, SET_FLAGS), (0x8008_6601, 0x4008_6602));
        assert_eq!(GET_VERSION, 0x8008_7601);
        assert_eq!((GET_XATTR, SET_XATTR, TRIM), (0x801c_581f, 0x401c_5820, 0xc018_5879));
    }

    #[test]
    fn flags_have_other_bits_there_and_come_back() {
        for bits in 0..16 {
            let flags = InodeFlags::from_bits(bits << 4);
            assert_eq!(of_xflags(xflags_of(flags)), Some(flags));
        }
        assert_eq!(xflags_of(InodeFlags::from_bits(0x30)), 0x18);
        // Synchronous writes; inherited projects.
        assert_eq!((of_xflags(0x20), of_xflags(0x08 | 0x200)), (None, None));
    }
}
