//! The largest buffer that the code asked for in a test's thread; its size usually comes from the disk.

use std::cell::Cell;

std::thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// Notes a request for a buffer of `bytes` bytes.
pub(crate) fn note(bytes: usize) {
    LARGEST.set(LARGEST.get().max(bytes));
}

/// The largest request since the last call, in bytes.
pub(crate) fn largest() -> usize {
    LARGEST.replace(0)
}
