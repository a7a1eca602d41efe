//! From memory to the device.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_64;

use super::block_reuse::{BlockReuse, Unchanged};
use super::spans::Span;
use super::{HAS_ROOM, NodePlace, Store, Way, corrupt};
use crate::cache::{OnDevice, Piece, Residency};
use crate::error::{Error, Result};
use crate::format::node::{Entries, Header, Origin, RunRef, StoredAs, StoredEdge};
use crate::invariant::{internal, invariant};
use crate::io::AlignedBuf;
use crate::node::{Body, Node};
use crate::run::{Run, only_folded};
use crate::space::Extent;
use crate::upsert::Upsert;

/// A node that is ready to be written.
pub(crate) struct Encoded {
    node: Arc<Node>,
    pieces: Vec<WrittenPiece>,
    header_len: u32,
    header_checksum: u64,
    /// How many blocks are to be written.
    blocks: usize,
    /// The blocks of earlier extents that are a part of the next.
    kept: BlockReuse,
    /// Whether it gets a second copy, if there is room.
    wants_copy: bool,
}

impl Encoded {
    /// The bytes of the new blocks that it needs, without a second copy.
    pub fn bytes(&self) -> u64 {
        (self.blocks * BLOCK_BYTES) as u64
    }

    /// Whether it gets a second copy, if there is room.
    pub fn wants_copy(&self) -> bool {
        self.wants_copy
    }
}

/// A node that has its place.
pub(crate) struct Outgoing {
    pub node: Arc<Node>,
    pub place: NodePlace,
    /// What of the place is not written, in whole blocks.
    pub kept_bytes: u64,
    /// What was written to its second copy.
    pub(super) copied_bytes: u64,
    blocks: usize,
    pieces: Vec<WrittenPiece>,
}

impl Outgoing {
    /// The bytes of the new blocks, those of its second copy included.
    pub fn written_bytes(&self) -> u64 {
        (self.blocks * BLOCK_BYTES) as u64 + self.copied_bytes
    }
}

/// A piece of a node with its runs in the new extent.
struct WrittenPiece {
    piece: Arc<Piece>,
    runs: Vec<RunRef>,
    folded: Option<Arc<Run>>,
}

/// How a piece is stored in its node's next extent.
struct Form {
    /// Runs that stay, first of all; their offsets count in the blocks that are kept.
    staying: Vec<RunRef>,
    /// Runs that are copied as they are stored elsewhere.
    copied: Option<OnDevice>,
    /// What comes from memory.
    encoded: Option<Arc<Run>>,
    /// That is all of it, pairs and messages put together.
    is_folded: bool,
}

impl Form {
    fn of(
        piece: &Arc<Piece>,
        unchanged: Option<Unchanged>,
        kept: &BlockReuse,
        upsert: &dyn Upsert,
    ) -> Result<Form> {
        let staying = |OnDevice { extent, runs }: &OnDevice| -> Option<Vec<RunRef>> {
            let stays = |at: &RunRef| Some(RunRef { offset: kept.offset_of(extent, at)? as u32, ..*at });
            runs.iter().map(stays).collect()
        };
        if let Some(Unchanged { stored, newer }) = unchanged
            && let Some(staying) = staying(&stored)
        {
            return Ok(Form { staying, copied: None, encoded: newer, is_folded: false });
        }
        // What is written anew is written as it is read best.
        if let Some(pairs) = piece.layers().and_then(|layers| only_folded(layers, upsert)) {
            return Ok(Form { staying: Vec::new(), copied: None, encoded: Some(pairs), is_folded: true });
        }
        let (copied, encoded) = match piece.residency()? {
            Residency::Memory(layers) => (None, Some(piece.join(&layers))),
            Residency::OnDevice { at, newer, .. } => (Some(at), newer),
        };
        Ok(Form { staying: Vec::new(), copied, encoded, is_folded: false })
    }

    /// Of how many runs the piece will be.
    fn runs(&self) -> usize {
        let copied = self.copied.as_ref().map_or(0, |stored| stored.runs.len());
        self.staying.len() + copied + usize::from(self.encoded.is_some())
    }
}

/// How a version is written.
#[derive(Clone, Copy)]
struct How {
    may_keep_blocks: bool,
    wants_copy: bool,
    on_unread: OnUnread,
}

/// What is done about runs to be copied that the device does not give.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnUnread {
    /// It is an error.
    Refuse,
    /// Their blocks are kept, and no others. Where the node may not keep them it is an error.
    Keep,
    /// As that, but bytes that do not match the checksum take their place, for readers to notice.
    GiveUp,
}

impl Store {
    /// Encodes a node and its pieces for a new extent into a buffer, and overwrites what that held. `last` is
    /// the node's present place, if it has one.
    ///
    /// Pieces in memory are compressed; the others are copied as stored, their checksums verified: what does
    /// not match stays as it is, for its readers to notice, and keeps nothing else from being written. On a
    /// device that does not seek, with enough free space, unchanged pieces keep their blocks, even blocks of
    /// a node that is gone. Of a piece with newer messages only these are written.
    ///
    /// What the device refuses to read keeps its blocks too. Where another node has them it is an error: the
    /// device may give them later, and they would be lost to this one.
    ///
    /// # Errors
    /// Where a piece cannot be read, or there is no memory.
    pub fn encode_node(
        &self,
        dict: u8,
        node: Arc<Node>,
        last: Option<&NodePlace>,
        buffer: &mut AlignedBuf,
    ) -> Result<Encoded> {
        let wants_copy = self.wants_copy(&node) && (last.is_none() || self.has_room_for_copy(&node));
        let may_keep_blocks = self.may_keep_blocks();
        let how = How { may_keep_blocks, wants_copy, on_unread: OnUnread::Refuse };
        let encoded = self.encode_version(dict, node.clone(), last, how, buffer);
        if !encoded.as_ref().is_err_and(Error::is_unreadable) {
            return encoded;
        }
        // What the device refuses to read may stay where it is, unless another node has it there.
        let how = How { may_keep_blocks: true, wants_copy: false, on_unread: OnUnread::Keep };
        self.encode_version(dict, node, last, how, buffer)
    }

    /// As [`encode_node`](Store::encode_node), with all blocks new and no second copy, and without what the
    /// device refuses to read, which the views of that version lose alone: for a version that is
    /// older than the last written one, whose blocks may hold newer pairs.
    ///
    /// # Errors
    /// As those of [`encode_node`](Store::encode_node).
    pub fn encode_old_version(&self, dict: u8, node: Arc<Node>, buffer: &mut AlignedBuf) -> Result<Encoded> {
        let on_unread = OnUnread::GiveUp;
        self.encode_version(
            dict,
            node,
            None,
            How { may_keep_blocks: false, wants_copy: false, on_unread },
            buffer,
        )
    }

    fn encode_version(
        &self,
        dict: u8,
        node: Arc<Node>,
        last: Option<&NodePlace>,
        how: How,
        buffer: &mut AlignedBuf,
    ) -> Result<Encoded> {
        let How { may_keep_blocks, wants_copy, on_unread } = how;
        let pieces = node.pieces();
        let last = last.map(|place| &place.extent);
        let mut unchanged: Vec<_> = match may_keep_blocks {
            true => pieces.iter().map(|piece| Unchanged::of(piece, last, wants_copy)).collect(),
            false => pieces.iter().map(|_| None).collect(),
        };
        if on_unread != OnUnread::Refuse {
            for part in &mut unchanged {
                part.take_if(|part| self.is_read(&part.stored));
            }
        }
        let kept = BlockReuse::plan(&pieces, &unchanged, on_unread != OnUnread::Refuse);
        let encoded = self.encode_beside(dict, node, &pieces, unchanged, &kept, how, buffer);
        if encoded.is_err() {
            kept.release();
        }
        Ok(Encoded { kept, ..encoded? })
    }

    /// As [`encode_version`](Store::encode_version), beside the blocks that are kept, which the result lacks.
    #[allow(clippy::too_many_arguments)]
    fn encode_beside(
        &self,
        dict: u8,
        node: Arc<Node>,
        pieces: &[Arc<Piece>],
        unchanged: Vec<Option<Unchanged>>,
        kept: &BlockReuse,
        how: How,
        buffer: &mut AlignedBuf,
    ) -> Result<Encoded> {
        let How { wants_copy, on_unread, .. } = how;
        let upsert = &self.upsert;
        let forms =
            pieces.iter().zip(unchanged).map(|(piece, unchanged)| Form::of(piece, unchanged, kept, upsert));
        let forms = forms.collect::<Result<Vec<Form>>>()?;
        // An old version is of no checkpoint: by a later one a scan of headers would take it for the newest.
        let is_old = on_unread == OnUnread::GiveUp;
        let checkpoint = if is_old { 0 } else { self.generation.load(Ordering::Relaxed) };
        let origin = Origin { volume_id: self.volume_id, dict, checkpoint };
        let header = |extent_blocks: u32, refs: &[Vec<RunRef>]| -> Result<Header> {
            Ok(Header {
                origin,
                id: node.id,
                extent_blocks,
                height: node.height,
                lo: node.lo.clone(),
                hi: node.hi.clone(),
                entries: entries(&node, refs)?,
                sections: Vec::new(),
            })
        };
        let blank: Vec<_> = forms.iter().map(|form| alloc::vec![RunRef::default(); form.runs()]).collect();
        let header_len = header(0, &blank)?.encode().len();
        let (written, len) = self.encode_runs(&forms, header_len, on_unread == OnUnread::GiveUp, buffer)?;
        let blocks = len.div_ceil(BLOCK_BYTES);
        let behind = |run: RunRef| RunRef { offset: (blocks * BLOCK_BYTES) as u32 + run.offset, ..run };
        let folded: Vec<_> =
            forms.iter().map(|form| form.encoded.clone().filter(|_| form.is_folded)).collect();
        let refs: Vec<Vec<RunRef>> = forms
            .into_iter()
            .zip(written)
            .map(|(form, written)| form.staying.into_iter().map(behind).chain(written).collect())
            .collect();
        let kept_blocks: u64 = kept.parts().iter().map(|part| part.len_blocks).sum();
        let extent_blocks = blocks as u64 + kept_blocks;
        let header = header(extent_blocks as u32, &refs)?.encode();
        self.refuse_unreadable(&node, &header, extent_blocks)?;
        invariant!(header.len() == header_len, "a header is as long with the places of runs as without");
        let room = buffer.as_mut_slice().get_mut(..header_len).ok_or_else(|| internal!(HAS_ROOM))?;
        room.copy_from_slice(&header);
        let rest = buffer.as_mut_slice().get_mut(len..blocks * BLOCK_BYTES);
        rest.ok_or_else(|| internal!(HAS_ROOM))?.fill(0);
        let header_checksum =
            Header::checksum(&header).ok_or_else(|| internal!("a header has a checksum"))?;
        Ok(Encoded {
            pieces: pieces
                .iter()
                .cloned()
                .zip(refs)
                .zip(folded)
                .map(|((piece, runs), folded)| WrittenPiece { piece, runs, folded })
                .collect(),
            node,
            header_len: header_len as u32,
            header_checksum,
            blocks,
            kept: BlockReuse::default(),
            wants_copy,
        })
    }

    /// Refuses a header that could not be read back from an extent of `extent_blocks`.
    fn refuse_unreadable(&self, node: &Node, header: &[u8], extent_blocks: u64) -> Result<()> {
        let extent_bytes = extent_blocks * BLOCK_BYTES as u64;
        let limit_bytes = self.limits.header_bytes;
        if header.len() as u64 > limit_bytes {
            return Err(Error::TooLarge { what: "a node's header", bytes: header.len() as u64, limit_bytes });
        }
        let next_msn = self.next_msn.load(Ordering::Relaxed);
        match Header::decode(header, extent_bytes, &self.limits, next_msn) {
            Ok(_) => Ok(()),
            Err(bad) => Err(bad.into_error(0, |why| {
                let why =
                    alloc::format!("node {} would be written so that it cannot be read: {why}", node.id);
                Error::Corrupt { what: "a node in memory", offset: 0, len: header.len() as u64, why }
            })),
        }
    }

    /// Whether a new version of a node may keep blocks of its last extent. On a device that seeks, a scan
    /// wants the node in one place; where space is short, useless bytes in kept blocks have to go.
    pub fn may_keep_blocks(&self) -> bool {
        !self.disk.seeks() && self.space.free_blocks() > self.space.total_blocks() / 8
    }

    /// Gives a node that is ready an extent: new blocks, and behind them those that it keeps.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if that many blocks are not free.
    pub fn place_node(&self, encoded: Encoded) -> Result<Outgoing> {
        let Encoded { node, pieces, header_len, header_checksum, blocks, kept, wants_copy } = encoded;
        let kept_parts = kept.parts();
        let extent = self.allocate(blocks as u64, usize::MAX, &kept_parts);
        let Some(mut extent) = extent else {
            kept.release();
            return Err(self.no_room(blocks as u64));
        };
        if wants_copy {
            extent = self.with_node_copy(extent, blocks, &kept);
        }
        let place = NodePlace { extent, header_len, header_checksum };
        let kept_bytes = kept_parts.iter().map(|part| part.len_blocks * BLOCK_BYTES as u64).sum();
        Ok(Outgoing { node, place, kept_bytes, copied_bytes: 0, blocks, pieces })
    }

    /// Writes the new blocks of a node from the buffer in which it was made ready, to both copies if it has
    /// two.
    ///
    /// # Errors
    /// The device's.
    pub fn write_node(&self, outgoing: Outgoing, buffer: &AlignedBuf) -> Result<Outgoing> {
        let bytes = buffer.as_slice().get(..outgoing.blocks * BLOCK_BYTES);
        let bytes = bytes.ok_or_else(|| internal!("a node is written from where it was made ready"))?;
        self.disk.write_extent(&outgoing.place.extent, bytes)?;
        self.write_node_copy(outgoing, bytes)
    }

    /// A node has been written: from now on its pieces can be evicted.
    pub fn node_written(&self, outgoing: &Outgoing) {
        for WrittenPiece { piece, runs, folded } in &outgoing.pieces {
            let stored = OnDevice { extent: outgoing.place.extent.clone(), runs: runs.clone() };
            if piece.written(stored, folded.clone()) {
                self.cache.watch(piece);
            }
        }
        self.cache.evict();
    }

    /// Encodes the runs that are to be written, one after the other from byte `start` of the buffer. Returns
    /// the places of each piece's runs, and the end of the last. Other bytes of the buffer are undefined.
    fn encode_runs(
        &self,
        forms: &[Form],
        start: usize,
        gives_up: bool,
        buffer: &mut AlignedBuf,
    ) -> Result<(Vec<Vec<RunRef>>, usize)> {
        let copies: Vec<OnDevice> = forms.iter().filter_map(|form| form.copied.clone()).collect();
        let copied = copies.iter().flat_map(|stored| &stored.runs).map(|at| at.stored_len as usize);
        let encoded = forms.iter().filter_map(|form| form.encoded.as_ref());
        let room = copied.sum::<usize>()
            + encoded.map(|run| Store::encoded_len_max(run.as_bytes().len())).sum::<usize>();
        buffer.grow_to((start + room).div_ceil(BLOCK_BYTES))?;
        let mut bytes_copied = self.read_stored(&copies)?.into_iter();
        let mut refs = Vec::with_capacity(forms.len());
        let mut paying = Paying::default();
        let mut end = start;
        for form in forms {
            let mut written = Vec::new();
            if let Some(stored) = &form.copied {
                for (at, bytes) in stored.runs.iter().zip(bytes_copied.by_ref()) {
                    let bytes = bytes.and_then(|bytes| match xxh3_64(&bytes) == at.checksum {
                        true => Ok(bytes),
                        false => Err(corrupt(&stored.extent, at, "the checksum does not match")),
                    });
                    let bytes = self.disk.health.count_damage(bytes);
                    let bytes = bytes.or_else(|error| self.run_of_other_copy(&stored.extent, at, error));
                    let bytes = bytes.or_else(|error| self.rotten_run(&stored.extent, at, error));
                    let bytes = match bytes {
                        Err(error) if gives_up && error.is_unreadable() => {
                            self.disk.health.note_failed_work(&error);
                            no_run(at)
                        }
                        bytes => bytes?,
                    };
                    let room = buffer.as_mut_slice().get_mut(end..end + bytes.len());
                    room.ok_or_else(|| internal!(HAS_ROOM))?.copy_from_slice(&bytes);
                    written.push(RunRef { offset: end as u32, ..*at });
                    end += bytes.len();
                }
            }
            if let Some(run) = &form.encoded {
                let room = buffer.as_mut_slice().get_mut(end..).ok_or_else(|| internal!(HAS_ROOM))?;
                let raw = run.as_bytes();
                let asked = self.asked_by(run);
                let way = self.way_for(asked);
                // What asks for none says nothing of the others.
                let is_tried = way != Way::None && paying.is_worth_a_try();
                let (stored_as, len) = self.encode(raw, if is_tried { way } else { Way::None }, room)?;
                let stored = room.get(..len).ok_or_else(|| internal!(HAS_ROOM))?;
                let ranges = u32::try_from(run.ranges().len());
                if way != Way::None {
                    paying.note(stored_as != StoredAs::Raw);
                }
                written.push(RunRef {
                    offset: end as u32,
                    stored_len: len as u32,
                    raw_len: raw.len() as u32,
                    stored_as,
                    asked,
                    ranges: ranges.map_err(|_| internal!("a run has fewer ranges than bytes"))?,
                    checksum: xxh3_64(stored),
                    last_msn: run.last_msn(),
                });
                end += len;
            }
            refs.push(written);
        }
        Ok((refs, end))
    }
}

impl Store {
    /// The stored bytes of a run of which no copy matches its checksum, read once more.
    ///
    /// # Errors
    /// The `error` of the first read, if the device gives no bytes.
    fn rotten_run(&self, extent: &Extent, at: &RunRef, error: Error) -> Result<Vec<u8>> {
        let read = self.read_spans(&[Span::of_run(extent, at)])?.pop();
        read.and_then(Result::ok).filter(|bytes| bytes.len() == at.stored_len as usize).ok_or(error)
    }

    /// Whether the device gives all runs of a piece.
    fn is_read(&self, stored: &OnDevice) -> bool {
        self.read_stored(core::slice::from_ref(stored)).is_ok_and(|runs| runs.iter().all(Result::is_ok))
    }
}

/// Bytes in the place of a run that is lost: they do not match its checksum.
fn no_run(at: &RunRef) -> Vec<u8> {
    let mut bytes = alloc::vec![0; at.stored_len as usize];
    if xxh3_64(&bytes) == at.checksum {
        bytes.fill(1);
    }
    bytes
}

/// Whether compression pays, judged by the last pieces of the same node.
#[derive(Default)]
struct Paying {
    /// Pieces in a row that were not worth it.
    misses: u32,
    /// Pieces not tried since.
    passed_over: u32,
}

impl Paying {
    /// After two misses, one piece in eight.
    fn is_worth_a_try(&mut self) -> bool {
        if self.misses < 2 || self.passed_over == 7 {
            self.passed_over = 0;
            return true;
        }
        self.passed_over += 1;
        false
    }

    fn note(&mut self, paid: bool) {
        if paid {
            self.misses = 0;
        } else if self.passed_over == 0 {
            self.misses += 1;
        }
    }
}

/// The node's entries with the places of its pieces' runs, in the order of [`Node::pieces`].
fn entries(node: &Node, refs: &[Vec<RunRef>]) -> Result<Entries> {
    let mut refs = refs.iter();
    let mut next = || refs.next().cloned().ok_or_else(|| internal!("every piece has its runs' places"));
    Ok(match &node.body {
        Body::Leaf(basements) => {
            let stored = basements.iter().map(|b| Ok((b.first.clone(), next()?)));
            Entries::Leaf(stored.collect::<Result<_>>()?)
        }
        Body::Interior(edges) => {
            let stored = edges.iter().map(|edge| {
                Ok(StoredEdge {
                    hi: edge.hi.clone(),
                    translation: edge.translation.clone(),
                    child: edge.child,
                    longest_key: edge.longest_key,
                    partition: edge.partition.as_ref().map_or(Ok(Vec::new()), |_| next())?,
                    gotos: edge.gotos.clone(),
                })
            });
            Entries::Interior(stored.collect::<Result<_>>()?)
        }
    })
}
