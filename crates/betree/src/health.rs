//! Whether an environment accepts changes, and if not, since when and why: kept for callers that ask, and
//! reported at once to a watcher.

use alloc::string::String;
use alloc::sync::Arc;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

mod errors;

pub(crate) use errors::ErrorKind;
pub use errors::{ErrorCount, ErrorRecord};

/// A trouble of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The failure, in words.
    pub why: String,
    /// When it began, in nanoseconds since 1970-01-01 00:00 UTC by the watcher's clock; 0 without a watcher.
    pub since_ns: i64,
}

/// Whether an environment accepts changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Changes are accepted.
    #[default]
    Writable,
    /// The disk under the device has no room. Nothing is lost: changes are accepted while memory and log have
    /// room, and the environment recovers by itself once the disk has room.
    DeviceFull(Trouble),
    /// No change is accepted until it is opened anew.
    ReadOnly(Trouble),
}

/// Receives troubles at once, in the thread that met them. That thread may hold locks: the watcher must not
/// call the environment.
pub trait Watcher: Send + Sync {
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    fn now_ns(&self) -> i64;

    /// The state has changed to `state`.
    fn state_changed(&self, state: &State);

    /// Background work met an error that hinders no change.
    fn work_failed(&self, error: &Error);

    /// A structure is damaged, and was read from its second copy.
    fn copy_used(&self, error: &Error);
}

/// See the module. Its lock is taken for a moment, under any other.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    watcher: Option<Arc<dyn Watcher>>,
    /// The errors of the volume's life, as far as they are known.
    errors: Mutex<ErrorRecord>,
    /// Whether a failure has ended the changes of this opening.
    has_failed: AtomicBool,
    failed_work: AtomicU64,
    copies_used: AtomicU64,
    known_damage_reads: AtomicU64,
}

impl Health {
    /// The health of a sound environment.
    pub fn new(watcher: Option<Arc<dyn Watcher>>) -> Health {
        Health { watcher, ..Health::default() }
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Refuses every change from now on, because of a failure. Only the first one is reported and noted.
    pub fn fail(&self, why: &str) {
        self.has_failed.store(true, Ordering::Relaxed);
        if let Some(since_ns) = self.turn(|now| !matches!(now, State::ReadOnly(_)), State::ReadOnly, why) {
            self.errors.lock().note_read_only(why, since_ns);
        }
    }

    /// Refuses every change from now on: the volume may only be read, and nothing has failed.
    pub fn refuse_changes(&self, why: &str) {
        self.turn(|now| !matches!(now, State::ReadOnly(_)), State::ReadOnly, why);
    }

    /// Whether a failure has ended the changes of this opening.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Begins without accepting changes, because the caller wants it so: the watcher hears of no trouble.
    pub fn begin_for_reading(&self, why: &str) {
        *self.state.lock() =
            State::ReadOnly(Trouble { why: why.into(), since_ns: self.now_ns().unwrap_or(0) });
    }

    /// Notes that a write found the disk under the device full.
    pub fn device_is_full(&self, why: &str) {
        self.turn(|now| *now == State::Writable, State::DeviceFull, why);
    }

    /// Whether a write, or an allocation ahead of one, has found the disk under the device full, and none has
    /// found room since.
    pub fn is_device_full(&self) -> bool {
        matches!(*self.state.lock(), State::DeviceFull(_))
    }

    /// Notes that everything could be written: the disk under the device is not full any more.
    pub fn device_has_room(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::DeviceFull(_)) {
            *state = State::Writable;
            drop(state);
            self.tell(&State::Writable);
        }
    }

    /// Nanoseconds since 1970-01-01 00:00 UTC by the watcher's clock; `None` without a watcher.
    pub fn now_ns(&self) -> Option<i64> {
        self.watcher.as_ref().map(|watcher| watcher.now_ns())
    }

    /// Goes over to another state if this applies; returns the time.
    fn turn(
        &self,
        applies: impl Fn(&State) -> bool,
        into: impl Fn(Trouble) -> State,
        why: &str,
    ) -> Option<i64> {
        let since_ns = self.now_ns().unwrap_or(0);
        let mut state = self.state.lock();
        if !applies(&state) {
            return None;
        }
        let new = into(Trouble { why: why.into(), since_ns });
        *state = new.clone();
        drop(state);
        self.tell(&new);
        Some(since_ns)
    }

    /// Counts an error.
    pub fn count_error(&self, kind: ErrorKind) {
        let now_ns = self.now_ns().unwrap_or(0);
        self.errors.lock().add(kind, now_ns);
    }

    /// Counts damage of what is stored, if this error is one.
    pub fn count_damage<T>(&self, read: Result<T>) -> Result<T> {
        if let Err(Error::Corrupt { .. }) = read {
            self.count_error(ErrorKind::Checksum);
        }
        read
    }

    /// The errors of the volume's life.
    pub fn errors(&self) -> ErrorRecord {
        self.errors.lock().clone()
    }

    /// Takes in what was counted before this opening.
    pub fn take_earlier_errors(&self, earlier: ErrorRecord) {
        let mut errors = self.errors.lock();
        let later = core::mem::replace(&mut *errors, earlier);
        errors.join(later);
    }

    /// Begins to count anew; returns what was counted.
    pub fn reset_errors(&self) -> ErrorRecord {
        core::mem::take(&mut *self.errors.lock())
    }

    fn tell(&self, state: &State) {
        if let Some(watcher) = &self.watcher {
            watcher.state_changed(state);
        }
    }

    /// Counts and reports a failure of background work that could be left undone.
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

    /// Counts and reports a damaged structure that was read from its second copy.
    pub fn note_copy_used(&self, error: &Error) {
        self.copies_used.fetch_add(1, Ordering::Relaxed);
        if let Some(watcher) = &self.watcher {
            watcher.copy_used(error);
        }
    }

    /// How often a structure was read from its second copy.
    pub fn copies_used(&self) -> u64 {
        self.copies_used.load(Ordering::Relaxed)
    }

    /// Counts a read that ends with this error if it has come to known damage.
    pub fn count_known_damage(&self, error: &Error) {
        if let Error::KnownDamage { .. } = error {
            self.known_damage_reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many reads have come to known damage.
    pub fn known_damage_reads(&self) -> u64 {
        self.known_damage_reads.load(Ordering::Relaxed)
    }

    /// [`Error::ReadOnly`] if changes are refused.
    pub fn refuse_if_read_only(&self) -> Result<()> {
        match &*self.state.lock() {
            State::ReadOnly(trouble) => Err(Error::ReadOnly { why: trouble.why.clone() }),
            State::Writable | State::DeviceFull(_) => Ok(()),
        }
    }
}
