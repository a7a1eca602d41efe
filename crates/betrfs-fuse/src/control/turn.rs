//! One client at a time for work that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the next client waits for one that has gone.
const SOON: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The work that one client at a time may have.
#[derive(Clone, Default)]
pub(super) struct Turn(Arc<AtomicBool>);

/// A client's turn, until it is dropped.
pub(super) struct Taken(Turn);

impl Turn {
    /// Takes the turn; `None` while another client has it.
    pub fn take(&self) -> Option<Taken> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Taken(self.clone()))
    }

    /// Whether a client has it.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Takes the turn; waits a moment for the work of a client that has just gone, of which the server may
    /// not know yet.
    pub fn take_soon(&self) -> Option<Taken> {
        let until = Instant::now() + SOON;
        loop {
            match self.take() {
                None if Instant::now() < until => thread::sleep(LOOK_EVERY),
                taken => return taken,
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
