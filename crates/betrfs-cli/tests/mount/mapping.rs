//! Mappings of files, by mmap(2).

use std::fs::File;
use std::ops::{Deref, DerefMut};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of a file's first bytes, until it is dropped.
pub struct Mapping(&'static mut [u8]);

impl Mapping {
    /// Maps the first `len` bytes of a file, which must be at least as long.
    pub fn of(file: &File, len: usize) -> Self {
        Self::try_of(file, len).unwrap()
    }

    /// The same, if it can be had.
    pub fn try_of(file: &File, len: usize) -> rustix::io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: nothing else knows the mapping, the file is long enough, and the mapping ends with the
        // slice.
        unsafe {
            let start = mmap(std::ptr::null_mut(), len, protection, flags, file, 0)?;
            Ok(Mapping(std::slice::from_raw_parts_mut(start.cast(), len)))
        }
    }

    /// Has what was written to it made durable, by msync(2).
    pub fn sync(&mut self) -> rustix::io::Result<()> {
        // SAFETY: it is the mapping's first byte, which begins a page.
        unsafe { msync(self.0.as_mut_ptr().cast(), self.0.len(), MsyncFlags::SYNC) }
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped above, and no borrow of it is left.
        unsafe { munmap(self.0.as_mut_ptr().cast(), self.0.len()).unwrap() };
    }
}
