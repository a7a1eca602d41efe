//! An inode in memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree_sys::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use betree_sys::sync::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::node::{Age, Directory, Recorded};
use crate::schema::{Flags, Record, key};
use crate::types::{Attr, FileType, NodeId};

/// The room that a path has at first, in bytes.
const PATH_BYTES: usize = 128;

/// An object of the volume in memory.
pub(crate) struct Inode {
    pub id: NodeId,
    /// The inode number; it never changes while the inode is in memory.
    pub ino: u64,
    /// Innermost lock: held for no longer than it takes to copy it.
    place: Mutex<Place>,
    pub state: RwLock<State>,
    /// What a directory adds to the numbers below it; kept outside of the state, which those
    /// below may not lock.
    pub salt: AtomicU64,
    /// How often the caller holds it, see [`Volume::forget`](crate::Volume::forget).
    pub lookups: AtomicU64,
    pub opens: AtomicU32,
    /// The time of the last access, which the record may not have yet.
    pub atime_ns: AtomicI64,
    /// Whether it stands among those whose time of access is to be put into their records.
    pub accessed: AtomicBool,
    /// Whether it stands in the queue of those that may be dropped.
    pub queued: AtomicBool,
    pub age: Age,
}

/// Where an object's record and data are stored. Never a key of a path: directories above move.
#[derive(Clone)]
pub(crate) enum Place {
    /// The root directory.
    Root,
    /// Under its only name.
    Named { parent: Arc<Inode>, name: Arc<[u8]> },
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
pub(crate) struct DirPath {
    pub bytes: Vec<u8>,
    pub salts: u64,
}

impl Inode {
    pub fn new(id: NodeId, ino: u64, place: Place, record: Record, dir: Option<Directory>) -> Inode {
        Inode {
            id,
            ino,
            place: Mutex::new(place),
            salt: AtomicU64::new(record.salt),
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
            age: Age::default(),
        }
    }

    pub fn place(&self) -> Place {
        self.place.lock().clone()
    }

    /// Moves it. The caller holds its state for writing, or the namespace alone.
    pub fn set_place(&self, place: Place) {
        // The old one is dropped outside of the lock: it may be the last holder of its parent.
        let old = core::mem::replace(&mut *self.place.lock(), place);
        drop(old);
    }

    /// Whether it was removed or unlinked.
    pub fn is_unlinked(&self) -> bool {
        matches!(*self.place.lock(), Place::Gone | Place::Orphan { .. })
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        matches!(*self.place.lock(), Place::Gone)
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
        // Backwards, as the way leads up.
        let mut bytes = Vec::with_capacity(PATH_BYTES);
        let mut salts = self.salt.load(Relaxed);
        let mut above: Option<Arc<Inode>> = None;
        let top = loop {
            let place = above.as_deref().unwrap_or(self).place.lock();
            let parent = match &*place {
                Place::Root => break Vec::new(),
                // The numbers in a snapshot do not change when its directory moves.
                Place::Snapshots { of } => {
                    let of = of.clone();
                    drop(place);
                    break key::snapshots_path(&of.dir_path()?.bytes);
                }
                Place::Named { parent, name } => {
                    bytes.extend(name.iter().rev());
                    bytes.push(0);
                    parent.clone()
                }
                Place::Object { .. } => return Err(Error::NotADirectory),
                Place::Orphan { .. } | Place::Gone => return Err(Error::NotFound),
            };
            drop(place);
            salts = salts.wrapping_add(parent.salt.load(Relaxed));
            above = Some(parent);
        };
        bytes.extend(top.iter().rev());
        bytes.reverse();
        Ok(DirPath { bytes, salts })
    }

    /// The key of its record, and under which its data are, as long as the namespace is held.
    pub fn own_key(&self) -> Result<Vec<u8>> {
        match self.place() {
            Place::Root => Ok(key::ROOT_KEY.to_vec()),
            Place::Named { parent, name } => Ok(key::entry(&parent.dir_path()?.bytes, &name)),
            Place::Object { oid } => Ok(key::object(oid)),
            Place::Orphan { base, .. } => Ok(base.to_vec()),
            Place::Snapshots { .. } => Err(Error::InSnapshot),
            Place::Gone => Err(Error::Stale),
        }
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

/// Units of 512 bytes. What a sparse file really uses is not counted; it must be less than the
/// size, or copies are made dense, and not 0, or archivers skip the contents.
fn blocks_512(record: &Record) -> u64 {
    let whole = record.size.div_ceil(512);
    match record.file_type {
        FileType::Regular if record.flags.has(Flags::SPARSE) => {
            (record.size / 512).saturating_sub(1).max(u64::from(record.size > 0))
        }
        FileType::Regular => whole,
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
        let mut place = core::mem::replace(self.place.get_mut(), Place::Gone);
        while let Place::Named { parent, .. } = place {
            let Some(mut parent) = Arc::into_inner(parent) else { break };
            place = core::mem::replace(parent.place.get_mut(), Place::Gone);
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
