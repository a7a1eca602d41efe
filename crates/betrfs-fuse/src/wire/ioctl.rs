//! Requests to a mount by ioctl(2): numbers and arguments. A process makes an empty file or directory under a
//! hidden name, and the server fills it as a copy.

use betrfs::Held;
use rustix::ioctl::opcode;

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
