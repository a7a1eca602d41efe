//! The volume of a history: its shape, its disk, and how it is opened.

use std::sync::Arc;

use betree::Geometry;
use betree_platform::Device;
use betrfs::{AccessTimes, Error, FormatOptions, OpenOptions, Volume};
use seeded::Rng;

use crate::model::Rules;
use crate::platform::SimPlatform;

/// The most objects of a history, removed ones included.
const OBJECTS_MAX: usize = 3000;
const BLOCK: u64 = 4096;
/// The superblocks before the log, in bytes.
pub const SUPERBLOCKS_BYTES: u64 = 16 << 10;

/// The volume of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The shape of the volume.
    pub geometry: Geometry,
    /// The size of the disk in bytes.
    pub volume_bytes: u64,
    /// Whether the disk seeks; if not, nodes are written in part.
    pub seeks: bool,
    /// The budget of the node cache in bytes.
    pub cache_bytes: usize,
    /// Inodes kept in memory.
    pub inodes_max: usize,
    /// Names kept in memory.
    pub names_max: usize,
    /// Bytes of contents kept in memory.
    pub contents_bytes_max: usize,
    /// Names of files with several that a copy or a removal goes through while others wait.
    pub links_alone_max: usize,
    /// Which reads move times of access.
    pub access_times: AccessTimes,
    /// Whether names are looked up again after a late opening.
    pub names_are_looked_up_again: bool,
}

impl Setup {
    /// A volume with nodes so small that few files need every operation of a tree.
    pub fn draw(rng: &mut Rng) -> Setup {
        let node_bytes = *rng.pick(&[4, 8, 16]) << 10;
        let is_short_of_memory = rng.percent(40);
        let short = |few: usize, many: usize| if is_short_of_memory { few } else { many };
        let geometry = Geometry {
            node_bytes,
            basement_bytes: node_bytes / *rng.pick(&[4, 8]),
            fanout_max: rng.between(4, 8) as u32,
            // Every move of a small file fits into a batch, which is an eighth of this.
            log_bytes: *rng.pick(&[1, 1, 2]) << 20,
            dicts: 4,
        };
        Setup {
            geometry,
            volume_bytes: 64 << 20,
            seeks: rng.percent(50),
            cache_bytes: *rng.pick(&[128, 512, 4096]) << 10,
            inodes_max: short(1, 1000),
            names_max: short(2, 10_000),
            contents_bytes_max: short(5000, 1 << 20),
            links_alone_max: *rng.pick(&[0, 2, 64]),
            access_times: *rng.pick(&[AccessTimes::Never, AccessTimes::Never, AccessTimes::Relative]),
            names_are_looked_up_again: rng.percent(50),
        }
    }

    /// The first byte behind superblocks and log.
    pub fn first_extent(&self) -> u64 {
        SUPERBLOCKS_BYTES + self.geometry.log_bytes
    }

    /// The rules of the model for this volume.
    pub fn rules(&self) -> Rules {
        // As the library cuts writes, for keys that are short.
        let batch_bytes = (self.geometry.log_bytes / 8).saturating_sub(BLOCK);
        Rules {
            piece_bytes: 1 << (batch_bytes / 2).clamp(BLOCK, 1 << 20).ilog2(),
            reads_count: self.access_times != AccessTimes::Never,
            objects_max: OBJECTS_MAX,
        }
    }

    /// Makes the empty volume.
    ///
    /// # Errors
    /// The library's.
    pub fn format(&self, device: Arc<dyn Device>, platform: &SimPlatform) -> Result<(), Error> {
        let options = FormatOptions { geometry: Some(self.geometry), ..FormatOptions::default() };
        Volume::format(device, &options, platform)
    }

    /// Opens the volume.
    ///
    /// # Errors
    /// The library's.
    pub fn open(&self, device: Arc<dyn Device>, platform: &Arc<SimPlatform>) -> Result<Volume, Error> {
        Volume::open(device, self.options(platform))
    }

    /// How the volume is opened.
    pub fn options(&self, platform: &Arc<SimPlatform>) -> OpenOptions {
        OpenOptions {
            cache_bytes: self.cache_bytes,
            inodes_max: self.inodes_max,
            names_max: self.names_max,
            contents_bytes_max: self.contents_bytes_max,
            links_alone_max: self.links_alone_max,
            access_times: self.access_times,
            names_are_looked_up_again: self.names_are_looked_up_again,
            ..OpenOptions::new(platform.clone())
        }
    }
}
