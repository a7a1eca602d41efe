//! The geometry that a volume is made with, and the options that it is opened with.

use alloc::sync::Arc;

use betree_platform::{BLOCK_BYTES, Codec, Platform};

use crate::error::{Error, Result};
use crate::health::Watcher;
use crate::upsert::Upsert;

/// One dictionary of an environment, by its place in the list that the volume was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DictId(pub u8);

/// The parameters that are fixed when a volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Target size of a node in bytes, before compression.
    pub node_bytes: u32,
    /// Target size of a basement (the unit of reading in a leaf) in bytes, before compression.
    pub basement_bytes: u32,
    /// The most children of a node.
    pub fanout_max: u32,
    /// Size of the circular log in bytes.
    pub log_bytes: u64,
    /// The number of dictionaries, at most 8.
    pub dicts: u8,
}

/// The compression of newly written pieces. Each stored piece names its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast, about half the size for text.
    #[default]
    Lz4,
    /// zstd, where the platform has brought a codec: slower, smaller.
    Zstd,
}

/// How many copies of interior nodes above the parents of leaves a volume is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeCopies {
    /// One. If it cannot be read, the keys below are lost, but for what a repair finds again.
    #[default]
    One,
    /// Two, far from each other, where there is room beside the reserve.
    Two,
}

impl NodeCopies {
    /// The number of copies.
    pub fn count(self) -> u32 {
        match self {
            NodeCopies::One => 1,
            NodeCopies::Two => 2,
        }
    }

    /// The choice of that many copies, if there is one.
    pub fn of_count(count: u32) -> Option<NodeCopies> {
        match count {
            1 => Some(NodeCopies::One),
            2 => Some(NodeCopies::Two),
            _ => None,
        }
    }
}

/// What the opening of a volume does if its log has lost a segment that had been durable, or has a whole one
/// that makes no sense, or one that the device does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLoss {
    /// The volume is refused, with the place of the segment.
    #[default]
    Refuse,
    /// The volume is opened with the changes before the segment: those in it and behind it are lost for ever.
    Accept,
}

/// What may be written to a volume while it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenMode {
    /// Changes, and what recovery and background work need.
    #[default]
    ReadWrite,
    /// Nothing, ever: the log is replayed in memory, which has to hold its changes, and changes are refused.
    ReadOnly,
    /// Nothing but one checkpoint: that of a repair prepared in memory ([`Env`](crate::Env)`::write_repair`).
    Repair,
}

/// Hears how far the replay of a log is, in the thread that opens the volume: the bytes of the segments that
/// are replayed, and of all that are to be. Both are equal at the end. It is not called if there are none.
pub type ReplayProgress = dyn Fn(u64, u64) + Send + Sync;

/// The parameters that are chosen each time a volume is opened.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The node cache's budget in bytes.
    pub cache_bytes: usize,
    /// The meaning of upserts.
    pub upsert: Arc<dyn Upsert>,
    /// Number of dictionaries that the caller uses: a volume with fewer is refused.
    pub dicts_min: u8,
    /// The compression of newly written data.
    pub compression: Compression,
    /// The zstd codec; needed by a volume to which zstd data was ever written.
    pub zstd: Option<Arc<dyn Codec>>,
    /// Its clock decides which values have expired ([`Upsert::expires_at_ns`]); without it none does.
    pub clock: Option<Arc<dyn Platform>>,
    /// Receives reports of troubles.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Whether blocks that became free are discarded after each checkpoint.
    pub discard: bool,
    /// What opening does if durable changes are lost from the log.
    pub log_loss: LogLoss,
    /// What may be written.
    pub mode: OpenMode,
    /// Hears how far the replay of the log is. With it the headers of the log's segments are read once more,
    /// in advance: of segments of up to 64 KiB all bytes.
    pub replay_progress: Option<Arc<ReplayProgress>>,
}

impl Options {
    /// The usual choice: one dictionary, LZ4, no zstd, no clock, no watcher, open for changes.
    pub fn new(cache_bytes: usize, upsert: Arc<dyn Upsert>) -> Options {
        Options {
            cache_bytes,
            upsert,
            dicts_min: 1,
            compression: Compression::default(),
            zstd: None,
            clock: None,
            watcher: None,
            discard: false,
            log_loss: LogLoss::Refuse,
            mode: OpenMode::ReadWrite,
            replay_progress: None,
        }
    }
}

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The largest page of the node table, in bytes.
const TABLE_PAGE_BYTES_MAX: u32 = 256 << 10;
/// The most children of a node in any volume.
const FANOUT_MAX: u32 = 256;
/// The largest batch of any volume, in bytes.
pub(crate) const BATCH_BYTES_MAX: u64 = 256 << 20;

/// The most range messages in a node's buffers for each edge that the node may have.
const RANGES_PER_EDGE: usize = 2;

impl Geometry {
    /// A geometry that suits a volume of `volume_bytes` bytes with `dicts` dictionaries.
    pub fn for_volume(volume_bytes: u64, dicts: u8) -> Geometry {
        let node_bytes = (volume_bytes / 256).next_power_of_two().clamp(64 << 10, 4 << 20) as u32;
        Geometry {
            node_bytes,
            basement_bytes: (node_bytes / 64).max(4 << 10),
            fanout_max: 16,
            log_bytes: (volume_bytes / 16 / BLOCK * BLOCK).clamp(1 << 20, 512 << 20),
            dicts,
        }
    }

    /// The weight of a range message in bytes, in buffers that are full at a node's size.
    pub(crate) fn range_weight_bytes(&self) -> usize {
        self.node_bytes as usize / (RANGES_PER_EDGE * self.fanout_max as usize).max(1)
    }

    /// The largest batch in bytes: an eighth of the log, so that a quarter of it, kept free, holds one
    /// wherever the log's end falls.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        (self.log_bytes / 8).saturating_sub(BLOCK).min(BATCH_BYTES_MAX)
    }

    /// The size of a page of the node table in bytes.
    pub(crate) fn table_page_bytes(&self) -> u32 {
        (self.node_bytes / 16).clamp(BLOCK as u32, TABLE_PAGE_BYTES_MAX)
    }

    /// Refuses parameters that do not fit together.
    ///
    /// # Errors
    /// [`Error::BadGeometry`] with the reason.
    pub(crate) fn validate(&self) -> Result<()> {
        self.mismatch().map_or(Ok(()), |what| Err(Error::BadGeometry(what)))
    }

    /// Why the parameters do not fit together, or `None`; for volumes that are made and volumes that are
    /// opened.
    pub(crate) fn mismatch(&self) -> Option<&'static str> {
        if !(4..=FANOUT_MAX).contains(&self.fanout_max) {
            return Some("the fan-out must be between 4 and 256");
        }
        if self.basement_bytes > self.node_bytes {
            return Some("a basement must not be larger than a node");
        }
        if !self.log_bytes.is_multiple_of(BLOCK) {
            return Some("the log must be whole blocks of 4096 bytes");
        }
        None
    }
}
