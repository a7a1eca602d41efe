//! What operations ask of the engine, counted by kind.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, Cursor, Cut, DictId, Env};
use betree_sys::sync::atomic::AtomicU64;

use crate::error::Result;

/// Kinds of operations, by which [`Counters`] are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpKind {
    /// [`Volume::lookup`](crate::Volume::lookup)
    Lookup,
    /// [`Volume::setattr`](crate::Volume::setattr)
    SetAttr,
    /// [`Volume::create`](crate::Volume::create), [`Volume::symlink`](crate::Volume::symlink)
    Create,
    /// [`Volume::link`](crate::Volume::link)
    Link,
    /// [`Volume::unlink`](crate::Volume::unlink)
    Unlink,
    /// [`Volume::rmdir`](crate::Volume::rmdir)
    Rmdir,
    /// [`Volume::remove_below`](crate::Volume::remove_below)
    RemoveTree,
    /// [`Volume::rename`](crate::Volume::rename)
    Rename,
    /// [`Volume::clone_node`](crate::Volume::clone_node), [`Volume::clone_onto`](crate::Volume::clone_onto)
    Clone,
    /// [`Volume::read`](crate::Volume::read)
    Read,
    /// [`Volume::write`](crate::Volume::write)
    Write,
    /// [`Volume::readdir`](crate::Volume::readdir)
    Readdir,
    /// Extended attributes.
    Xattr,
    /// [`Volume::fallocate`](crate::Volume::fallocate), [`Volume::seek`](crate::Volume::seek)
    Fallocate,
    /// Opening the volume, reserving numbers, deleting unlinked files, putting times of access, checking.
    Internal,
}

impl OpKind {
    /// All of them.
    pub const ALL: [OpKind; 15] = [
        OpKind::Lookup,
        OpKind::SetAttr,
        OpKind::Create,
        OpKind::Link,
        OpKind::Unlink,
        OpKind::Rmdir,
        OpKind::RemoveTree,
        OpKind::Rename,
        OpKind::Clone,
        OpKind::Read,
        OpKind::Write,
        OpKind::Readdir,
        OpKind::Xattr,
        OpKind::Fallocate,
        OpKind::Internal,
    ];
}

/// What one kind of operation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// Calls.
    pub calls: u64,
    /// Point queries to the tree.
    pub queries: u64,
    /// Range queries to the tree.
    pub scans: u64,
    /// Batches committed.
    pub commits: u64,
}

/// What the file system has cost since it was opened, by kind of operation.
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
}

/// The counters, as they are kept.
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
            };
        }
        counters
    }

    /// Counts a call.
    pub fn begin<'v>(&'v self, env: &'v Env, kind: OpKind) -> Op<'v> {
        let op = Op { env, counts: self.0.get(kind as usize) };
        op.count(|counts| &counts.calls);
        op
    }
}

/// One operation's way to the engine.
pub(crate) struct Op<'v> {
    env: &'v Env,
    counts: Option<&'v Counts>,
}

impl<'v> Op<'v> {
    fn count(&self, which: impl FnOnce(&'v Counts) -> &'v AtomicU64) {
        if let Some(counts) = self.counts {
            which(counts).fetch_add(1, Relaxed);
        }
    }

    /// A point query.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.count(|counts| &counts.queries);
        Ok(self.env.get(dict, key)?)
    }

    /// A range query.
    pub fn scan(&self, dict: DictId, (lo, hi): (Cut, Cut)) -> Cursor<'v> {
        self.count(|counts| &counts.scans);
        self.env.cursor(dict, lo, hi)
    }

    /// Commits what there is to commit.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.count(|counts| &counts.commits);
        Ok(self.env.commit(batch)?)
    }
}
