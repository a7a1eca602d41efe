//! Counts ingests: while one runs, it holds blocks that no node table names.

use betree_platform::sync::Mutex;

/// The ingests at work. Its lock is held for a look at all blocks, and to begin and to end one.
#[derive(Default)]
pub(crate) struct Ingests(Mutex<usize>);

/// One of them; it ends when this is dropped.
pub(crate) struct Ingesting<'e>(&'e Ingests);

impl Ingests {
    /// Begins one. It may take blocks until it ends.
    pub fn begin(&self) -> Ingesting<'_> {
        *self.0.lock() += 1;
        Ingesting(self)
    }

    /// Calls `look` unless there is an ingest; none begins meanwhile.
    pub fn unless_any<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let count = self.0.lock();
        (*count == 0).then(look)
    }
}

impl Drop for Ingesting<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() -= 1;
    }
}
