//! The unit of reading, of eviction and of sharing between versions of a node.

use alloc::sync::Arc;

use betree_sys::sync::Mutex;
use betree_sys::sync::atomic::{AtomicBool, Ordering};

use super::{Account, Cache};
use crate::format::node::PieceRef;
use crate::format::run::Run;
use crate::space::Extent;

/// Where a piece is stored: part of a node's extent, which cannot be given to another while a piece
/// refers to it.
#[derive(Clone)]
pub(crate) struct Stored {
    pub extent: Arc<Extent>,
    /// Offset in the extent, sizes, codec and checksum.
    pub at: PieceRef,
}

/// A partition or a basement. Its contents never change; a flush makes a new one. It is in memory,
/// on the device, or both.
pub(crate) struct Piece {
    raw_bytes: u32,
    ranges: u32,
    state: Mutex<State>,
    touched: AtomicBool,
    account: Arc<Account>,
}

struct State {
    run: Option<Arc<Run>>,
    stored: Option<Stored>,
}

impl Piece {
    /// A new piece that is in memory alone.
    pub fn new(cache: &Cache, run: Run) -> Arc<Piece> {
        let account = cache.account().clone();
        account.resident_bytes.fetch_add(run.memory_bytes(), Ordering::Relaxed);
        account.dirty_bytes.fetch_add(run.memory_bytes(), Ordering::Relaxed);
        Arc::new(Piece {
            raw_bytes: run.as_bytes().len() as u32,
            ranges: run.ranges().len() as u32,
            state: Mutex::new(State { run: Some(Arc::new(run)), stored: None }),
            touched: AtomicBool::new(true),
            account,
        })
    }

    /// A piece that is on the device alone.
    pub fn on_device(cache: &Cache, stored: Stored) -> Arc<Piece> {
        Arc::new(Piece {
            raw_bytes: stored.at.raw_len,
            ranges: 0,
            state: Mutex::new(State { run: None, stored: Some(stored) }),
            touched: AtomicBool::new(false),
            account: cache.account().clone(),
        })
    }

    /// Another piece of the same contents, for another node: each is where its own node is stored, once
    /// that is written, and holds no extent of the other.
    pub fn twin(&self, cache: &Cache) -> Arc<Piece> {
        let state = self.state.lock();
        let bytes = state.run.as_ref().map_or(0, |run| run.memory_bytes());
        self.account.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
        if state.stored.is_none() {
            self.account.dirty_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let twin = Arc::new(Piece {
            raw_bytes: self.raw_bytes,
            ranges: self.ranges,
            state: Mutex::new(State { run: state.run.clone(), stored: state.stored.clone() }),
            touched: AtomicBool::new(false),
            account: self.account.clone(),
        });
        if state.run.is_some() && state.stored.is_some() {
            cache.watch(&twin);
        }
        twin
    }

    /// Its size before compression in bytes.
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes as usize
    }

    /// How many range deletes it holds; 0 of one that was read from the device.
    pub fn ranges(&self) -> usize {
        self.ranges as usize
    }

    /// Its contents, if they are in memory.
    pub fn resident(&self) -> Option<Arc<Run>> {
        let run = self.state.lock().run.clone();
        if run.is_some() {
            self.touched.store(true, Ordering::Relaxed);
        }
        run
    }

    /// Whether its contents are in memory; does not count as a touch.
    pub fn is_resident(&self) -> bool {
        self.state.lock().run.is_some()
    }

    /// Where it is stored, if it is.
    pub fn stored(&self) -> Option<Stored> {
        self.state.lock().stored.clone()
    }

    /// Keeps contents that were read from the device. Gives what is in memory afterwards: another
    /// reader may have been faster. `true` if this call brought it there.
    pub fn fill(&self, run: Run) -> (Arc<Run>, bool) {
        let mut state = self.state.lock();
        if let Some(run) = &state.run {
            return (run.clone(), false);
        }
        self.account.resident_bytes.fetch_add(run.memory_bytes(), Ordering::Relaxed);
        self.touched.store(true, Ordering::Relaxed);
        let run = Arc::new(run);
        state.run = Some(run.clone());
        (run, true)
    }

    /// Records where it was written. `true` if it was dirty and can be evicted from now on.
    pub fn written(&self, stored: Stored) -> bool {
        let mut state = self.state.lock();
        let was_dirty = state.stored.replace(stored).is_none();
        if was_dirty && let Some(run) = &state.run {
            self.account.dirty_bytes.fetch_sub(run.memory_bytes(), Ordering::Relaxed);
        }
        was_dirty
    }

    /// Drops the contents from memory if they are on the device too. `true` if they are gone.
    pub fn evict(&self) -> bool {
        let mut state = self.state.lock();
        if state.stored.is_none() {
            return false;
        }
        if let Some(run) = state.run.take() {
            self.account.resident_bytes.fetch_sub(run.memory_bytes(), Ordering::Relaxed);
        }
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
        if let Some(run) = &state.run {
            self.account.resident_bytes.fetch_sub(run.memory_bytes(), Ordering::Relaxed);
            if state.stored.is_none() {
                self.account.dirty_bytes.fetch_sub(run.memory_bytes(), Ordering::Relaxed);
            }
        }
    }
}
