//! The engine's work for operations, counted by kind.
//!
//! An operation that holds the namespace, or an object's state, keeps others waiting; so it should not wait
//! for the device meanwhile. [`Op::without_waiting`] lets it ask in memory alone. Where that is not enough,
//! the operation ends without a change, as on any error of a query; what it came to is fetched while no lock
//! is held, and it begins anew.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, Cursor, Cut, DictId, Env, View};
use betree_platform::sync::atomic::AtomicU64;

use crate::error::{Error, Result};
use crate::names::{DirPath, Inode, Place, Tally};
use crate::planted;
use crate::schema::key;
use crate::schema::{DATA, Flags, Record, damaged};

/// How often an operation begins anew because something was not in memory, at most.
const FETCHES_MAX: usize = 64;

/// How often the trees are prepared for a clone. Others may change them meanwhile.
const PREPARATIONS_MAX: usize = 4;

/// Number of pairs that are fetched for a range query, unless it says how many it wants.
const PAIRS_FETCHED_MAX: usize = 4096;

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
    /// The most of these of one call, from one time that it took the namespace to the next.
    pub visited_at_once_max: u64,
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
    visited_at_once_max: AtomicU64,
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
                visited_at_once_max: from.visited_at_once_max.load(Relaxed),
            };
        }
        counters
    }

    /// Counts a call.
    pub fn begin<'v>(&'v self, env: &'v Env, kind: OpKind) -> Op<'v> {
        let counts = self.0.get(kind as usize);
        let op = Op {
            env,
            view: None,
            counts,
            is_alone: Cell::new(false),
            visited: Cell::default(),
            paths: RefCell::default(),
            dropped: RefCell::default(),
            spoiled: RefCell::default(),
            waits: Cell::new(true),
            gives_turns: Cell::new(false),
            wanted: RefCell::default(),
            is_again: Cell::new(false),
            is_balanced: Cell::new(false),
            uncounted: Cell::default(),
        };
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
    /// What it has visited since it took the namespace.
    visited: Cell<u64>,
    /// Paths of directories that were found before.
    paths: RefCell<Vec<(Arc<Inode>, DirPath)>>,
    /// Inodes evicted to make room. They are torn down at the end of the operation, when it holds no lock: a
    /// directory may have known a million names.
    dropped: RefCell<Vec<Arc<Inode>>>,
    /// Measurements that its commit spoils.
    spoiled: RefCell<Vec<Arc<Tally>>>,
    /// Whether queries wait for the device.
    waits: Cell<bool>,
    /// Whether it is made again after it has given others a turn.
    gives_turns: Cell<bool>,
    /// What is fetched if a query that does not wait finds too little in memory.
    wanted: RefCell<Option<Wanted>>,
    /// Whether this is not the first attempt.
    is_again: Cell<bool>,
    /// Whether the trees were balanced for it.
    is_balanced: Cell<bool>,
    /// The point and range queries of an attempt that may have to be made again: these count once.
    uncounted: Cell<(u64, u64)>,
}

/// What an attempt needs in memory.
enum Wanted {
    Query(Query),
    /// The trees, so that a clone need not wait for earlier changes.
    Balanced,
    /// What a batch with clones needs.
    Prepared(Batch),
    /// Nothing: a part of the work is done, and others are to have their turn.
    Turn,
}

/// A query that may have to read from the device.
#[derive(PartialEq)]
enum Query {
    Key(DictId, Vec<u8>),
    Range { dict: DictId, bounds: (Cut, Cut), whole: Option<(Cut, Cut)>, pairs: usize },
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
        self.visited.set(0);
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
            self.visited.set(self.visited.get().saturating_add(count as u64));
            counts.visited_at_once_max.fetch_max(self.visited.get(), Relaxed);
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

    /// Makes an attempt at an operation that takes locks, without waiting for the device while it holds them;
    /// if that is not possible, with waiting. It gives them back in each attempt, holds none before, and
    /// changes nothing before its commit, behind which it makes no query.
    pub fn without_waiting<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let before = (self.waits.get(), self.gives_turns.replace(true));
        let done = loop {
            let done = self.attempts_in_memory(&mut attempt).unwrap_or_else(|| {
                self.waits.set(true);
                attempt()
            });
            self.waits.set(before.0);
            if !matches!(*self.wanted.borrow(), Some(Wanted::Turn)) {
                break done;
            }
            self.wanted.take();
            self.begin_again();
        };
        self.gives_turns.set(before.1);
        done
    }

    /// Makes attempts that wait for nothing, and brings into memory what they lack; `None` if that does not
    /// do.
    fn attempts_in_memory<T>(&self, attempt: &mut impl FnMut() -> Result<T>) -> Option<Result<T>> {
        let (mut last, mut preparations) = (None, 0);
        for _ in 0..FETCHES_MAX {
            self.waits.set(false);
            let done = attempt();
            self.waits.set(true);
            let (queries, scans) = self.uncounted.take();
            let is_turn = matches!(*self.wanted.borrow(), Some(Wanted::Turn));
            if is_turn || !matches!(&done, Err(error) if error.is_not_in_memory()) {
                self.count_more(|counts| &counts.queries, queries);
                self.count_more(|counts| &counts.scans, scans);
                return Some(done);
            }
            self.begin_again();
            // What cannot be read is met again below, if the operation needs it. What is wanted twice in a
            // row has left memory since: the cache is too small.
            let fetched = match self.wanted.take() {
                Some(Wanted::Query(query)) if last.as_ref() != Some(&query) => {
                    let fetched = self.fetch(&query);
                    last = Some(query);
                    fetched
                }
                Some(Wanted::Balanced) => {
                    self.is_balanced.set(true);
                    self.env.balance()
                }
                Some(Wanted::Prepared(batch)) if preparations < PREPARATIONS_MAX => {
                    preparations += 1;
                    self.env.prepare(&batch)
                }
                _ => return None,
            };
            if fetched.is_err() {
                return None;
            }
        }
        None
    }

    /// Forgets what an attempt had found.
    fn begin_again(&self) {
        self.is_again.set(true);
        self.is_alone.set(false);
        self.paths.take();
        self.spoiled.take();
    }

    /// Gives others a turn: the attempt ends with this error, after a part of its work that is complete by
    /// itself, and is made again. Without it, if this is not an attempt that is made again.
    ///
    /// # Errors
    /// That one.
    pub fn give_turn(&self) -> Result<()> {
        if !self.gives_turns.get() {
            return Ok(());
        }
        self.wanted.replace(Some(Wanted::Turn));
        Err(betree::Error::NotInMemory.into())
    }

    /// Whether the operation was attempted before, and has begun anew.
    pub fn is_again(&self) -> bool {
        self.is_again.get()
    }

    /// Brings into memory what a query needs.
    fn fetch(&self, query: &Query) -> betree::Result<()> {
        match query {
            Query::Key(dict, key) => self.env.fetch(*dict, key),
            Query::Range { dict, bounds, whole, pairs } => {
                self.env.fetch_range(*dict, bounds.clone(), whole.clone(), *pairs)
            }
        }
    }

    fn count_more(&self, which: impl FnOnce(&'v Counts) -> &'v AtomicU64, more: u64) {
        if let Some(counts) = self.counts {
            which(counts).fetch_add(more, Relaxed);
        }
    }

    /// A point query.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(view) = self.view {
            self.count(|counts| &counts.queries);
            return Ok(view.get(dict, key)?);
        }
        if self.waits.get() {
            self.count(|counts| &counts.queries);
            return Ok(self.env.get(dict, key)?);
        }
        let (queries, scans) = self.uncounted.get();
        self.uncounted.set((queries + 1, scans));
        self.env.get_in_memory(dict, key).map_err(|error| {
            if error == betree::Error::NotInMemory {
                self.wanted.replace(Some(Wanted::Query(Query::Key(dict, key.to_vec()))));
            }
            error.into()
        })
    }

    /// A range query.
    pub fn scan(&self, dict: DictId, bounds: (Cut, Cut)) -> Cursor<'v> {
        self.scan_of_whole(dict, bounds, None, PAIRS_FETCHED_MAX)
    }

    /// Notes how a range query that was begun goes on.
    pub fn will_want(&self, dict: DictId, bounds: (Cut, Cut), pairs: usize) {
        if self.view.is_none() && !self.waits.get() {
            self.wanted.replace(Some(Wanted::Query(Query::Range { dict, bounds, whole: None, pairs })));
        }
    }

    /// A range query, of which `pairs` pairs are wanted. `whole` is as of [`Cursor::part_of`].
    pub fn scan_of_whole(
        &self,
        dict: DictId,
        (lo, hi): (Cut, Cut),
        whole: Option<(Cut, Cut)>,
        pairs: usize,
    ) -> Cursor<'v> {
        let cursor = match self.view {
            Some(view) => view.cursor(dict, lo, hi),
            None if self.waits.get() => self.env.cursor(dict, lo, hi),
            None => {
                let (queries, scans) = self.uncounted.get();
                self.uncounted.set((queries, scans + 1));
                let bounds = (lo.clone(), hi.clone());
                self.wanted.replace(Some(Wanted::Query(Query::Range {
                    dict,
                    bounds,
                    whole: whole.clone(),
                    pairs,
                })));
                return with_whole(self.env.cursor(dict, lo, hi).in_memory(), whole);
            }
        };
        self.count(|counts| &counts.scans);
        with_whole(cursor, whole)
    }

    /// Whether there is anything in a range: a pair, or known damage.
    pub fn has_any(&self, dict: DictId, bounds: (Cut, Cut)) -> Result<bool> {
        match self.scan_of_whole(dict, bounds, None, 1).next() {
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

    /// Whether the clones of a batch could be made as things are now. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] if they could make keys over the batch's limit; those of a commit.
    pub fn try_clones(&self, batch: &Batch) -> Result<()> {
        if batch.clones() == 0 {
            return Ok(());
        }
        let tried = match self.waits.get() {
            true => self.env.prepare(batch),
            false => self.env.prepare_in_memory(batch),
        };
        Ok(tried.inspect_err(|error| self.note_unprepared(batch, error))?)
    }

    /// Has what a batch with clones needs fetched, if that was the error.
    fn note_unprepared(&self, batch: &Batch, error: &betree::Error) {
        if *error == betree::Error::NotInMemory {
            self.wanted.replace(Some(Wanted::Prepared(batch.clone())));
        }
    }

    /// Commits a batch; an empty one costs nothing. The operation is not attempted again.
    pub fn commit(&self, batch: &Batch) -> Result<()> {
        // Clones may have to be attempted again. Nothing measures meanwhile, because they are made alone.
        let is_clone = batch.clones() > 0;
        if !is_clone {
            self.spoil();
        }
        self.commit_aside(batch)?;
        if is_clone {
            self.spoil();
        }
        self.waits.set(true);
        Ok(())
    }

    fn spoil(&self) {
        self.spoiled.take().iter().for_each(|tally| tally.spoil());
    }

    /// Notes measurements for which the commit changes something that they cannot know.
    pub fn spoils(&self, tallies: impl Iterator<Item = Arc<Tally>>) {
        self.spoiled.borrow_mut().extend(tallies);
    }

    /// As [`commit`](Op::commit), of a change that is complete by itself, or is taken back if the operation
    /// fails: it may be attempted again.
    pub fn commit_aside(&self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let done = if self.waits.get() {
            self.env.commit(batch)
        } else if batch.clones() > 0 && !self.is_balanced.get() && !self.env.is_balanced() {
            self.wanted.replace(Some(Wanted::Balanced));
            Err(betree::Error::NotInMemory)
        } else {
            self.env.commit_in_memory(batch).inspect_err(|error| self.note_unprepared(batch, error))
        };
        done?;
        self.count(|counts| &counts.commits);
        planted::batch_is_done(self.env);
        Ok(())
    }
}

fn with_whole<'e>(cursor: Cursor<'e>, whole: Option<(Cut, Cut)>) -> Cursor<'e> {
    match whole {
        Some((lo, hi)) => cursor.part_of(lo, hi),
        None => cursor,
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
