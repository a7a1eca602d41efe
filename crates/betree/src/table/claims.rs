//! The nodes of a table as they are read from its pages, each with the blocks that it claims.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{PagePlace, Slot, Table};
use crate::error::{Error, Result};
use crate::format::table::{Entries, StoredSlot};
use crate::node_id::NodeId;
use crate::space::{BlockRange, Extent};
use crate::store::NodePlace;

/// A node whose blocks could not be claimed.
pub(crate) struct Unclaimed {
    /// The node.
    pub id: NodeId,
    /// The parts of its extent.
    pub parts: Vec<BlockRange>,
    /// Those of its second copy, if it has one.
    pub copy: Option<Vec<BlockRange>>,
    /// The length of its header in bytes.
    pub header_len: u32,
    /// The checksum of its header.
    pub header_checksum: u64,
    /// What hinders the claim.
    pub why: Error,
}

/// The disputed nodes of a table.
#[derive(Debug, Default)]
pub(crate) struct Disputed {
    pub nodes: Vec<DisputedNode>,
    /// Blocks that only they claim.
    pub held: Vec<Arc<Extent>>,
}

/// A node whose blocks others claim too.
#[derive(Debug)]
pub(crate) struct DisputedNode {
    pub id: NodeId,
    /// The first byte of its extent.
    pub offset: u64,
    /// Where it is looked for, or why that can be no extent: the error that its readers get.
    pub extent: Result<Arc<Extent>>,
    /// A sentence: its blocks, and who else claims them.
    pub what: String,
}

impl Table {
    /// Adds the next page while a volume is opened; `claim` claims the nodes' extents, of a slot with all
    /// parts that the page has for it. A node whose extent cannot be claimed is given to `unclaimed`. If that
    /// returns `Ok`, the table holds the node without a place, and its readers get the error of the claim,
    /// until [`put_place`](Table::put_place).
    ///
    /// # Errors
    /// Those of `unclaimed`.
    pub fn push_page(
        &mut self,
        place: PagePlace,
        slots: &Entries<StoredSlot>,
        mut claim: impl FnMut(&StoredSlot, Vec<BlockRange>) -> Result<Arc<Extent>>,
        unclaimed: &mut dyn FnMut(Unclaimed) -> Result<()>,
    ) -> Result<()> {
        self.pages.push(Some(place));
        for (entry, stored) in slots.entries.iter().enumerate() {
            let index = self.slots.len() as u32;
            let generation = stored.generation.get();
            self.slots.push(Slot { generation, ..Slot::default() });
            if stored.used != 1 {
                self.free_slots.push(index);
                continue;
            }
            let (header_len, header_checksum) = (stored.header_len.get(), stored.header_checksum.get());
            let parts = slots.parts_of(entry, stored.first_part());
            let place = match claim(stored, parts.clone()) {
                Ok(extent) => Some(NodePlace { extent, header_len, header_checksum }),
                Err(why) => {
                    self.lost.insert(index, (index + 1, why.clone()));
                    let id = NodeId { slot: index, generation };
                    // Those that have no halves are looked at as a whole, for what they hinder.
                    let (parts, copy) = stored.halves(parts.clone()).unwrap_or((parts, None));
                    unclaimed(Unclaimed { id, parts, copy, header_len, header_checksum, why })?;
                    None
                }
            };
            if let Some(slot) = self.slots.last_mut() {
                let (references, height) = (stored.references.get(), stored.height);
                *slot = Slot { generation, references, height, used: true, place };
            }
        }
        Ok(())
    }

    /// Gives a node that was added without a place one.
    pub fn put_place(&mut self, id: NodeId, place: NodePlace) {
        if let Some(slot) = self.slot_mut(id) {
            slot.place = Some(place);
            self.forget_lost(id.slot);
        }
    }

    /// All nodes with a place, and their extents.
    pub fn node_extents(&self) -> impl Iterator<Item = (NodeId, &Arc<Extent>)> {
        (0..).zip(&self.slots).filter_map(|(slot, s)| {
            let id = NodeId { slot, generation: s.generation };
            s.place.as_ref().map(|place| (id, &place.extent))
        })
    }
}
