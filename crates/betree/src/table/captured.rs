//! The pages of a checkpoint, as they were when it was captured.

use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};

use super::{CapturedTable, Slot, unknown};
use crate::error::Result;
use crate::format::table::{Entries, StoredSlot};
use crate::node_id::NodeId;
use crate::space::BlockRange;
use crate::store::NodePlace;

impl CapturedTable {
    pub(super) fn set_place(&mut self, id: NodeId, place: &NodePlace) -> Result<()> {
        let page = id.slot / self.slots_per_page;
        let found = self.pages.iter_mut().find(|(index, _)| *index == page);
        let slot = found.and_then(|(_, slots)| slots.get_mut((id.slot % self.slots_per_page) as usize));
        let slot = slot.filter(|slot| slot.used && slot.generation == id.generation);
        slot.ok_or_else(|| unknown(id))?.place = Some(place.clone());
        Ok(())
    }

    /// The number of pages to write.
    pub fn pages_len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are no pages to write and no extents to free.
    pub fn is_clean(&self) -> bool {
        self.pages.is_empty() && self.retired.is_empty()
    }

    /// The pages to write.
    pub fn pages(&self) -> impl Iterator<Item = (u32, Entries<StoredSlot>)> + '_ {
        self.pages.iter().map(|(index, slots)| {
            let mut page = Entries::new();
            for slot in slots {
                let extent = slot.place.as_ref().map(|place| &place.extent);
                let parts: Vec<BlockRange> = extent.iter().flat_map(|e| e.all_parts()).copied().collect();
                page.push(stored(slot, parts.first()), &parts);
            }
            (*index, page)
        })
    }
}

fn stored(slot: &Slot, first: Option<&BlockRange>) -> StoredSlot {
    let place = slot.place.as_ref();
    StoredSlot {
        start_block: U64::new(first.map_or(0, |p| p.start_block)),
        header_checksum: U64::new(place.map_or(0, |p| p.header_checksum)),
        len_blocks: U32::new(first.map_or(0, |p| p.len_blocks as u32)),
        header_len: U32::new(place.map_or(0, |p| p.header_len)),
        generation: U32::new(slot.generation),
        references: U32::new(slot.references),
        height: slot.height,
        used: u8::from(slot.used),
        copied: u8::from(place.is_some_and(|place| place.extent.copy().is_some())),
        reserved: [0; 5],
    }
}
