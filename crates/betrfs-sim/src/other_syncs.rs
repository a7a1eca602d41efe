//! Syncs by another program while an operation is under way: what the operation has done so far is on the
//! disk, and if the power is cut then, the next opening meets an operation of several batches half done.

#[cfg(feature = "planted-bugs")]
mod moments {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use betrfs::planted;

    use crate::drive::Drive;

    /// A sync that is to come.
    struct Coming {
        /// After which batch of an operation, counted from 1.
        batch: u64,
        disk: Arc<Drive>,
        /// Number of batches that the operation under way has committed.
        done: u64,
    }

    thread_local! {
        static COMING: RefCell<Option<Coming>> = const { RefCell::new(None) };
        static WAS: Cell<bool> = const { Cell::new(false) };
    }

    /// In the first operation of this thread with that many batches another program syncs after that one, and
    /// then the power is cut.
    pub fn set(batch: u64, disk: &Arc<Drive>) {
        planted::set_after_batch(batch_is_done);
        COMING.set(Some(Coming { batch, disk: Arc::clone(disk), done: 0 }));
    }

    /// None is to come.
    pub fn clear() {
        COMING.set(None);
        WAS.set(false);
    }

    /// An operation begins.
    pub fn op_begins() {
        COMING.with_borrow_mut(|coming| coming.iter_mut().for_each(|coming| coming.done = 0));
    }

    /// Whether one has come since the last question.
    pub fn take_was() -> bool {
        WAS.take()
    }

    fn batch_is_done(env: &betree::Env) {
        let now = COMING.with_borrow_mut(|coming| {
            let one = coming.as_mut()?;
            one.done += 1;
            if one.done == one.batch { coming.take() } else { None }
        });
        if let Some(Coming { disk, .. }) = now
            && env.sync().is_ok()
        {
            WAS.set(true);
            disk.disk().cut_power_at(1);
        }
    }
}

/// Without the library's moments there are none.
#[cfg(not(feature = "planted-bugs"))]
mod moments {
    use std::sync::Arc;

    use crate::drive::Drive;

    pub const fn set(_: u64, _: &Arc<Drive>) {}

    pub const fn clear() {}

    pub const fn op_begins() {}

    pub const fn take_was() -> bool {
        false
    }
}

pub use moments::{clear, op_begins, set, take_was};
