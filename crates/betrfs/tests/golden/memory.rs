//! A volume in memory, with the same clock and dice each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use betree::{Compression, Env, Geometry};
use betree_platform::{Device, Platform};
use betree_sim::MemDevice;
use betree_std::Zstd;
use betrfs::{AccessTimes, FileType, FormatOptions, NewNode, OpenOptions, Volume};

pub const NEW_FILE: NewNode =
    NewNode { file_type: FileType::Regular, perm: 0o644, uid: 1000, gid: 100, rdev: 0, umask: 0 };
pub const NEW_DIR: NewNode = NewNode { file_type: FileType::Directory, perm: 0o755, ..NEW_FILE };

/// Nodes so small that few changes need every operation of a tree.
const GEOMETRY: Geometry =
    Geometry { node_bytes: 16 << 10, basement_bytes: 4 << 10, fanout_max: 4, log_bytes: 1 << 20, dicts: 4 };
const VOLUME_BYTES: u64 = 6 << 20;
const CACHE_BYTES: usize = 4 << 20;

/// A clock that steps by a microsecond from 2026 on, and dice.
struct Steps {
    now_ns: AtomicI64,
    dice: AtomicU64,
}

impl Platform for Steps {
    fn now_ns(&self) -> i64 {
        self.now_ns.fetch_add(1000, Relaxed)
    }

    fn random_u64(&self) -> u64 {
        // SplitMix64.
        let mut state = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ state >> 31
    }
}

/// A device with a volume.
pub struct Disk {
    device: Arc<MemDevice>,
    platform: Arc<Steps>,
    compression: Compression,
}

impl Disk {
    /// A new volume whose new nodes have this compression.
    pub fn new(compression: Compression, options: &FormatOptions) -> Disk {
        let disk = Disk { compression, ..Disk::holding(MemDevice::new(VOLUME_BYTES)) };
        let options = FormatOptions { geometry: Some(GEOMETRY), ..options.clone() };
        Volume::format(disk.device.clone(), &options, &*disk.platform).unwrap();
        disk
    }

    /// The volume in an image.
    pub fn of_image(image: &[u8]) -> Disk {
        let device = MemDevice::new(image.len() as u64);
        device.write_at(0, image).unwrap();
        Disk::holding(device)
    }

    fn holding(device: MemDevice) -> Disk {
        let now_ns = AtomicI64::new(1_767_225_600_000_000_000);
        let platform = Arc::new(Steps { now_ns, dice: AtomicU64::new(6) });
        Disk { device: Arc::new(device), platform, compression: Compression::Lz4 }
    }

    pub fn open(&self) -> Volume {
        let mut engine = Volume::engine_options(CACHE_BYTES);
        engine.compression = self.compression;
        engine.zstd = Some(Arc::new(Zstd::default()));
        let env = Env::open(self.device.clone(), engine).unwrap();
        let options =
            OpenOptions { access_times: AccessTimes::Never, ..OpenOptions::new(self.platform.clone()) };
        Volume::from_env(Arc::new(env), options).unwrap()
    }

    /// The device's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.device.len() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        bytes
    }
}
