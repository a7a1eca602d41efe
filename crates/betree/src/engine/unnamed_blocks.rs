//! Who holds blocks that the node table does not name: ingests that run, and backups.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::{AtomicBool, Ordering};

use crate::space::Extent;

/// The holders. Its lock is held for a look at all blocks, and while one begins or ends.
#[derive(Default)]
pub(crate) struct UnnamedBlocks(Mutex<Holders>);

#[derive(Default)]
struct Holders {
    ingests: usize,
    /// The oldest first.
    backups: Vec<Arc<Hold>>,
}

/// A running ingest; it ends when this is dropped.
pub(crate) struct Ingesting<'e>(&'e UnnamedBlocks);

/// The extents of a checkpoint, which stay as they are until the hold ends.
pub(crate) struct Hold {
    extents: Mutex<Vec<Arc<Extent>>>,
    has_ended: AtomicBool,
}

impl UnnamedBlocks {
    /// Begins an ingest. It may take blocks until it ends.
    pub fn begin_ingest(&self) -> Ingesting<'_> {
        self.0.lock().ingests += 1;
        Ingesting(self)
    }

    /// Begins a hold for a backup; [`end_backup`](UnnamedBlocks::end_backup) must end it.
    pub fn begin_backup(&self, extents: Vec<Arc<Extent>>) -> Arc<Hold> {
        let hold = Arc::new(Hold { extents: Mutex::new(extents), has_ended: AtomicBool::new(false) });
        self.0.lock().backups.push(Arc::clone(&hold));
        hold
    }

    /// Ends the hold of a backup. Ended again, it does nothing.
    pub fn end_backup(&self, hold: &Arc<Hold>) {
        self.0.lock().backups.retain(|other| !Arc::ptr_eq(other, hold));
        hold.end();
    }

    /// Ends the oldest hold that keeps any space from others. `false` if there is none.
    pub fn end_oldest_backup(&self) -> bool {
        let mut holders = self.0.lock();
        let Some(oldest) = holders.backups.iter().position(|hold| hold.keeps_space()) else { return false };
        let hold = holders.backups.remove(oldest);
        drop(holders);
        hold.end();
        true
    }

    /// Calls `look` unless somebody holds blocks; nobody begins to meanwhile.
    pub fn unless_any<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let holders = self.0.lock();
        (holders.ingests == 0 && holders.backups.is_empty()).then(look)
    }
}

impl Drop for Ingesting<'_> {
    fn drop(&mut self) {
        self.0.0.lock().ingests -= 1;
    }
}

impl Hold {
    /// Whether it was ended. Whatever was read of its extents before a call that returns `false` is as the
    /// checkpoint left it.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether nobody else holds one of its extents.
    fn keeps_space(&self) -> bool {
        self.extents.lock().iter().any(|extent| Arc::strong_count(extent) == 1)
    }

    fn end(&self) {
        // Before any block can be written by others.
        self.has_ended.store(true, Ordering::Release);
        // Dropped without the lock.
        let extents = core::mem::take(&mut *self.extents.lock());
        drop(extents);
    }
}
