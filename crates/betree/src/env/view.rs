//! Reading one moment of all dictionaries.

mod differences;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::atomic::Ordering;

use super::Env;
use crate::error::Result;
use crate::expiry::BEFORE_ALL;
use crate::key::Cut;
use crate::message::Msn;
use crate::settings::DictId;
use crate::tree::{Cursor, Tree};
use crate::views::Live;
pub use differences::{Difference, Differences};

/// One moment of all dictionaries: what was committed before it began is seen, and nothing later. A batch is
/// seen as a whole or not at all.
///
/// It begins without a look at the device, hinders neither writers nor checkpoints, and may last as long as
/// it likes. The space of what is overwritten or deleted meanwhile comes back when it is dropped. Where space
/// is short, the oldest view ends before a change is refused: its reads then return
/// [`Error::ViewEnded`](crate::Error::ViewEnded). A view does not survive the environment.
pub struct View {
    env: Arc<Env>,
    live: Arc<Live>,
}

impl Env {
    /// Begins a view of this moment.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{Batch, DictId};
    ///
    /// let view = env.view();
    /// let mut batch = Batch::new();
    /// batch.put(DictId(0), b"apple", b"red");
    /// env.commit(&batch)?;
    /// assert!(env.get(DictId(0), b"apple")?.is_some());
    /// assert_eq!(view.get(DictId(0), b"apple")?, None);
    /// # drop(view);
    /// # Ok(())
    /// # }
    /// ```
    pub fn view(self: &Arc<Self>) -> View {
        View { env: self.clone(), live: self.engine.begin_view() }
    }
}

impl View {
    pub(super) fn of(env: Arc<Env>, live: Arc<Live>) -> View {
        View { env, live }
    }

    /// A view of the newest moment by the time of this one, for a transaction.
    pub(super) fn later(&self) -> View {
        View::of(self.env.clone(), self.env.engine.begin_later(&self.live))
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.env
    }

    /// The number of the last change that it sees. A later view has the same or a greater one.
    pub fn last_change(&self) -> Msn {
        self.live.msn
    }

    /// See [`Engine::fix_versions`](crate::engine::Engine::fix_versions).
    pub(crate) fn fix_versions(&self) {
        self.env.engine.fix_versions(&self.live);
    }

    pub(crate) fn tree(&self, dict: DictId) -> Result<Tree<'_>> {
        let tree = self.env.engine.tree(dict)?;
        Ok(Tree { at: self.live.moment(tree.dict.index), ..tree })
    }

    /// The value of a key as of the view's moment.
    ///
    /// # Errors
    /// [`Error::ViewEnded`](crate::Error::ViewEnded), the device's, or corruption.
    pub fn get(&self, dict: DictId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let counters = &self.env.engine.counters;
        counters.point_queries.fetch_add(1, Ordering::Relaxed);
        self.tree(dict)?.get(key, &counters.point_query_nodes)
    }

    /// Ends the view before it is dropped: its reads return [`Error::ViewEnded`](crate::Error::ViewEnded)
    /// from then on, and the space of what it held comes back. Ended again, it does nothing.
    pub fn end(&self) {
        // Before anything goes: whoever reads looks at it under the state's lock.
        self.live.has_ended.store(true, Ordering::Release);
        self.env.engine.end_view(&self.live);
    }

    /// The values of several keys as of the view's moment, as [`Env::get_many`].
    ///
    /// # Errors
    /// As [`get`](View::get), if one of the values depends on it.
    pub fn get_many<K: AsRef<[u8]>>(&self, dict: DictId, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let counters = &self.env.engine.counters;
        self.tree(dict)?.get_many(keys, &counters.point_queries, &counters.point_query_nodes)
    }

    /// The time by which values have expired for it, in nanoseconds since 1970-01-01 00:00 UTC: that of its
    /// beginning. `None` without a clock.
    pub fn time_ns(&self) -> Option<i64> {
        self.live.time_ns
    }

    /// A cursor over `[lo, hi)` as of the view's moment, standing before its first key. An unknown dictionary
    /// is empty.
    pub fn cursor(&self, dict: DictId, lo: Cut, hi: Cut) -> Cursor<'_> {
        Cursor::new(self.tree(dict).ok(), lo, hi, &self.env.engine.counters.range_queries)
    }

    /// As [`cursor`](View::cursor), with pairs that have expired.
    pub(super) fn cursor_with_expired(&self, dict: DictId, lo: Cut, hi: Cut) -> Cursor<'_> {
        let mut tree = self.tree(dict).ok();
        if let Some(tree) = &mut tree {
            tree.at.time_ns = Some(BEFORE_ALL);
        }
        Cursor::new(tree, lo, hi, &self.env.engine.counters.range_queries)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.env.refuse_if_forked().is_err() {
            return;
        }
        self.env.engine.end_view(&self.live);
    }
}

impl core::fmt::Debug for View {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "View(up to change {})", self.live.msn)
    }
}

#[cfg(test)]
mod tests;
