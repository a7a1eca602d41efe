//! Shows a closed volume structure by structure, as it is on the device: for developers and for bug reports.
//!
//! Nothing is written and no log is replayed: this is the last checkpoint, and the log behind it. Unreadable
//! parts are reported as [`Finding`]s, as by a check; all others are shown. The types are those of the
//! format, and change with it.

mod log;
mod map;
mod nodes;
mod superblocks;
mod way;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Device;
use betree_platform::sync::atomic::AtomicU64;

use crate::check::Finding;
use crate::check::damaged::{Checkpoint, last_checkpoint};
use crate::error::Result;
use crate::settings::{DictId, Options};

pub use crate::error::bit_numbers;
pub use crate::format::node::{Entries, Header, Origin, RunRef, Section, StoredAs, StoredEdge};
pub use crate::format::record::Change;
pub use crate::format::superblock::features::Features;
pub use crate::format::superblock::identity::UpsertId;
pub use crate::format::superblock::{DictRoot, LogStart, Superblock, TablePlace};
pub use crate::key::Translation;
pub use crate::message::{Goto, Kind, Msn};
pub use crate::node_id::NodeId;
pub use crate::space::BlockRange;
pub use log::{LogEnd, LogRecord, LogSegment, log};
pub use map::{Owned, Owner};
pub use nodes::{Message, Node};
pub use superblocks::{SuperblockCopy, Superblocks, superblocks};
pub use way::{Passed, Pending, PendingWhat, Step};

/// The readable parts of a volume's last checkpoint.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
/// # fn main() -> betree::Result<()> {
/// # let (device, _folder) = doc::device();
/// # betree::Env::format(device.clone(), &betree::Geometry::for_volume(doc::VOLUME_BYTES, 1), [7; 16])?;
/// # use std::sync::Arc;
/// use betree::debug::Inspector;
/// use betree::{Options, Replace};
///
/// let mut findings = Vec::new();
/// let mut tell = |found| findings.push(found);
/// let volume = Inspector::open(device, Options::new(1 << 20, Arc::new(Replace)), &mut tell)?;
/// let heights: Vec<u8> =
///     volume.ids().into_iter().filter_map(|id| Some(volume.node(id, &mut tell)?.header?.height)).collect();
/// assert_eq!(heights, [1], "an empty volume has one node, the root of its dictionary");
/// assert_eq!(findings, []);
/// # Ok(())
/// # }
/// ```
pub struct Inspector {
    checkpoint: Checkpoint,
}

impl Inspector {
    /// Opens the readable parts of the last checkpoint. Calls `tell` with the damage of superblocks and node
    /// table.
    ///
    /// # Errors
    /// As [`Env::open_damaged`](crate::Env::open_damaged).
    pub fn open(
        device: Arc<dyn Device>,
        options: Options,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Inspector> {
        Ok(Inspector { checkpoint: last_checkpoint(device, options, tell)? })
    }

    /// The superblock of the checkpoint.
    pub fn superblock(&self) -> &Superblock {
        &self.checkpoint.superblock
    }

    /// The ids of all nodes in the node table, in order.
    pub fn ids(&self) -> Vec<NodeId> {
        self.checkpoint.engine.table.lock().nodes().map(|(id, ..)| id).collect()
    }

    /// The value of a key, as readers get it.
    ///
    /// # Errors
    /// As [`Env::get`](crate::Env::get).
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.checkpoint.engine.tree(dict)?.get(key, &AtomicU64::new(0))
    }
}
