//! From memory to the device.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_sys::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use super::{NodePlace, Store};
use crate::cache::{Piece, Stored};
use crate::error::{Error, Result};
use crate::format::node::{Entries, Header, PieceRef, StoredEdge};
use crate::io::AlignedBuf;
use crate::node::{Body, Node};

impl Store {
    /// Writes a node to a new extent, all its pieces with it, and from then on they can be evicted.
    ///
    /// What is in memory is compressed; what is not is copied as it is stored, checked on the way.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if that many blocks are not free; then nothing was written.
    pub fn write_node(&self, node: &Node) -> Result<NodePlace> {
        let pieces = node.pieces();
        let (refs, body) = self.encode_pieces(&pieces)?;
        let header = Header {
            id: node.id,
            height: node.height,
            lo: node.lo.clone(),
            hi: node.hi.clone(),
            entries: entries(node, &refs),
        }
        .encode();
        let len = header.len() + body.len();
        let blocks = len.div_ceil(BLOCK_BYTES);
        let extent = self.space.allocate(blocks as u64, usize::MAX).ok_or(Error::NoSpace)?;
        let mut buffer = AlignedBuf::zeroed(blocks)?;
        let room = buffer.as_mut_slice();
        if let Some((head, rest)) = room.split_at_mut_checked(header.len()) {
            head.copy_from_slice(&header);
            if let Some(rest) = rest.get_mut(..body.len()) {
                rest.copy_from_slice(&body);
            }
        }
        self.disk.write_extent(&extent, buffer.as_slice())?;
        for (piece, at) in pieces.iter().zip(refs) {
            let at = PieceRef { offset: at.offset + header.len() as u32, ..at };
            if piece.written(Stored { extent: extent.clone(), at }) {
                self.cache.watch(piece);
            }
        }
        Ok(NodePlace { extent, header_len: header.len() as u32, header_checksum: xxh3_64(&header) })
    }

    /// The pieces' stored bytes one after the other, and where each is.
    fn encode_pieces(&self, pieces: &[Arc<Piece>]) -> Result<(Vec<PieceRef>, Vec<u8>)> {
        let resident: Vec<_> = pieces.iter().map(|p| p.resident()).collect();
        let absent: Vec<Stored> = pieces
            .iter()
            .zip(&resident)
            .filter(|(_, run)| run.is_none())
            .filter_map(|(piece, _)| piece.stored())
            .collect();
        let mut copied = self.read_stored(&absent)?.into_iter().zip(&absent);
        let mut refs = Vec::with_capacity(pieces.len());
        let mut body = Vec::new();
        for run in resident {
            let offset = body.len() as u32;
            if let Some(run) = run {
                let stored_as = self.encode(run.as_bytes(), &mut body)?;
                let stored = body.get(offset as usize..).unwrap_or_default();
                refs.push(PieceRef {
                    offset,
                    stored_len: stored.len() as u32,
                    raw_len: run.as_bytes().len() as u32,
                    stored_as,
                    checksum: xxh3_64(stored),
                });
            } else if let Some((bytes, stored)) = copied.next() {
                if xxh3_64(&bytes) != stored.at.checksum {
                    return Err(Error::Corrupt {
                        what: "a node's piece",
                        offset: stored.extent.place(u64::from(stored.at.offset)),
                        len: u64::from(stored.at.stored_len),
                        why: "the checksum does not match".into(),
                    });
                }
                body.extend_from_slice(&bytes);
                refs.push(PieceRef { offset, ..stored.at });
            }
        }
        Ok((refs, body))
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
                })
                .collect(),
        ),
    }
}
