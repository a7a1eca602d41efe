//! What a process asks of a mount by ioctl(2): the numbers, and what goes with them. A copy is made of an
//! empty file or directory that a process has made under a hidden name.

use betrfs::Held;
use rustix::ioctl::opcode;

/// Asked of an open file or directory: a token that stands for it as a source.
pub const SOURCE: u32 = opcode::read::<u64>(b'B', 1);
/// Asked of the source, with the token: `EAGAIN` while what was written to mappings of files in it, before
/// it was taken on, is on its way.
pub const WRITTEN_BACK: u32 = opcode::write::<u64>(b'B', 4);
/// Asked of an empty file or directory, with the token: it becomes a copy of the source.
pub const FILL: u32 = opcode::write::<u64>(b'B', 2);

/// Asked of a directory: all that is below it is removed.
pub const EMPTY: u32 = opcode::none(b'B', 3);

/// Asked of a directory: all that is below it is removed, with all snapshots of it and of what is below.
pub const EMPTY_WITH_SNAPSHOTS: u32 = opcode::none(b'B', 6);

/// What [`HELD`] is answered with: a count, and paths of which each is ended by a zero byte, as far as there
/// is room.
pub type HeldBytes = [u8; 4096];
/// Asked of a directory: the snapshots that hold it.
pub const HELD: u32 = opcode::read::<HeldBytes>(b'B', 7);

/// Asked of a file or directory: its stored bytes, and those that its removal would free.
pub const USAGE: u32 = opcode::read::<[u64; 2]>(b'B', 5);

/// What the name of a copy begins with while it is being made.
pub const UNFINISHED: &str = ".betrfs-clone-";

/// What [`HELD`] is answered with.
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

/// The snapshots that an answer to [`HELD`] names.
pub fn held_of(bytes: &HeldBytes) -> Option<Held> {
    let (count, paths) = bytes.split_first_chunk()?;
    let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(Held { count: u32::from_le_bytes(*count) as usize, paths: paths.map(<[u8]>::to_vec).collect() })
}
