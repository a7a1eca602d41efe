//! The unit of reading, of eviction and of sharing between versions of a node.
//!
//! The pairs and messages of a piece never change; a flush makes a new piece. Only their place changes:
//!
//! ```text
//!   Memory ──written──▶ OnDevice, cached ──evict──▶ OnDevice
//!     ▲                      ▲      ◀────fill────
//!     │ put together         │ written
//!     └────────── Over ──────┘
//! ```

use alloc::sync::Arc;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, Ordering};

use super::lineage::Lineage;
use super::{Account, Cache, Charged, OnDevice};
use crate::error::Result;
use crate::invariant::internal;
use crate::message::{Msn, Point, RangeDelete};
use crate::run::{Layers, Run, newer_than, with_newer};

/// A partition or a basement.
pub(crate) struct Piece {
    size: Size,
    state: Mutex<State>,
    touched: AtomicBool,
    account: Arc<Account>,
}

struct State {
    contents: Contents,
    /// Set once another piece was made of this one, or this one of another.
    lineage: Option<Arc<Lineage>>,
}

/// The places in which the contents of a piece may be.
#[derive(Clone)]
enum Contents {
    /// In memory alone, perhaps in several runs that no reader has joined yet.
    Memory(Layers),
    /// On the device, and in memory while `cached`.
    OnDevice { at: OnDevice, cached: Option<Layers> },
    /// Messages in memory alone, newer than all of an older piece, which is on the device.
    Over { below: Arc<Piece>, newer: Arc<Run> },
}

/// The size of a piece; for several runs the sum, an upper bound of their size as one run.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Before compression.
    raw_bytes: u32,
    ranges: u32,
}

/// The part of a piece's contents that was in memory at one moment.
pub(crate) enum Residency {
    /// All of it.
    Memory(Layers),
    /// At most the newer messages. The rest is stored `at` a place; `piece` keeps it once it is read.
    OnDevice { piece: Arc<Piece>, at: OnDevice, newer: Option<Arc<Run>> },
}

impl Size {
    fn of(run: &Run) -> Size {
        // Sizes are bounds: beyond the type they weigh as much as can be.
        let saturated = |len| u32::try_from(len).unwrap_or(u32::MAX);
        Size { raw_bytes: saturated(run.as_bytes().len()), ranges: saturated(run.ranges().len()) }
    }

    fn plus(self, other: Size) -> Size {
        Size {
            raw_bytes: self.raw_bytes.saturating_add(other.raw_bytes),
            ranges: self.ranges.saturating_add(other.ranges),
        }
    }
}

impl Contents {
    /// Whether some of it is in memory alone.
    fn is_dirty(&self) -> bool {
        !matches!(self, Contents::OnDevice { .. })
    }

    fn is_resident(&self) -> bool {
        match self {
            Contents::Memory(_) => true,
            Contents::OnDevice { cached, .. } => cached.is_some(),
            Contents::Over { below, .. } => below.is_resident(),
        }
    }

    /// All runs that make the contents, if they are in memory.
    fn layers(&self) -> Option<Layers> {
        match self {
            Contents::Memory(layers) => Some(layers.clone()),
            Contents::OnDevice { cached, .. } => cached.clone(),
            Contents::Over { below, newer } => Some(below.layers()?.under(Some(newer.clone()))),
        }
    }

    fn last_msn(&self) -> Msn {
        match self {
            Contents::Memory(layers) | Contents::OnDevice { cached: Some(layers), .. } => {
                layers.newest().last_msn()
            }
            Contents::OnDevice { at, cached: None } => at.last_msn(),
            Contents::Over { newer, .. } => newer.last_msn(),
        }
    }

    fn size(&self) -> Size {
        match self {
            Contents::Memory(layers) | Contents::OnDevice { cached: Some(layers), .. } => {
                layers.newest_first().map(|run| Size::of(run)).fold(Size::default(), Size::plus)
            }
            Contents::OnDevice { at, cached: None } => {
                let sizes = at.runs.iter().map(|run| Size { raw_bytes: run.raw_len, ranges: run.ranges });
                sizes.fold(Size::default(), Size::plus)
            }
            Contents::Over { below, newer } => below.size.plus(Size::of(newer)),
        }
    }

    /// Its charge to the cache's budget. The piece below has a charge of its own.
    fn charged(&self) -> Charged {
        let resident_bytes = match self {
            Contents::Memory(layers) | Contents::OnDevice { cached: Some(layers), .. } => {
                layers.memory_bytes()
            }
            Contents::OnDevice { cached: None, .. } => 0,
            Contents::Over { newer, .. } => newer.memory_bytes(),
        };
        Charged { resident_bytes, dirty_bytes: if self.is_dirty() { resident_bytes } else { 0 } }
    }

    /// Replaces the layers in memory by `layers`, which are the whole contents.
    fn set_layers(&mut self, layers: Layers) {
        match self {
            Contents::OnDevice { cached, .. } => *cached = Some(layers),
            dirty => *dirty = Contents::Memory(layers),
        }
    }
}

impl State {
    /// The lineage that the piece begins or continues.
    fn lineage(&mut self) -> Arc<Lineage> {
        let lineage = self.lineage.get_or_insert_default();
        if let Contents::OnDevice { at, .. } = &self.contents {
            lineage.note(at, self.contents.last_msn());
        }
        lineage.clone()
    }
}

impl Piece {
    /// A new piece, in memory alone.
    pub fn new(cache: &Cache, run: Run) -> Arc<Piece> {
        Piece::of(cache, Contents::Memory(run.into()), None)
    }

    /// A new piece in memory alone: the contents of `older` with newer messages over them, and nothing else
    /// changed.
    pub fn grown(cache: &Cache, run: Run, older: &Piece) -> Arc<Piece> {
        let lineage = older.state.lock().lineage();
        Piece::of(cache, Contents::Memory(run.into()), Some(lineage))
    }

    /// A new piece: the contents of `older`, which may be on the device alone, with newer messages over them.
    /// `None` if `older` is not stored, or in too many runs already.
    pub fn over(
        cache: &Cache,
        older: &Arc<Piece>,
        points: &[Point<'_>],
        ranges: &[RangeDelete],
    ) -> Option<Arc<Piece>> {
        let mut state = older.state.lock();
        let (below, newer) = match &state.contents {
            Contents::OnDevice { at, .. } if at.may_grow() => (older.clone(), None),
            Contents::Over { below, newer } => (below.clone(), Some(newer.clone())),
            _ => return None,
        };
        let lineage = state.lineage();
        // Readers of the older piece must not wait for the merge.
        drop(state);
        let newer = Arc::new(with_newer(newer.as_deref(), points, ranges));
        Some(Piece::of(cache, Contents::Over { below, newer }, Some(lineage)))
    }

    /// A new piece: the pairs of a basement in memory alone, with newer messages over them in a run of their
    /// own. `None` for any other piece.
    pub fn layered(cache: &Cache, older: &Piece, points: &[Point<'_>]) -> Option<Arc<Piece>> {
        let mut state = older.state.lock();
        let Contents::Memory(layers) = &state.contents else { return None };
        let (pairs, messages) = layers.pairs_and_messages()?;
        let lineage = state.lineage();
        drop(state);
        let messages = Arc::new(with_newer(messages.as_deref(), points, &[]));
        let layers = Layers::from(pairs).under(Some(messages));
        Some(Piece::of(cache, Contents::Memory(layers), Some(lineage)))
    }

    /// The same piece with its contents as one `run`, and with that run's size.
    pub fn as_one_run(&self, cache: &Cache, run: Arc<Run>) -> Arc<Piece> {
        let mut state = self.state.lock();
        let (lineage, mut contents) = (state.lineage(), state.contents.clone());
        drop(state);
        contents.set_layers(run.into());
        Piece::of(cache, contents, Some(lineage))
    }

    /// A piece that is on the device alone.
    pub fn on_device(cache: &Cache, at: OnDevice) -> Arc<Piece> {
        let contents = Contents::OnDevice { at, cached: None };
        let size = contents.size();
        Piece::of_size(cache, State { contents, lineage: None }, size, false)
    }

    /// Another piece of the same contents for another node. Once that node is written, neither piece holds
    /// the extent of the other.
    pub fn fork(&self, cache: &Cache) -> Arc<Piece> {
        let state = self.state.lock();
        let lineage = state.lineage.as_ref().map(|lineage| Arc::new(lineage.fork()));
        let contents = state.contents.clone();
        drop(state);
        Piece::of_size(cache, State { contents, lineage }, self.size, false)
    }

    fn of(cache: &Cache, contents: Contents, lineage: Option<Arc<Lineage>>) -> Arc<Piece> {
        let size = contents.size();
        Piece::of_size(cache, State { contents, lineage }, size, true)
    }

    /// Charges a new piece, and watches it if it can be evicted.
    fn of_size(cache: &Cache, state: State, size: Size, is_touched: bool) -> Arc<Piece> {
        let account = cache.account().clone();
        let charged = state.contents.charged();
        account.recharge(Charged::default(), charged);
        let can_be_evicted = !state.contents.is_dirty() && charged.resident_bytes > 0;
        let touched = AtomicBool::new(is_touched);
        let piece = Arc::new(Piece { size, state: Mutex::new(state), touched, account });
        if can_be_evicted {
            cache.watch(&piece);
        }
        piece
    }

    /// Its size before compression in bytes; an upper bound for a piece in several runs.
    pub fn raw_bytes(&self) -> usize {
        self.size.raw_bytes as usize
    }

    /// The number of range deletes in it; an upper bound for a piece in several runs.
    pub fn ranges(&self) -> usize {
        self.size.ranges as usize
    }

    /// The sequence number of its newest message; 0 for a basement without messages.
    pub fn last_msn(&self) -> Msn {
        self.state.lock().contents.last_msn()
    }

    /// Whether it holds messages, not only pairs.
    pub fn has_messages(&self) -> bool {
        self.last_msn() > 0
    }

    /// Its contents, if they are in memory.
    pub fn layers(&self) -> Option<Layers> {
        let layers = self.state.lock().contents.layers();
        if layers.is_some() {
            self.touched.store(true, Ordering::Relaxed);
        }
        layers
    }

    /// Its contents, or the place of the missing part and the newer messages over it. Both come from one
    /// look: another reader may read the missing part and join everything at the next moment.
    ///
    /// # Errors
    /// [`Internal`](crate::error::Error::Internal) if a piece that others are over is not on the device.
    pub fn residency(self: &Arc<Self>) -> Result<Residency> {
        let state = self.state.lock();
        if let Some(layers) = state.contents.layers() {
            self.touched.store(true, Ordering::Relaxed);
            return Ok(Residency::Memory(layers));
        }
        let (piece, newer) = match &state.contents {
            Contents::Over { below, newer } => (below.clone(), Some(newer.clone())),
            _ => (self.clone(), None),
        };
        drop(state);
        let at = piece.stored().ok_or_else(|| internal!("a piece is in memory or on the device"))?;
        Ok(Residency::OnDevice { piece, at, newer })
    }

    /// Whether its contents are in memory; does not count as a touch.
    pub fn is_resident(&self) -> bool {
        self.state.lock().contents.is_resident()
    }

    /// Where it is stored, if it is.
    pub fn stored(&self) -> Option<OnDevice> {
        match &self.state.lock().contents {
            Contents::OnDevice { at, .. } => Some(at.clone()),
            _ => None,
        }
    }

    /// Its runs on the device, all in one extent, and the messages newer than those. `None` if there are no
    /// such runs, or too many.
    pub fn reusable_runs(&self) -> Option<(OnDevice, Option<Arc<Run>>)> {
        let state = self.state.lock();
        let (below, newest) = match &state.contents {
            Contents::OnDevice { at, .. } => return Some((at.clone(), None)),
            Contents::Memory(layers) => (None, layers.newest().clone()),
            Contents::Over { below, newer } => (Some(below.clone()), newer.clone()),
        };
        let last = state.lineage.as_ref().and_then(|lineage| lineage.last_written());
        drop(state);
        if let Some((at, last_msn)) = last.filter(|(at, _)| at.may_grow()) {
            let newer = newer_than(&newest, last_msn);
            // Without newer messages the runs were only joined since: the piece is written as one run.
            return (!newer.is_empty()).then_some((at, Some(newer)));
        }
        let at = below?.stored().filter(OnDevice::may_grow)?;
        Some((at, Some(newest)))
    }

    /// Whether its runs on the device may stay where newer messages join it in memory. Otherwise they are too
    /// many, and the next write makes one run of all.
    pub fn may_keep_runs(&self) -> bool {
        let state = self.state.lock();
        match &state.contents {
            Contents::OnDevice { at, .. } => at.may_grow(),
            Contents::Over { .. } => true,
            Contents::Memory(_) => {
                let last = state.lineage.as_ref().and_then(|lineage| lineage.last_written());
                last.is_none_or(|(at, _)| at.may_grow())
            }
        }
    }

    /// Keeps contents that were read from the device in memory. Returns those in memory afterwards, because
    /// another reader may have been faster; `true` if they are the given ones.
    ///
    /// # Errors
    /// [`Internal`](crate::error::Error::Internal) if the piece is not on the device.
    pub fn fill(&self, read: Layers) -> Result<(Layers, bool)> {
        let mut state = self.state.lock();
        if !matches!(state.contents, Contents::OnDevice { cached: None, .. }) {
            let layers = state.contents.layers();
            return Ok((layers.ok_or_else(|| internal!("a piece that was read was on the device"))?, false));
        }
        self.change(&mut state, |contents| contents.set_layers(read.clone()));
        self.touched.store(true, Ordering::Relaxed);
        Ok((read, true))
    }

    /// Its layers as one run, kept in place of several unless they were evicted meanwhile.
    pub fn join(&self, layers: &Layers) -> Arc<Run> {
        if let Some(run) = layers.only() {
            return run.clone();
        }
        let run = layers.joined();
        let mut state = self.state.lock();
        if state.contents.layers().is_some() {
            self.change(&mut state, |contents| contents.set_layers(run.clone().into()));
        }
        run
    }

    /// Records where it was written, and its pairs if its messages were folded into them for the write.
    /// `true` if it was dirty and can be evicted from now on.
    pub fn written(&self, at: OnDevice, folded: Option<Arc<Run>>) -> bool {
        let mut state = self.state.lock();
        if let Some(lineage) = &state.lineage {
            lineage.note(&at, state.contents.last_msn());
        }
        let was_dirty = state.contents.is_dirty();
        // A piece that was evicted meanwhile is no longer watched.
        let cached = match folded.filter(|_| was_dirty || state.contents.is_resident()) {
            Some(pairs) => Some(pairs.into()),
            // The extent of a piece below is to be freed: only its runs in memory are of use.
            None => state.contents.layers(),
        };
        self.change(&mut state, |contents| *contents = Contents::OnDevice { at, cached });
        was_dirty
    }

    /// Drops the contents from memory if they are on the device too. `true` if they are gone.
    pub fn evict(&self) -> bool {
        let mut state = self.state.lock();
        if state.contents.is_dirty() {
            return false;
        }
        self.change(&mut state, |contents| {
            if let Contents::OnDevice { cached, .. } = contents {
                *cached = None;
            }
        });
        true
    }

    /// Whether it was touched since the last call.
    pub fn take_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    /// Changes the contents, and charges the difference.
    fn change(&self, state: &mut State, change: impl FnOnce(&mut Contents)) {
        let before = state.contents.charged();
        change(&mut state.contents);
        self.account.recharge(before, state.contents.charged());
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let charged = self.state.get_mut().contents.charged();
        self.account.recharge(charged, Charged::default());
    }
}
