//! A scrub: reads everything that is stored, and compares it with its checksums.
//!
//! It goes through the slots of the node table, some at a time, in the order of their nodes on the device. So
//! it holds no moment: a node is read where it is when its turn comes, and what was written since the scrub
//! has passed its slot was written with a checksum of its own. It holds one extent at a time.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree_platform::BLOCK_BYTES;

use super::walk::{Walk, bounds_of, of_basement, of_edge, one_bad_of_node};
use super::{Finding, FindingCode as Code, Place};
use crate::cache::Piece;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::format::superblock::scrub_record::{ScrubRecord, ScrubState};
use crate::format::superblock::slots;
use crate::invariant::internal;
use crate::io::AlignedBuf;
use crate::key::Cut;
use crate::node::{Body, Node};
use crate::node_id::NodeId;
use crate::space::Extent;
use crate::store::{NodePlace, ReadScope};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How many slots are read in the order of the device. One that goes on reads at most these again.
const SLOTS_AT_ONCE: u32 = 64;
/// The most bytes of a read, and between two steps.
const READ_BYTES_MAX: u64 = 1 << 20;
/// A longer node is read piece by piece. No usual node is.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// How many damaged nodes are looked for in the trees together, to tell which keys they hide.
const DAMAGED_MAX: usize = 1000;

/// Where a scrub begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubFrom {
    /// With everything.
    Start,
    /// Where the last one was interrupted, even if the volume was opened anew since. As
    /// [`Start`](ScrubFrom::Start) if that was complete.
    LastStop,
}

/// What a scrub does about damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// It tells of it.
    Tell,
    /// It also writes anew what has a good copy: superblocks, pages and directory of the node table, nodes.
    Mend,
}

/// How a scrub is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Where it begins.
    pub from: ScrubFrom,
    /// What it does about damage.
    pub on_damage: OnDamage,
}

impl ScrubOptions {
    /// Of everything, without a repair.
    pub const READ_ALL: ScrubOptions = ScrubOptions { from: ScrubFrom::Start, on_damage: OnDamage::Tell };
}

/// A step of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStep {
    /// The bytes that were read since the last step, at most 1 MiB but for a piece that is larger.
    pub bytes: u64,
    /// The bytes that were read or, by the scrub that this one goes on with, before.
    pub done_bytes: u64,
    /// The bytes of all that was stored at the beginning, and no less than `done_bytes`.
    pub all_bytes: u64,
}

/// The bytes of a part of a node that cannot be read: the error, and the part's place and bounds.
struct BadPart {
    code: Code,
    what: String,
    error: Error,
    /// Within the node; `None` for all of it.
    bounds: Option<(Cut, Cut)>,
}

/// A damaged node.
struct Damaged {
    id: NodeId,
    place: Place,
    parts: Vec<BadPart>,
}

/// A scrub under way.
struct Scrub<'e, 's> {
    env: &'e Env,
    tell: &'s mut dyn FnMut(Finding),
    step: &'s mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    done_bytes: u64,
    all_bytes: u64,
    record: ScrubRecord,
    on_damage: OnDamage,
    /// For both copies of a node.
    buffers: [AlignedBuf; 2],
    damaged: Vec<Damaged>,
    /// Pages of the node table of which a copy is bad.
    bad_pages: Vec<u32>,
}

impl Env {
    /// Reads all that is stored, past the cache, and compares it with its checksums, while others go on:
    /// superblocks, node table and nodes, each block once. What the structures mean is left to
    /// [`check_in_use`](Env::check_in_use). Calls `tell` with each finding at the end, and `step` after each
    /// read; it may take its time, so that others have the device, and ends the scrub with `Break`.
    ///
    /// The [record](Env::last_scrub) of the scrub becomes durable at the end; while it is under way, with
    /// each checkpoint that others make.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// use std::ops::ControlFlow;
    ///
    /// use betree::{ScrubOptions, ScrubState};
    ///
    /// let record = env.scrub(ScrubOptions::READ_ALL, &mut |found| panic!("{found}"), &mut |step| {
    ///     assert!(step.done_bytes <= step.all_bytes);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!((record.state, record.problems), (ScrubState::Complete, 0));
    /// assert_eq!(env.last_scrub(), Some(record));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::ReadOnly`] for a volume with features of later versions, or one that is
    /// to be mended and takes no changes; those of the checkpoint at the end, if no problem was found: else a
    /// note tells of them. A problem found is not an error, and neither is an end by `step` or by a close.
    pub fn scrub(
        &self,
        options: ScrubOptions,
        tell: &mut dyn FnMut(Finding),
        step: &mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    ) -> Result<ScrubRecord> {
        self.refuse_unknown_features()?;
        if options.on_damage == OnDamage::Mend {
            self.writable_now()?;
        }
        let now_ns = || self.engine.store.disk.health.now_ns().unwrap_or(0);
        let last = self.last_scrub().filter(|last| last.state != ScrubState::Complete);
        let record = match (options.from, last) {
            (ScrubFrom::LastStop, Some(last)) => ScrubRecord { state: ScrubState::UnderWay, ..last },
            _ => ScrubRecord { state: ScrubState::UnderWay, began_ns: now_ns(), ..ScrubRecord::default() },
        };
        let problems_before = record.problems;
        let mut scrub = Scrub {
            env: self,
            tell,
            step,
            done_bytes: 0,
            all_bytes: 0,
            record,
            on_damage: options.on_damage,
            buffers: Default::default(),
            damaged: Vec::new(),
            bad_pages: Vec::new(),
        };
        let scrubbed = scrub.everything();
        scrub.tell_damaged();
        scrub.record.state = match &scrubbed {
            Ok(ControlFlow::Continue(())) => ScrubState::Complete,
            _ => ScrubState::Interrupted,
        };
        scrub.note();
        let (record, bad_pages) = (scrub.record, scrub.bad_pages);
        let mended = match options.on_damage {
            OnDamage::Mend => self.mend_copies(bad_pages),
            OnDamage::Tell => Ok(()),
        };
        // Even if it was interrupted: the next one goes on from there.
        let kept = mended.and(self.checkpoint_if_open());
        if self.engine.store.disk.is_released() {
            return Ok(record);
        }
        let _: ControlFlow<()> = scrubbed?;
        match kept {
            // What was found is more than an error tells.
            Err(error) if record.problems > problems_before => {
                let what = format!("the newest changes could not be written: {error}");
                tell(Finding::note(Code::LogNotChecked, Place::Volume, what));
            }
            kept => kept?,
        }
        Ok(record)
    }

    /// The record of the last scrub, as far as it has come; `None` if there was none.
    pub fn last_scrub(&self) -> Option<ScrubRecord> {
        *self.last_scrub.lock()
    }
}

impl Scrub<'_, '_> {
    /// Reads everything from the record's slot on; `Break` if a step has ended it. Tells what is wrong with
    /// superblocks and node table.
    fn everything(&mut self) -> Result<ControlFlow<()>> {
        let table_bytes = self.table_bytes();
        let (before, all) = self.node_bytes();
        self.all_bytes = table_bytes + all;
        self.done_bytes = before;
        self.note();
        let env = self.env;
        self.bad_pages = env.check_table(&mut |found| self.found(found));
        if self.stepped(table_bytes).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        loop {
            let first = self.record.next_slot;
            let nodes = self.env.engine.table.lock().nodes_in(first, SLOTS_AT_ONCE);
            let Some(nodes) = nodes else {
                self.record.next_slot = 0;
                return Ok(ControlFlow::Continue(()));
            };
            let mut ids: Vec<NodeId> = nodes.into_iter().map(|(id, _)| id).collect();
            {
                let table = self.env.engine.table.lock();
                ids.sort_by_cached_key(|id| table.place(*id).map(|place| place.extent.place(0)));
            }
            for id in ids {
                if self.node(id)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            self.record.next_slot = first.saturating_add(SLOTS_AT_ONCE);
            self.note();
        }
    }

    /// Counts and reports a finding, unless it may only be that the volume was closed meanwhile.
    fn found(&mut self, found: Finding) {
        if self.env.engine.store.disk.is_released() {
            return;
        }
        self.record.problems += u64::from(found.is_problem);
        (self.tell)(found);
    }

    /// Lets others see how far it is.
    fn note(&mut self) {
        self.record.written_ns = self.env.engine.store.disk.health.now_ns().unwrap_or(0);
        *self.env.last_scrub.lock() = Some(self.record);
    }

    /// The bytes of superblocks and node table.
    fn table_bytes(&self) -> u64 {
        let directories: u64 =
            self.env.checkpoint.lock().directories().map(|extent| extent.len_blocks()).sum();
        let table = self.env.engine.table.lock();
        let pages: u64 = table.page_extents().map(|(_, extent)| extent.len_blocks()).sum();
        slots::BYTES + (directories + pages) * BLOCK
    }

    /// The bytes of the nodes in slots before the record's, and of all nodes.
    fn node_bytes(&self) -> (u64, u64) {
        let (mut before, mut all) = (0, 0);
        let mut first = 0;
        loop {
            // Others need the table meanwhile.
            let extents = self.env.engine.table.lock().extents_in(first, SLOTS_AT_ONCE as usize);
            let Some(extents) = extents else { return (before, all) };
            let bytes: u64 = extents.iter().map(|extent| extent.all_blocks() * BLOCK).sum();
            if first < self.record.next_slot as usize {
                before += bytes;
            }
            all += bytes;
            first += SLOTS_AT_ONCE as usize;
        }
    }

    fn stepped(&mut self, bytes: u64) -> ControlFlow<()> {
        self.record.read_bytes += bytes;
        self.done_bytes += bytes;
        self.all_bytes = self.all_bytes.max(self.done_bytes);
        if self.env.engine.store.disk.is_released() {
            return ControlFlow::Break(());
        }
        (self.step)(ScrubStep { bytes, done_bytes: self.done_bytes, all_bytes: self.all_bytes })
    }

    /// Reads and verifies a node, if it is on the device.
    fn node(&mut self, id: NodeId) -> Result<ControlFlow<()>> {
        let Some(place) = self.env.engine.table.lock().place(id) else {
            return Ok(ControlFlow::Continue(()));
        };
        let all_bytes = place.extent.all_blocks() * BLOCK;
        if place.extent.len_blocks() * BLOCK > WHOLE_BYTES_MAX {
            self.verify_copies(id, &place, [None; 2])?;
            return Ok(self.stepped(all_bytes));
        }
        let [mut first, mut second] = core::mem::take(&mut self.buffers);
        let ControlFlow::Continue(bytes) = self.whole(&place.extent, &mut first)? else {
            return Ok(ControlFlow::Break(()));
        };
        let mut bytes_of_copy = None;
        if let Some(copy) = place.extent.copy() {
            let ControlFlow::Continue(bytes) = self.whole(copy, &mut second)? else {
                return Ok(ControlFlow::Break(()));
            };
            bytes_of_copy = bytes;
        }
        self.verify_copies(id, &place, [bytes, bytes_of_copy])?;
        self.buffers = [first, second];
        Ok(ControlFlow::Continue(()))
    }

    /// Reads an extent into a buffer, in steps; `None` if the device refuses a part of it: the caller then
    /// asks for it part by part.
    fn whole<'b>(
        &mut self,
        extent: &Extent,
        buffer: &'b mut AlignedBuf,
    ) -> Result<ControlFlow<(), Option<&'b [u8]>>> {
        let whole_bytes = extent.len_blocks() * BLOCK;
        buffer.grow_to(extent.len_blocks() as usize)?;
        let mut is_read = true;
        let mut offset = 0;
        while offset < whole_bytes {
            let len = (whole_bytes - offset).min(READ_BYTES_MAX);
            let room = buffer.as_mut_slice().get_mut(offset as usize..(offset + len) as usize);
            let room = room.ok_or_else(|| internal!("a buffer has the room that it was made with"))?;
            is_read &= self.env.engine.store.disk.read_extent(extent, offset, room).is_ok();
            if self.stepped(len).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            offset += len;
        }
        let bytes = buffer.as_slice().get(..whole_bytes as usize);
        Ok(ControlFlow::Continue(bytes.filter(|_| is_read)))
    }

    /// Verifies a node whose copies have these bytes; without them it reads part by part.
    fn verify_copies(&mut self, id: NodeId, place: &NodePlace, bytes: [Option<&[u8]>; 2]) -> Result<()> {
        if place.extent.copy().is_none() {
            let [bytes, _] = bytes;
            return self.verify(id, place, bytes);
        }
        let compared = self.env.engine.store.compare_copies(id, place, bytes)?;
        compared.one_bad.iter().for_each(|error| self.found(one_bad_of_node(id, error)));
        if !compared.one_bad.is_empty() && self.on_damage == OnDamage::Mend {
            self.env.engine.store.note_bad_copy(&place.extent);
        }
        // Each part is read from whichever copy is good.
        if compared.are_both_bad { self.verify(id, place, None) } else { Ok(()) }
    }

    /// Verifies a node whose extent has these bytes; without them it reads part by part.
    fn verify(&mut self, id: NodeId, place: &NodePlace, bytes: Option<&[u8]>) -> Result<()> {
        let store = &self.env.engine.store;
        let node = match bytes {
            Some(bytes) => store.node_in_extent(bytes, id, place),
            None => store.read_node(id, place, ReadScope::Header, None),
        };
        let mut parts = Vec::new();
        match node {
            Err(error) => {
                let what = format!("node {id}: {error}");
                parts.push(BadPart { code: Code::BadNode, what, error, bounds: None });
            }
            Ok(node) => {
                for (at, piece, bounds) in parts_of(&node) {
                    let bad = match bytes {
                        Some(bytes) => store.bad_runs_in(bytes, &piece),
                        None => store.bad_runs(&piece),
                    };
                    parts.extend(bad.into_iter().map(|error| BadPart {
                        code: Code::BadPiece,
                        what: format!("{at}: {error}"),
                        error,
                        bounds: Some(bounds.clone()),
                    }));
                }
            }
        }
        if let Some(BadPart { error, .. }) =
            parts.iter().find(|part| matches!(part.error, Error::NoMemory { .. }))
        {
            return Err(error.clone());
        }
        if parts.is_empty() {
            return Ok(());
        }
        let place = Place::node(id, Some(place.extent.place(0)));
        self.damaged.push(Damaged { id, place, parts });
        if self.damaged.len() == DAMAGED_MAX {
            self.tell_damaged();
        }
        Ok(())
    }

    /// Tells what was found in nodes, with the keys that it hides.
    fn tell_damaged(&mut self) {
        let damaged = core::mem::take(&mut self.damaged);
        if damaged.is_empty() {
            return;
        }
        let engine = &self.env.engine;
        // Those that cannot be given to a dictionary hide no keys.
        let _ = engine.assign_all_unowned();
        let (live, _) = engine.begin_fixed(&engine.lock_structures());
        let mut ignore = |_: Finding| ();
        // A view that ends leaves the findings without their keys.
        let wanted = damaged.iter().map(|node| node.id).collect();
        let ways = Walk::new(engine, &live, &mut ignore).ways_to(&wanted).unwrap_or_default();
        engine.end_view(&live);
        for Damaged { id, place, parts } in damaged {
            for BadPart { code, what, error, bounds } in parts {
                let mut all = ways.get(&id).into_iter().flatten().filter_map(|visit| match &bounds {
                    Some((lo, hi)) => visit.keys(lo, hi),
                    None => visit.all_keys(),
                });
                let (keys, more_keys) = (all.next(), all.collect());
                self.found(Finding { keys, more_keys, ..Finding::unreadable(code, place, what, error) });
            }
        }
    }
}

/// The pieces of a node, each with its place in words and its bounds.
fn parts_of(node: &Node) -> Vec<(String, Arc<Piece>, (Cut, Cut))> {
    match &node.body {
        Body::Leaf(basements) => {
            let part = |(index, basement): (usize, &crate::node::Basement)| {
                (of_basement(node.id, index), basement.piece.clone(), bounds_of(node, index))
            };
            basements.iter().enumerate().map(part).collect()
        }
        Body::Interior(edges) => {
            let part = |edge: &crate::node::Edge| {
                let bounds = (edge.lo.clone(), edge.hi.clone());
                Some((of_edge(node.id, edge), edge.partition.clone()?, bounds))
            };
            edges.iter().filter_map(part).collect()
        }
    }
}

#[cfg(test)]
mod tests;
