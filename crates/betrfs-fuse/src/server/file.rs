//! Requests about a file's contents.

use betrfs::{Access, FallocateMode, InodeId, SeekWhat, SetAttr, Writing};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::{Answer, IntoAnswer, Server};
use crate::planted::{self, Bug};

impl Server {
    /// OPEN; O_TRUNC empties the file. Returns whether the time of access changed, which the kernel does not
    /// know.
    pub fn open(&self, node: InodeId, flags: OFlags) -> Answer<bool> {
        let to_read = flags & OFlags::ACCMODE == OFlags::RDONLY && !flags.contains(OFlags::TRUNC);
        if !to_read {
            // The kernel does not know the inode's flags.
            let at_end = flags.contains(OFlags::APPEND) && !flags.contains(OFlags::TRUNC);
            let writing = if at_end { Writing::AtEnd } else { Writing::Anywhere };
            self.volume.check_writable(node, writing).answer()?;
        }
        self.volume.open_inode(node).answer()?;
        if flags.contains(OFlags::TRUNC) && !planted::is(Bug::TruncationForgotten) {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            if let Err(error) = self.volume.setattr(node, &set) {
                self.volume.release_node(node);
                return Err(Server::refuse(&error));
            }
        }
        self.mappings.opened(node, flags);
        Ok(self.may_be_read_unseen(node, flags))
    }

    /// Counts an access if the opened file may be read without a READ. Returns whether the time of access
    /// changed.
    fn may_be_read_unseen(&self, node: InodeId, flags: OFlags) -> bool {
        let reads = flags & OFlags::ACCMODE != OFlags::WRONLY && !flags.contains(OFlags::TRUNC);
        // The kernel knows the end of an empty file and sends no READ.
        let is_empty = || self.volume.getattr(node).is_ok_and(|attr| attr.size == 0);
        reads
            && access_by(flags) == Access::Counts
            && (self.pages.may_be_there(node) || is_empty())
            && self.volume.note_access(node).unwrap_or(false)
    }

    /// RELEASE: the last descriptor of an OPEN, CREATE or TMPFILE with these flags is gone, and its mappings.
    pub fn release(&self, node: InodeId, flags: OFlags) {
        self.mappings.released(node, flags);
        self.volume.release_node(node);
    }

    /// READ by a descriptor with these flags; returns the number of bytes filled in `out`, less than all only
    /// at the end of the file.
    pub fn read(&self, node: InodeId, offset: u64, out: &mut [u8], flags: OFlags) -> Answer<usize> {
        self.pages.come(node);
        let given = self.volume.read_into(node, offset, out, access_by(flags)).answer()?;
        self.counters.gave(given);
        Ok(given)
    }

    /// Notes that a write also went to the kernel's pages.
    pub fn writes_pages(&self, node: InodeId) {
        self.pages.come(node);
    }

    /// WRITE; returns the number of bytes written.
    pub fn write(&self, node: InodeId, offset: u64, data: &[u8]) -> Answer<usize> {
        // Set-id bits were cleared before, see `kill_set_id`.
        self.counted(self.volume.write(node, offset, data).answer())
    }

    fn counted(&self, written: Answer<usize>) -> Answer<usize> {
        self.counters.took(*written.as_ref().unwrap_or(&0));
        written
    }

    /// WRITE of a dirty page of a mapping, which may be older than the file's flags.
    pub fn write_mapped(&self, node: InodeId, offset: u64, data: &[u8]) -> Answer<usize> {
        let is_belated = self.belated_pages.may_come(node);
        self.counted(self.volume.write_back(node, offset, data, is_belated).answer())
    }

    /// FSYNC
    pub fn fsync(&self, node: InodeId) -> Answer<()> {
        self.volume.fsync(node).answer()
    }

    /// FALLOCATE with fallocate(2)'s mode.
    pub fn fallocate(&self, node: InodeId, mode: u32, offset: u64, len: u64) -> Answer<()> {
        let mode = fallocate_mode(FallocateFlags::from_bits_retain(mode)).ok_or(Errno::OPNOTSUPP)?;
        self.volume.fallocate(node, mode, offset, len).answer()
    }

    /// LSEEK, which the kernel sends for data and holes only.
    pub fn lseek(&self, node: InodeId, to: SeekFrom) -> Answer<u64> {
        let (offset, what) = match to {
            SeekFrom::Data(offset) => (offset, SeekWhat::Data),
            SeekFrom::Hole(offset) => (offset, SeekWhat::Hole),
            _ => return Err(Errno::INVAL),
        };
        if self.mappings.may_hide_data(node) {
            let size = self.volume.getattr(node).answer()?.size;
            return all_data(size, offset, what).ok_or(Errno::NXIO);
        }
        self.volume.seek(node, offset, what).answer()
    }

    /// COPY_FILE_RANGE; returns the number of bytes copied.
    pub fn copy_file_range(&self, from: (InodeId, u64), to: (InodeId, u64), len: u64) -> Answer<u64> {
        self.volume.copy_range(from.0, from.1, to.0, to.1, len).answer()
    }
}

/// Whether reads by a descriptor with these flags count as accesses.
fn access_by(flags: OFlags) -> Access {
    if flags.contains(OFlags::NOATIME) { Access::Unnoticed } else { Access::Counts }
}

/// The first place at or behind `offset` that is data, or a hole, in a file of this size without holes.
fn all_data(size: u64, offset: u64, what: SeekWhat) -> Option<u64> {
    (offset < size).then_some(if what == SeekWhat::Data { offset } else { size })
}

/// `None` for modes that are not supported.
fn fallocate_mode(flags: FallocateFlags) -> Option<FallocateMode> {
    let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
    match flags - FallocateFlags::KEEP_SIZE {
        rest if rest.is_empty() => Some(FallocateMode::Allocate { keep_size }),
        FallocateFlags::PUNCH_HOLE if keep_size => Some(FallocateMode::PunchHole),
        FallocateFlags::ZERO_RANGE => Some(FallocateMode::Zero { keep_size }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_file_without_holes_is_its_only_hole() {
        assert_eq!(all_data(10, 9, SeekWhat::Data), Some(9));
        assert_eq!(all_data(10, 3, SeekWhat::Hole), Some(10));
        assert_eq!(all_data(10, 10, SeekWhat::Hole), None);
        assert_eq!(all_data(0, 0, SeekWhat::Data), None);
    }

    #[test]
    fn fallocate_modes_that_are_not_supported_are_refused() {
        let mode = |bits| fallocate_mode(FallocateFlags::from_bits_retain(bits));
        assert_eq!(mode(0), Some(FallocateMode::Allocate { keep_size: false }));
        assert_eq!(mode(1), Some(FallocateMode::Allocate { keep_size: true }));
        assert_eq!(mode(3), Some(FallocateMode::PunchHole));
        assert_eq!(mode(0x10), Some(FallocateMode::Zero { keep_size: false }));
        assert_eq!(mode(0x11), Some(FallocateMode::Zero { keep_size: true }));
        for refused in [2, 8, 0x12, 0x20, 0x40, 1 << 30] {
            assert_eq!(mode(refused), None, "{refused:#x}");
        }
    }
}
