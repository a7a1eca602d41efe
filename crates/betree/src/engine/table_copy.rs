//! The second copy of the node table: a page that cannot be read would take all of its nodes away.
//!
//! Pages and directory are a thousandth of what checkpoints write, so they are written twice wherever there
//! is room. The copies stand at the end of the volume, far from what they are copies of.

use alloc::sync::Arc;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_64;

use super::Engine;
use crate::error::{Error, Result};
use crate::format::superblock::table_copy::{COPY_PARTS_MAX, TableCopy};
use crate::format::table::{encode_directory, encode_page};
use crate::planted::{self, Bug};
use crate::space::Extent;
use crate::table::CapturedTable;

impl Engine {
    /// Writes captured pages and the directory a second time, each if there is room beside the reserve and
    /// the bytes owed to the next checkpoint. Returns the place of the copy's directory, and its extent.
    ///
    /// # Errors
    /// Those of the device, but that it is full.
    pub fn write_table_copy(&self, captured: &CapturedTable) -> Result<Option<(TableCopy, Arc<Extent>)>> {
        for (index, slots) in captured.pages() {
            let Some(copy) = self.write_copy(&encode_page(index, &slots), usize::MAX)? else { break };
            self.table.lock().page_copied(index, copy);
        }
        let bytes = encode_directory(&self.table.lock().directory_of_copies());
        let Some(directory) = self.write_copy(&bytes, COPY_PARTS_MAX)? else { return Ok(None) };
        let parts = directory.parts().to_vec();
        Ok(Some((TableCopy { parts, len: bytes.len() as u32, checksum: xxh3_64(&bytes) }, directory)))
    }

    /// Writes bytes to the end of the volume; `None` if there is no room.
    fn write_copy(&self, bytes: &[u8], parts_max: usize) -> Result<Option<Arc<Extent>>> {
        let blocks = bytes.len().div_ceil(BLOCK_BYTES) as u64;
        let room = self.room();
        if room.unused_bytes() < room.reserve_bytes() + blocks * BLOCK_BYTES as u64 {
            return Ok(None);
        }
        let Some(extent) = self.store.allocate_last(blocks, parts_max, &[]) else { return Ok(None) };
        if planted::is(Bug::TableCopyNotWritten) {
            return Ok(Some(extent));
        }
        match self.write_to(&extent, bytes) {
            Ok(()) => {
                let written_bytes = extent.len_blocks() * BLOCK_BYTES as u64;
                self.counters.copy_bytes.fetch_add(written_bytes, Ordering::Relaxed);
                Ok(Some(extent))
            }
            Err(Error::DeviceFull(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
