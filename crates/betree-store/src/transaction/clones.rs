//! Clones of prefixes in a transaction, and the parts of values that a change before a clone leaves without
//! use.

use std::sync::Arc;

use betree::{Cut, DictId};

use super::{Changed, Transaction};
use crate::dict::Dict;
use crate::error::Result;
use crate::keys::{ENGINE_DICT, Keys};
use crate::shared::DictState;

/// Makes a clone in the engine, or renames.
type Copy = fn(&mut betree::Transaction, DictId, &[u8], &[u8]) -> betree::Result<()>;

impl Transaction {
    /// Makes what begins with `to` what begins with `from`, as the transaction sees it: see
    /// [`Dict::clone_prefix`]. The source must be unchanged when the transaction commits, with snapshot
    /// isolation too.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let store = betree_store::Store::open(folder.path().join("store"))?;
    /// use betree_store::Isolation;
    ///
    /// let pages = store.dict("pages")?;
    /// pages.put("draft/1", "text")?;
    /// store.run(Isolation::Snapshot, |transaction| {
    ///     transaction.put(&pages, "draft/2", "more")?;
    ///     transaction.clone_prefix(&pages, "draft/", "published/")?;
    ///     assert_eq!(transaction.prefix(&pages, "published/").count(), 2);
    ///     transaction.put(&pages, "draft/3", "not yet")
    /// })?;
    /// assert!(pages.contains("published/2")? && !pages.contains("published/3")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyClones`](crate::Error::TooManyClones); as [`put`](Transaction::put).
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) may come from the commit, where the keys of the source
    /// are known.
    pub fn clone_prefix(&mut self, dict: &Dict, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.copy_prefix(dict, from.as_ref(), to.as_ref(), betree::Transaction::clone_range)
    }

    /// As [`clone_prefix`](Transaction::clone_prefix), and what began with `from` is gone.
    ///
    /// # Errors
    /// As [`clone_prefix`](Transaction::clone_prefix).
    pub fn rename_prefix(&mut self, dict: &Dict, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        self.copy_prefix(dict, from.as_ref(), to.as_ref(), betree::Transaction::rename_range)
    }

    fn copy_prefix(&mut self, dict: &Dict, from: &[u8], to: &[u8], copy: Copy) -> Result<()> {
        self.attend_change(dict)?;
        dict.check_key(from)?;
        dict.check_key(to)?;
        let with_parts = dict.state.has_parts();
        let unused = self.unused_parts(&dict.state);
        self.change_all(|engine| {
            unused.iter().try_for_each(|(lo, hi)| engine.delete_range(ENGINE_DICT, lo, hi))?;
            let mut prefixes = dict.prefixes(from, to, with_parts);
            prefixes.try_for_each(|(from, to)| copy(engine, ENGINE_DICT, &from, &to))
        })?;
        self.changes.push((dict.state.clone(), Changed::Cloned { with_parts }));
        Ok(())
    }

    /// Where parts may be without use by what was changed since the last clone.
    pub(super) fn unused_parts(&self, dict: &Arc<DictState>) -> Vec<(Cut, Cut)> {
        unused_parts(dict, self.changes.iter().filter(|(state, _)| Arc::ptr_eq(state, dict)).map(|(_, c)| c))
    }
}

/// Where parts of a dictionary may be without use by those of its changes that are behind the last clone. A
/// clone may have brought any parts, so each changed key counts.
pub(super) fn unused_parts<'c>(
    dict: &DictState,
    changes: impl DoubleEndedIterator<Item = &'c Changed>,
) -> Vec<(Cut, Cut)> {
    if !dict.has_parts() {
        return Vec::new();
    }
    let since_clone = changes.rev().take_while(|changed| !matches!(changed, Changed::Cloned { .. }));
    since_clone
        .filter_map(|changed| match changed {
            Changed::Put(key) | Changed::Delete(key) => Some(Keys::One(key.clone()).parts(dict.number)),
            Changed::Range(keys) => Some(keys.parts(dict.number)),
            Changed::Cloned { .. } => None,
        })
        .collect()
}
