//! An inode in memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use betree_platform::sync::{Mutex, RwLock};

use super::namespace::Exclusive;
use crate::error::{Error, Result};
use crate::names::open_below::OpenBelow;
use crate::names::{ChangeEpoch, Directory, Recorded};
use crate::schema::block::BLOCK;
use crate::schema::{Record, key};
use crate::types::{Attr, Entry, FileType, InodeId};

/// The room that a path has at first, in bytes.
const PATH_BYTES: usize = 128;

/// An object of the volume in memory.
pub(crate) struct Inode {
    pub id: InodeId,
    /// The inode number; it never changes while the inode is in memory.
    pub ino: u64,
    /// Innermost lock, and of several the one further down first: held for no longer than it takes to copy
    /// what is in it.
    pub(super) seat: Mutex<Place>,
    pub state: RwLock<State>,
    /// Most inodes are files, which are not to have room for it.
    pub(super) of_dir: Option<Box<OfDir>>,
    /// How often the caller holds it, see [`Volume::forget`](crate::Volume::forget).
    pub lookups: AtomicU64,
    /// How often it is open; changed under the lock of its seat.
    pub(super) opens: AtomicU32,
    /// The time of the last access, which the record may not have yet.
    pub atime_ns: AtomicI64,
    /// Whether it stands among those whose time of access is to be put into their records.
    pub accessed: AtomicBool,
    /// Whether it stands in the queue of those that may be dropped.
    pub queued: AtomicBool,
    pub last_change: ChangeEpoch,
}

/// Where an object's record and data are stored. Never a key of a path: directories above move.
#[derive(Clone)]
pub(crate) enum Place {
    /// The root directory.
    Root,
    /// Under its only name, in its parent's turn `turn`: when all in the parent is removed at once, the next
    /// begins.
    Named { parent: Arc<Inode>, name: Arc<[u8]>, turn: u32 },
    /// Under an object id; its names are redirects.
    Object { oid: u64 },
    /// Unlinked while open: the record is in memory only, the blocks are still under the key `base`
    /// and belong to the marker `marker`.
    Orphan { marker: u64, base: Arc<[u8]> },
    /// In memory only: the entry of a directory under which its snapshots are found.
    Snapshots { of: Arc<Inode> },
    /// Nowhere: it was removed.
    Gone,
}

/// What a directory has outside of its state, which those below it may not lock.
pub(crate) struct OfDir {
    /// What it adds to the numbers below it.
    salt: AtomicU64,
    /// How often all that was in it was removed at once.
    turn: AtomicU32,
    /// Taken with the lock of a seat below it held, too.
    pub(super) open_below: Mutex<OpenBelow>,
}

/// What an inode's lock protects.
pub(crate) struct State {
    /// As it is stored.
    pub record: Recorded,
    /// Of a directory. Most inodes are files, which are not to have room for it.
    pub dir: Option<Box<Directory>>,
    /// Whether the file stands in the queue of those whose contents may be given up.
    pub content_queued: bool,
}

/// A directory's path for the making of keys, and the sum of salts down to it.
#[derive(Clone)]
pub(crate) struct DirPath {
    pub bytes: Vec<u8>,
    pub salts: u64,
    /// How many inodes were looked at for it.
    pub steps: usize,
}

impl Place {
    /// Under a name in a directory, as that is now.
    pub fn named(parent: &Arc<Inode>, name: Arc<[u8]>) -> Place {
        Place::Named { parent: parent.clone(), name, turn: parent.turn() }
    }

    /// The directory above, or the one whose snapshots these are.
    pub fn parent(&self) -> Option<&Arc<Inode>> {
        match self {
            Place::Named { parent, .. } | Place::Snapshots { of: parent } => Some(parent),
            _ => None,
        }
    }

    /// Whether all that was in the directory above was removed since.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Place::Named { parent, turn, .. } if parent.turn() != *turn)
    }
}

impl Inode {
    pub fn new(id: InodeId, ino: u64, place: Place, record: Record, dir: Option<Directory>) -> Inode {
        Inode {
            id,
            ino,
            seat: Mutex::new(place),
            of_dir: dir.is_some().then(|| {
                let (turn, open_below) = (AtomicU32::new(0), Mutex::default());
                Box::new(OfDir { salt: AtomicU64::new(record.salt), turn, open_below })
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
            last_change: ChangeEpoch::default(),
        }
    }

    pub fn place(&self) -> Place {
        self.seat.lock().clone()
    }

    /// Moves it. The caller holds its state for writing, or the namespace alone.
    pub fn set_place(&self, place: Place) {
        let mut seat = self.seat.lock();
        // The old one is dropped outside of the lock: it may be the last holder of its parent.
        let old = core::mem::replace(&mut *seat, place);
        self.moved(seat, &old);
        drop(old);
    }

    /// Takes all that is in it from a directory at once.
    pub fn cut_off_all(&self, _: &Exclusive<'_>) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.turn.fetch_add(1, Relaxed);
        }
    }

    fn turn(&self) -> u32 {
        self.of_dir.as_ref().map_or(0, |of_dir| of_dir.turn.load(Relaxed))
    }

    fn salt(&self) -> u64 {
        self.of_dir.as_ref().map_or(0, |of_dir| of_dir.salt.load(Relaxed))
    }

    /// Changes what a directory adds to the numbers below it.
    pub fn set_salt(&self, _: &Exclusive<'_>, salt: u64) {
        if let Some(of_dir) = &self.of_dir {
            of_dir.salt.store(salt, Relaxed);
        }
    }

    /// Whether it was removed or unlinked, for itself and not with a directory above.
    pub fn is_unlinked(&self) -> bool {
        matches!(*self.seat.lock(), Place::Gone | Place::Orphan { .. })
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        matches!(*self.seat.lock(), Place::Gone)
    }

    /// Whether anybody has it open.
    pub fn is_open(&self) -> bool {
        self.opens.load(Relaxed) > 0
    }

    /// Whether nobody outside of the library holds it.
    pub fn is_idle(&self) -> bool {
        self.lookups.load(Relaxed) == 0 && self.opens.load(Relaxed) == 0
    }

    /// The path of a directory, as long as the namespace is held.
    pub fn dir_path(&self) -> Result<DirPath> {
        self.climb(&[])
    }

    /// The same, where the paths of some directories are known.
    pub fn climb(&self, known: &[(Arc<Inode>, DirPath)]) -> Result<DirPath> {
        // Backwards, as the way leads up.
        let mut bytes = Vec::with_capacity(PATH_BYTES);
        let (mut salts, mut steps) = (0u64, 0);
        let mut above: Option<Arc<Inode>> = None;
        let mut is_snapshot = false;
        loop {
            let here = above.as_deref().unwrap_or(self);
            let is_known = |(dir, _): &&(Arc<Inode>, DirPath)| core::ptr::eq(&**dir, here) && !here.is_gone();
            let path = known.iter().find(is_known).map(|(_, path)| path);
            // The numbers in a snapshot do not change when its directory moves.
            if !is_snapshot {
                salts = salts.wrapping_add(path.map_or(here.salt(), |path| path.salts));
            }
            if let Some(path) = path {
                bytes.extend(path.bytes.iter().rev());
                break;
            }
            steps += 1;
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
        }
        Ok(DirPath { bytes, salts, steps })
    }

    /// Whether it is found through an entry for snapshots, or is one, and how many inodes were looked at for
    /// that, where the paths of some directories are known.
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

    /// Whether a directory above was removed, and with it all that is below, of which this is one, as long as
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

    /// The key of its record, and under which its data are, as long as the namespace is held.
    pub fn own_key(&self) -> Result<Vec<u8>> {
        self.own_key_by(&mut |dir| dir.dir_path())
    }

    /// The same, by the paths of directories that `path` gives.
    pub fn own_key_by(&self, path: &mut dyn FnMut(&Inode) -> Result<DirPath>) -> Result<Vec<u8>> {
        let place = self.place();
        if place.is_cut_off() {
            return Err(Error::Stale);
        }
        match place {
            Place::Root => Ok(key::ROOT_KEY.to_vec()),
            Place::Named { parent, name, .. } => Ok(key::entry(&path(&parent)?.bytes, &name)),
            Place::Object { oid } => Ok(key::object(oid)),
            Place::Orphan { base, .. } => Ok(base.to_vec()),
            Place::Snapshots { .. } => Err(Error::InSnapshot),
            Place::Gone => Err(Error::Stale),
        }
    }

    /// What a look-up of it is answered with, which counts as one.
    pub fn looked_up(&self) -> Entry {
        self.lookups.fetch_add(1, Relaxed);
        let attr = self.attr(&self.state.read().record);
        Entry { node: self.id, attr }
    }

    /// Its attributes.
    pub fn attr(&self, record: &Record) -> Attr {
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
            blocks_512: blocks_512(record),
            atime_ns: self.atime_ns.load(Relaxed),
            mtime_ns: record.mtime_ns,
            ctime_ns: record.ctime_ns,
            crtime_ns: record.crtime_ns,
        }
    }
}

/// Units of 512 bytes. Of a sparse file it is not 0 unless the size is: what was written to a mapping may not
/// have come yet, and archivers would skip it.
fn blocks_512(record: &Record) -> u64 {
    match record.file_type {
        FileType::Regular => {
            let blocks = record.blocks().saturating_mul(BLOCK / 512);
            blocks.clamp(u64::from(record.size > 0), record.size.div_ceil(512))
        }
        _ => 0,
    }
}

/// The inode number of a stored id below directories whose salts sum up to `salts`. 0 and 1 are
/// no numbers for a file.
pub(crate) fn ino_of(id: u64, salts: u64) -> u64 {
    match id.wrapping_add(salts) {
        small @ (0 | 1) => small | 1 << 63,
        ino => ino,
    }
}

impl State {
    /// What is known of a directory's entries.
    pub fn dir(&self) -> Result<&Directory> {
        self.dir.as_deref().ok_or(Error::NotADirectory)
    }

    /// The same, to change it.
    pub fn dir_mut(&mut self) -> Result<&mut Directory> {
        self.dir.as_deref_mut().ok_or(Error::NotADirectory)
    }

    /// Whether every entry's name is known: what is not known is not there.
    pub fn is_complete(&self) -> bool {
        self.dir.as_ref().is_some_and(|dir| dir.len() as u64 == self.record.entries)
    }
}

impl Drop for Inode {
    /// Lets go of the directories above in a loop: a deep path must not become a deep recursion.
    fn drop(&mut self) {
        let mut place = core::mem::replace(&mut *self.seat.get_mut(), Place::Gone);
        while let Place::Named { parent, .. } | Place::Snapshots { of: parent } = place {
            let Some(mut parent) = Arc::into_inner(parent) else { break };
            place = core::mem::replace(&mut *parent.seat.get_mut(), Place::Gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel holds hundreds of thousands of them.
    #[test]
    fn a_file_takes_no_more_memory_than_five_lines_of_a_cache() {
        assert!(size_of::<Inode>() + 2 * size_of::<usize>() <= 5 * 64, "{} bytes", size_of::<Inode>());
    }
}
