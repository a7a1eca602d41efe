//! Removes what has expired where nobody changes anything, slowly, in a thread of the store: leaves of the
//! tree that are written anyway drop it by themselves. The same thread carries out the deletes of single keys
//! that free much.
//!
//! Of each dictionary the earliest time is known at which something in it may expire: a pass over it finds
//! that of what it leaves, and puts bring it forward. Before that time nothing is read.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use betree::{Cut, Env, Swept};
use parking_lot::Mutex;

use crate::catalogue::Catalogue;
use crate::expiring::TimeNs;
use crate::freeing::carry_out_deletes;
use crate::keys::{ENGINE_DICT, dict_cuts};
use crate::shared::DictState;

/// A step reads pairs until they have so many bytes.
pub(crate) const STEP_BYTES: usize = 128 << 10;
/// The pause behind a step: with it, no more than 1 MiB a second is read.
const PAUSE: Duration = Duration::from_millis(125);
/// The time between two looks whether something may have expired.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The thread, until this is dropped.
pub(crate) struct Sweeper {
    thread: Option<JoinHandle<()>>,
    /// The thread ends when this is dropped.
    stop: Option<mpsc::Sender<()>>,
}

/// A pass over the dictionaries, one after the other.
pub(crate) struct Sweep {
    env: Arc<Env>,
    catalogue: Arc<Mutex<Catalogue>>,
    at: Option<Place>,
    /// The number of deletes at the last look whether they free much; the next look is at twice as many.
    looked_at_deletes: u64,
}

/// Where a pass stands.
struct Place {
    dict: Arc<DictState>,
    from: Cut,
    /// The earliest expiry of what it has left.
    earliest_ns: TimeNs,
}

impl Sweeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub fn start(mut sweep: Sweep) -> std::io::Result<Sweeper> {
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            let mut pause = PAUSE;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = sweep.step();
            }
        };
        let thread = thread::Builder::new().name("betree-sweep".into()).spawn(run)?;
        Ok(Sweeper { thread: Some(thread), stop: Some(stop) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was told where it happened, and has broken nothing: its transaction is dropped.
            let _ = thread.join();
        }
    }
}

impl Sweep {
    pub fn new(env: Arc<Env>, catalogue: Arc<Mutex<Catalogue>>) -> Sweep {
        Sweep { env, catalogue, at: None, looked_at_deletes: 0 }
    }

    /// The start of a dictionary in which something may have expired.
    fn due(&self) -> Option<Place> {
        let now_ns = self.env.now_ns()?;
        let catalogue = self.catalogue.lock();
        let dict = catalogue.dicts.values().find(|dict| dict.take_expiry(now_ns))?.clone();
        let (from, _) = dict_cuts(dict.number);
        Some(Place { dict, from, earliest_ns: TimeNs::MAX })
    }

    /// Carries out deletes, if they free much.
    fn give_space_back(&mut self) {
        let deletes = self.env.pending_deletes();
        let seen = std::mem::replace(&mut self.looked_at_deletes, deletes);
        if seen <= deletes && deletes < seen.saturating_mul(2) {
            self.looked_at_deletes = seen;
        } else if let Err(error) = carry_out_deletes(&self.env) {
            tracing::debug!("the space of deletes is not released yet: {error}");
        }
    }

    /// Takes a step, and returns the time until the next one.
    pub fn step(&mut self) -> Duration {
        if self.at.is_none() {
            self.give_space_back();
        }
        let Some(Place { dict, from, earliest_ns }) = self.at.take().or_else(|| self.due()) else {
            return LOOK_EVERY;
        };
        let (_, hi) = dict_cuts(dict.number);
        match self.env.remove_expired(ENGINE_DICT, &from, &hi, STEP_BYTES) {
            Ok(Swept { next, earliest_ns: seen_ns, .. }) => {
                let earliest_ns = seen_ns.map_or(earliest_ns, |seen_ns| seen_ns.min(earliest_ns));
                match next.filter(|_| !dict.is_dropped()) {
                    Some(from) => self.at = Some(Place { dict, from, earliest_ns }),
                    None => dict.note_expiry(earliest_ns),
                }
                PAUSE
            }
            Err(error) => {
                // What has expired is hidden anyway.
                tracing::debug!("a sweep of the dictionary {:?} is put off: {error}", dict.name());
                dict.note_expiry(TimeNs::MIN);
                LOOK_EVERY
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::{DictOptions, Durability, Store};

    const _: () = assert!(STEP_BYTES as u128 * (1000 / PAUSE.as_millis()) <= 1 << 20);

    #[test]
    fn a_pass_reads_a_part_at_a_time_and_nothing_before_something_may_have_expired() {
        const PAIRS: u32 = 1000;
        const VALUE_BYTES: usize = 1000;
        let folder = tempfile::tempdir().unwrap();
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = seconds.clone();
        let now = move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::SeqCst));
        let options = Store::options().cache_bytes(1 << 20).durability(Durability::Manual).clock(now);
        let store = options.open(folder.path().join("store")).unwrap();
        // The steps are taken here.
        drop(store.shared.sweeper.lock().take());
        let dict = store.dict_with("d", &DictOptions::new().expiring()).unwrap();
        store.dict("plain").unwrap().put("k", "v").unwrap();
        let mut sweep = Sweep::new(store.shared.env.clone(), store.shared.catalogue.clone());
        let mut pass = || {
            let before = store.stats().engine.range_queries;
            let steps = (0..).take_while(|_| sweep.step() == PAUSE).count() as u64;
            (steps, store.stats().engine.range_queries - before)
        };
        // Of a dictionary that was opened nothing is known.
        assert_eq!(pass(), (1, 1));
        assert_eq!(pass(), (0, 0));
        for number in 0..PAIRS {
            let value = seeded::bytes(u64::from(number), 0, VALUE_BYTES);
            match number % 2 {
                0 => dict.put(number.to_be_bytes(), value).unwrap(),
                _ => dict.put_for(number.to_be_bytes(), value, Duration::from_secs(100)).unwrap(),
            }
        }
        seconds.store(99, Ordering::SeqCst);
        assert_eq!(pass(), (0, 0));
        seconds.store(100, Ordering::SeqCst);
        let (steps, queries) = pass();
        let least = (PAIRS as usize * VALUE_BYTES / STEP_BYTES) as u64;
        assert!((least..=least + 2).contains(&steps) && queries > 0, "{steps} steps, {queries} queries");
        assert_eq!(dict.remove_expired().unwrap(), 0, "it has removed all");
        assert_eq!(dict.iter().count(), PAIRS as usize / 2);
        assert_eq!(pass(), (0, 0));
        // The pass has found when the next one is due.
        dict.put_for([1], "v", Duration::from_secs(10)).unwrap();
        dict.put_for([2], "v", Duration::from_secs(20)).unwrap();
        seconds.store(110, Ordering::SeqCst);
        assert_ne!(pass(), (0, 0));
        seconds.store(119, Ordering::SeqCst);
        assert_eq!(pass(), (0, 0));
        seconds.store(120, Ordering::SeqCst);
        assert_ne!(pass(), (0, 0));
        assert_eq!(dict.remove_expired().unwrap(), 0);
    }
}
