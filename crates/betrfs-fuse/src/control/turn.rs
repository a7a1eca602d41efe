//! One client at a time for work that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
