//! The operations of a volume.
//!
//! # Locks, in the order in which they are taken
//!
//! 0. The **number map**, by a search for an inode number alone; the search itself holds nothing else. An
//!    **own change** of the volume, which a freeze waits for, holds nothing else when it begins.
//! 1. The **namespace**: an operation that makes a key holds it, shared, until its batch is committed or its
//!    query answered. An operation that moves keys (a rename, the making of a link) holds it alone (for how
//!    long: `exclusive.rs`), and is then the only one with more than one inode locked. [`Env::throttle`] is
//!    called before it, [`Env::sync`] without it.
//! 2. The **state of a directory**, then that of the entry: an entry appears or disappears under both. Reads
//!    and writes of a file hold the file's state alone, so that they see a size together with its blocks.
//! 3. The lock of object loads, the name LRU, the queue of contents and the inode table, in this order; the
//!    id allocator; the orphans; the allocations. All but the first are held for a moment only. Under the
//!    orphans, the **counter** of a quota, which reads its use from the tree once.
//! 4. The **place** of an inode: innermost, no lock is taken under it.
//!
//! The attributes of an inode can be read with its state lock alone, by [`Volume::getattr`].
//!
//! An operation prepares new records beside the old ones, commits one batch, and installs the records only
//! when the commit has succeeded: an error leaves memory as it was.

mod above;
mod access_times;
mod acl;
mod allocate_ahead;
mod attributes;
mod backup;
mod charge;
mod check;
mod clone;
mod create;
mod detached;
mod exclusive;
mod fallocate;
mod find_inode;
mod freeze;
mod id_allocator;
mod inode_flags;
mod kept;
mod known_names;
mod late_opens;
mod link;
mod linked_copies;
mod lookup;
mod lost_files;
mod map;
mod measure;
mod open_files;
mod ownership;
mod properties;
mod quota;
mod read;
mod readdir;
mod recompress;
mod relocate;
mod remove_tree;
mod removed_inodes;
mod rename;
mod restore;
mod shown_name;
mod snapshots;
mod unlink;
mod usage;
mod write;
mod xattr;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use betree::{Batch, Env, Geometry, Identity, Options, State as EnvState};
use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};
use betree_platform::{Device, Platform};

use crate::error::{Error, Result};
use crate::names::{
    AccessQueue, Allocations, Directory, EvictionBackoff, FileCache, Inode, InodeTable, ListingEpochs,
    Namespace, Orphans, Place, State,
};
use crate::op::{AllCounts, Counters, Op, OpKind};
use crate::planted::{self, Bug};
use crate::schema::block::{BLOCK, BlockUpsert};
use crate::schema::{DATA, DICTS, META, Marker, QUOTAS, Record, Stored, VolumeRecord, damaged, key};
use crate::types::{FileType, FormatOptions, InodeId, OpenOptions, StatFs};
use access_times::AccessPolicy;
use allocate_ahead::bytes_of_contents;
use charge::Quotas;
use detached::{Left, Unfinished};
use find_inode::NumberMap;
use freeze::OwnChanges;
use id_allocator::IdAllocator;
use kept::Kept;
use ownership::ForeignEvents;

pub use check::{Mended, Mending, Problem, Repair, Report, Scrubbed, is_of_later_version, problem_codes};
pub use map::FileExtent;
pub use recompress::{Recompress, Recompressed};

/// Bytes that a small change adds to the log, for the admission of space.
const CHANGE_BYTES: usize = 1024;
/// The most bytes written in one batch, where the log allows it.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// The engine's cache in bytes while a volume is made.
const FORMAT_CACHE_BYTES: usize = 8 << 20;
/// Size of a batch of deletes when a volume is opened.
const REAP_BATCH_BYTES: usize = 64 << 10;
/// Bytes that a small object takes, about.
const OBJECT_BYTES: u64 = 512;
/// The root's inode number; smaller numbers are never used.
const ROOT_ID: u64 = 1;

/// An open volume. Any number of threads can call its methods at once.
pub struct Volume {
    env: Arc<Env>,
    platform: Arc<dyn Platform>,
    namespace: Namespace,
    names_are_looked_up_again: bool,
    /// The time of the last opening that came too late.
    late_open_ns: AtomicI64,
    /// Number of changes to paths of directories.
    moves: AtomicU64,
    /// Number of tree removals that have not yet marked all inodes they removed.
    sweeps: AtomicUsize,
    table: InodeTable,
    root: Arc<Inode>,
    numbers: IdAllocator,
    /// The inode ids given before the volume was opened are below this.
    ids_at_opening: u64,
    /// Held during a search for an inode number, so that there is one at a time.
    number_map: Mutex<NumberMap>,
    orphans: Orphans,
    allocations: Allocations,
    counts: AllCounts,
    /// Held while an object is looked for in the table and then in the tree, so that it is loaded once,
    /// whichever of its names is asked for.
    object_loads: Mutex<()>,
    /// Directories with known names, in the order of their eviction.
    name_lru: Mutex<VecDeque<InodeId>>,
    names_total: Arc<AtomicUsize>,
    names_max: usize,
    eviction_backoff: EvictionBackoff,
    contents: FileCache,
    epochs: ListingEpochs,
    /// The most bytes written in one batch.
    piece_bytes: u64,
    /// The most names of files with several names that are gone through while others wait.
    links_alone_max: usize,
    access_policy: AccessPolicy,
    accessed: AccessQueue,
    foreign: ForeignEvents,
    quotas: Quotas,
    own_changes: OwnChanges,
    unfinished: Unfinished,
}

impl Volume {
    /// Makes an empty volume on a device, whose earlier contents are lost.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use betrfs::{FormatOptions, OpenOptions, Volume};
    ///
    /// let options = FormatOptions { label: "archive".into(), ..FormatOptions::default() };
    /// Volume::format(device.clone(), &options, &*platform)?;
    /// let volume = Volume::open(device, OpenOptions::new(platform))?;
    /// assert_eq!(volume.env().identity().label, "archive");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The device's; the device is too small.
    pub fn format(device: Arc<dyn Device>, options: &FormatOptions, platform: &dyn Platform) -> Result<()> {
        let random =
            || (u128::from(platform.random_u64()) << 64 | u128::from(platform.random_u64())).to_le_bytes();
        let mut identity = Identity::new(random(), random());
        identity.label.clone_from(&options.label);
        identity.uuid = options.uuid.unwrap_or(identity.uuid);
        identity.made_ns = platform.now_ns();
        identity.made_by = concat!("betrfs ", env!("CARGO_PKG_VERSION")).into();
        let geometry = Self::check_format(device.len(), options)?;
        Env::format(device.clone(), &geometry, identity)?;
        let env = Env::open(device, Self::engine_options(FORMAT_CACHE_BYTES))?;
        options.grow_to_bytes.map_or(Ok(()), |bytes| env.set_growth_limit(bytes))?;
        env.set_node_copies(options.node_copies)?;
        let mut root =
            Record::new(FileType::Directory, options.root_perm.unwrap_or(0o755), ROOT_ID, platform.now_ns());
        (root.uid, root.gid) = (options.root_uid, options.root_gid);
        let volume = VolumeRecord { ids: ROOT_ID + 1, oids: 1, ..VolumeRecord::default() };
        let mut batch = Batch::new();
        batch.put(META, &key::VOLUME_KEY, &volume.encode());
        batch.put(META, &key::ROOT_KEY, &root.encode());
        env.commit(&batch)?;
        Ok(env.close()?)
    }

    /// The geometry of a volume that [`format`](Volume::format) would make on a device of `volume_bytes`.
    ///
    /// # Errors
    /// Those with which `format` refuses the size or the options, before it writes anything.
    pub fn check_format(volume_bytes: u64, options: &FormatOptions) -> Result<Geometry> {
        let geometry = Self::geometry_of(volume_bytes, options);
        let mut identity = Identity::new([0; 16], [0; 16]);
        identity.label.clone_from(&options.label);
        Env::check_format(volume_bytes, &geometry, &identity)?;
        options.grow_to_bytes.map_or(Ok(()), Env::check_growth_limit)?;
        Ok(geometry)
    }

    fn geometry_of(volume_bytes: u64, options: &FormatOptions) -> Geometry {
        let usual = || Geometry::for_volume(volume_bytes, DICTS);
        Geometry { dicts: DICTS, ..options.geometry.unwrap_or_else(usual) }
    }

    /// The engine's options for a volume, with a cache of `cache_bytes`.
    pub fn engine_options(cache_bytes: usize) -> Options {
        let mut options = Options::new(cache_bytes, Arc::new(BlockUpsert));
        options.dicts_min = DICTS;
        options
    }

    /// The engine's options for a volume that is opened, whatever is done with it.
    fn engine_options_of(options: &OpenOptions) -> Options {
        let mut engine_options = Self::engine_options(options.cache_bytes);
        engine_options.zstd.clone_from(&options.zstd);
        engine_options.replay_progress.clone_from(&options.replay_progress);
        engine_options
    }

    /// Opens a volume. Deletes the files that were unlinked but still open at the end of its last use, unless
    /// it is opened for reading ([`Env::open`]).
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use betrfs::{FileType, FormatOptions, InodeId, NewNode, OpenOptions, Volume};
    ///
    /// Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// let volume = Volume::open(device.clone(), OpenOptions::new(platform.clone()))?;
    /// let new = NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };
    /// volume.create(InodeId::ROOT, b"file", &new)?;
    /// volume.close()?;
    ///
    /// let volume = Volume::open(device, OpenOptions::new(platform))?;
    /// assert!(volume.resolve(b"/file").is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's; [`Error::NotAVolume`] for a volume of a later version.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Volume> {
        let watcher = options.watcher.clone();
        let mut engine_options = Self::engine_options_of(&options);
        engine_options.watcher = watcher;
        engine_options.log_loss = options.log_loss;
        engine_options.mode = options.mode;
        engine_options.discard = options.discard;
        let env = Env::open(device, engine_options)?;
        Self::from_env(Arc::new(env), options)
    }

    /// Opens the volume in an environment that was opened with [`Volume::engine_options`]. No other
    /// [`Volume`] may exist on it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use std::sync::Arc;
    ///
    /// use betree::Env;
    /// use betrfs::{FormatOptions, InodeId, OpenOptions, Volume};
    ///
    /// Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// let env = Arc::new(Env::open(device, Volume::engine_options(8 << 20))?);
    /// let volume = Volume::from_env(env, OpenOptions::new(platform))?;
    /// assert_eq!(volume.resolve(b"/")?.node, InodeId::ROOT);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn from_env(env: Arc<Env>, options: OpenOptions) -> Result<Volume> {
        let counts = AllCounts::default();
        let takes_changes = !matches!(env.state(), EnvState::ReadOnly(_));
        let mut left = Left::default();
        let (stored, root) = {
            let op = counts.begin(&env, OpKind::Internal);
            let first = first_records(&op)?;
            if takes_changes {
                left = reap_all(&op)?;
            }
            first
        };
        let names_total = Arc::new(AtomicUsize::new(0));
        let dir = Directory::new(names_total.clone());
        let table = InodeTable::new(options.inodes_max, options.platform.clone());
        let (root, _) = table.insert(Inode::new(ROOT_ID, Place::Root, root, Some(dir)));
        // Half of the largest batch: the other half is for keys and records.
        let piece_bytes = 1u64 << (env.batch_bytes_max() as u64 / 2).clamp(BLOCK, PIECE_BYTES_MAX).ilog2();
        let volume = Volume {
            piece_bytes,
            links_alone_max: options.links_alone_max,
            env,
            platform: options.platform,
            namespace: Namespace::default(),
            names_are_looked_up_again: options.names_are_looked_up_again,
            late_open_ns: AtomicI64::new(i64::MIN),
            moves: AtomicU64::new(0),
            sweeps: AtomicUsize::new(0),
            table,
            root,
            numbers: IdAllocator::new(stored),
            ids_at_opening: stored.ids,
            number_map: Mutex::default(),
            orphans: Orphans::default(),
            allocations: Allocations::default(),
            counts,
            object_loads: Mutex::new(()),
            name_lru: Mutex::new(VecDeque::new()),
            names_total,
            names_max: options.names_max,
            eviction_backoff: EvictionBackoff::default(),
            contents: FileCache::new(options.contents_bytes_max),
            epochs: ListingEpochs::default(),
            access_policy: AccessPolicy::new(takes_changes, options.access_times, options.listings_count),
            accessed: AccessQueue::default(),
            foreign: ForeignEvents::default(),
            quotas: Quotas::new(stored.features & QUOTAS != 0),
            own_changes: OwnChanges::default(),
            unfinished: Unfinished::default(),
        };
        volume.finish_left(left);
        Ok(volume)
    }

    /// The engine below.
    pub fn env(&self) -> &Arc<Env> {
        &self.env
    }

    /// The costs of operations since the volume was opened.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{InodeId, OpKind};
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// volume.read(file, 0, 100, &mut Vec::new())?;
    /// let reads = volume.counters().of(OpKind::Read);
    /// assert_eq!((reads.calls, reads.commits), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn counters(&self) -> Counters {
        self.counts.read()
    }

    /// Makes a file durable with its time of access, and with it every change committed before.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use betrfs::{FormatOptions, InodeId, OpenOptions, Volume};
    /// # use betrfs::{FileType, NewNode};
    /// # Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// # let new_file =
    /// #     NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };
    /// # let volume = Volume::open(device.clone(), OpenOptions::new(platform.clone()))?;
    ///
    /// let file = volume.create(InodeId::ROOT, b"file", &new_file)?.node;
    /// volume.write(file, 0, b"durable")?;
    /// volume.fsync(file)?;
    ///
    /// // As after a crash.
    /// volume.env().abandon();
    /// let volume = Volume::open(device, OpenOptions::new(platform))?;
    /// assert_eq!(volume.resolve(b"/file")?.attr.size, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's. Nothing is known then about changes that were not durable before.
    pub fn fsync(&self, node: InodeId) -> Result<()> {
        // The sync meets the same failure, unless the cause was a lack of space, which is not worth an error.
        let inode = self.inode(node)?;
        if let Some(_going) = self.own_changes.begin() {
            let _ = self.put_access_time(&inode);
        }
        if planted::is(Bug::FsyncOfDirectoryForgotten) && inode.state.read().record.is_dir() {
            return Ok(());
        }
        Ok(self.env.sync()?)
    }

    /// Makes everything durable, including all times of access.
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub fn sync(&self) -> Result<()> {
        self.put_access_times();
        Ok(self.env.sync()?)
    }

    /// The room on the volume. Deletes that can be carried out are carried out first.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let before = volume.statfs()?;
    /// assert!(before.available_bytes <= before.free_bytes && before.free_bytes < before.total_bytes);
    /// volume.create_with(InodeId::ROOT, b"file", &new_file, &[7; 100_000])?;
    /// assert!(volume.statfs()?.free_bytes < before.free_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// None so far.
    pub fn statfs(&self) -> Result<StatFs> {
        // A volume that takes no more changes still reports its room.
        let _ = self.env.reclaim();
        let space = self.env.space();
        let used_bytes = space.total_bytes.saturating_sub(space.unused_bytes);
        // What a writer can get, though the volume has yet to grow for it.
        let growth_bytes = space.growth_bytes;
        let files_free = (space.free_bytes + growth_bytes) / OBJECT_BYTES;
        Ok(StatFs {
            total_bytes: space.total_bytes + growth_bytes,
            free_bytes: space.unused_bytes + growth_bytes,
            available_bytes: self.available_bytes() + bytes_of_contents(growth_bytes),
            files: files_free + self.numbers.ids_given().min(used_bytes / OBJECT_BYTES),
            files_free,
            name_bytes_max: key::NAME_BYTES_MAX as u32,
            block_bytes: BLOCK as u32,
        })
    }

    /// The contents for which there is room on the volume as large as it is: the free bytes less those that
    /// the blocks' keys and places may take.
    pub fn available_bytes(&self) -> u64 {
        bytes_of_contents(self.env.space().free_bytes)
    }

    /// Makes everything durable, including all times of access, and marks the volume clean. Later changes are
    /// refused. Unlinked files that are still held are deleted when the volume is opened next.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::{Error, InodeId};
    ///
    /// volume.close()?;
    /// let refused = volume.create(InodeId::ROOT, b"late", &new_file);
    /// assert!(matches!(refused, Err(Error::ReadOnly { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's.
    pub fn close(&self) -> Result<()> {
        self.put_access_times();
        // Ids that are not returned stay unused.
        let _ = self.numbers.give_back(&self.query(OpKind::Internal));
        Ok(self.env.close()?)
    }

    /// Adds an inode to the table. Inodes evicted for it are torn down at the end of the operation.
    fn keep(&self, op: &Op<'_>, inode: Inode) -> Arc<Inode> {
        let (inode, dropped) = self.table.insert(inode);
        op.tear_down(dropped);
        inode
    }

    /// The object of this identity, which is an error if it is lost.
    fn inode(&self, node: InodeId) -> Result<Arc<Inode>> {
        let inode = self.table.get(node).ok_or(Error::Stale)?;
        inode.refuse_lost()?;
        Ok(inode)
    }

    /// Installs a committed record. The caller holds the inode's state. A holder of the exclusive namespace
    /// need not call this: no listing runs meanwhile.
    fn install_record(&self, inode: &Inode, state: &mut State, record: Record) {
        inode.last_change.stamp(&self.epochs);
        state.record = record.into();
    }

    /// Begins an operation without changes.
    fn query(&self, kind: OpKind) -> Op<'_> {
        self.counts.begin(&self.env, kind)
    }

    /// Begins an operation without changes that loads objects; the caller holds no lock.
    fn query_for_objects(&self, kind: OpKind) -> Op<'_> {
        self.release_leaving();
        self.query(kind)
    }

    /// Begins an operation that adds about `bytes`; the caller holds no lock.
    fn update(&self, kind: OpKind, bytes: usize) -> Result<Op<'_>> {
        self.release_leaving();
        self.env.throttle(bytes.saturating_add(CHANGE_BYTES))?;
        Ok(self.query(kind))
    }
}

/// The records that an opening needs: the volume's and that of its root.
fn first_records(op: &Op<'_>) -> Result<(VolumeRecord, Record)> {
    let Some(bytes) = op.get(META, &key::VOLUME_KEY)? else {
        // They were made as one.
        if op.get(META, &key::ROOT_KEY)?.is_some() {
            return Err(damaged(&key::VOLUME_KEY, "its record is not there"));
        }
        let why = "there is no file system in it: was its making interrupted?".into();
        return Err(Error::NotAVolume { why });
    };
    Ok((VolumeRecord::decode(&bytes)?, read_root(op)?))
}

fn read_root(op: &Op<'_>) -> Result<Record> {
    let bytes =
        op.get(META, &key::ROOT_KEY)?.ok_or_else(|| damaged(&key::ROOT_KEY, "its record is not there"))?;
    match Stored::decode(&key::ROOT_KEY, &bytes)? {
        Stored::Inode(record) if record.is_dir() => Ok(record),
        _ => Err(damaged(&key::ROOT_KEY, "it is not a directory")),
    }
}

/// Reads the markers of what has no name, and gives each with its key to `each`.
fn each_marker(op: &Op<'_>, each: &mut dyn FnMut(&[u8], Marker) -> Result<()>) -> Result<()> {
    let mut markers = op.scan(META, key::markers());
    while let Some((at, bytes)) = markers.next()? {
        each(at, Marker::decode(at, bytes)?)?;
    }
    Ok(())
}

/// Deletes what is left of files that were unlinked while open. Returns the detached trees that are left.
fn reap_all(op: &Op<'_>) -> Result<Left> {
    let (mut batch, mut left) = (Batch::new(), Left::default());
    each_marker(op, &mut |at, marker| {
        let number = key::marker_id(at);
        let base = match marker {
            Marker::Unlinked { base } => base,
            Marker::Detached(why) => {
                left.trees.extend(number.map(|number| (number, why)));
                return Ok(());
            }
            Marker::Kept(kept_as) => {
                left.kept.extend(number.map(|number| Kept::found(number, kept_as)));
                return Ok(());
            }
        };
        let (lo, hi) = key::blocks_from(&base, 0);
        batch.delete_range(DATA, &lo, &hi);
        if key::object_id(&base).is_some() {
            // An object's attributes are its own, as those of a copy that a clone made ahead. Attributes
            // under the key of a name may belong to another entry.
            let (lo, hi) = key::xattrs(&base);
            batch.delete_range(DATA, &lo, &hi);
        }
        batch.delete(META, at);
        if batch.bytes() > REAP_BATCH_BYTES {
            op.commit(&core::mem::take(&mut batch))?;
        }
        Ok(())
    })?;
    op.commit(&batch)?;
    Ok(left)
}
