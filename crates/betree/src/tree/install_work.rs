//! How much a thread does while it holds a dictionary's state exclusively: tests count it.

use core::cell::RefCell;
use std::vec::Vec;

std::thread_local! {
    /// The steps of each change that this thread has installed.
    static STEPS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A change is installed from now on.
pub(crate) fn begin() {
    STEPS.with_borrow_mut(|all| all.push(0));
}

/// It has looked at a node or a reference.
pub(crate) fn step() {
    STEPS.with_borrow_mut(|all| all.last_mut().map(|last| *last += 1));
}

/// The steps of each change since the last call.
pub(crate) fn take() -> Vec<u64> {
    STEPS.take()
}
