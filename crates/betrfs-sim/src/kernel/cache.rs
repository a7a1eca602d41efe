//! What the kernel remembers: names, attributes, pages and listings, each as long as the server allows.
//!
//! As in Linux's `fs/fuse`: an operation of the kernel marks the attributes stale that it changes, and what
//! it changes itself it does not ask for. Everything else only a notice makes stale.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use betrfs_fuse::Errno;
use betrfs_fuse::protocol::NotifySink;
use betrfs_fuse::wire::{self, EntryOut, NotifyInvalEntry, NotifyInvalInode, OutHeader};
use zerocopy::FromBytes;

/// The bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// The root directory's node.
pub const ROOT_NODE: u64 = 1;
/// Code of the notice that invalidates an inode.
const NOTIFY_INVAL_INODE: i32 = 2;
/// Code of the notice that invalidates a name.
const NOTIFY_INVAL_ENTRY: i32 = 3;

/// Attributes that are stale, each a bit.
pub mod stale {
    /// None.
    pub const NONE: u8 = 0;
    /// Mode, owner and group, by which the kernel decides on permissions.
    pub const RIGHTS: u8 = 1 << 0;
    /// The number of names.
    pub const NLINK: u8 = 1 << 1;
    /// The size.
    pub const SIZE: u8 = 1 << 2;
    /// Blocks in use and time of the last change of the contents.
    pub const MODIFIED: u8 = 1 << 3;
    /// The time of the last change.
    pub const CTIME: u8 = 1 << 4;
    /// The time of the last access.
    pub const ATIME: u8 = 1 << 5;
    /// What a write changes.
    pub const WRITTEN: u8 = SIZE | MODIFIED | CTIME;
    /// All.
    pub const ALL: u8 = 0x3f;
}

/// An entry of a listing that the kernel keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name.
    pub name: Vec<u8>,
    /// The cookie behind it.
    pub cookie: u64,
    /// The inode number.
    pub ino: u64,
    /// The type.
    pub kind: u32,
}

/// An inode in the kernel.
#[derive(Debug)]
pub struct Inode {
    /// The lookups that the server counts.
    pub lookups: u64,
    /// What tells it from others that had its number.
    pub generation: u64,
    /// The attributes as they were last told.
    pub attr: wire::Attr,
    /// Those that are stale.
    pub stale: u8,
    /// When all of them are stale.
    pub until_ns: i64,
    /// Pages of a file, by number.
    pub pages: BTreeMap<u64, Vec<u8>>,
    /// The listing of a directory.
    pub listing: Option<Vec<Kept>>,
}

/// A name in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry {
    /// The node; 0 if there is no such name.
    pub node: u64,
    /// When it must be looked up again.
    pub until_ns: i64,
}

/// Counts of what the kernel did, which histories must reach.
#[derive(Debug, Default)]
pub struct Counts {
    /// Notices.
    pub notices: u64,
    /// Names that were found without a request.
    pub names: u64,
    /// Reads without a request.
    pub reads: u64,
    /// Listings without a request.
    pub listings: u64,
    /// Inodes that were forgotten.
    pub forgets: u64,
}

impl Counts {
    /// The counts by name, which begin anew.
    pub fn take(&mut self) -> [(&'static str, u64); 5] {
        let Counts { notices, names, reads, listings, forgets } = std::mem::take(self);
        [
            ("notice", notices),
            ("name from memory", names),
            ("read from memory", reads),
            ("listing from memory", listings),
            ("inode forgotten", forgets),
        ]
    }
}

/// Names and inodes.
#[derive(Debug, Default)]
pub struct Caches {
    /// The inodes, by node.
    pub inodes: HashMap<u64, Inode>,
    /// The names, by directory.
    pub names: BTreeMap<(u64, Vec<u8>), Dentry>,
    /// What was done since the counts were taken.
    pub counts: Counts,
}

impl Caches {
    /// Takes the reply about an object, which counts a lookup.
    ///
    /// # Errors
    /// What no server may say.
    pub fn take(&mut self, entry: &EntryOut, now_ns: i64) -> Result<(), String> {
        let until_ns = until(now_ns, entry.attr_valid, entry.attr_valid_nsec);
        let new = || Inode {
            lookups: 0,
            generation: entry.generation,
            attr: entry.attr,
            stale: stale::NONE,
            until_ns,
            pages: BTreeMap::new(),
            listing: None,
        };
        let inode = self.inodes.entry(entry.nodeid).or_insert_with(new);
        inode.lookups += 1;
        if inode.generation != entry.generation || kind_of(&inode.attr) != kind_of(&entry.attr) {
            return Err(format!("node {} became another object while the kernel knew it", entry.nodeid));
        }
        inode.told(&entry.attr, until_ns);
        Ok(())
    }

    /// Notes where a name leads, as a reply has told.
    pub fn enter(&mut self, dir: u64, name: &[u8], entry: &EntryOut, now_ns: i64) {
        let until_ns = until(now_ns, entry.entry_valid, entry.entry_valid_nsec);
        self.names.insert((dir, name.to_vec()), Dentry { node: entry.nodeid, until_ns });
    }

    /// Where a name leads, as long as the kernel need not ask.
    pub fn find(&self, dir: u64, name: &[u8], now_ns: i64) -> Option<u64> {
        let found = self.names.get(&(dir, name.to_vec()))?;
        (found.until_ns > now_ns).then_some(found.node)
    }

    /// Marks attributes stale.
    pub fn mark(&mut self, node: u64, bits: u8) {
        if let Some(inode) = self.inodes.get_mut(&node) {
            inode.stale |= bits;
        }
    }

    /// The entries of a directory have changed by the kernel's own doing.
    pub fn dir_changed(&mut self, dir: u64) {
        self.mark(dir, stale::ALL);
        if let Some(inode) = self.inodes.get_mut(&dir) {
            inode.listing = None;
        }
    }

    /// A name is gone. The kernel counts the names of a file itself, and lists no removed directory.
    pub fn unlinked(&mut self, dir: u64, name: &[u8]) {
        let Some(gone) = self.names.remove(&(dir, name.to_vec())) else { return };
        if let Some(inode) = self.inodes.get_mut(&gone.node) {
            inode.stale |= stale::CTIME;
            if is_dir(&inode.attr) {
                (inode.attr.nlink, inode.listing) = (0, None);
            } else {
                inode.attr.nlink = inode.attr.nlink.saturating_sub(1);
            }
        }
    }

    /// Forgets all names below a directory.
    pub fn prune(&mut self, dir: u64) {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            let inside: Vec<(u64, Vec<u8>)> =
                self.names_in(dir).map(|(name, _)| (dir, name.clone())).collect();
            for name in inside {
                dirs.extend(self.names.remove(&name).map(|gone| gone.node).filter(|node| *node != 0));
            }
        }
    }

    /// Follows a notice about a name.
    fn drop_name(&mut self, dir: u64, name: &[u8]) -> Result<(), Errno> {
        self.inodes.get(&dir).ok_or(Errno::NOENT)?;
        let gone = self.names.remove(&(dir, name.to_vec())).ok_or(Errno::NOENT)?;
        self.dir_changed(dir);
        self.prune(gone.node);
        Ok(())
    }

    /// The names known of a directory.
    pub fn names_in(&self, dir: u64) -> impl Iterator<Item = (&Vec<u8>, &Dentry)> {
        self.names
            .range((dir, Vec::new())..)
            .take_while(move |((of, _), _)| *of == dir)
            .map(|((_, name), at)| (name, at))
    }

    /// Takes the inodes out that nothing leads to; `held` are in use.
    pub fn take_unused(&mut self, held: &[u64]) -> Vec<(u64, u64)> {
        let mut used: std::collections::HashSet<u64> = held.iter().copied().collect();
        used.insert(ROOT_NODE);
        for ((dir, _), dentry) in &self.names {
            used.extend([*dir, dentry.node]);
        }
        let mut unused: Vec<u64> = self.inodes.keys().copied().filter(|node| !used.contains(node)).collect();
        unused.sort_unstable();
        unused
            .into_iter()
            .filter_map(|node| self.inodes.remove(&node).map(|inode| (node, inode.lookups)))
            .collect()
    }
}

impl Inode {
    /// Takes all attributes from a reply.
    pub fn told(&mut self, attr: &wire::Attr, until_ns: i64) {
        (self.attr, self.stale, self.until_ns) = (*attr, stale::NONE, until_ns);
    }

    /// The stale attributes at this time.
    pub fn stale_at(&self, now_ns: i64) -> u8 {
        if self.until_ns > now_ns { self.stale } else { stale::ALL }
    }

    /// Takes bytes that were written through the pages: a page that is there is changed, one that is written
    /// whole comes.
    pub fn write_pages(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        for page in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            let (from, to) = ((page * PAGE_BYTES).max(offset), ((page + 1) * PAGE_BYTES).min(end));
            let part = &data[(from - offset) as usize..(to - offset) as usize];
            if part.len() as u64 == PAGE_BYTES {
                self.pages.insert(page, part.to_vec());
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                let at = (from % PAGE_BYTES) as usize;
                bytes[at..at + part.len()].copy_from_slice(part);
            }
        }
    }

    /// Drops the pages of a range.
    pub fn drop_pages(&mut self, offset: u64, end: u64) {
        self.pages.retain(|page, _| (page + 1) * PAGE_BYTES <= offset || page * PAGE_BYTES >= end);
    }
}

/// Whether attributes are a directory's.
pub fn is_dir(attr: &wire::Attr) -> bool {
    kind_of(attr) == 4
}

/// Whether attributes are a regular file's.
pub fn is_file(attr: &wire::Attr) -> bool {
    kind_of(attr) == 8
}

/// The type of an object, as listings have it.
pub fn kind_of(attr: &wire::Attr) -> u32 {
    attr.mode >> 12
}

/// The end of a lifetime.
pub fn until(now_ns: i64, seconds: u64, nanoseconds: u32) -> i64 {
    let lifetime = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
    now_ns.saturating_add(lifetime).saturating_add(i64::from(nanoseconds))
}

/// The caches, as the server's notices reach them.
pub struct Shared(Mutex<Caches>);

impl Default for Shared {
    fn default() -> Shared {
        // A mount knows that its root is a directory, and nothing else of it.
        let attr = wire::Attr { mode: 0o40_000, ino: ROOT_NODE, ..wire::Attr::default() };
        let (pages, listing) = (BTreeMap::new(), None);
        let root = Inode { lookups: 1, generation: 0, attr, stale: stale::ALL, until_ns: 0, pages, listing };
        let inodes = HashMap::from([(ROOT_NODE, root)]);
        Shared(Mutex::new(Caches { inodes, names: BTreeMap::new(), counts: Counts::default() }))
    }
}

impl Shared {
    /// The caches. Nothing is sent while they are held.
    pub fn lock(&self) -> MutexGuard<'_, Caches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotifySink for Shared {
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let (header, rest) = OutHeader::read_from_prefix(&bytes).map_err(|_| Errno::INVAL)?;
        if header.unique != 0 || header.len as usize != bytes.len() {
            return Err(Errno::INVAL);
        }
        if header.error == NOTIFY_INVAL_ENTRY {
            let (what, name) = NotifyInvalEntry::read_from_prefix(rest).map_err(|_| Errno::INVAL)?;
            let name = name.strip_suffix(&[0]).filter(|name| name.len() == what.name_len as usize);
            let mut caches = self.lock();
            caches.counts.notices += 1;
            return caches.drop_name(what.parent, name.ok_or(Errno::INVAL)?);
        }
        if header.error != NOTIFY_INVAL_INODE {
            return Err(Errno::INVAL);
        }
        let (what, _) = NotifyInvalInode::read_from_prefix(rest).map_err(|_| Errno::INVAL)?;
        let mut caches = self.lock();
        caches.counts.notices += 1;
        let inode = caches.inodes.get_mut(&what.nodeid).ok_or(Errno::NOENT)?;
        inode.stale = stale::ALL;
        if what.offset >= 0 {
            inode.pages.clear();
            inode.listing = None;
        }
        Ok(())
    }
}
