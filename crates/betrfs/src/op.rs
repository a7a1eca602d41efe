//! The engine's work for operations, counted by kind.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, Cursor, Cut, DictId, Env, View};
use betree_platform::sync::atomic::AtomicU64;

use crate::error::{Error, Result};
use crate::names::{DirPath, Inode, Place};
use crate::schema::key;
use crate::schema::{DATA, Flags, Record, damaged};

/// Blocks, each by its key without the own key of its file.
pub(crate) type Blocks = Vec<(Vec<u8>, Vec<u8>)>;

/// Declares [`OpKind`] with the list of its kinds and their names.
macro_rules! op_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// Kinds of operations, by which [`Counters`] are kept.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum OpKind {
            $($(#[$doc])* $kind,)*
        }

        impl OpKind {
            /// All of them.
            pub const ALL: [OpKind; [$($name),*].len()] = [$(OpKind::$kind),*];

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(OpKind::$kind => $name,)*
                }
            }
        }
    };
}

op_kinds! {
    /// [`Volume::lookup`](crate::Volume::lookup)
    Lookup = "lookup",
    /// [`Volume::find_inode`](crate::Volume::find_inode)
    FindInode = "find_inode",
    /// [`Volume::setattr`](crate::Volume::setattr)
    SetAttr = "setattr",
    /// [`Volume::create`](crate::Volume::create), [`Volume::symlink`](crate::Volume::symlink)
    Create = "create",
    /// [`Volume::link`](crate::Volume::link)
    Link = "link",
    /// [`Volume::unlink`](crate::Volume::unlink)
    Unlink = "unlink",
    /// [`Volume::rmdir`](crate::Volume::rmdir)
    Rmdir = "rmdir",
    /// [`Volume::remove_below`](crate::Volume::remove_below)
    RemoveTree = "remove_tree",
    /// [`Volume::rename`](crate::Volume::rename)
    Rename = "rename",
    /// [`Volume::clone_inode`](crate::Volume::clone_inode), [`Volume::clone_onto`](crate::Volume::clone_onto)
    Clone = "clone",
    /// [`Volume::read`](crate::Volume::read)
    Read = "read",
    /// [`Volume::write`](crate::Volume::write)
    Write = "write",
    /// [`Volume::recompress`](crate::Volume::recompress)
    Recompress = "recompress",
    /// [`Volume::readdir`](crate::Volume::readdir)
    Readdir = "readdir",
    /// Extended attributes.
    Xattr = "xattr",
    /// [`Volume::fallocate`](crate::Volume::fallocate), [`Volume::seek`](crate::Volume::seek)
    Fallocate = "fallocate",
    /// [`Volume::set_quota`](crate::Volume::set_quota), and what else is about quotas alone.
    Quota = "quota",
    /// Opening the volume, reserving numbers, deleting unlinked files, putting times of access, checking.
    Internal = "internal",
}

/// The cost of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// Number of calls.
    pub calls: u64,
    /// Number of point queries to the tree.
    pub queries: u64,
    /// Number of range queries to the tree.
    pub scans: u64,
    /// Number of committed batches.
    pub commits: u64,
    /// Number of inodes in memory and files looked at one by one while the operation held the namespace alone
    /// and all others waited.
    pub visited: u64,
}

/// The costs since the volume was opened, by kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: [OpCount; OpKind::ALL.len()],
}

impl Counters {
    /// The counts of one kind.
    pub fn of(&self, kind: OpKind) -> OpCount {
        self.counts.get(kind as usize).copied().unwrap_or_default()
    }
}

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    queries: AtomicU64,
    scans: AtomicU64,
    commits: AtomicU64,
    visited: AtomicU64,
}

/// The counters as they are counted.
#[derive(Default)]
pub(crate) struct AllCounts([Counts; OpKind::ALL.len()]);

impl AllCounts {
    pub fn read(&self) -> Counters {
        let mut counters = Counters::default();
        for (to, from) in counters.counts.iter_mut().zip(&self.0) {
            *to = OpCount {
                calls: from.calls.load(Relaxed),
                queries: from.queries.load(Relaxed),
                scans: from.scans.load(Relaxed),
                commits: from.commits.load(Relaxed),
                visited: from.visited.load(Relaxed),
            };
        }
        counters
    }

    /// Counts a call.
    pub fn begin<'v>(&'v self, env: &'v Env, kind: OpKind) -> Op<'v> {
        let counts = self.0.get(kind as usize);
        let (is_alone, paths, dropped) = (Cell::new(false), RefCell::default(), RefCell::default());
        let op = Op { env, view: None, counts, is_alone, paths, dropped };
        op.count(|counts| &counts.calls);
        op
    }
}

/// One operation's access to the engine.
pub(crate) struct Op<'v> {
    env: &'v Env,
    /// What it reads; the newest, if there is none.
    view: Option<&'v View>,
    counts: Option<&'v Counts>,
    is_alone: Cell<bool>,
    /// Paths of directories that were found before.
    paths: RefCell<Vec<(Arc<Inode>, DirPath)>>,
    /// Inodes evicted to make room. They are torn down at the end of the operation, when it holds no lock: a
    /// directory may have known a million names.
    dropped: RefCell<Vec<Arc<Inode>>>,
}

impl<'v> Op<'v> {
    /// The same operation, which reads a view from now on.
    pub fn reading(self, view: &'v View) -> Op<'v> {
        Op { view: Some(view), ..self }
    }

    /// The number of changes of the volume that were ever made, at most.
    pub fn changes_made_max(&self) -> u64 {
        self.env.changes_made_max()
    }

    /// Notes that the operation holds the namespace alone from now on; these paths are valid as long as it
    /// does.
    pub fn is_alone_with(&self, paths: Vec<(Arc<Inode>, DirPath)>) {
        self.paths.replace(paths);
        self.is_alone.set(true);
    }

    /// Whether the operation holds the namespace alone.
    pub fn is_alone(&self) -> bool {
        self.is_alone.get()
    }

    /// Counts objects looked at one by one, if all others wait for the operation.
    pub fn visit(&self, count: usize) {
        if self.is_alone()
            && let Some(counts) = self.counts
        {
            counts.visited.fetch_add(count as u64, Relaxed);
        }
    }

    /// The path of a directory; valid as long as the namespace is held.
    pub fn dir_path(&self, dir: &Inode) -> Result<DirPath> {
        let path = dir.climb(&self.paths.borrow())?;
        self.visit(path.steps);
        Ok(path)
    }

    /// Whether an inode is an entry for snapshots, or is below one.
    pub fn is_below_snapshots(&self, inode: &Inode) -> bool {
        let (is_below, steps) = inode.is_below_snapshots(&self.paths.borrow());
        self.visit(steps);
        is_below
    }

    /// The key of an inode's record; valid as long as the namespace is held.
    pub fn own_key(&self, inode: &Inode) -> Result<Vec<u8>> {
        if matches!(inode.place(), Place::Named { .. })
            && let Some((_, path)) = self.paths.borrow().iter().find(|(dir, _)| core::ptr::eq(&**dir, inode))
        {
            return Ok(key::own(&path.bytes));
        }
        inode.own_key_by(&mut |dir| self.dir_path(dir))
    }

    /// Keeps evicted inodes until the operation ends.
    pub fn tear_down(&self, dropped: Vec<Arc<Inode>>) {
        self.dropped.borrow_mut().extend(dropped);
    }

    fn count(&self, which: impl FnOnce(&'v Counts) -> &'v AtomicU64) {
        if let Some(counts) = self.counts {
            which(counts).fetch_add(1, Relaxed);
        }
    }

    /// A point query.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.count(|counts| &counts.queries);
        Ok(match self.view {
            Some(view) => view.get(dict, key)?,
            None => self.env.get(dict, key)?,
        })
    }

    /// A range query.
    pub fn scan(&self, dict: DictId, (lo, hi): (Cut, Cut)) -> Cursor<'v> {
        self.count(|counts| &counts.scans);
        match self.view {
            Some(view) => view.cursor(dict, lo, hi),
            None => self.env.cursor(dict, lo, hi),
        }
    }

    /// Whether there is anything in a range: a pair, or known damage.
    pub fn has_any(&self, dict: DictId, bounds: (Cut, Cut)) -> Result<bool> {
        match self.scan(dict, bounds).next() {
            Ok(pair) => Ok(pair.is_some()),
            Err(betree::Error::KnownDamage { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The blocks of a file by their keys without the file's own, which `from` is; `None` if some were lost:
    /// only a range takes known damage along.
    pub fn blocks_to_move(&self, from: &[u8]) -> Result<Option<Blocks>> {
        let mut blocks = self.scan(DATA, key::blocks_from(from, 0));
        let mut all = Vec::new();
        loop {
            match blocks.next() {
                Ok(Some((at, block))) => {
                    let rest =
                        at.strip_prefix(from).ok_or_else(|| damaged(at, "it is outside of its range"))?;
                    all.push((rest.to_vec(), block.to_vec()));
                }
                Ok(None) => return Ok(Some(all)),
                Err(betree::Error::KnownDamage { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A range query of a view.
    pub fn scan_of<'w>(&self, view: &'w View, dict: DictId, (lo, hi): (Cut, Cut)) -> Cursor<'w> {
        self.count(|counts| &counts.scans);
        view.cursor(dict, lo, hi)
    }

    /// Commits a batch; an empty one costs nothing.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.count(|counts| &counts.commits);
        Ok(self.env.commit(batch)?)
    }
}

/// Whether an inode with this record is a snapshot or in one; `.betrfs-snapshots` counts as one.
pub(crate) fn is_in_snapshot(op: &Op<'_>, inode: &Inode, record: &Record) -> bool {
    record.flags.has(Flags::READ_ONLY) || op.is_below_snapshots(inode)
}

/// Refuses a change of an object in a snapshot.
pub(crate) fn refuse_in_snapshot(op: &Op<'_>, inode: &Inode, record: &Record) -> Result<()> {
    if is_in_snapshot(op, inode, record) { Err(Error::InSnapshot) } else { Ok(()) }
}
