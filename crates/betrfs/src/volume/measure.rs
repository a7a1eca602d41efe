//! How much is below a directory, for quotas: where a tree comes into a quota or leaves one as a whole.
//!
//! What is below a directory with a quota of its own is known. Any other is *measured*: its records are read
//! in a view, without a lock, and a tally counts what changes meanwhile; both together are the state of the
//! moment in which the operation holds the namespace alone. That costs the caller a scan, in the time of
//! which others go on. What the tally cannot follow (directories that are moved in or out or are removed,
//! links, files with several names) makes the measurement start again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::ControlFlow;

use betree::{Cursor, View};

use crate::error::{Error, Result};
use crate::names::{Inode, Tally};
use crate::op::{Op, OpKind};
use crate::schema::{Amount, META, Stored, key};
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::charge::{LeavingFiles, stored_use};
use crate::volume::linked_copies::stored_object;

/// Number of attempts at an operation that needs measurements.
const ATTEMPTS_MAX: usize = 6;
/// How many records are read between two words about them.
const TELL_EVERY: u64 = 1024;

/// How much is below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// What a copy has.
    pub copied: Amount,
    /// What goes with a removal: without files that have names outside too.
    pub removed: Amount,
}

/// The measurements of an operation.
#[derive(Default)]
pub(super) struct Measuring<'v> {
    measured: Vec<Measured<'v>>,
    /// The directory to be measured before the next attempt.
    wanted: Cell<Option<InodeId>>,
}

/// A directory that was measured, whose changes are counted from then on.
pub(super) struct Measured<'v> {
    volume: &'v Volume,
    dir: Arc<Inode>,
    tally: Arc<Tally>,
    content: Content,
    /// The files with several names.
    pub objects: BTreeSet<u64>,
    /// Those of them that have no name outside.
    leaving: Arc<BTreeSet<u64>>,
    /// A name of one of them that has a name outside too.
    pub outside: Option<String>,
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.dir.end_tally(&self.tally);
        self.volume.quotas.end_tally(&self.tally);
    }
}

impl Measuring<'_> {
    /// The measurement of a directory, if it was made.
    pub fn of(&self, dir: &Arc<Inode>) -> Option<&Measured<'_>> {
        self.measured.iter().find(|measured| Arc::ptr_eq(&measured.dir, dir))
    }

    /// How much is below a directory now. The caller holds the namespace alone.
    ///
    /// # Errors
    /// [`Error::Uncounted`] if it must be measured, which [`Volume::measured`] then does.
    pub fn content(&self, op: &Op<'_>, dir: &Arc<Inode>) -> Result<Content> {
        if let Some(quota) = dir.quota() {
            // All names of a file are in one quota, so that what is copied is what is removed.
            let used = quota.used(|| stored_use(op, &key::quota_use(&op.own_key(dir)?)))?;
            return Ok(Content { copied: used, removed: used });
        }
        if dir.state.read().record.entries == 0 {
            return Ok(Content::default());
        }
        let now = self.of(dir).and_then(|measured| {
            let more = measured.tally.sum(&measured.objects)?;
            let Content { copied, removed } = measured.content;
            Some(Content { copied: copied + more, removed: removed + more })
        });
        now.ok_or_else(|| {
            self.wanted.set(Some(dir.id));
            Error::Uncounted
        })
    }
}

impl Measuring<'_> {
    /// The files with several names whose amount is part of what a removal of a directory's contents takes
    /// from quotas, as [`content`](Measuring::content) has told it.
    pub fn leaving(&self, dir: &Arc<Inode>) -> LeavingFiles {
        match (dir.quota(), self.of(dir)) {
            (None, Some(measured)) => LeavingFiles::These(measured.leaving.clone()),
            (None, None) => LeavingFiles::These(Arc::default()),
            (Some(_), _) => LeavingFiles::OfQuota(dir.clone()),
        }
    }
}

impl Volume {
    /// Carries out an operation that may ask how much is below directories; measures them and tries again as
    /// long as it asks.
    ///
    /// # Errors
    /// The operation's; [`Error::Uncounted`] if the directories change too much.
    pub(super) fn measured<'v, T>(&'v self, attempt: impl FnMut(&Measuring<'v>) -> Result<T>) -> Result<T> {
        self.measured_while(&mut |_| ControlFlow::Continue(()), attempt)
    }

    /// As [`measured`](Volume::measured). Calls `go_on` now and then with the number of records that were
    /// read.
    ///
    /// # Errors
    /// As there; [`betree::Error::Interrupted`] by `go_on`.
    pub(super) fn measured_while<'v, T>(
        &'v self,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
        mut attempt: impl FnMut(&Measuring<'v>) -> Result<T>,
    ) -> Result<T> {
        let mut measuring = Measuring::default();
        for _ in 0..ATTEMPTS_MAX {
            let done = attempt(&measuring);
            let Some(node) = measuring.wanted.take() else { return done };
            measuring.measured.retain(|measured| measured.dir.id != node);
            measuring.measured.push(self.measure(node, go_on)?);
        }
        Err(Error::Uncounted)
    }

    fn measure(&self, node: InodeId, go_on: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Measured<'_>> {
        let op = self.query_for_objects(OpKind::Quota);
        let (mut measured, path, view) = {
            let exclusive = self.exclusive(&op, &[node], &[]);
            let dir = self.inode(node)?;
            if self.is_removed(&exclusive, &dir) {
                return Err(Error::NotFound);
            }
            let path = op.dir_path(&dir)?.bytes;
            let tally = Arc::new(Tally::default());
            self.paths_change(&exclusive);
            dir.add_tally(&tally);
            self.quotas.add_tally(&tally);
            let (content, objects) = (Content::default(), BTreeSet::new());
            let leaving = Arc::default();
            let measured = Measured { volume: self, dir, tally, content, objects, leaving, outside: None };
            (measured, path, self.env.view())
        };
        let op = self.query(OpKind::Quota).reading(&view);
        measured.scan(&op, &view, &path, go_on)?;
        Ok(measured)
    }
}

impl Measured<'_> {
    /// Reads all records below the directory in a view. What is damaged does not count, as in a check. A read
    /// that fails on the device may succeed the next time, and ends it.
    fn scan(
        &mut self,
        op: &Op<'_>,
        view: &View,
        path: &[u8],
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut read = 0u64;
        let mut tell = || {
            read = read.saturating_add(1);
            let is_over = read.is_multiple_of(TELL_EVERY) && go_on(read).is_break();
            if is_over { Err(Error::from(betree::Error::Interrupted)) } else { Ok(()) }
        };
        let mut plain = Amount::default();
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        let mut entries = op.scan_of(view, META, key::subtree(path));
        while let Some((at, bytes)) = next_readable(&mut entries)? {
            tell()?;
            match Stored::decode(at, bytes) {
                Ok(Stored::Inode(record)) => plain = plain + Amount::of(&record),
                Ok(Stored::Redirect(redirect)) => *names.entry(redirect.oid).or_default() += 1,
                Err(_) => {}
            }
        }
        let (mut copied, mut removed) = (plain, plain);
        let (mut outside, mut leaving) = (None, BTreeSet::new());
        for (oid, names) in &names {
            tell()?;
            let record = match stored_object(op, *oid) {
                Err(Error::StateGivenUp) => return Err(Error::Uncounted),
                Err(error) if error.is_loss() => continue,
                record => record?,
            };
            copied = copied + Amount::of(&record);
            if record.nlink <= *names {
                removed = removed + Amount::of(&record);
                leaving.insert(*oid);
            } else {
                outside.get_or_insert(*oid);
            }
        }
        self.content = Content { copied, removed };
        self.objects = names.into_keys().collect();
        self.leaving = Arc::new(leaving);
        self.outside = match outside {
            Some(oid) => name_of(op, view, path, oid)?,
            None => None,
        };
        Ok(())
    }
}

/// The next pair of a scan in a view, past what is damaged.
fn next_readable<'c>(pairs: &'c mut Cursor<'_>) -> Result<Option<(&'c [u8], &'c [u8])>> {
    let mut failed = None;
    let next = pairs.next_past(&mut |passed| {
        failed = failed.take().or(passed.errors.into_iter().find(|error| !error.is_damage()));
    });
    match failed {
        Some(betree::Error::ViewEnded) => Err(Error::Uncounted),
        Some(error) => Err(error.into()),
        None => Ok(next),
    }
}

/// The path of a name of a file below a directory.
fn name_of(op: &Op<'_>, view: &View, path: &[u8], wanted: u64) -> Result<Option<String>> {
    let mut entries = op.scan_of(view, META, key::subtree(path));
    while let Some((at, bytes)) = next_readable(&mut entries)? {
        if matches!(Stored::decode(at, bytes), Ok(Stored::Redirect(redirect)) if redirect.oid == wanted) {
            return Ok(Some(key::describe(at)));
        }
    }
    Ok(None)
}
