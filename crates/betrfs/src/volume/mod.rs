//! The operations of a volume.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. The **namespace**: every operation that makes a key holds it, shared, until its batch is
//!    committed or its query answered. What moves keys (rename, the making of a link) holds it
//!    alone, and is then the only one with more than one inode locked. [`Env::throttle`] is called
//!    before it, [`Env::sync`] without it.
//! 2. The **state of a directory**, then that of the entry: an entry appears or disappears under
//!    both. Reads and writes of a file hold the file's alone, so that a size and its blocks are
//!    seen together.
//! 3. The lock of object loads, the queue of crowded directories, the table of inodes, in this
//!    order; the numbers; the unlinked files. All but the first for a moment only.
//! 4. The **place** of an inode: innermost, nothing is taken under it.
//!
//! The attributes of an inode can be read with its state lock alone, by [`Volume::getattr`].
//!
//! An operation prepares new records beside the old ones, commits one batch, and installs them
//! only when that has succeeded: an error leaves memory as it was.

mod attributes;
mod carry;
mod check;
mod create;
mod fallocate;
mod link;
mod lookup;
mod numbers;
mod op;
mod read;
mod readdir;
mod rename;
mod unlink;
mod write;
mod xattr;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use betree::{Batch, Cut, Env, Geometry, Options};
use betree_sys::sync::atomic::AtomicUsize;
use betree_sys::sync::{Mutex, RwLock};
use betree_sys::{Device, Home};

use crate::error::{Error, Result};
use crate::node::{Directory, Inode, Orphans, Place, Table};
use crate::schema::block::{BLOCK, BlockUpsert};
use crate::schema::{DATA, LINKS, META, Marker, Record, Stored, VolumeRecord, damaged, key};
use crate::types::{FileType, FormatOptions, NodeId, OpenOptions, StatFs};
use numbers::Numbers;
use op::{AllCounts, Op};

pub use op::{Counters, OpCount, OpKind};

/// What a small change adds to the log, for the admission of space.
const CHANGE_BYTES: usize = 1024;
/// The root's inode number; numbers below are never given out.
const ROOT_ID: u64 = 1;

/// An open volume. All methods can be called by many threads at once.
pub struct Volume {
    env: Arc<Env>,
    home: Arc<dyn Home>,
    namespace: RwLock<()>,
    table: Table,
    numbers: Numbers,
    orphans: Orphans,
    counts: AllCounts,
    /// Held while an object is looked for in the table and then in the tree, so that it comes into
    /// memory once, whichever of its names is asked for.
    object_loads: Mutex<()>,
    /// Directories with known names, in the order in which these will be given up.
    crowded: Mutex<VecDeque<NodeId>>,
    names_total: Arc<AtomicUsize>,
    names_max: usize,
}

impl Volume {
    /// Makes an empty volume on a device. The root directory, owned by user 0 with permissions
    /// 0755, is made when it is opened first.
    ///
    /// # Errors
    /// The device's, or that it is too small.
    pub fn format(device: Arc<dyn Device>, options: &FormatOptions, home: &dyn Home) -> Result<()> {
        let id = (u128::from(home.random_u64()) << 64 | u128::from(home.random_u64())).to_le_bytes();
        let geometry = options.geometry.unwrap_or_else(|| geometry_of(device.len()));
        Ok(Env::format(device, &geometry, id)?)
    }

    /// The engine's options that a volume needs.
    pub fn engine_options(cache_bytes: usize) -> Options {
        Options::new(cache_bytes, Arc::new(BlockUpsert))
    }

    /// Opens a volume, and deletes the files that were unlinked but still open when it was used last.
    ///
    /// # Errors
    /// The engine's; [`Error::NotAVolume`] if it is of a later version.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Volume> {
        let env = Env::open(device, Self::engine_options(options.cache_bytes))?;
        Self::from_env(Arc::new(env), options)
    }

    /// Opens the volume in an environment that was opened with [`Volume::engine_options`]. There
    /// must be no other [`Volume`] on it.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn from_env(env: Arc<Env>, options: OpenOptions) -> Result<Volume> {
        let counts = AllCounts::default();
        let (stored, root) = {
            let op = counts.begin(&env, OpKind::Internal);
            let stored = match op.get(META, &key::VOLUME_KEY)? {
                Some(bytes) => VolumeRecord::decode(&bytes)?,
                None => make_root(&op, options.home.now_ns())?,
            };
            reap_all(&op)?;
            (stored, read_root(&op)?)
        };
        let names_total = Arc::new(AtomicUsize::new(0));
        let dir = Directory::new(names_total.clone());
        let table = Table::new(options.inodes_max);
        table.insert(|id| Inode::new(id, ROOT_ID, Place::Root, root, Some(dir)));
        Ok(Volume {
            env,
            home: options.home,
            namespace: RwLock::new(()),
            table,
            numbers: Numbers::new(stored),
            orphans: Orphans::default(),
            counts,
            object_loads: Mutex::new(()),
            crowded: Mutex::new(VecDeque::new()),
            names_total,
            names_max: options.names_max,
        })
    }

    /// The engine below.
    pub fn env(&self) -> &Arc<Env> {
        &self.env
    }

    /// What operations have cost since the volume was opened.
    pub fn counters(&self) -> Counters {
        self.counts.read()
    }

    /// Makes a file durable, and with it everything else that was committed before.
    ///
    /// # Errors
    /// The engine's: nothing is known then of what was not durable before.
    pub fn fsync(&self, node: NodeId) -> Result<()> {
        self.inode(node)?;
        self.sync()
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn sync(&self) -> Result<()> {
        Ok(self.env.sync()?)
    }

    /// The room on the volume.
    ///
    /// # Errors
    /// None so far.
    pub fn statfs(&self) -> Result<StatFs> {
        let space = self.env.space();
        let objects = |bytes: u64| bytes / 512;
        Ok(StatFs {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.free_bytes,
            files: objects(space.total_bytes),
            files_free: objects(space.free_bytes),
            name_bytes_max: key::NAME_BYTES_MAX as u32,
            block_bytes: BLOCK as u32,
        })
    }

    /// Deletes the files that are unlinked, open or not, makes everything durable and marks the
    /// volume clean. Afterwards every change is refused.
    ///
    /// # Errors
    /// The engine's.
    pub fn close(&self) -> Result<()> {
        for orphan in self.orphans.all() {
            self.reap(&orphan)?;
        }
        Ok(self.env.close()?)
    }

    fn inode(&self, node: NodeId) -> Result<Arc<Inode>> {
        self.table.get(node).ok_or(Error::Stale)
    }

    /// Begins an operation that changes nothing.
    fn query(&self, kind: OpKind) -> Op<'_> {
        self.counts.begin(&self.env, kind)
    }

    /// Begins an operation that adds about `bytes`; the caller holds no lock.
    fn update(&self, kind: OpKind, bytes: usize) -> Result<Op<'_>> {
        self.env.throttle(bytes.saturating_add(CHANGE_BYTES))?;
        Ok(self.query(kind))
    }
}

/// Completes the making of a volume in which there is nothing at all.
fn make_root(op: &Op<'_>, now_ns: i64) -> Result<VolumeRecord> {
    for dict in [META, DATA, LINKS] {
        if op.scan(dict, (Cut::LOW, Cut::HIGH)).next()?.is_some() {
            return Err(damaged(&key::VOLUME_KEY, "it is not there, but other keys are"));
        }
    }
    let volume = VolumeRecord { features: 0, ids: ROOT_ID + 1, oids: 1 };
    let root = Record::new(FileType::Directory, 0o755, ROOT_ID, now_ns);
    let mut batch = Batch::new();
    batch.put(META, &key::VOLUME_KEY, &volume.encode());
    batch.put(META, &key::ROOT_KEY, &root.encode());
    op.commit(&batch)?;
    Ok(volume)
}

fn read_root(op: &Op<'_>) -> Result<Record> {
    let bytes =
        op.get(META, &key::ROOT_KEY)?.ok_or_else(|| damaged(&key::ROOT_KEY, "its record is not there"))?;
    match Stored::decode(&key::ROOT_KEY, &bytes)? {
        Stored::Inode(record) if record.is_dir() => Ok(record),
        _ => Err(damaged(&key::ROOT_KEY, "it is not a directory")),
    }
}

/// Deletes what files left that were unlinked while open.
fn reap_all(op: &Op<'_>) -> Result<()> {
    let mut batch = Batch::new();
    let mut markers = op.scan(META, key::markers());
    while let Some((at, bytes)) = markers.next()? {
        let marker = Marker::decode(at, bytes)?;
        let (lo, hi) = key::blocks_from(&marker.base, 0);
        batch.delete_range(DATA, &lo, &hi);
        batch.delete(META, at);
    }
    op.commit(&batch)
}

/// The engine's geometry for a volume of a size.
fn geometry_of(len_bytes: u64) -> Geometry {
    const MIB: u64 = 1 << 20;
    let log_bytes = (len_bytes / 16).clamp(MIB, 256 * MIB) / BLOCK * BLOCK;
    let node_bytes = if len_bytes < 256 * MIB { 1 << 18 } else { 4 << 20 };
    Geometry { node_bytes, basement_bytes: 1 << 16, fanout_max: 16, log_bytes, dicts: 3 }
}
