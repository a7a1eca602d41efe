//! Whether an environment takes changes, and if not since when and why: kept for whoever asks, and told at
//! once to whoever watches.

use alloc::string::String;
use alloc::sync::Arc;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// What is wrong with an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The failure, in words.
    pub why: String,
    /// When it came: nanoseconds since 1970-01-01 00:00 UTC by the clock of whoever watches, 0 where nobody
    /// does.
    pub since_ns: i64,
}

/// Whether an environment takes changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It does.
    #[default]
    Writable,
    /// The disk under the device has no room. Nothing is lost: changes are taken as far as memory and log go,
    /// and once there is room it goes on by itself.
    DeviceFull(Trouble),
    /// It takes none until it is opened anew.
    ReadOnly(Trouble),
}

/// Is told of troubles at once, by the thread that met them. That may hold locks: the environment must not be
/// called.
pub trait Watcher: Send + Sync {
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    fn now_ns(&self) -> i64;

    /// The state is another now.
    fn state_changed(&self, state: &State);

    /// Background work met an error that hinders no change.
    fn work_failed(&self, error: &Error);
}

/// See the module. Its lock is taken for a moment, under any other.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    watcher: Option<Arc<dyn Watcher>>,
    failed_work: AtomicU64,
}

impl Health {
    /// That of a sound environment.
    pub fn new(watcher: Option<Arc<dyn Watcher>>) -> Health {
        Health { watcher, ..Health::default() }
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// No change is taken from now on. The first failure is the one that is told.
    pub fn fail(&self, why: &str) {
        self.turn(|now| !matches!(now, State::ReadOnly(_)), State::ReadOnly, why);
    }

    /// A write found the disk under the device full.
    pub fn device_is_full(&self, why: &str) {
        self.turn(|now| *now == State::Writable, State::DeviceFull, why);
    }

    /// Everything has been written: if the disk under the device was full, it is not any more.
    pub fn device_has_room(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::DeviceFull(_)) {
            *state = State::Writable;
            drop(state);
            self.tell(&State::Writable);
        }
    }

    fn turn(&self, applies: impl Fn(&State) -> bool, into: impl Fn(Trouble) -> State, why: &str) {
        let since_ns = self.watcher.as_ref().map_or(0, |watcher| watcher.now_ns());
        let mut state = self.state.lock();
        if applies(&state) {
            let new = into(Trouble { why: why.into(), since_ns });
            *state = new.clone();
            drop(state);
            self.tell(&new);
        }
    }

    fn tell(&self, state: &State) {
        if let Some(watcher) = &self.watcher {
            watcher.state_changed(state);
        }
    }

    /// Background work that could be left undone has failed.
    pub fn note_failed_work(&self, error: &Error) {
        self.failed_work.fetch_add(1, Ordering::Relaxed);
        if let Some(watcher) = &self.watcher {
            watcher.work_failed(error);
        }
    }

    /// How often background work has failed that could be left undone.
    pub fn failed_work(&self) -> u64 {
        self.failed_work.load(Ordering::Relaxed)
    }

    /// [`Error::ReadOnly`] if changes are refused.
    pub fn refuse_if_read_only(&self) -> Result<()> {
        match &*self.state.lock() {
            State::ReadOnly(trouble) => Err(Error::ReadOnly { why: trouble.why.clone() }),
            State::Writable | State::DeviceFull(_) => Ok(()),
        }
    }
}
