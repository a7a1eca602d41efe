//! From memory to the device.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_sys::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use super::behind::Job;
use super::keep::Kept;
use super::{NodePlace, Store};
use crate::cache::{Piece, Stored};
use crate::error::{Error, Result};
use crate::format::node::{Entries, Header, PieceRef, StoredAs, StoredEdge};
use crate::io::AlignedBuf;
use crate::node::{Body, Node};

/// A node that is ready to be written, or being so.
pub(crate) struct Outgoing {
    pub node: Arc<Node>,
    pub place: NodePlace,
    /// What of the place was not written, in whole blocks.
    pub kept_bytes: u64,
    pieces: Vec<(Arc<Piece>, PieceRef)>,
}

impl Store {
    /// Makes a node ready for a new extent, all its pieces with it, and gives it to be written:
    /// `behind` tells by the ticket when that is done. `last` is where it stands now, if it does.
    ///
    /// What is in memory is compressed; what is not is copied as it is stored, checked on the way. Where the
    /// device does not seek and space is not short, pieces that have not changed stay where they are.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if that many blocks are not free; then nothing was given.
    pub fn send_node(&self, node: Arc<Node>, last: Option<&NodePlace>, ticket: usize) -> Result<Outgoing> {
        let pieces = node.pieces();
        let may_keep = !self.disk.seeks() && self.space.free_blocks() > self.space.total_blocks() / 8;
        let kept = last.filter(|_| may_keep).map_or_else(Kept::default, |place| Kept::plan(&pieces, place));
        let stays = |piece: &Arc<Piece>| {
            let stored = piece.stored()?;
            Some((kept.offset_of(&stored)?, stored.at))
        };
        let staying: Vec<Option<(u64, PieceRef)>> = pieces.iter().map(stays).collect();
        let moving: Vec<_> = pieces
            .iter()
            .zip(&staying)
            .filter(|(_, stays)| stays.is_none())
            .map(|(p, _)| p.clone())
            .collect();
        let header = |refs: &[PieceRef]| {
            let entries = entries(&node, refs);
            Header { id: node.id, height: node.height, lo: node.lo.clone(), hi: node.hi.clone(), entries }
        };
        let header_len = header(&alloc::vec![PieceRef::default(); pieces.len()]).encode().len();
        let (moved, mut buffer, len) = self.encode_pieces(&moving, header_len)?;
        let blocks = len.div_ceil(BLOCK_BYTES);
        let mut moved = moved.into_iter();
        let refs: Vec<PieceRef> = staying
            .into_iter()
            .filter_map(|stays| match stays {
                Some((offset, at)) => {
                    Some(PieceRef { offset: (blocks * BLOCK_BYTES) as u32 + offset as u32, ..at })
                }
                None => moved.next(),
            })
            .collect();
        let header = header(&refs).encode();
        let parts = kept.parts();
        let extent = self.space.allocate_before(blocks as u64, usize::MAX, &parts).ok_or(Error::NoSpace)?;
        if let Some(room) = buffer.as_mut_slice().get_mut(..header_len) {
            room.copy_from_slice(&header);
        }
        if let Some(rest) = buffer.as_mut_slice().get_mut(len..blocks * BLOCK_BYTES) {
            rest.fill(0);
        }
        self.behind.write(&self.disk, Job { buffer, extent: extent.clone(), blocks, ticket });
        let place = NodePlace { extent, header_len: header_len as u32, header_checksum: xxh3_64(&header) };
        let kept_bytes = parts.iter().map(|part| part.len_blocks * BLOCK_BYTES as u64).sum();
        Ok(Outgoing { pieces: pieces.into_iter().zip(refs).collect(), node, place, kept_bytes })
    }

    /// A node that was sent has been written: from now on its pieces can be evicted.
    pub fn node_written(&self, outgoing: &Outgoing) {
        for (piece, at) in &outgoing.pieces {
            if piece.written(Stored { extent: outgoing.place.extent.clone(), at: *at }) {
                self.cache.watch(piece);
            }
        }
        self.cache.evict();
    }

    /// The pieces' stored bytes one after the other from byte `start` of a buffer of whole blocks
    /// on, where each is, and where the last ends. What lies before and behind them is anything.
    fn encode_pieces(
        &self,
        pieces: &[Arc<Piece>],
        start: usize,
    ) -> Result<(Vec<PieceRef>, AlignedBuf, usize)> {
        let resident: Vec<_> = pieces.iter().map(|p| p.resident()).collect();
        let absent: Vec<Stored> = pieces
            .iter()
            .zip(&resident)
            .filter(|(_, run)| run.is_none())
            .filter_map(|(piece, _)| piece.stored())
            .collect();
        let most = resident.iter().flatten().map(|run| self.encoded_len_max(run.as_bytes().len()));
        let room = most.sum::<usize>() + absent.iter().map(|s| s.at.stored_len as usize).sum::<usize>();
        let mut buffer = self.behind.spare();
        buffer.grow_to((start + room).div_ceil(BLOCK_BYTES))?;
        let mut copied = self.read_stored(&absent)?.into_iter().zip(&absent);
        let mut refs = Vec::with_capacity(pieces.len());
        let mut paying = Paying::default();
        let mut end = start;
        for run in resident {
            let offset = end as u32;
            let room = buffer.as_mut_slice().get_mut(end..).unwrap_or_default();
            if let Some(run) = run {
                let raw = run.as_bytes();
                let (stored_as, len) = self.encode(raw, paying.is_worth_a_try(), room)?;
                paying.tell(stored_as != StoredAs::Raw);
                refs.push(PieceRef {
                    offset,
                    stored_len: len as u32,
                    raw_len: raw.len() as u32,
                    stored_as,
                    checksum: xxh3_64(room.get(..len).unwrap_or_default()),
                });
                end += len;
            } else if let Some((bytes, stored)) = copied.next() {
                if xxh3_64(&bytes) != stored.at.checksum {
                    return Err(Error::Corrupt {
                        what: "a node's piece",
                        offset: stored.extent.place(u64::from(stored.at.offset)),
                        len: u64::from(stored.at.stored_len),
                        why: "the checksum does not match".into(),
                    });
                }
                if let Some(room) = room.get_mut(..bytes.len()) {
                    room.copy_from_slice(&bytes);
                }
                refs.push(PieceRef { offset, ..stored.at });
                end += bytes.len();
            }
        }
        Ok((refs, buffer, end))
    }
}

/// Whether compressing pays, as the pieces of one node so far say: neighbours are alike.
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

    fn tell(&mut self, paid: bool) {
        if paid {
            self.misses = 0;
        } else if self.passed_over == 0 {
            self.misses += 1;
        }
    }
}

/// The node's entries with the places of its pieces, in the order of [`Node::pieces`].
fn entries(node: &Node, refs: &[PieceRef]) -> Entries {
    let mut refs = refs.iter().copied();
    match &node.body {
        Body::Leaf(basements) => {
            Entries::Leaf(basements.iter().zip(refs).map(|(b, at)| (b.first.clone(), at)).collect())
        }
        Body::Interior(edges) => Entries::Interior(
            edges
                .iter()
                .map(|edge| StoredEdge {
                    hi: edge.hi.clone(),
                    translation: edge.translation.clone(),
                    child: edge.child,
                    longest_key: edge.longest_key,
                    partition: edge.partition.as_ref().and_then(|_| refs.next()),
                    gotos: edge.gotos.clone(),
                })
                .collect(),
        ),
    }
}
