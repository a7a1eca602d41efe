//! An inode in memory: its place, path and attributes. `openings.rs` counts its openings.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use betree_platform::sync::{Mutex, RwLock};

use super::namespace::Exclusive;
use super::quota::MayCount;
use crate::error::{Error, Result};
use crate::names::open_below::OpenBelow;
use crate::names::{Allocations, ChangeEpoch, Counter, CountingAbove, Directory, Recorded};
use crate::schema::block::BLOCK;
use crate::schema::{Record, key};
use crate::types::{Attr, Entry, InodeId};

/// 2^64 divided by the golden ratio.
const FIBONACCI_64: u64 = 0x9e37_79b9_7f4a_7c15;

/// The first capacity of a path, in bytes.
const PATH_BYTES: usize = 128;

/// An object of the volume in memory.
pub(crate) struct Inode {
    /// Its inode number, or an alias if another object in memory has the same one.
    pub id: InodeId,
    /// The inode number; it never changes.
    pub ino: u64,
    /// Innermost lock; of several, that of the inode further down comes first. Held only as long as it takes
    /// to copy the place.
    pub(super) seat: Mutex<Place>,
    pub state: RwLock<State>,
    /// Boxed: most inodes are files, which should not have room for it.
    pub(super) of_dir: Option<Box<OfDir>>,
    /// Number of lookups that the caller holds, see [`Volume::forget`](crate::Volume::forget).
    pub lookups: AtomicU64,
    /// Number of openings; changed under the lock of the seat.
    pub(super) opens: AtomicU32,
    /// The time of the last access, perhaps later than the record's.
    pub atime_ns: AtomicI64,
    /// Whether it is in the queue of inodes whose time of access is to be put.
    pub accessed: AtomicBool,
    /// Whether it is in the queue of inodes that may be evicted.
    pub queued: AtomicBool,
    /// Whether it stands for the names of a file that is lost; it never changes.
    pub is_lost: bool,
    pub last_change: ChangeEpoch,
}

/// Where an object's record and data are stored. Never the key of a path, because directories above move.
#[derive(Clone)]
pub(crate) enum Place {
    /// The root directory.
    Root,
    /// Under its only name, in its parent's turn `turn`. A turn ends when everything in the parent is removed
    /// at once.
    Named { parent: Arc<Inode>, name: Arc<[u8]>, turn: u32 },
    /// Under an object id; its names are redirects. `home` is the directory of the nearest quota above them:
    /// all names are in the same one.
    Object { oid: u64, home: Option<Arc<Inode>> },
    /// Unlinked while open: the record is in memory only; the blocks are still under the key `base` and
    /// belong to the marker `marker`.
    Orphan { marker: u64, base: Arc<[u8]> },
    /// In memory only: the entry of a directory that has its snapshots.
    Snapshots { of: Arc<Inode> },
    /// Nowhere: the object was removed.
    Gone,
}

/// The part of a directory outside of its state, whose lock inodes below it may not take.
pub(crate) struct OfDir {
    /// The number added to the inode numbers below the directory.
    salt: AtomicU64,
    /// How often everything in it was removed at once.
    turn: AtomicU32,
    /// The bits of its own properties, as in its record.
    pub(super) properties: AtomicU32,
    /// May be locked while the seat of an inode below is locked.
    pub(super) open_below: Mutex<OpenBelow>,
    pub(super) may_count: MayCount,
}

/// The part of an inode that its lock protects.
pub(crate) struct State {
    /// As it is stored.
    pub record: Recorded,
    /// Of a directory. Boxed: most inodes are files, which should not have room for it.
    pub dir: Option<Box<Directory>>,
    /// Whether the file is in the queue of those whose contents may be dropped.
    pub content_queued: bool,
}

/// A directory's path, from which keys are made, and the sum of the salts down to it.
#[derive(Clone)]
pub(crate) struct DirPath {
    pub bytes: Vec<u8>,
    pub salts: u64,
    /// Number of inodes looked at for it.
    pub steps: usize,
    /// What counts the changes below the directory, from the nearest on up; nothing for a place in a
    /// snapshot.
    pub counting: Vec<CountingAbove>,
}

impl DirPath {
    /// The nearest quota.
    pub fn quota(&self) -> Option<&Arc<Counter>> {
        self.counting.iter().find_map(|above| above.counting.quota.as_ref())
    }

    /// All quotas.
    pub fn quotas(&self) -> Vec<Arc<Counter>> {
        self.counting.iter().filter_map(|above| above.counting.quota.clone()).collect()
    }

    /// The directory of the nearest quota.
    pub fn home(&self) -> Option<Arc<Inode>> {
        self.quota().and_then(|quota| quota.dir())
    }
}

impl Place {
    /// A name in the present turn of a directory.
    pub fn named(parent: &Arc<Inode>, name: Arc<[u8]>) -> Place {
        Place::Named { parent: parent.clone(), name, turn: parent.turn() }
    }

    /// The directory above, or the directory of these snapshots.
    pub fn parent(&self) -> Option<&Arc<Inode>> {
        match self {
            Place::Named { parent, .. } | Place::Snapshots { of: parent } => Some(parent),
            _ => None,
        }
    }

    /// Whether everything in the directory above was removed since.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Place::Named { parent, turn, .. } if parent.turn() != *turn)
    }
}

impl Inode {
    pub fn new(ino: u64, place: Place, record: Record, dir: Option<Directory>) -> Inode {
        Inode {
            id: InodeId(ino),
            ino,
            seat: Mutex::new(place),
            of_dir: dir.is_some().then(|| {
                let (turn, open_below) = (AtomicU32::new(0), Mutex::default());
                let properties = AtomicU32::new(record.properties().to_bits());
                let may_count = MayCount::with(record.quota());
                let salt = AtomicU64::new(record.salt);
                Box::new(OfDir { salt, turn, properties, open_below, may_count })
            }),
            atime_ns: AtomicI64::new(record.atime_ns),
            state: RwLock::new(State {
                record: record.into(),
                dir: dir.map(Box::new),
                content_queued: false,
            }),
            lookups: AtomicU64::new(0),
            opens: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            accessed: AtomicBool::new(false),
            is_lost: false,
            last_change: ChangeEpoch::default(),
        }
    }

    pub fn place(&self) -> Place {
        self.seat.lock().clone()
    }

    /// Whether it is stored under this name of a directory.
    pub fn is_named(&self, parent: &Arc<Inode>, text: &[u8]) -> bool {
        matches!(&*self.seat.lock(), Place::Named { parent: of, name, .. }
            if Arc::ptr_eq(of, parent) && **name == *text)
    }

    /// Whether it is stored under this object id.
    pub fn is_object(&self, id: u64) -> bool {
        matches!(*self.seat.lock(), Place::Object { oid, .. } if oid == id)
    }

    /// Whether it is the directory of this path, which is not in a snapshot. Looks at no more inodes than
    /// there are names in the path; valid as long as the namespace is held.
    pub fn is_at(&self, path: &[u8]) -> bool {
        let (mut rest, mut place) = (path, self.place());
        loop {
            place = match place {
                Place::Root => return rest.is_empty(),
                _ if place.is_cut_off() => return false,
                Place::Named { parent, name, .. } => {
                    match rest.strip_suffix(&*name).and_then(|above| above.strip_suffix(&[0])) {
                        Some(above) => rest = above,
                        None => return false,
                    }
                    parent.place()
                }
                _ => return false,
            };
        }
    }

    /// Whether it is the entry with the snapshots of a directory.
    pub fn holds_snapshots_of(&self, dir: &Arc<Inode>) -> bool {
        matches!(&*self.seat.lock(), Place::Snapshots { of } if Arc::ptr_eq(of, dir))
    }

    /// Moves the inode. The caller holds its state for writing, or the namespace alone.
    pub fn set_place(&self, place: Place) {
        let mut seat = self.seat.lock();
        // The old place is dropped outside of the lock: it may hold the last reference to the parent.
        let old = core::mem::replace(&mut *seat, place);
        self.moved(seat, &old);
        drop(old);
    }

    /// Notes the directory of the nearest quota above the names of a file that may have several.
    pub fn set_home(&self, to: Option<Arc<Inode>>) {
        let mut seat = self.seat.lock();
        let old = match &mut *seat {
            Place::Object { home, .. } => core::mem::replace(home, to),
            _ => return,
        };
        drop(seat);
        drop(old);
    }

    /// Cuts off everything in a directory at once.
    pub fn cut_off_all(&self, _: &Exclusive<'_>) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.turn.fetch_add(1, Relaxed);
        }
    }

    /// How often everything in a directory was removed at once.
    pub fn turn(&self) -> u32 {
        self.of_dir.as_ref().map_or(0, |of_dir| of_dir.turn.load(Relaxed))
    }

    fn salt(&self) -> u64 {
        self.of_dir.as_ref().map_or(0, |of_dir| of_dir.salt.load(Relaxed))
    }

    /// Changes the number added to the inode numbers below a directory.
    pub fn set_salt(&self, _: &Exclusive<'_>, salt: u64) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.salt.store(salt, Relaxed);
        }
    }

    /// Whether it was removed or unlinked by itself, not with a directory above.
    pub fn is_unlinked(&self) -> bool {
        matches!(*self.seat.lock(), Place::Gone | Place::Orphan { .. })
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        matches!(*self.seat.lock(), Place::Gone)
    }

    /// Whether it has an opening.
    pub fn is_open(&self) -> bool {
        self.opens.load(Relaxed) > 0
    }

    /// Whether nobody outside of the library holds it.
    pub fn is_idle(&self) -> bool {
        self.lookups.load(Relaxed) == 0 && self.opens.load(Relaxed) == 0
    }

    /// The path of a directory; valid as long as the namespace is held.
    pub fn dir_path(&self) -> Result<DirPath> {
        self.climb(&[])
    }

    /// As [`dir_path`](Inode::dir_path), with some paths already known.
    pub fn climb(&self, known: &[(Arc<Inode>, DirPath)]) -> Result<DirPath> {
        // Backwards, because the steps lead up.
        let mut bytes = Vec::with_capacity(PATH_BYTES);
        let (mut salts, mut steps) = (0u64, 0);
        let mut above: Option<Arc<Inode>> = None;
        let mut is_snapshot = false;
        // With the number of bytes behind the path of each, as long as the length of all is not known.
        let mut counting: Vec<CountingAbove> = Vec::new();
        loop {
            let here = above.as_deref().unwrap_or(self);
            let is_known = |(dir, _): &&(Arc<Inode>, DirPath)| core::ptr::eq(&**dir, here) && !here.is_gone();
            let path = known.iter().find(is_known).map(|(_, path)| path);
            // Inode numbers in a snapshot do not change when its directory moves.
            if !is_snapshot {
                salts = salts.wrapping_add(path.map_or(here.salt(), |path| path.salts));
            }
            if let Some(path) = path {
                counting.extend(path.counting.iter().map(|above| {
                    let behind = path.bytes.len().saturating_sub(above.path_bytes);
                    CountingAbove { path_bytes: bytes.len() + behind, ..above.clone() }
                }));
                bytes.extend(path.bytes.iter().rev());
                break;
            }
            steps += 1;
            counting
                .extend(here.counting().map(|counting| CountingAbove { counting, path_bytes: bytes.len() }));
            let seat = here.seat.lock();
            let parent = match &*seat {
                Place::Root => break,
                Place::Snapshots { of } => {
                    is_snapshot = true;
                    bytes.push(0);
                    of.clone()
                }
                Place::Named { parent, name, .. } if !seat.is_cut_off() => {
                    bytes.extend(name.iter().rev());
                    bytes.push(0);
                    parent.clone()
                }
                Place::Object { .. } => return Err(Error::NotADirectory),
                Place::Named { .. } | Place::Orphan { .. } | Place::Gone => return Err(Error::NotFound),
            };
            drop(seat);
            above = Some(parent);
        }
        bytes.reverse();
        if is_snapshot {
            bytes = key::in_snapshots(bytes);
            counting.clear();
        }
        for above in &mut counting {
            above.path_bytes = bytes.len().saturating_sub(above.path_bytes);
        }
        Ok(DirPath { bytes, salts, steps, counting })
    }

    /// Whether the inode is an entry for snapshots or below one, and the number of inodes looked at to find
    /// out. Some paths of directories are known.
    pub fn is_below_snapshots(&self, known: &[(Arc<Inode>, DirPath)]) -> (bool, usize) {
        let mut above: Option<Arc<Inode>> = None;
        for steps in 0.. {
            let here = above.as_deref().unwrap_or(self);
            if let Some((_, path)) = known.iter().find(|(dir, _)| core::ptr::eq(&**dir, here)) {
                return (key::is_in_snapshot(&path.bytes), steps);
            }
            above = match here.place() {
                Place::Named { parent, .. } => Some(parent),
                Place::Snapshots { .. } => return (true, steps + 1),
                _ => return (false, steps + 1),
            };
        }
        (false, 0)
    }

    /// Whether the inode was removed together with everything below a directory above it; valid as long as
    /// the namespace is held.
    pub fn is_cut_off(&self) -> bool {
        let mut place = self.place();
        loop {
            if place.is_cut_off() {
                return true;
            }
            place = match place {
                Place::Named { parent, .. } | Place::Snapshots { of: parent } => parent.place(),
                Place::Gone => return true,
                _ => return false,
            };
        }
    }

    /// The key of the record and of the data; valid as long as the namespace is held.
    pub fn own_key(&self) -> Result<Vec<u8>> {
        self.own_key_by(&mut |dir| dir.dir_path())
    }

    /// As [`own_key`](Inode::own_key), with the paths of directories from `path`.
    pub fn own_key_by(&self, path: &mut dyn FnMut(&Inode) -> Result<DirPath>) -> Result<Vec<u8>> {
        let place = self.place();
        if place.is_cut_off() {
            return Err(Error::Stale);
        }
        match place {
            Place::Root => Ok(key::ROOT_KEY.to_vec()),
            Place::Named { parent, name, .. } => Ok(key::entry(&path(&parent)?.bytes, &name)),
            Place::Object { oid, .. } => Ok(key::object(oid)),
            Place::Orphan { base, .. } => Ok(base.to_vec()),
            Place::Snapshots { .. } => Err(Error::InSnapshot),
            Place::Gone => Err(Error::Stale),
        }
    }

    /// Counts a lookup and returns its result.
    pub fn looked_up(&self, allocations: &Allocations) -> Entry {
        self.lookups.fetch_add(1, Relaxed);
        let state = self.state.read();
        Entry {
            node: self.id,
            generation: self.generation(&state.record),
            attr: self.attr(&state.record, allocations),
        }
    }

    /// The generation of its identity. Numbers are given once; but a crash may lose a file together with the
    /// knowledge that its number was given, and then the number is given again. The time of making tells the
    /// two apart, as far as 32 bits can.
    pub fn generation(&self, record: &Record) -> u32 {
        if self.id == InodeId::ROOT {
            // The kernel knows the root without asking.
            return 0;
        }
        let made = record.crtime_ns.cast_unsigned();
        // Times of making differ in their lower bits, which a multiplication brings up (Knuth, The Art of
        // Computer Programming, 6.4).
        let mixed = made.wrapping_mul(FIBONACCI_64) >> u32::BITS;
        // An alias is a random number, and so is then its generation.
        record.rare().generation ^ mixed as u32 ^ (self.id.0 ^ self.ino) as u32
    }

    /// Its attributes. Its blocks are those that are stored, and those with room set aside.
    pub fn attr(&self, record: &Record, allocations: &Allocations) -> Attr {
        let blocks_512 = match allocations.not_stored(self.id, record) {
            0 => record.units_512(),
            aside => record.stored_512().saturating_add(aside.saturating_mul(BLOCK / 512)),
        };
        let nlink = if record.is_dir() && record.nlink > 0 {
            u32::try_from(record.subdirs.saturating_add(2)).unwrap_or(u32::MAX)
        } else {
            record.nlink
        };
        Attr {
            ino: self.ino,
            file_type: record.file_type,
            perm: record.perm,
            nlink,
            uid: record.uid,
            gid: record.gid,
            rdev: record.rdev,
            size: record.size,
            blocks_512,
            atime_ns: self.atime_ns.load(Relaxed),
            mtime_ns: record.mtime_ns,
            ctime_ns: record.ctime_ns,
            crtime_ns: record.crtime_ns,
        }
    }
}

/// The inode number of a stored id below directories whose salts sum up to `salts`. A file cannot have the
/// numbers 0 and 1.
pub(crate) fn ino_of(id: u64, salts: u64) -> u64 {
    match id.wrapping_add(salts) {
        small @ (0 | 1) => small | 1 << 63,
        ino => ino,
    }
}

impl State {
    /// The known entries of a directory.
    pub fn dir(&self) -> Result<&Directory> {
        self.dir.as_deref().ok_or(Error::NotADirectory)
    }

    /// The known entries of a directory, for a change.
    pub fn dir_mut(&mut self) -> Result<&mut Directory> {
        self.dir.as_deref_mut().ok_or(Error::NotADirectory)
    }

    /// Whether the name of every entry is known, so that an unknown name does not exist.
    pub fn is_complete(&self) -> bool {
        self.dir.as_ref().is_some_and(|dir| dir.len() as u64 == self.record.entries)
    }
}

impl Drop for Inode {
    /// Drops the directories above in a loop: a deep path must not become a deep recursion.
    fn drop(&mut self) {
        let mut place = core::mem::replace(&mut *self.seat.get_mut(), Place::Gone);
        while let Place::Named { parent, .. }
        | Place::Snapshots { of: parent }
        | Place::Object { home: Some(parent), .. } = place
        {
            let Some(mut parent) = Arc::into_inner(parent) else { break };
            place = core::mem::replace(&mut *parent.seat.get_mut(), Place::Gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel can hold hundreds of thousands of inodes.
    #[test]
    fn a_file_takes_no_more_memory_than_five_lines_of_a_cache() {
        assert!(size_of::<Inode>() + 2 * size_of::<usize>() <= 5 * 64, "{} bytes", size_of::<Inode>());
    }
}
