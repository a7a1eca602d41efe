//! The unit of reading, of eviction and of sharing between versions of a node.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, Ordering};

use super::{Account, Cache};
use crate::format::node::RunRef;
use crate::message::{Msn, Point, RangeDelete};
use crate::run::{Layers, Run, newer_than, with_newer};
use crate::space::Extent;

/// Where a piece is stored: parts of a node's extent, which cannot be given to another while a piece
/// refers to it.
#[derive(Clone)]
pub(crate) struct OnDevice {
    pub extent: Arc<Extent>,
    /// One run, or several, each of messages that are newer than all in those before.
    pub runs: Vec<RunRef>,
}

impl OnDevice {
    /// The newest message in it; 0 of pairs.
    fn last_msn(&self) -> Msn {
        self.runs.iter().map(|run| run.last_msn).max().unwrap_or(0)
    }
}

/// A piece is stored in no more runs than this: each may be a read of its own. With more, random inserts
/// write less: what is in too many is read, and written whole.
pub(crate) const RUNS_MAX: usize = 12;

/// A piece and those that came of it by newer messages alone, one after the other: what was last
/// written of them.
#[derive(Default)]
struct Lineage(Mutex<Option<LastWritten>>);

#[derive(Clone)]
struct LastWritten {
    /// Whoever has a piece in it holds it; this does not.
    extent: Weak<Extent>,
    runs: Vec<RunRef>,
    last_msn: Msn,
}

impl Lineage {
    /// A lineage of its own, which begins with what this one has.
    fn copy(&self) -> Arc<Lineage> {
        Arc::new(Lineage(Mutex::new(self.0.lock().clone())))
    }

    /// Notes where a piece of it was written, of which this is the newest message.
    fn note(&self, stored: &OnDevice, last_msn: Msn) {
        let mut last = self.0.lock();
        if last.as_ref().is_none_or(|last| last.last_msn <= last_msn) {
            let (extent, runs) = (Arc::downgrade(&stored.extent), stored.runs.clone());
            *last = Some(LastWritten { extent, runs, last_msn });
        }
    }
}

/// A partition or a basement. Its contents never change; a flush makes a new one. It is in memory,
/// on the device, or both; or in memory is only what came to it since it was written last.
pub(crate) struct Piece {
    raw_bytes: u32,
    ranges: u32,
    state: Mutex<State>,
    touched: AtomicBool,
    account: Arc<Account>,
}

#[derive(Default)]
struct State {
    /// Its contents, as one run, or as several that nobody has put together yet, each of newer messages than
    /// those before; or what has come to `below`.
    runs: Vec<Arc<Run>>,
    /// Of one that is not stored as it is: what it was when it was.
    below: Option<Arc<Piece>>,
    stored: Option<OnDevice>,
    /// Of one that others came of, or that came of another.
    lineage: Option<Arc<Lineage>>,
}

/// What of a piece's contents is in memory.
pub(crate) enum Loaded {
    /// All.
    Whole(Layers),
    /// What comes over this piece, which has to be read.
    Over(Arc<Piece>, Vec<Arc<Run>>),
}

/// What there is of a piece.
pub(crate) enum Held {
    /// In memory.
    Whole(Arc<Run>),
    /// On the device; newer messages over it, if there are, in memory.
    OnDevice(OnDevice, Option<Arc<Run>>),
    /// Nothing: a piece is always one or the other.
    Nothing,
}

impl State {
    /// A piece in memory alone.
    fn of(run: Run) -> State {
        State { runs: alloc::vec![Arc::new(run)], ..State::default() }
    }

    fn memory_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.memory_bytes()).sum()
    }

    fn last_msn(&self) -> Msn {
        let stored = || self.stored.as_ref().map_or(0, OnDevice::last_msn);
        self.runs.last().map_or_else(stored, |run| run.last_msn())
    }

    /// All runs that make its contents, if they are in memory.
    fn layers(&self) -> Option<Layers> {
        match &self.below {
            Some(below) => Some(below.layers()?.under(&self.runs)),
            None => Layers::of(&self.runs),
        }
    }

    /// The lineage that it begins or goes on with.
    fn lineage(&mut self) -> Arc<Lineage> {
        let last_msn = self.last_msn();
        let lineage = self.lineage.get_or_insert_default();
        if let Some(stored) = &self.stored {
            lineage.note(stored, last_msn);
        }
        lineage.clone()
    }
}

impl Piece {
    /// A new piece that is in memory alone.
    pub fn new(cache: &Cache, run: Run) -> Arc<Piece> {
        let (raw_bytes, ranges) = (run.as_bytes().len(), run.ranges().len());
        Piece::in_memory(cache, raw_bytes, ranges, State::of(run))
    }

    /// A new piece that is in memory alone: what `older` holds with newer messages over it, and nothing else
    /// changed.
    pub fn grown(cache: &Cache, run: Run, older: &Piece) -> Arc<Piece> {
        let lineage = Some(older.state.lock().lineage());
        let (raw_bytes, ranges) = (run.as_bytes().len(), run.ranges().len());
        Piece::in_memory(cache, raw_bytes, ranges, State { lineage, ..State::of(run) })
    }

    /// A new piece: what `older` holds with newer messages over it, without a look at that, which may
    /// be on the device. `None` if it is not stored, or in too many runs already.
    pub fn over(
        cache: &Cache,
        older: &Arc<Piece>,
        points: &[Point<'_>],
        ranges: &[RangeDelete],
    ) -> Option<Arc<Piece>> {
        let mut state = older.state.lock();
        let (below, newer) = match &*state {
            State { stored: Some(stored), .. } if stored.runs.len() < RUNS_MAX => (older.clone(), None),
            State { stored: None, below: Some(below), runs, .. } => (below.clone(), runs.last().cloned()),
            _ => return None,
        };
        let lineage = Some(state.lineage());
        // Readers of the older piece are not to wait for the merge.
        drop(state);
        let newer = with_newer(newer.as_deref(), points, ranges);
        let raw_bytes = below.raw_bytes().saturating_add(newer.as_bytes().len());
        let all_ranges = below.ranges() + newer.ranges().len();
        let below = Some(below);
        Some(Piece::in_memory(cache, raw_bytes, all_ranges, State { below, lineage, ..State::of(newer) }))
    }

    /// A new piece: what a basement holds that is in memory alone, with newer messages over it. `None` of any
    /// other.
    pub fn layered(cache: &Cache, older: &Piece, points: &[Point<'_>]) -> Option<Arc<Piece>> {
        let mut state = older.state.lock();
        if state.stored.is_some() || state.below.is_some() {
            return None;
        }
        let (pairs, messages) = match state.runs.as_slice() {
            [pairs] => (pairs.clone(), None),
            [pairs, messages] => (pairs.clone(), Some(messages.clone())),
            _ => return None,
        };
        if !pairs.is_pairs() {
            return None;
        }
        let lineage = Some(state.lineage());
        drop(state);
        let messages = with_newer(messages.as_deref(), points, &[]);
        let raw_bytes = pairs.as_bytes().len() + messages.as_bytes().len();
        let runs = alloc::vec![pairs, Arc::new(messages)];
        Some(Piece::in_memory(cache, raw_bytes, 0, State { runs, below: None, stored: None, lineage }))
    }

    /// The same piece with its contents as one run, `run`, which is as large as it says.
    pub fn as_one_run(&self, cache: &Cache, run: Arc<Run>) -> Arc<Piece> {
        let mut state = self.state.lock();
        let (lineage, stored) = (Some(state.lineage()), state.stored.clone());
        drop(state);
        let (raw_bytes, ranges, is_stored) = (run.as_bytes().len(), run.ranges().len(), stored.is_some());
        let state = State { runs: alloc::vec![run], below: None, stored, lineage };
        let piece = Piece::in_memory(cache, raw_bytes, ranges, state);
        if is_stored {
            cache.watch(&piece);
        }
        piece
    }

    fn in_memory(cache: &Cache, raw_bytes: usize, ranges: usize, state: State) -> Arc<Piece> {
        let account = cache.account().clone();
        let bytes = state.memory_bytes();
        account.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        if state.stored.is_none() {
            account.dirty_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Arc::new(Piece {
            raw_bytes: u32::try_from(raw_bytes).unwrap_or(u32::MAX),
            ranges: u32::try_from(ranges).unwrap_or(u32::MAX),
            state: Mutex::new(state),
            touched: AtomicBool::new(true),
            account,
        })
    }

    /// A piece that is on the device alone.
    pub fn on_device(cache: &Cache, stored: OnDevice) -> Arc<Piece> {
        Arc::new(Piece {
            raw_bytes: stored.runs.iter().map(|run| run.raw_len).fold(0, u32::saturating_add),
            ranges: stored.runs.iter().map(|run| run.ranges).fold(0, u32::saturating_add),
            state: Mutex::new(State { stored: Some(stored), ..State::default() }),
            touched: AtomicBool::new(false),
            account: cache.account().clone(),
        })
    }

    /// Another piece of the same contents, for another node: each is where its own node is stored, once
    /// that is written, and holds no extent of the other.
    pub fn fork(&self, cache: &Cache) -> Arc<Piece> {
        let state = self.state.lock();
        let (runs, below, stored) = (state.runs.clone(), state.below.clone(), state.stored.clone());
        let lineage = state.lineage.as_ref().map(|lineage| lineage.copy());
        let state = State { runs, below, stored, lineage };
        let is_clean = state.stored.is_some() && state.memory_bytes() > 0;
        let fork = Piece::in_memory(cache, self.raw_bytes(), self.ranges(), state);
        fork.touched.store(false, Ordering::Relaxed);
        if is_clean {
            cache.watch(&fork);
        }
        fork
    }

    /// Its size before compression in bytes; of one that is in several runs, at most.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes as usize
    }

    /// How many range deletes it holds; of one that is in several runs, at most.
    pub fn ranges(&self) -> usize {
        self.ranges as usize
    }

    /// No message in it has a greater sequence number; 0 of a basement without messages.
    pub fn last_msn(&self) -> Msn {
        self.state.lock().last_msn()
    }

    /// Whether it is more than the pairs of a basement.
    pub fn has_messages(&self) -> bool {
        self.last_msn() > 0
    }

    /// Its contents as one run, if they are in memory.
    pub fn resident(&self) -> Option<Arc<Run>> {
        let layers = self.layers()?;
        Some(layers.only().cloned().unwrap_or_else(|| self.join(layers.joined())))
    }

    /// Its contents as they are in memory, if they are.
    pub fn layers(&self) -> Option<Layers> {
        let layers = self.state.lock().layers();
        if layers.is_some() {
            self.touched.store(true, Ordering::Relaxed);
        }
        layers
    }

    /// Its contents as they are in memory, or what has to be read for them and what comes over that. One look
    /// tells both: what is not there at one moment another reader may have brought and put together at the
    /// next.
    pub fn loaded(self: &Arc<Self>) -> Loaded {
        let state = self.state.lock();
        if let Some(layers) = state.layers() {
            self.touched.store(true, Ordering::Relaxed);
            return Loaded::Whole(layers);
        }
        match &state.below {
            Some(below) => Loaded::Over(below.clone(), state.runs.clone()),
            None => Loaded::Over(self.clone(), Vec::new()),
        }
    }

    /// Whether its contents are in memory; does not count as a touch.
    pub fn is_resident(&self) -> bool {
        let state = self.state.lock();
        state.below.as_ref().map_or(!state.runs.is_empty(), |below| below.is_resident())
    }

    /// What there is of it.
    pub fn held(&self) -> Held {
        let state = self.state.lock();
        match (&state.below, &state.stored, state.runs.as_slice()) {
            (None, _, [run]) => Held::Whole(run.clone()),
            (_, Some(stored), _) => Held::OnDevice(stored.clone(), None),
            (Some(below), None, [newer]) => match below.stored() {
                Some(stored) => Held::OnDevice(stored, Some(newer.clone())),
                None => Held::Nothing,
            },
            _ => Held::Nothing,
        }
    }

    /// Where it is stored, if it is.
    pub fn stored(&self) -> Option<OnDevice> {
        self.state.lock().stored.clone()
    }

    /// What of it is on the device, the runs in one extent, and the messages that have come since. `None` if
    /// there is no such thing, or it would be too many runs.
    pub fn reusable_runs(&self) -> Option<(OnDevice, Option<Arc<Run>>)> {
        let state = self.state.lock();
        if let Some(stored) = &state.stored {
            return Some((stored.clone(), None));
        }
        let may_grow = |runs: &[RunRef]| runs.len() < RUNS_MAX;
        let last = state.lineage.as_ref().and_then(|lineage| {
            let last = lineage.0.lock();
            let last = last.as_ref().filter(|last| may_grow(&last.runs))?;
            Some((last.extent.upgrade()?, last.runs.clone(), last.last_msn))
        });
        if let Some((extent, runs, last_msn)) = last {
            let newest = state.runs.last().cloned()?;
            drop(state);
            let newer = newer_than(&newest, last_msn);
            // Of what was put together since, and got nothing new, one run takes the place of all.
            return (!newer.is_empty()).then(|| (OnDevice { extent, runs }, Some(newer)));
        }
        let stored = state.below.as_ref()?.stored().filter(|stored| may_grow(&stored.runs))?;
        Some((stored, state.runs.last().cloned()))
    }

    /// Keeps the runs of a piece that were read from the device. Gives what is in memory afterwards: another
    /// reader may have been faster. `true` if this call brought it there.
    pub fn fill(&self, runs: Vec<Arc<Run>>) -> (Option<Layers>, bool) {
        let mut state = self.state.lock();
        if let Some(layers) = state.layers() {
            return (Some(layers), false);
        }
        state.runs = runs;
        self.account.resident_bytes.fetch_add(state.memory_bytes(), Ordering::Relaxed);
        self.touched.store(true, Ordering::Relaxed);
        (state.layers(), true)
    }

    /// Keeps its contents as one run in place of several, if those are still in memory.
    fn join(&self, run: Arc<Run>) -> Arc<Run> {
        let mut state = self.state.lock();
        if state.layers().is_none() {
            // It has been let go of meanwhile.
            return run;
        }
        let (before, after) = (state.memory_bytes(), run.memory_bytes());
        self.account.resident_bytes.fetch_add(after, Ordering::Relaxed);
        self.account.resident_bytes.fetch_sub(before, Ordering::Relaxed);
        if state.stored.is_none() {
            self.account.dirty_bytes.fetch_add(after, Ordering::Relaxed);
            self.account.dirty_bytes.fetch_sub(before, Ordering::Relaxed);
        }
        state.runs = alloc::vec![run.clone()];
        state.below = None;
        run
    }

    /// Records where it was written, and as what, if its messages and pairs were put together for that.
    /// `true` if it was dirty and can be evicted from now on.
    pub fn written(&self, stored: OnDevice, folded: Option<Arc<Run>>) -> bool {
        let mut state = self.state.lock();
        let last_msn = state.last_msn();
        if let Some(lineage) = &state.lineage {
            lineage.note(&stored, last_msn);
        }
        let was_dirty = state.stored.replace(stored).is_none();
        if was_dirty {
            self.account.dirty_bytes.fetch_sub(state.memory_bytes(), Ordering::Relaxed);
        }
        // One that was evicted meanwhile is no longer watched.
        let folded = folded.filter(|_| was_dirty || !state.runs.is_empty());
        if folded.is_some() || state.below.is_some() {
            let before = state.memory_bytes();
            state.runs = match folded {
                Some(pairs) => alloc::vec![pairs],
                // That has an extent which is to be freed: of it only what is in memory is of use.
                None => state.layers().map_or_else(Vec::new, Layers::into_runs),
            };
            state.below = None;
            self.account.resident_bytes.fetch_add(state.memory_bytes(), Ordering::Relaxed);
            self.account.resident_bytes.fetch_sub(before, Ordering::Relaxed);
        }
        was_dirty
    }

    /// Drops the contents from memory if they are on the device too. `true` if they are gone.
    pub fn evict(&self) -> bool {
        let mut state = self.state.lock();
        if state.stored.is_none() {
            return false;
        }
        self.account.resident_bytes.fetch_sub(state.memory_bytes(), Ordering::Relaxed);
        state.runs = Vec::new();
        true
    }

    /// Whether it was touched since this was last asked.
    pub fn take_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.account.resident_bytes.fetch_sub(state.memory_bytes(), Ordering::Relaxed);
        if state.stored.is_none() {
            self.account.dirty_bytes.fetch_sub(state.memory_bytes(), Ordering::Relaxed);
        }
    }
}
