//! Second copies of nodes: which nodes get one, and what is read from it.
//!
//! A node above the parents of leaves leads to hundreds of leaves: if its only copy is lost, so is the way to
//! them. Where the volume is to have it so, such a node is written twice. The copy has the same bytes in as
//! many blocks elsewhere, at the end of the volume. It belongs to the node's extent
//! ([`Extent::copy`]), goes with it, and is read only where the first copy is bad.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

use super::block_reuse::BlockReuse;
use super::spans::{SPARE_BYTES_MAX, Span};
use super::{HAS_ROOM, NodePlace, Outgoing, Store, corrupt};
use crate::error::{Error, Result};
use crate::format::node::{Header, RunRef};
use crate::format::superblock::features::Features;
use crate::format::superblock::{Superblock, node_copies};
use crate::invariant::internal;
use crate::node::Node;
use crate::node_id::NodeId;
use crate::planted::{self, Bug};
use crate::settings::NodeCopies;
use crate::space::Extent;

/// The least height of a node with a second copy: that of the parents of leaves is 1.
pub(crate) const COPIED_FROM_HEIGHT: u8 = 2;

/// Whether nodes are written twice, and what became of copies. See the module.
#[derive(Default)]
pub(crate) struct CopyState {
    /// Whether the volume is to have second copies: the superblock on the device says so.
    pub are_wanted: AtomicBool,
    /// The free bytes that they may take. Without room a node has one copy, until it is written again.
    pub room_bytes: AtomicU64,
    /// Bytes written as second copies.
    pub written_bytes: AtomicU64,
    /// Whether a bad copy was found since the last look for nodes that are to be written anew.
    pub(super) is_any_bad: AtomicBool,
}

impl CopyState {
    /// As a superblock on the device says.
    pub fn of(superblock: &Superblock) -> CopyState {
        let is_known = superblock.features.incompat & Features::NODE_COPIES != 0;
        let are_wanted = is_known && node_copies::of(&superblock.tail) == NodeCopies::Two;
        CopyState { are_wanted: AtomicBool::new(are_wanted), ..CopyState::default() }
    }

    /// Whether copies of nodes were found to be bad since the last call.
    pub fn take_bad(&self) -> bool {
        self.is_any_bad.swap(false, Ordering::Relaxed)
    }

    /// Takes room for a copy. `false` if there is none.
    fn take_room(&self, bytes: u64) -> bool {
        let less = |room_bytes: u64| room_bytes.checked_sub(bytes);
        self.room_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// What a look at both copies of a node has found.
#[derive(Default)]
pub(crate) struct Compared {
    /// The errors of parts of which the other copy is good.
    pub one_bad: Vec<Error>,
    /// Whether there are parts of which both copies are bad.
    pub are_both_bad: bool,
}

impl Compared {
    fn part<T>(&mut self, pair: [Result<T>; 2]) -> Option<T> {
        match pair {
            [Ok(good), Ok(_)] => Some(good),
            [Ok(good), Err(error)] | [Err(error), Ok(good)] => {
                self.one_bad.push(error);
                Some(good)
            }
            [Err(_), Err(_)] => {
                self.are_both_bad = true;
                None
            }
        }
    }
}

impl Store {
    /// Whether a node is to have a second copy.
    pub(super) fn wants_copy(&self, node: &Node) -> bool {
        node.height >= COPIED_FROM_HEIGHT && self.copies.are_wanted.load(Ordering::Relaxed)
    }

    /// Whether there seems to be room for the second copy of a node that is still to be encoded. Without, it
    /// keeps blocks that have no copy.
    pub(super) fn has_room_for_copy(&self, node: &Node) -> bool {
        self.copies.room_bytes.load(Ordering::Relaxed) > node.content_bytes() as u64
    }

    /// The extent of a node of `blocks` new blocks with a second copy, if there is room for one and all
    /// `kept` blocks have theirs.
    pub(super) fn with_node_copy(
        &self,
        extent: Arc<Extent>,
        blocks: usize,
        kept: &BlockReuse,
    ) -> Arc<Extent> {
        let Some(kept_of_copy) = kept.parts_of_copies() else { return extent };
        if !self.copies.take_room((blocks * BLOCK_BYTES) as u64) {
            return extent;
        }
        let kept = match planted::is(Bug::NodeCopyKeepsFirstBlocks) {
            true => kept.parts(),
            false => kept_of_copy,
        };
        match self.allocate_last(blocks as u64, usize::MAX, &kept) {
            Some(copy) => extent.with_copy(copy),
            None => extent,
        }
    }

    /// Writes the new blocks of a node to its second copy too, if it has one. If the disk under the device
    /// has no room for it, the node has none.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write_node_copy(&self, mut outgoing: Outgoing, bytes: &[u8]) -> Result<Outgoing> {
        let Some(copy) = outgoing.place.extent.copy() else { return Ok(outgoing) };
        if planted::is(Bug::NodeCopyNotWritten) {
            return Ok(outgoing);
        }
        match self.disk.write_extent(copy, bytes) {
            Ok(()) => {
                outgoing.copied_bytes = bytes.len() as u64;
                self.copies.written_bytes.fetch_add(outgoing.copied_bytes, Ordering::Relaxed);
            }
            Err(Error::DeviceFull(_)) => outgoing.place.extent = outgoing.place.extent.without_copy(),
            Err(error) => return Err(error),
        }
        Ok(outgoing)
    }

    /// The verified bytes of a run that is bad, or cannot be read, as it was read: from whichever copy of its
    /// node is good.
    ///
    /// # Errors
    /// `error`, if there is no other copy, or that is bad too.
    pub(super) fn run_of_other_copy(&self, extent: &Extent, at: &RunRef, error: Error) -> Result<Vec<u8>> {
        let Some(copy) = other_copy(extent, &error) else { return Err(error) };
        // What was read may be the second copy, with the first one good.
        let good = [&**copy, extent].into_iter().find_map(|from| self.verified_run(from, at).ok());
        match good {
            Some(bytes) => {
                self.note_copy_used(extent, &error);
                Ok(bytes)
            }
            None => Err(error),
        }
    }

    /// The header of a node whose first copy is bad, from the second.
    ///
    /// # Errors
    /// `error`, if there is no other copy, or that is bad too.
    pub(super) fn header_of_copy(
        &self,
        id: NodeId,
        place: &NodePlace,
        dict: Option<u8>,
        error: Error,
    ) -> Result<Header> {
        let Some(copy) = other_copy(&place.extent, &error) else { return Err(error) };
        match self.read_first_header(id, &place.at(copy), dict) {
            Ok(header) => {
                self.note_copy_used(&place.extent, &error);
                Ok(header)
            }
            Err(_) => Err(error),
        }
    }

    fn note_copy_used(&self, extent: &Extent, error: &Error) {
        self.disk.health.note_copy_used(error);
        self.note_bad_copy(extent);
    }

    /// Has the node of this extent written anew by the next checkpoint.
    pub fn note_bad_copy(&self, extent: &Extent) {
        extent.note_bad();
        self.copies.is_any_bad.store(true, Ordering::Relaxed);
    }

    /// The stored bytes of a run as one extent has them, with the right checksum.
    fn verified_run(&self, extent: &Extent, at: &RunRef) -> Result<Vec<u8>> {
        let mut found = self.read_spans(&[Span::of_run(extent, at)])?;
        let bytes = found.pop().ok_or_else(|| internal!("each span has its result"))??;
        match xxh3_64(&bytes) == at.checksum {
            true => Ok(bytes),
            false => Err(corrupt(extent, at, "the checksum does not match")),
        }
    }

    /// Reads both copies of a node and compares them with its checksums, each in one read if that is
    /// possible. Without a second copy nothing is read, and nothing is wrong.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::Internal`].
    pub fn read_copies(&self, id: NodeId, place: &NodePlace) -> Result<Compared> {
        let Some(copy) = place.extent.copy() else { return Ok(Compared::default()) };
        let blocks = place.extent.len_blocks() as usize;
        let len = blocks * BLOCK_BYTES;
        if len > SPARE_BYTES_MAX {
            return self.compare_copies(id, place, [None; 2]);
        }
        let mut buffers = [self.buffer_of(blocks)?, self.buffer_of(blocks)?];
        let mut are_read = [false; 2];
        for ((buffer, extent), is_read) in buffers.iter_mut().zip([&place.extent, copy]).zip(&mut are_read) {
            let room = buffer.as_mut_slice().get_mut(..len).ok_or_else(|| internal!(HAS_ROOM))?;
            *is_read = self.disk.read_extent(extent, 0, room).is_ok();
        }
        let compared = {
            let [first, second] = &buffers;
            let [is_first, is_second] = are_read;
            let bytes = [
                first.as_slice().get(..len).filter(|_| is_first),
                second.as_slice().get(..len).filter(|_| is_second),
            ];
            self.compare_copies(id, place, bytes)
        };
        buffers.into_iter().for_each(|buffer| self.give_back(buffer));
        compared
    }

    /// Compares both copies of a node with its checksums. `whole` are the bytes of each copy, if they were
    /// read; what is missing is read, part by part. Without a second copy nothing is wrong.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::Internal`].
    pub fn compare_copies(
        &self,
        id: NodeId,
        place: &NodePlace,
        whole: [Option<&[u8]>; 2],
    ) -> Result<Compared> {
        let mut compared = Compared::default();
        let Some(copy) = place.extent.copy() else { return Ok(compared) };
        let places = [place.at(&place.extent), place.at(copy)];
        let [first, second] = &places;
        let header = |at: &NodePlace, whole: Option<&[u8]>| match whole {
            Some(bytes) => self.refuse_too_long(at).and_then(|()| self.header_in(bytes, id, at, None)),
            None => self.read_first_header(id, at, None),
        };
        let [bytes, bytes_of_copy] = whole;
        let headers = [header(first, bytes), header(second, bytes_of_copy)];
        let Some(header) = compared.part(headers) else { return Ok(compared) };
        for piece in self.node_of(header, place)?.pieces() {
            for run in piece.stored().map(|stored| stored.runs).unwrap_or_default() {
                let read = |at: &NodePlace, whole: Option<&[u8]>| {
                    self.disk.health.count_damage(match whole {
                        Some(bytes) => run_in(bytes, &at.extent, &run),
                        None => self.verified_run(&at.extent, &run).map(drop),
                    })
                };
                compared.part([read(first, bytes), read(second, bytes_of_copy)]);
            }
        }
        let is_unread = |error: &&Error| !error.is_unreadable();
        compared.one_bad.iter().find(is_unread).map_or(Ok(()), |error| Err(error.clone()))?;
        Ok(compared)
    }
}

/// The second copy of an extent, for a reader that has met this error in the first one.
fn other_copy<'e>(extent: &'e Extent, error: &Error) -> Option<&'e Arc<Extent>> {
    extent.copy().filter(|_| error.is_unreadable() && !planted::is(Bug::NodeCopyNotRead))
}

/// Compares a run in the bytes of a whole extent with its checksum.
fn run_in(bytes: &[u8], extent: &Extent, at: &RunRef) -> Result<()> {
    let start = at.offset as usize;
    match bytes.get(start..start + at.stored_len as usize) {
        Some(stored) if xxh3_64(stored) == at.checksum => Ok(()),
        _ => Err(corrupt(extent, at, "the checksum does not match")),
    }
}
