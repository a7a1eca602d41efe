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

/// On a file or directory, with a token that the caller draws, or that of [`SOURCE`]: requests with the token
/// may change the object.
pub const PERMIT: u32 = opcode::write::<u64>(b'B', 19);

/// On a directory: removes everything below it.
pub const EMPTY: u32 = opcode::none(b'B', 3);

/// On a directory: removes everything below it, with all snapshots of it and of directories below it.
pub const EMPTY_WITH_SNAPSHOTS: u32 = opcode::none(b'B', 6);

/// The answer to [`HELD`]: a count, then as many paths as fit, each ended by a zero byte.
pub type HeldBytes = [u8; 4096];
/// On a directory: returns the snapshots that hold it.
pub const HELD: u32 = opcode::read::<HeldBytes>(b'B', 7);

/// On a file or directory: the path below it of the first object that keeps the caller from treating it as
/// one, ended by a zero byte; as much of it as fits.
pub const FOREIGN: u32 = opcode::read::<PathBytes>(b'B', 10);
/// The answer to [`FOREIGN`].
pub type PathBytes = [u8; 4096];

/// The argument of [`RESTORE`]: the token of the directory as a source, then two names, each ended by a zero
/// byte: of a snapshot of it, and of the one that is to have its present state.
pub type RestoreBytes = [u8; 8 + 2 * 256];
/// On a directory: brings it back to a snapshot. Then [`WRITTEN_BACK`] says `EAGAIN` until the kernel has
/// dropped the names that were there.
pub const RESTORE: u32 = opcode::write::<RestoreBytes>(b'B', 8);
/// On a directory, with the argument of [`RESTORE`], whose token does not count: whether that would succeed.
pub const MAY_RESTORE: u32 = opcode::write::<RestoreBytes>(b'B', 9);

/// On a file or directory: returns its stored bytes, and the bytes that its removal would free.
pub const USAGE: u32 = opcode::read::<[u64; 2]>(b'B', 5);

/// Prefix of the name of an unfinished copy.
pub const UNFINISHED: &str = ".betrfs-clone-";

/// Encodes the argument of [`RESTORE`]; `None` if a name is too long, or no name.
pub fn restore_bytes(token: u64, name: &[u8], keep_as: &[u8]) -> Option<RestoreBytes> {
    let is_name = |name: &[u8]| !name.is_empty() && name.len() < 256 && !name.contains(&0);
    if !is_name(name) || !is_name(keep_as) {
        return None;
    }
    let mut bytes = [0; size_of::<RestoreBytes>()];
    let given = [&token.to_le_bytes()[..], name, &[0], keep_as].concat();
    bytes.iter_mut().zip(given).for_each(|(to, byte)| *to = byte);
    Some(bytes)
}

/// Decodes the argument of [`RESTORE`].
pub fn restore_of(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (bytes, _) = bytes.split_first_chunk::<{ size_of::<RestoreBytes>() }>()?;
    let (token, names) = bytes.split_first_chunk()?;
    let mut names = names.split(|byte| *byte == 0);
    Some((u64::from_le_bytes(*token), names.next()?, names.next()?))
}

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
    fn two_names_come_back_and_what_is_none_is_refused() {
        let longest = [b'n'; 255];
        for (name, keep_as) in [(&b"a"[..], &b"b"[..]), (&longest, &longest)] {
            let bytes = restore_bytes(u64::MAX - 1, name, keep_as).unwrap();
            assert_eq!(restore_of(&bytes), Some((u64::MAX - 1, name, keep_as)));
            assert_eq!(restore_of(&bytes[1..]), None);
        }
        for wrong in [&b""[..], b"a\0", &[b'n'; 256]] {
            assert_eq!((restore_bytes(0, wrong, b"a"), restore_bytes(0, b"a", wrong)), (None, None));
        }
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
