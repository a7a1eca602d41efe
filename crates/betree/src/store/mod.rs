//! Nodes and pieces between memory and device: compression, checksums and places.

mod backing;
mod block_reuse;
mod copies;
mod queue;
mod read;
mod readahead;
mod spans;
mod verify;
mod write;
mod write_behind;
mod writeback;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use betree_platform::{BLOCK_BYTES, Codec};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use backing::STEP_BLOCKS_MIN;
pub(crate) use copies::{COPIED_FROM_HEIGHT, CopyState};
pub(crate) use read::{ReadScope, Reading, Together};
pub(crate) use readahead::{LEAVES_AHEAD, Readahead, Request};
pub(crate) use write::{Encoded, Outgoing};
pub(crate) use write_behind::{PlaceNode, WriteBehind};
pub(crate) use writeback::Writeback;

use crate::cache::{Cache, OnDevice};
use crate::error::{Error, Result};
use crate::expiry::Clock;
use crate::format::limits::Limits;
use crate::format::node::{RunRef, StoredAs};
use crate::invariant::internal;
use crate::io::Disk;
use crate::message::{Msn, PairCompression, ZstdLevel};
use crate::planted::{self, Bug};
use crate::run::{Layers, Run};
use crate::settings::Compression;
use crate::space::{Extent, Space};
use crate::upsert::Bounded;

/// The invariant of a buffer: it has the room that was asked for when it was made, or grown.
const HAS_ROOM: &str = "a buffer has the room that it was made with";

/// The device, and everything needed to keep nodes on it.
pub(crate) struct Store {
    pub disk: Arc<Disk>,
    pub space: Arc<Space>,
    /// The bounds of every node.
    pub limits: Limits,
    /// No message on the device has this number or a later one.
    pub next_msn: AtomicU64,
    /// The volume id that each node carries.
    pub volume_id: [u8; 16],
    /// The generation of the superblock for which nodes are written: no node on the device is of a later one.
    pub generation: AtomicU64,
    pub cache: Cache,
    pub compression: Compression,
    /// Whether pairs may ask for a compression of their own: the superblock on the device says so.
    pub pairs_ask: AtomicBool,
    /// Second copies of interior nodes.
    pub copies: CopyState,
    /// The zstd codec, if the platform brings one.
    pub zstd: Option<Arc<dyn Codec>>,
    /// The meaning of upserts.
    pub upsert: Bounded,
    /// The clock by which values expire.
    pub clock: Clock,
    /// Reads in progress.
    pub reading: Reading,
    /// Reads for scans to come.
    pub readahead: Readahead,
    /// Writes in progress.
    pub writeback: Writeback,
}

/// How a run is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Not at all.
    None,
    Lz4,
    /// zstd of a level, or of the codec's own.
    Zstd(Option<ZstdLevel>),
}

/// The place of a node on the device.
#[derive(Clone)]
pub(crate) struct NodePlace {
    pub extent: Arc<Extent>,
    pub header_len: u32,
    pub header_checksum: u64,
}

impl NodePlace {
    /// The place of the same node in another extent with the same bytes.
    fn at(&self, extent: &Arc<Extent>) -> NodePlace {
        NodePlace { extent: Arc::clone(extent), ..*self }
    }

    /// The error of a damaged header of the node there.
    pub fn corrupt(&self, why: &str) -> Error {
        let (offset, len) = (self.extent.place(0), u64::from(self.header_len));
        Error::Corrupt { what: "a node's header", offset, len, why: why.into() }
    }
}

/// The error of a damaged run.
fn corrupt(extent: &Extent, at: &RunRef, why: &str) -> Error {
    let (offset, len) = (extent.place(u64::from(at.offset)), u64::from(at.stored_len));
    Error::Corrupt { what: "a node's piece", offset, len, why: why.into() }
}

/// A buffer of zeros.
///
/// # Errors
/// [`Error::NoMemory`].
fn zeroed(len: usize) -> Result<Vec<u8>> {
    #[cfg(test)]
    crate::io::asked::note(len);
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| Error::NoMemory { bytes: len as u64 })?;
    buffer.resize(len, 0);
    Ok(buffer)
}

impl Store {
    /// Allows messages before `next_msn` on the device.
    pub fn expect_messages_before(&self, next_msn: Msn) {
        self.next_msn.fetch_max(next_msn, Ordering::Relaxed);
    }

    /// Turns the stored bytes of a piece's runs into its contents, verified. A run that is bad or could not
    /// be read is read from the node's other copy, if it has one.
    fn contents(&self, stored: &OnDevice, bytes: impl Iterator<Item = Result<Vec<u8>>>) -> Result<Layers> {
        let OnDevice { extent, runs } = stored;
        let runs = runs.iter().zip(bytes).map(|(at, bytes)| {
            let run = bytes.and_then(|bytes| self.decode(extent, at, bytes));
            run.or_else(|error| self.decode(extent, at, self.run_of_other_copy(extent, at, error)?))
        });
        let mut runs = runs.map(|run| run.map(Arc::new)).collect::<Result<Vec<_>>>()?;
        if planted::is(Bug::NewerRunsTakenForOlder) {
            runs.reverse();
        }
        Layers::of(&runs).ok_or_else(|| internal!("a piece on the device has a run"))
    }

    /// Turns the stored bytes of a run into the run, verified. Damage is counted.
    fn decode(&self, extent: &Extent, at: &RunRef, bytes: Vec<u8>) -> Result<Run> {
        self.disk.health.count_damage(self.decode_uncounted(extent, at, bytes))
    }

    fn decode_uncounted(&self, extent: &Extent, at: &RunRef, bytes: Vec<u8>) -> Result<Run> {
        let corrupt = |why: &str| corrupt(extent, at, why);
        if xxh3_64(&bytes) != at.checksum {
            return Err(corrupt("the checksum does not match"));
        }
        let raw = match at.stored_as {
            StoredAs::Raw if bytes.len() == at.raw_len as usize => bytes,
            StoredAs::Raw => return Err(corrupt("stored and raw length differ")),
            StoredAs::Lz4 => {
                let mut raw = zeroed(at.raw_len as usize)?;
                match lz4_flex::block::decompress_into(&bytes, &mut raw) {
                    Ok(len) if len == raw.len() => raw,
                    _ => return Err(corrupt("it does not decompress")),
                }
            }
            StoredAs::Zstd => {
                let codec = self
                    .zstd
                    .as_ref()
                    .ok_or_else(|| corrupt("it is compressed with zstd, and there is no codec for it"))?;
                let mut raw = zeroed(at.raw_len as usize)?;
                if !codec.decompress(&bytes, &mut raw) {
                    return Err(corrupt("it does not decompress"));
                }
                raw
            }
        };
        let run = Run::parse(raw).map_err(corrupt)?;
        if run.last_msn() != at.last_msn {
            return Err(corrupt("its newest message is not the one that the node's header names"));
        }
        Ok(run)
    }

    /// The most room that [`encode`](Store::encode) needs for `raw_len` bytes.
    fn encoded_len_max(raw_len: usize) -> usize {
        lz4_flex::block::get_maximum_output_size(raw_len)
    }

    /// The compression that most bytes of a run's pairs and changes ask for. Of those for which as many ask
    /// it is the one with the smallest code.
    pub fn asked_by(&self, run: &Run) -> PairCompression {
        if !self.pairs_ask.load(Ordering::Relaxed) {
            return PairCompression::Usual;
        }
        let mut bytes = [0_usize; PairCompression::CODES_END as usize];
        for point in run.points(0, run.len()) {
            if let Some(sum) = bytes.get_mut(usize::from(point.kind.asked().code())) {
                *sum += point.bytes();
            }
        }
        let most = (0..PairCompression::CODES_END).zip(bytes).rev().max_by_key(|(_, bytes)| *bytes);
        most.and_then(|(code, _)| PairCompression::from_code(code)).unwrap_or_default()
    }

    /// How a run is compressed that asks for this.
    fn way_for(&self, asked: PairCompression) -> Way {
        match (asked, self.compression) {
            (PairCompression::None, _) | (PairCompression::Usual, Compression::None) => Way::None,
            (PairCompression::Zstd(level), _) if self.zstd.is_some() => Way::Zstd(Some(level)),
            (PairCompression::Usual, Compression::Zstd) => Way::Zstd(None),
            (PairCompression::Usual | PairCompression::Lz4 | PairCompression::Zstd(_), _) => Way::Lz4,
        }
    }

    /// Encodes a piece's contents to the start of `room`, compressed this way if that saves at least a
    /// sixteenth. Returns the encoding and the number of bytes.
    fn encode(&self, raw: &[u8], way: Way, room: &mut [u8]) -> Result<(StoredAs, usize)> {
        let worth = raw.len() - raw.len() / 16;
        match way {
            Way::Lz4 => {
                if let Ok(len) = lz4_flex::block::compress_into(raw, room)
                    && len <= worth
                {
                    return Ok((StoredAs::Lz4, len));
                }
            }
            Way::Zstd(level) => {
                let mut out = Vec::new();
                if let Some(codec) = &self.zstd
                    && codec.compress(raw, level.map(|level| level.get().into()), &mut out)
                    && out.len() <= worth
                    && let Some(room) = room.get_mut(..out.len())
                {
                    room.copy_from_slice(&out);
                    return Ok((StoredAs::Zstd, out.len()));
                }
            }
            Way::None => {}
        }
        let room = room.get_mut(..raw.len()).ok_or_else(|| internal!(HAS_ROOM))?;
        room.copy_from_slice(raw);
        Ok((StoredAs::Raw, raw.len()))
    }
}

/// The whole blocks around a range of bytes.
fn blocks_around(offset: u64, len: u64) -> (u64, usize) {
    let block = BLOCK_BYTES as u64;
    let start = offset / block * block;
    let end = (offset + len).div_ceil(block) * block;
    (start, ((end - start) / block) as usize)
}
