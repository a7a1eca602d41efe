//! Calls without Python's lock, and the end of the program beneath them.
//!
//! Python ends daemon threads when they take its lock again while the interpreter finalizes. Before version
//! 3.14 it does so by unwinding them, and where frames of Rust are on the stack, that aborts the process. So
//! once the program ends, calls of other threads do not return: they wait for the end of the process without
//! the lock.

use std::thread::{self, ThreadId};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

struct Ending {
    /// The thread that ends the program, once one does.
    by: Option<ThreadId>,
    /// The threads that are about to take Python's lock.
    returning: usize,
}

static ENDING: Mutex<Ending> = Mutex::new(Ending { by: None, returning: 0 });
static RETURNED: Condvar = Condvar::new();

/// Calls a function without Python's lock.
pub fn detach<T: Send>(py: Python<'_>, run: impl FnOnce() -> T + Send) -> T {
    let made = py.detach(|| {
        let made = run();
        begin_return();
        made
    });
    end_return();
    made
}

/// Waits forever if another thread ends the program.
fn begin_return() {
    let mut ending = ENDING.lock();
    if ending.by.is_some_and(|by| by != thread::current().id()) {
        drop(ending);
        loop {
            thread::park();
        }
    }
    ending.returning += 1;
}

fn end_return() {
    let mut ending = ENDING.lock();
    ending.returning -= 1;
    RETURNED.notify_all();
}

/// Keeps calls of other threads from returning from now on. The package calls it when the program ends,
/// before the interpreter finalizes.
#[pyfunction]
pub fn _end(py: Python<'_>) {
    py.detach(|| {
        let mut ending = ENDING.lock();
        ending.by = Some(thread::current().id());
        while ending.returning > 0 {
            RETURNED.wait(&mut ending);
        }
    });
}
