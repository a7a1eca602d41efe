//! The bytes of an emulated disk, in a sparse file.
//!
//! They bypass the page cache: the image's dirty pages would compete with those of the file system under test
//! for the same limit, and each could wait for the other.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use betree_platform::{AlignedBuf, BLOCK_BYTES};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

/// The alignment of offsets and lengths for direct I/O.
const ALIGN_BYTES: u64 = BLOCK_BYTES as u64;

/// Bytes read, as a part of an aligned buffer.
pub(crate) struct Read {
    blocks: AlignedBuf,
    range: Range<usize>,
}

impl Read {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.blocks.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

/// A disk's bytes.
pub(crate) struct Image {
    file: File,
    size_bytes: u64,
    partial_writes: Mutex<()>,
}

impl Image {
    /// Opens a file as large as the disk.
    pub fn open(path: &Path) -> io::Result<Image> {
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)
        };
        let file = match open(OFlags::DIRECT) {
            // A file system in memory, which has no page cache to bypass.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => open(OFlags::empty())?,
            opened => opened?,
        };
        let size_bytes = file.metadata()?.len();
        Ok(Image { file, size_bytes, partial_writes: Mutex::new(()) })
    }

    /// The size of the disk in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads a range of the disk.
    pub fn read(&self, range: &Range<u64>) -> io::Result<Read> {
        let (from, blocks) = self.read_blocks(range)?;
        let (start, len) = ((range.start - from) as usize, (range.end - range.start) as usize);
        Ok(Read { blocks, range: start..start + len })
    }

    /// The blocks of a range, and their offset on the disk.
    fn read_blocks(&self, range: &Range<u64>) -> io::Result<(u64, AlignedBuf)> {
        let from = range.start / ALIGN_BYTES * ALIGN_BYTES;
        let len =
            usize::try_from(range.end.next_multiple_of(ALIGN_BYTES) - from).map_err(io::Error::other)?;
        let mut blocks = AlignedBuf::of_bytes(len).map_err(io::Error::other)?;
        self.file.read_exact_at(blocks.bytes_mut(), from)?;
        Ok((from, blocks))
    }

    /// Writes at an offset; all of the data must lie within the disk.
    pub fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        let is_whole = range.start.is_multiple_of(ALIGN_BYTES) && range.end.is_multiple_of(ALIGN_BYTES);
        // Writers of parts of one block take turns, so that none overwrites the other's part.
        let _alone = (!is_whole).then(|| self.partial_writes.lock());
        let (from, mut blocks) = match is_whole {
            true => (offset, AlignedBuf::of_bytes(data.len()).map_err(io::Error::other)?),
            false => self.read_blocks(&range)?,
        };
        let at = (offset - from) as usize;
        if let Some(place) = blocks.bytes_mut().get_mut(at..at + data.len()) {
            place.copy_from_slice(data);
        }
        self.file.write_all_at(blocks.bytes(), from)
    }

    /// Discards a range: it reads as zeros then, and its blocks are free.
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, punch, offset, len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_at_any_offset_are_read_and_discarded() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let image = Image::open(file.path()).unwrap();
        assert_eq!(image.size_bytes(), 1 << 20);
        image.write(&[7; 8192], 4096).unwrap();
        image.write(&[9; 512], 4096 + 512).unwrap();
        image.write(&[5; 1024], 12288 - 512).unwrap();
        let mut expected = vec![0; 4096];
        expected.extend([7; 512]);
        expected.extend([9; 512]);
        expected.extend([7; 8192 - 1024 - 512]);
        expected.extend([5; 1024]);
        let end = expected.len() as u64;
        assert!(image.read(&(0..end)).unwrap().bytes() == expected);
        assert!(image.read(&(4608..5120)).unwrap().bytes() == [9; 512]);
        image.discard(0, 1 << 20).unwrap();
        assert!(image.read(&(0..end)).unwrap().bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn concurrent_writes_to_parts_of_a_block_are_all_there() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let image = Image::open(file.path()).unwrap();
        for round in 1..50 {
            std::thread::scope(|scope| {
                for part in 0..8 {
                    let image = &image;
                    scope.spawn(move || image.write(&[round; 512], part * 512).unwrap());
                }
            });
            assert!(image.read(&(0..4096)).unwrap().bytes() == [round; 4096], "round {round}");
        }
    }
}
