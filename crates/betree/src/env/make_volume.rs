//! Making a volume.

use alloc::sync::Arc;

use betree_platform::sync::atomic::{AtomicBool, AtomicU64};
use betree_platform::{BLOCK_BYTES, Device};

use super::recover::space_of;
use crate::cache::Cache;
use crate::dict::Dict;
use crate::engine::Engine;
use crate::engine::checkpoint::Committed;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::events;
use crate::expiry::Clock;
use crate::format::limits::Limits;
use crate::format::superblock::features::Features;
use crate::format::superblock::identity::UpsertId;
use crate::format::superblock::{Identity, LogStart, NODES_MIN, Superblock, TablePlace, slots};
use crate::format::table::slots_per_page;
use crate::format::tail::TaggedTail;
use crate::io::Disk;
use crate::key::Cut;
use crate::node::{Body, Edge};
use crate::node_id::NodeId;
use crate::settings::{Compression, Geometry};
use crate::store::{CopyState, Readahead, Reading, Store, Writeback};
use crate::table::Table;
use crate::upsert::{Bounded, Replace};

/// The first sequence number of a volume.
const FIRST_MSN: u64 = 1;
const BLOCK: u64 = BLOCK_BYTES as u64;

impl Env {
    /// Makes an empty volume on the device, whatever it held before. 16 random bytes suffice as the identity.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (device, _folder) = doc::device();
    /// use betree::{Env, Geometry};
    ///
    /// // A volume of this size with two dictionaries.
    /// let geometry = Geometry::for_volume(doc::VOLUME_BYTES, 2);
    /// Env::format(device, &geometry, [7; 16])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadGeometry`], [`Error::BadIdentity`]; [`Error::TooSmall`] if the device is too small for the
    /// geometry; those of the device.
    pub fn format(device: Arc<dyn Device>, geometry: &Geometry, identity: impl Into<Identity>) -> Result<()> {
        let identity = identity.into();
        let volume_bytes = device.len() / BLOCK * BLOCK;
        Env::check_format(volume_bytes, geometry, &identity)?;
        let disk = Arc::new(Disk::new(device));
        slots::erase(&disk)?;
        let superblock = Superblock {
            identity,
            features: Features {
                incompat: if disk.is_open_ended() { Features::OPEN_ENDED } else { 0 },
                ..Features::default()
            },
            generation: 0,
            clean: true,
            geometry: *geometry,
            volume_bytes,
            log_offset: slots::BYTES,
            table_page_bytes: geometry.table_page_bytes(),
            dicts: Default::default(),
            upserts: alloc::vec![UpsertId::default(); usize::from(geometry.dicts)],
            table: TablePlace::default(),
            log_start: LogStart { epoch: 1, seq: 1, position: 0 },
            next_msn: FIRST_MSN,
            tail: TaggedTail::default(),
        };
        let space = space_of(&superblock);
        if disk.is_open_ended() {
            space.withhold_end();
        }
        if disk.is_sparse() {
            space.doubt_backing();
        }
        let store = Store {
            limits: Limits::of(geometry, space.total_blocks()),
            next_msn: AtomicU64::new(FIRST_MSN),
            volume_id: superblock.identity.volume_id,
            generation: AtomicU64::new(superblock.generation),
            space,
            disk,
            cache: Cache::new(1 << 20, geometry.fanout_max),
            compression: Compression::None,
            pairs_ask: AtomicBool::new(false),
            copies: CopyState::default(),
            zstd: None,
            upsert: Bounded::new(Arc::new(Replace), geometry.batch_bytes_max()),
            clock: Clock::default(),
            reading: Reading::default(),
            readahead: Readahead::default(),
            writeback: Writeback::default(),
        };
        let table = Table::new(slots_per_page(superblock.table_page_bytes));
        let none = NodeId { slot: 0, generation: 0 };
        let dicts =
            (0..usize::from(geometry.dicts)).map(|index| Dict::new(index, none, FIRST_MSN - 1)).collect();
        let engine = Engine::new(store, *geometry, table, dicts);
        for dict in &engine.dicts {
            let tree = engine.tree_of(dict);
            let body = Body::Interior(alloc::vec![Edge::null(Cut::LOW, Cut::HIGH)]);
            tree.set_root(tree.new_node(1, Cut::LOW, Cut::HIGH, body));
        }
        let mut committed = Committed::without_errors(superblock.clone(), None, None);
        events::checkpoint_begins(true);
        let captured = engine.capture(FIRST_MSN);
        engine.write_checkpoint(&mut committed, captured, superblock, &|| ())?;
        slots::format(&engine.store.disk, &committed.superblock)
    }

    /// Whether a volume of `volume_bytes` can be made: [`format`](Env::format) asks this before it writes.
    ///
    /// # Errors
    /// [`Error::BadGeometry`], [`Error::BadIdentity`], [`Error::TooSmall`].
    pub fn check_format(volume_bytes: u64, geometry: &Geometry, identity: &Identity) -> Result<()> {
        geometry.validate()?;
        identity.validate()?;
        let taken = slots::BYTES.saturating_add(geometry.log_bytes);
        let nodes = u64::from(geometry.node_bytes).saturating_mul(NODES_MIN);
        let least_bytes = taken.saturating_add(nodes).saturating_add(64 * BLOCK);
        if volume_bytes < least_bytes {
            return Err(Error::TooSmall { bytes: volume_bytes, least_bytes });
        }
        Ok(())
    }
}
