//! How much is below a directory, for quotas: where a tree comes into a quota or leaves one as a whole.
//!
//! What is below a directory with a quota of its own is known. Any other is *measured*: its records are read
//! in a view, without a lock, and a tally counts what changes meanwhile; both together are the state of the
//! moment in which the operation holds the namespace alone. That costs the caller a scan, in the time of
//! which others go on. What the tally cannot follow (directories that are moved in or out or are removed,
//! links, files with several names) makes the measurement start again.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::ControlFlow;

use betree::{Cursor, View};

use crate::error::{Error, Result};
use crate::names::{Inode, Tally};
use crate::op::{Op, OpKind};
use crate::schema::{Amount, LINKS, META, Stored, damaged, key};
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::charge::{NamesOfFiles, stored_use};
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
    /// The files with several names, and how many they have in it.
    pub names: Arc<NamesOfFiles>,
    /// A name of one of them that has a name outside too.
    pub outside: Option<String>,
    /// Whether one of them has a name in a tree that was removed outside of all quotas.
    pub is_leaving: bool,
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
            let more = measured.changes()?;
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
    /// The files with several names below a directory now, and how many they have there. The caller holds the
    /// namespace alone.
    ///
    /// # Errors
    /// As [`content`](Measuring::content).
    pub fn names(&self, dir: &Arc<Inode>) -> Result<Arc<NamesOfFiles>> {
        let now = self.of(dir).filter(|measured| measured.changes().is_some());
        now.map(|measured| measured.names.clone()).ok_or_else(|| {
            self.wanted.set(Some(dir.id));
            Error::Uncounted
        })
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
        let (mut measured, path, view, hidden) = {
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
            let (content, names) = (Content::default(), Arc::default());
            let measured =
                Measured { volume: self, dir, tally, content, names, outside: None, is_leaving: false };
            (measured, path, self.env.view(), self.quotas.hidden_trees())
        };
        let op = self.query(OpKind::Quota).reading(&view);
        measured.scan(&op, &view, (&path, &hidden), go_on)?;
        Ok(measured)
    }
}

impl Measured<'_> {
    /// What has changed since; `None` if it cannot be told.
    fn changes(&self) -> Option<Amount> {
        self.tally.sum(|oid| self.names.contains_key(&oid))
    }

    /// Reads all records below the directory in a view, and the names that were hidden then. What is damaged
    /// does not count, as in a check. A read that fails on the device may succeed the next time, and ends it.
    fn scan(
        &mut self,
        op: &Op<'_>,
        view: &View,
        (path, hidden): (&[u8], &[(u64, bool)]),
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut read = 0u64;
        let mut tell = || {
            read = read.saturating_add(1);
            let is_over = read.is_multiple_of(TELL_EVERY) && go_on(read).is_break();
            if is_over { Err(Error::from(betree::Error::Interrupted)) } else { Ok(()) }
        };
        let mut plain = Amount::default();
        let mut names = NamesOfFiles::new();
        let mut entries = op.scan_of(view, META, key::subtree(path));
        while let Some((at, bytes)) = next_readable(&mut entries)? {
            tell()?;
            match Stored::decode(at, bytes) {
                Ok(Stored::Inode(record)) => plain = plain + Amount::of(&record),
                Ok(Stored::Redirect(redirect)) => *names.entry(redirect.oid).or_default() += 1,
                Err(_) => {}
            }
        }
        let mut hidden_names = NamesOfFiles::new();
        for (number, is_known) in hidden {
            let mut links = op.scan_of(view, LINKS, key::detached(*number));
            while let Some((at, oid)) = next_readable(&mut links)? {
                tell()?;
                let oid = object_id(at, oid)?;
                if names.contains_key(&oid) {
                    *hidden_names.entry(oid).or_default() += 1;
                    self.is_leaving |= !is_known;
                }
            }
        }
        let (mut copied, mut removed, mut outside) = (plain, plain, None);
        for (oid, names) in &names {
            tell()?;
            let record = match stored_object(op, *oid) {
                Err(Error::StateGivenUp) => return Err(Error::Uncounted),
                Err(error) if error.is_loss() => continue,
                record => record?,
            };
            copied = copied + Amount::of(&record);
            let hidden = hidden_names.get(oid).copied().unwrap_or_default();
            if record.nlink.saturating_sub(hidden) <= *names {
                removed = removed + Amount::of(&record);
            } else {
                outside.get_or_insert(*oid);
            }
        }
        self.content = Content { copied, removed };
        self.names = Arc::new(names);
        self.outside = match outside {
            Some(oid) => name_of(op, view, path, oid)?,
            None => None,
        };
        Ok(())
    }
}

/// The number of the file that a name leads to.
pub(super) fn object_id(at: &[u8], oid: &[u8]) -> Result<u64> {
    oid.try_into().map(u64::from_be_bytes).map_err(|_| damaged(at, "it is no object id"))
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
