//! The node table: place, height and references of each node id.
//!
//! Three versions of it matter: the *committed* one that the superblock points to, the one *in flight* while
//! a checkpoint is written, and the *current* one in memory. An extent is free when none of them names it, by
//! counting holders: the current version holds the extents that it names, and a list (`retired`) holds the
//! extents that it drops until the checkpoint that no longer names them is committed.

mod captured;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};

use crate::error::{Error, Result};
use crate::format::table::{Entries, StoredPage};
use crate::invariant::internal;
use crate::node_id::NodeId;
use crate::settings::NodeCopies;
use crate::space::Extent;
use crate::store::{COPIED_FROM_HEIGHT, NodePlace};

mod claims;

pub(crate) use claims::{Disputed, DisputedNode, Unclaimed};

/// A slot of the table.
#[derive(Clone, Default)]
struct Slot {
    generation: u32,
    references: u32,
    height: u8,
    used: bool,
    place: Option<NodePlace>,
}

/// The current version of the node table.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    slots_per_page: u32,
    dirty_pages: BTreeSet<u32>,
    /// Where each page was last written.
    pages: Vec<Option<PagePlace>>,
    /// Extents in the last captured version and no longer in the current one.
    retired: Vec<Arc<Extent>>,
    /// Unreadable slots of a table that was read as far as possible: first slot -> (end, reason).
    lost: BTreeMap<u32, (u32, Error)>,
    misfit: Option<Error>,
}

/// The place of a page on the device.
#[derive(Clone)]
pub(crate) struct PagePlace {
    pub extent: Arc<Extent>,
    /// Where it stands a second time, if it does.
    pub copy: Option<Arc<Extent>>,
    pub len_bytes: u32,
    pub checksum: u64,
}

/// The pages that a checkpoint has to write, as they were when it was captured.
pub(crate) struct CapturedTable {
    pages: Vec<(u32, Vec<Slot>)>,
    slots_per_page: u32,
    /// Extents that the committed version names and the captured one does not.
    pub retired: Vec<Arc<Extent>>,
}

impl Table {
    /// An empty table.
    pub fn new(slots_per_page: u32) -> Table {
        Table { slots_per_page, ..Table::default() }
    }

    /// Adds a page that cannot be read. The table must not be changed from then on, unless
    /// [`renew_lost`](Table::renew_lost) was called.
    pub fn push_lost_page(&mut self, why: Error) {
        self.pages.push(None);
        let first = self.slots.len() as u32;
        let end = first.saturating_add(self.slots_per_page);
        self.slots.resize(end as usize, Slot::default());
        self.lost.insert(first, (end, why));
    }

    /// A table without a readable page.
    pub fn lost(slots_per_page: u32, why: Error) -> Table {
        let mut table = Table::new(slots_per_page);
        table.push_lost_rest(why);
        table
    }

    /// Notes that nothing is known of the slots behind those so far, nor how many there are.
    pub fn push_lost_rest(&mut self, why: Error) {
        self.lost.insert(self.slots_len(), (u32::MAX, why));
    }

    /// The number of slots.
    pub fn slots_len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Has the next checkpoint write the lost pages anew, with the nodes that were added to them. A slot
    /// without one is used again once the table is read, by ids of newer generations than any in it.
    pub fn renew_lost(&mut self) {
        let lost = self.pages.iter().enumerate().filter(|(_, page)| page.is_none());
        let lost: Vec<u32> = lost.map(|(index, _)| index as u32).collect();
        let newest = self.slots.iter().map(|slot| slot.generation).max().unwrap_or(0);
        for page in lost {
            self.dirty_pages.insert(page);
            let first = page as usize * self.slots_per_page as usize;
            let slots = self.slots.iter_mut().skip(first).take(self.slots_per_page as usize);
            slots.filter(|slot| !slot.used).for_each(|slot| slot.generation = newest);
        }
    }

    /// Adds a node that was found without its page, in a slot that is lost; without a place, one that was not
    /// found.
    pub fn put_salvaged(&mut self, id: NodeId, height: u8, references: u32, place: Option<NodePlace>) {
        let index = id.slot as usize;
        if self.slots.len() <= index {
            self.slots.resize(index.saturating_add(1), Slot::default());
        }
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot { generation: id.generation, references, height, used: true, place };
        }
    }

    /// Why nothing is known of a node, if that is because its slot is lost.
    pub fn why_lost(&self, id: NodeId) -> Option<Error> {
        let (_, (end, why)) = self.lost.range(..=id.slot).next_back()?;
        (id.slot < *end).then(|| why.clone())
    }

    /// Forgets why a single slot is lost.
    fn forget_lost(&mut self, slot: u32) {
        if self.lost.get(&slot).is_some_and(|(end, _)| *end == slot.saturating_add(1)) {
            self.lost.remove(&slot);
        }
    }

    /// Makes the next checkpoint write the node's place. [`misfit`](Table::misfit) reports a node that the
    /// table does not hold.
    pub fn touch(&mut self, id: NodeId) {
        match self.slot(id) {
            Some(_) => self.touch_page_of(id.slot),
            None => self.note_misfit(unknown(id)),
        }
    }

    fn touch_page_of(&mut self, slot: u32) {
        debug_assert!((slot as usize) < self.slots.len());
        self.dirty_pages.insert(slot / self.slots_per_page);
    }

    fn slot(&self, id: NodeId) -> Option<&Slot> {
        self.slots.get(id.slot as usize).filter(|s| s.used && s.generation == id.generation)
    }

    fn slot_mut(&mut self, id: NodeId) -> Option<&mut Slot> {
        self.slots.get_mut(id.slot as usize).filter(|s| s.used && s.generation == id.generation)
    }

    /// A name for a node that is being built. It is not in the table until it is added, so that a
    /// checkpoint captured meanwhile does not see it.
    pub fn reserve(&mut self) -> NodeId {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            let slot = self.slots.len() as u32 - 1;
            // Even if no node gets the name: a page on the device must be complete if another follows.
            self.touch_page_of(slot);
            slot
        });
        let generation = self.slots.get(slot as usize).map_or(0, |s| s.generation);
        NodeId { slot, generation: generation.wrapping_add(1) }
    }

    /// Takes back a reserved name under which no node was added.
    pub fn release_reserved(&mut self, id: NodeId) {
        if self.slots.get(id.slot as usize).is_some_and(|slot| !slot.used) {
            self.free_slots.push(id.slot);
        }
    }

    /// Adds a node under a reserved name, without references and without a place on the device yet.
    pub fn add(&mut self, id: NodeId, height: u8) {
        match self.slots.get_mut(id.slot as usize).filter(|slot| !slot.used) {
            Some(slot) => {
                *slot = Slot { generation: id.generation, references: 0, height, used: true, place: None };
                self.touch_page_of(id.slot);
            }
            // Names are given out here, whatever is on the device.
            None => self.note_misfit(internal!("a node is added under a reserved name")),
        }
    }

    /// As [`add`](Table::add), of a node that was written already.
    pub fn add_written(&mut self, id: NodeId, height: u8, place: &NodePlace) {
        self.add(id, height);
        if let Some(slot) = self.slot_mut(id) {
            slot.place = Some(place.clone());
        }
    }

    /// The number of pages that hold these nodes.
    pub fn pages_of(&self, ids: impl Iterator<Item = NodeId>) -> u64 {
        ids.map(|id| id.slot / self.slots_per_page).collect::<BTreeSet<u32>>().len() as u64
    }

    /// Takes a node out of the table. Its extent stays until no checkpoint names it. A node that the table
    /// does not hold is reported by [`misfit`](Table::misfit).
    pub fn remove(&mut self, id: NodeId) {
        let Some(slot) = self.slot_mut(id) else { return self.note_misfit(unknown(id)) };
        slot.used = false;
        slot.references = 0;
        let place = slot.place.take();
        self.retired.extend(place.map(|p| p.extent));
        // Of one without a place nothing can be read; the slot's next node can.
        self.forget_lost(id.slot);
        self.free_slots.push(id.slot);
        self.touch_page_of(id.slot);
    }

    /// Changes the number of a node's references by `more` and returns it; `None` if the table does not hold
    /// the node. A node without references stays in the table: so recovery finds the nodes that are still to
    /// be freed.
    ///
    /// A number below zero or beyond the type means that the table and the edges do not agree. The node then
    /// keeps a reference for ever, because it may still be named, and [`misfit`](Table::misfit) reports it.
    pub fn count(&mut self, id: NodeId, more: i64) -> Option<u32> {
        let slot = self.slot_mut(id)?;
        let sum = i64::from(slot.references).checked_add(more).and_then(|sum| u32::try_from(sum).ok());
        let references = sum.unwrap_or(slot.references.max(1));
        slot.references = references;
        if sum.is_none() {
            self.note_misfit(miscounted(id));
        }
        self.touch_page_of(id.slot);
        Some(references)
    }

    fn note_misfit(&mut self, error: Error) {
        self.misfit.get_or_insert(error);
    }

    /// The first change since the last call at which the table and the trees did not agree: references that
    /// the edges contradict, or a node that the table does not hold. Damage, because the device may hold such
    /// a table; only a name that was not reserved is an error of this program.
    pub fn misfit(&mut self) -> Option<Error> {
        self.misfit.take()
    }

    /// The number of references to a node.
    pub fn references(&self, id: NodeId) -> u32 {
        self.slot(id).map_or(0, |slot| slot.references)
    }

    /// The node's place on the device, if it was ever written.
    pub fn place(&self, id: NodeId) -> Option<NodePlace> {
        self.slot(id)?.place.clone()
    }

    /// Whether the table holds the node.
    pub fn holds(&self, id: NodeId) -> bool {
        self.slot(id).is_some()
    }

    /// The node's height.
    pub fn height(&self, id: NodeId) -> Option<u8> {
        self.slot(id).map(|s| s.height)
    }

    /// All nodes: id, height and references.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, u8, u32)> + '_ {
        self.slots.iter().enumerate().filter(|(_, s)| s.used).map(|(slot, s)| {
            let id = NodeId { slot: slot as u32, generation: s.generation };
            (id, s.height, s.references)
        })
    }

    /// The number of nodes, about: names that are reserved count too.
    pub fn nodes_len(&self) -> u64 {
        self.slots.len().saturating_sub(self.free_slots.len()) as u64
    }

    /// The nodes in at most `most` slots from `first` on, each with its references; `None` behind the last.
    pub fn nodes_in(&self, first: u32, most: u32) -> Option<Vec<(NodeId, u32)>> {
        let slots = self.slots.get(first as usize..).filter(|slots| !slots.is_empty())?;
        let used = (first..).zip(slots).take(most as usize).filter(|(_, slot)| slot.used);
        let node = |(slot, s): (u32, &Slot)| (NodeId { slot, generation: s.generation }, s.references);
        Some(used.map(node).collect())
    }

    /// The nodes with references of which a copy is bad, each with its place.
    pub fn with_bad_copies(&self) -> Vec<(NodeId, NodePlace)> {
        let bad = |(slot, s): (u32, &Slot)| {
            let place = s.place.as_ref().filter(|place| s.references > 0 && place.extent.is_bad())?;
            Some((NodeId { slot, generation: s.generation }, place.clone()))
        };
        (0..).zip(&self.slots).filter_map(bad).collect()
    }

    /// The nodes with references that have not as many copies on the device as their kind is to have, each
    /// with its place.
    pub fn with_other_copies(&self, wanted: NodeCopies) -> Vec<(NodeId, NodePlace)> {
        let is_to_have_two = wanted == NodeCopies::Two;
        let other = |(slot, s): (u32, &Slot)| {
            let is_meant = s.references > 0 && s.height >= COPIED_FROM_HEIGHT;
            let place = s.place.as_ref().filter(|_| is_meant)?;
            let has_two = place.extent.copy().is_some();
            let id = NodeId { slot, generation: s.generation };
            (has_two != is_to_have_two).then(|| (id, place.clone()))
        };
        (0..).zip(&self.slots).filter_map(other).collect()
    }

    /// The extents of the nodes in at most `most` slots from `first` on; `None` behind the last.
    pub fn extents_in(&self, first: usize, most: usize) -> Option<Vec<Arc<Extent>>> {
        let slots = self.slots.get(first..).filter(|slots| !slots.is_empty())?;
        let places = slots.iter().take(most).filter_map(|slot| slot.place.as_ref());
        Some(places.map(|place| place.extent.clone()).collect())
    }

    /// Extents that the last captured version names, and the current one does not.
    pub fn retired(&self) -> &[Arc<Extent>] {
        &self.retired
    }

    /// Where a page was last written, if it was; `None` behind the last page.
    pub fn page(&self, index: usize) -> Option<Option<PagePlace>> {
        self.pages.get(index).cloned()
    }

    /// The extents to which its pages were last written, by page; those of copies too.
    pub fn page_extents(&self) -> impl Iterator<Item = (u32, &Arc<Extent>)> {
        let pages = (0..).zip(&self.pages).filter_map(|(index, page)| Some((index, page.as_ref()?)));
        pages.flat_map(|(index, page)| {
            core::iter::once(&page.extent).chain(&page.copy).map(move |e| (index, e))
        })
    }

    /// The most bytes of the table that a checkpoint would write now, without further parts of extents.
    pub fn dirty_page_bytes(&self, page_bytes: u32) -> u64 {
        (self.dirty_pages.len() as u64 + 1) * u64::from(page_bytes) + self.pages.len() as u64 * 32
    }

    /// Captures the current version for a checkpoint. Extents retired since the last capture become reusable
    /// now. Not earlier: the previous checkpoint may still have been in flight, and it names them.
    pub fn capture(&mut self) -> CapturedTable {
        let pages = core::mem::take(&mut self.dirty_pages)
            .into_iter()
            .map(|page| {
                let start = (page * self.slots_per_page) as usize;
                let end = (start + self.slots_per_page as usize).min(self.slots.len());
                (page, self.slots.get(start..end).unwrap_or_default().to_vec())
            })
            .collect();
        CapturedTable {
            pages,
            slots_per_page: self.slots_per_page,
            retired: core::mem::take(&mut self.retired).into_iter().map(made_reusable).collect(),
        }
    }

    /// Records where a checkpoint has written a captured version of a node. The node's last extent belongs to
    /// the previous checkpoint, and is freed when this one is committed.
    ///
    /// # Errors
    /// If the captured version does not hold the node: the checkpoint would not name what it has written.
    pub fn written(&mut self, id: NodeId, place: &NodePlace, captured: &mut CapturedTable) -> Result<()> {
        captured.set_place(id, place)?;
        match self.slot_mut(id) {
            Some(slot) => {
                let old = slot.place.replace(place.clone());
                captured.retired.extend(old.map(|p| made_reusable(p.extent)));
            }
            // Removed meanwhile: this checkpoint still names it, the next will not.
            None => self.retired.push(place.extent.clone()),
        }
        Ok(())
    }

    /// Records where a checkpoint has written a page.
    pub fn page_written(&mut self, page: u32, place: PagePlace, captured: &mut CapturedTable) {
        if self.pages.len() <= page as usize {
            self.pages.resize(page as usize + 1, None);
        }
        if let Some(old) = self.pages.get_mut(page as usize).and_then(|p| p.replace(place)) {
            captured.retired.push(old.extent);
            captured.retired.extend(old.copy);
        }
    }

    /// Records where a checkpoint has written a page a second time.
    pub fn page_copied(&mut self, page: u32, copy: Arc<Extent>) {
        if let Some(place) = self.pages.get_mut(page as usize).and_then(Option::as_mut) {
            place.copy = Some(copy);
        }
    }

    /// Makes the next checkpoint write a page, whether it has changed or not.
    pub fn touch_page(&mut self, page: u32) {
        self.dirty_pages.insert(page);
    }

    /// The pages' places, for the directory.
    pub fn directory(&self) -> Entries<StoredPage> {
        self.directory_to(|page| &page.extent)
    }

    /// The places of the pages' copies, for the directory of the copy; a page without one has its only place.
    pub fn directory_of_copies(&self) -> Entries<StoredPage> {
        self.directory_to(|page| page.copy.as_ref().unwrap_or(&page.extent))
    }

    fn directory_to(&self, extent_of: impl Fn(&PagePlace) -> &Arc<Extent>) -> Entries<StoredPage> {
        let mut directory = Entries::new();
        for page in self.pages.iter().flatten() {
            let parts = extent_of(page).parts();
            let first = parts.first().copied().unwrap_or_default();
            let stored = StoredPage {
                start_block: U64::new(first.start_block),
                checksum: U64::new(page.checksum),
                len_blocks: U32::new(first.len_blocks as u32),
                len_bytes: U32::new(page.len_bytes),
            };
            directory.push(stored, parts);
        }
        directory
    }

    /// Takes back the capture of a checkpoint that failed: its pages are still to be written.
    pub fn give_back(&mut self, captured: CapturedTable) {
        self.dirty_pages.extend(captured.pages.iter().map(|(page, _)| *page));
        self.retired.extend(captured.retired);
    }

    /// Every extent that the current version names, for accounting in `check`.
    pub fn extents(&self) -> impl Iterator<Item = &Arc<Extent>> {
        let nodes = self.slots.iter().filter_map(|s| s.place.as_ref()).map(|p| &p.extent);
        nodes.chain(self.page_extents().map(|(_, extent)| extent))
    }
}

/// The error of a node that a tree has and the table does not hold.
fn unknown(id: NodeId) -> Error {
    let why = alloc::format!("it does not hold node {id}, which a tree changes");
    Error::Corrupt { what: "the node table", offset: 0, len: 0, why }
}

/// The error of a node that is named more often than the table counts.
fn miscounted(id: NodeId) -> Error {
    let why = alloc::format!("it counts fewer references to node {id} than there are edges");
    Error::Corrupt { what: "the node table", offset: 0, len: 0, why }
}

/// Marks an extent that no uncommitted checkpoint names.
fn made_reusable(extent: Arc<Extent>) -> Arc<Extent> {
    extent.make_reusable();
    extent
}

#[cfg(test)]
mod tests;
