//! Compactions: a range is rewritten in order.

use std::ops::{ControlFlow, RangeBounds};

use crate::dict::Dict;
use crate::error::Result;
use crate::keys::{ENGINE_DICT, Keys};

/// What a [compaction](Dict::compact) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// The bytes that it has written to the file.
    pub written_bytes: u64,
    /// The number of stretches of keys that were left as they are because clones share them.
    pub shared: u64,
    /// The number of places that were left as they are because others changed them again and again.
    pub busy: u64,
}

impl Compacted {
    /// Together with what the engine has done since.
    fn and(self, done: &betree::Compacted) -> Compacted {
        Compacted {
            written_bytes: self.written_bytes + done.written_bytes,
            shared: self.shared + done.shared,
            busy: self.busy + done.busy,
        }
    }
}

impl Dict {
    /// Rewrites a range as an [ingest](Dict::ingest) would have left it: full leaves, in the order of their
    /// keys in the file, with no change waiting above them. After many puts in random order and many deletes
    /// the range takes less of the file, and a scan reads it in larger pieces.
    ///
    /// Nobody sees any other pairs meanwhile, and a crash leaves the same ones. It takes steps of some
    /// leaves; readers and writers go on beside it. All of the range is read and written once, but for what
    /// clones share, which is left alone: written anew it would take its space a second time. When this
    /// returns it is durable.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// let pages = store.dict("pages")?;
    /// (0..1000_u32).rev().try_for_each(|page| pages.put(page.to_be_bytes(), "text"))?;
    /// pages.compact::<&str>(..)?;
    /// assert_eq!(pages.iter().count(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) if there is no room for a step beside what it replaces; as
    /// [`delete`](Dict::delete). The pairs are the same then too.
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Compacted> {
        self.compact_while(range, |_| ControlFlow::Continue(()))
    }

    /// As [`compact`](Dict::compact). Calls `go_on` before each step is put in place, with what was done so
    /// far; it may end the compaction there.
    ///
    /// # Errors
    /// As there.
    pub fn compact_while<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        mut go_on: impl FnMut(Compacted) -> ControlFlow<()>,
    ) -> Result<Compacted> {
        self.shared.refuse_if_closed()?;
        self.shared.refuse_if_read_only()?;
        let (keys, number) = (Keys::of(&range), self.state.number);
        let mut compacted = Compacted::default();
        let parts = Some(keys.parts(number)).filter(|_| self.state.has_parts());
        for (lo, hi) in [keys.pairs(number)].into_iter().chain(parts) {
            self.state.refuse_if_dropped()?;
            let mut is_enough = false;
            let done = self.shared.env.compact(ENGINE_DICT, &lo, &hi, |done| {
                is_enough = self.state.refuse_if_dropped().is_err() || go_on(compacted.and(done)).is_break();
                if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let done = done.map_err(|error| self.shared.error(error))?;
            compacted = compacted.and(&done);
            if is_enough {
                break;
            }
        }
        self.state.refuse_if_dropped()?;
        self.shared.env.sync().map_err(|error| self.shared.error(error))?;
        Ok(compacted)
    }
}
