//! The largest buffer that a test's thread was asked for: by numbers from the disk, as a rule.

use std::cell::Cell;

std::thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// A buffer of so many bytes is asked for.
pub(crate) fn note(bytes: usize) {
    LARGEST.set(LARGEST.get().max(bytes));
}

/// The largest since this was asked last, in bytes.
pub(crate) fn largest() -> usize {
    LARGEST.replace(0)
}
