//! The bytes of an emulated disk, in a sparse file.
//!
//! They go past the page cache: pages that wait to be written there would have the emulated disk wait
//! for room among those that wait for the emulated disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

/// What direct I/O wants places, lengths and memory to be multiples of.
const ALIGN_BYTES: usize = 4096;

/// Bytes that begin at a block's boundary in memory.
pub struct Aligned {
    room: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let room = vec![0; len + ALIGN_BYTES];
        let from = room.as_ptr().align_offset(ALIGN_BYTES);
        Aligned { room, from, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.room.get(self.from..self.from + self.len).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.room.get_mut(self.from..self.from + self.len).unwrap_or_default()
    }
}

/// A disk's bytes.
pub struct Image {
    file: File,
    size_bytes: u64,
    partial_writes: Mutex<()>,
}

impl Image {
    /// Those in a file, which is as large as the disk.
    pub fn open(path: &Path) -> io::Result<Image> {
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)
        };
        let file = match open(OFlags::DIRECT) {
            // A file system in memory, which has nothing to go past.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => open(OFlags::empty())?,
            opened => opened?,
        };
        let size_bytes = file.metadata()?.len();
        Ok(Image { file, size_bytes, partial_writes: Mutex::new(()) })
    }

    /// How large the disk is.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads a range of the disk.
    pub fn read(&self, range: &Range<u64>) -> io::Result<Aligned> {
        let aligned = ALIGN_BYTES as u64;
        let (from, end) = (range.start / aligned * aligned, range.end.next_multiple_of(aligned));
        let mut read = Aligned::new(usize::try_from(end - from).map_err(io::Error::other)?);
        self.file.read_exact_at(read.bytes_mut(), from)?;
        read.from += (range.start - from) as usize;
        read.len = (range.end - range.start) as usize;
        Ok(read)
    }

    /// Writes at a place of the disk, all of it within the disk.
    pub fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (aligned, end) = (ALIGN_BYTES as u64, offset + data.len() as u64);
        let from = offset / aligned * aligned;
        let whole = from..end.next_multiple_of(aligned);
        let is_whole = offset == from && end == whole.end;
        // Of two who write parts of one block the second must see what the first wrote.
        let _alone = (!is_whole).then(|| self.partial_writes.lock());
        let mut blocks = if is_whole { Aligned::new(data.len()) } else { self.read(&whole)? };
        let at = (offset - from) as usize;
        if let Some(place) = blocks.bytes_mut().get_mut(at..at + data.len()) {
            place.copy_from_slice(data);
        }
        self.file.write_all_at(blocks.bytes(), from)
    }

    /// Gives back the room of a range, which is zeros then.
    pub fn forget(&self, offset: u64, len: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, punch, offset, len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_at_any_place_is_read_and_forgotten() {
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
        image.forget(0, 1 << 20).unwrap();
        assert!(image.read(&(0..end)).unwrap().bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn parts_of_a_block_that_are_written_at_once_are_all_there() {
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
