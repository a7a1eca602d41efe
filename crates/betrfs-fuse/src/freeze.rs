//! The freeze of a mount: changes wait at a gate while the volume stands still, and reads go on.
//!
//! Requests that change something pass the gate before they take any lock; what the volume would change by
//! itself is put off by the library. So nobody who only reads waits for a change that waits. A thread that
//! waits at the gate tells its transport before ([`around_waits`]), which has others answer in its place.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use betrfs::Volume;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

/// How long changes may be held for the end of those under way, before the freeze is given up.
pub const BEGIN_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval between two looks whether a checkpoint under way has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a request is to a freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing, or nothing but what the library puts off.
    None,
    /// It makes changes durable: it waits behind changes that wait.
    Sync,
    /// It may change something.
    Change,
}

/// What a transport does around its threads' waits for the end of a freeze.
pub trait AroundWaits {
    /// The thread is about to wait.
    fn begins(&self);
    /// It goes on.
    fn ends(&self);
}

thread_local! {
    static AROUND_WAITS: RefCell<Option<Rc<dyn AroundWaits>>> = const { RefCell::new(None) };
}

/// Sets what is done around this thread's waits.
pub fn around_waits(around: Rc<dyn AroundWaits>) {
    AROUND_WAITS.set(Some(around));
}

/// Why a mount could not be frozen, or thawed.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// It is frozen, or about to be.
    #[error("it is frozen already (EBUSY)")]
    Busy,
    /// Changes under way did not end in time.
    #[error("changes under way did not end within {} seconds; nothing is frozen", BEGIN_TIME_MAX.as_secs())]
    Slow,
    /// A thaw came before.
    #[error("it was thawed before it stood still")]
    Thawed,
    /// The volume is about to be closed.
    #[error("its mount has ended")]
    Over,
    /// The client does not listen any more.
    #[error("nobody waits for it any more: {0}")]
    Gone(io::Error),
    /// The volume's.
    #[error(transparent)]
    Volume(#[from] betrfs::Error),
}

/// How far a freeze is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes are about to be held.
    Holds,
    /// The volume stands still; with the number of the freeze.
    StandsStill(u64),
}

/// Why a freeze has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked for.
    Asked,
    /// Its time was over.
    Time,
}

/// A freeze as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// When it began, in seconds since 1970-01-01 00:00 UTC.
    pub since: i64,
    /// The time that is left before it ends by itself, if it does.
    pub left: Option<Duration>,
    /// The number of changes that wait.
    pub waiting: u64,
}

/// The gate of a mount.
#[derive(Default)]
pub struct Freezer {
    /// Held shared over each change, exclusively over a freeze.
    gate: RwLock<()>,
    /// The number of requests at the gate.
    waiting: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the last freeze; the first is 1.
    number: u64,
    phase: Phase,
    is_thaw_wanted: bool,
    /// Whether no freeze may begin any more.
    is_over: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Thawed,
    /// It is about to begin, or to end.
    Between,
    Frozen {
        since: i64,
        until: Option<Instant>,
    },
    /// Its time is over, and it is about to end.
    Over,
}

impl Freezer {
    /// Lets a request through; if it may change something, waits for the end of a freeze, and none begins
    /// until the guard is dropped.
    #[must_use]
    pub fn pass(&self, effect: Effect) -> Option<RwLockReadGuard<'_, ()>> {
        if effect == Effect::None {
            return None;
        }
        if let Some(passed) = self.gate.try_read() {
            return Some(passed);
        }
        if effect == Effect::Sync && self.waiting() == 0 {
            // All is durable.
            return None;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let around = AROUND_WAITS.with_borrow(Clone::clone);
        around.iter().for_each(|around| around.begins());
        let passed = self.gate.read();
        around.iter().for_each(|around| around.ends());
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(passed)
    }

    /// The number of requests that wait.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// The freeze that lasts.
    pub fn frozen(&self) -> Option<Frozen> {
        match self.state.lock().phase {
            Phase::Frozen { since, until } => {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                Some(Frozen { since, left, waiting: self.waiting() })
            }
            Phase::Thawed | Phase::Between | Phase::Over => None,
        }
    }

    /// Freezes the volume for some time, or until the thaw, in the calling thread. Calls `tell` with each
    /// step; if that fails, the freeze ends.
    ///
    /// # Errors
    /// [`FreezeError`]; nothing is frozen then, or any more.
    pub fn freeze(
        &self,
        volume: &Volume,
        time: Option<Duration>,
        tell: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<End, FreezeError> {
        let number = {
            let mut state = self.state.lock();
            if state.is_over {
                return Err(FreezeError::Over);
            }
            if state.phase != Phase::Thawed {
                return Err(FreezeError::Busy);
            }
            (state.phase, state.is_thaw_wanted) = (Phase::Between, false);
            state.number += 1;
            state.number
        };
        let _ended = Ended(self);
        volume.prepare_freeze()?;
        tell(Step::Holds).map_err(FreezeError::Gone)?;
        let until = Instant::now() + BEGIN_TIME_MAX;
        let _closed = self.gate.try_write_for(BEGIN_TIME_MAX).ok_or(FreezeError::Slow)?;
        loop {
            if self.state.lock().is_thaw_wanted {
                return Err(FreezeError::Thawed);
            }
            if let Some(end) = volume.freeze(|| self.stand_still(time, || tell(Step::StandsStill(number))))? {
                return end.map_err(FreezeError::Gone);
            }
            if Instant::now() >= until {
                return Err(FreezeError::Slow);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits for the end of a freeze.
    fn stand_still(&self, time: Option<Duration>, tell: impl FnOnce() -> io::Result<()>) -> io::Result<End> {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        self.state.lock().phase = Phase::Frozen { since: now(), until };
        tell()?;
        let mut state = self.state.lock();
        while !state.is_thaw_wanted {
            match until {
                Some(until) if Instant::now() >= until => break,
                Some(until) => drop(self.changed.wait_until(&mut state, until)),
                None => self.changed.wait(&mut state),
            }
        }
        let (phase, end) =
            if state.is_thaw_wanted { (Phase::Between, End::Asked) } else { (Phase::Over, End::Time) };
        state.phase = phase;
        Ok(end)
    }

    /// Ends the freeze with this number, or any; does not wait for its end. `false` if there is none, or if
    /// the time of the one with the number is over: what was copied meanwhile may have changed.
    pub fn thaw(&self, number: Option<u64>) -> bool {
        let mut state = self.state.lock();
        let is_past = |number| number != state.number || state.phase == Phase::Over;
        if state.phase == Phase::Thawed || number.is_some_and(is_past) {
            return false;
        }
        state.is_thaw_wanted = true;
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Lets no freeze begin any more, and ends the one that lasts, as [`thaw`](Freezer::thaw).
    pub fn end_for_good(&self) -> bool {
        self.state.lock().is_over = true;
        self.thaw(None)
    }

    /// Waits for the end of a freeze that is about to end.
    pub fn await_thaw(&self) {
        let mut state = self.state.lock();
        while state.is_thaw_wanted && state.phase != Phase::Thawed {
            self.changed.wait(&mut state);
        }
    }
}

/// Notes the end of a freeze when it is dropped.
struct Ended<'f>(&'f Freezer);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let Ended(freezer) = self;
        freezer.state.lock().phase = Phase::Thawed;
        freezer.changed.notify_all();
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
