//! Reads of the leaves that a scan needs next.
//!
//! A scan in a leaf asks for the next leaves, and background threads of the platform read them. When the scan
//! reaches such a leaf, it asks for those after it, so that [`LEAVES_AHEAD`] leaves are always ahead of each
//! scan.

use alloc::collections::VecDeque;

use betree_platform::sync::atomic::{AtomicUsize, Ordering};
use betree_platform::sync::{Condvar, Mutex};

use crate::key::Cut;
use crate::node_id::NodeId;

/// The most waiting requests, and the most leaves read ahead and not reached: older ones belong to a scan
/// that went elsewhere.
const KEPT_MAX: usize = 16;

/// How many leaves are read ahead of a scan: while one is verified, the device has another in hand.
pub(crate) const LEAVES_AHEAD: usize = 2;

/// Leaves to be read ahead.
#[derive(Default)]
pub(crate) struct Readahead {
    state: Mutex<State>,
    wanted: Condvar,
    /// Threads that read ahead; without one, nothing is requested.
    threads: AtomicUsize,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    /// Leaves that were read ahead and not reached yet.
    expecting: VecDeque<NodeId>,
    stop: bool,
}

/// The leaf behind a place of a dictionary.
#[derive(Clone)]
pub(crate) struct Request {
    pub dict: usize,
    pub at: Cut,
    /// The number of further leaves wanted behind that one.
    pub more: usize,
}

impl Request {
    fn is_for(&self, dict: usize, at: &Cut) -> bool {
        self.dict == dict && self.at == *at
    }
}

fn push<T>(queue: &mut VecDeque<T>, new: T, is_same: impl Fn(&T) -> bool) {
    if !queue.iter().any(is_same) {
        if queue.len() == KEPT_MAX {
            queue.pop_front();
        }
        queue.push_back(new);
    }
}

impl Readahead {
    /// Asks for the leaf behind a place.
    pub fn ask(&self, request: Request) {
        if self.threads.load(Ordering::Relaxed) > 0 {
            let Request { dict, at, .. } = request.clone();
            push(&mut self.state.lock().requests, request, |known| known.is_for(dict, &at));
            self.wanted.notify_one();
        }
    }

    /// Notes that a leaf is about to be read ahead.
    pub fn expect(&self, leaf: NodeId) {
        push(&mut self.state.lock().expecting, leaf, |known| *known == leaf);
    }

    /// Whether a leaf was read ahead, or was to be, and this scan is the first to reach it. A request that no
    /// thread has begun is cancelled: the scan reads the leaf itself.
    pub fn has_come(&self, leaf: NodeId, dict: usize, at: &Cut) -> bool {
        if self.threads.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut state = self.state.lock();
        let waiting = state.requests.iter().position(|request| request.is_for(dict, at));
        let expected = state.expecting.iter().position(|id| *id == leaf);
        let taken_back = waiting.and_then(|at| state.requests.remove(at)).is_some();
        let was_read = expected.and_then(|at| state.expecting.remove(at)).is_some();
        taken_back || was_read
    }

    /// Calls `read` with each request, until [`stop`](Readahead::stop).
    pub fn serve(&self, mut read: impl FnMut(Request)) {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        while !state.stop {
            match state.requests.pop_front() {
                Some(request) => {
                    drop(state);
                    read(request);
                    state = self.state.lock();
                }
                None => state = self.wanted.wait(state),
            }
        }
        drop(state);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes every [`serve`](Readahead::serve) return, now and later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wanted.notify_all();
    }
}
