//! Range changes of a batch or an ingest: prepared without the writers' lock, then installed or cancelled.

use alloc::vec::Vec;

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::Engine;
use crate::batch::RangeChange;
use crate::dict::Dict;
use crate::error::{Error, Result};
use crate::events;
use crate::format::record::{Change, Changes};
use crate::message::{Msn, RangeDelete};
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::tree::{BuiltTree, Reach, Tree, TreeChange};
use crate::views::Views;

/// The numbers of range changes and of new nodes of one dictionary, for an event once no writer waits.
pub(crate) struct Installed {
    dictionary: usize,
    clones: usize,
    deletes: usize,
    nodes: usize,
}

impl Installed {
    /// Sends the event.
    pub fn send(&self) {
        events::cloned(self.dictionary, self.clones, self.deletes, self.nodes);
    }
}

/// The range changes of one batch in the tree of one dictionary.
struct Prepared<'e> {
    dict: &'e Dict,
    change: TreeChange,
    /// The ranges whose contents change.
    ranges: Vec<RangeDelete>,
    clones: usize,
    deletes: usize,
}

/// The range whose contents a change replaces or removes.
fn changed_range(msn: Msn, change: &RangeChange<'_>) -> RangeDelete {
    match change {
        RangeChange::Delete { lo, hi } => RangeDelete { lo: lo.clone(), hi: hi.clone(), msn },
        RangeChange::Clone { to, lo, hi, .. } => {
            RangeDelete { lo: lo.with_prefix(to), hi: hi.with_prefix(to), msn }
        }
    }
}

/// New nodes of the trees for the range changes of one batch. Dropping it gives back the node ids that it
/// reserved, unless it was installed.
pub(crate) struct PreparedRanges<'e> {
    engine: &'e Engine,
    changes: Vec<Prepared<'e>>,
}

impl<'e> PreparedRanges<'e> {
    /// Prepares the first `count` changes of a record, numbered from `first_msn` on; changes that a
    /// dictionary's tree holds already are skipped. All earlier messages must be in the trees, whose
    /// structures the caller has locked. Keys of clones may have at most `key_bytes_max` bytes.
    ///
    /// # Errors
    /// Those of reading, within `reach`; [`Error::KeyTooLong`], [`Error::TooHigh`], [`Error::BadRecord`],
    /// [`Error::NoSuchDictionary`]. Nothing was changed.
    pub fn new(
        engine: &'e Engine,
        _structures: &[MutexGuard<'_, ()>],
        first_msn: Msn,
        record: &[u8],
        count: u32,
        key_bytes_max: usize,
        reach: Reach,
    ) -> Result<PreparedRanges<'e>> {
        let mut prepared = PreparedRanges { engine, changes: Vec::new() };
        for dict in &engine.dicts {
            let applied = dict.state.read().applied_msn;
            let mut mine = Vec::new();
            for (change, msn) in Changes::of(record).take(count as usize).zip(first_msn..) {
                let (id, change) = change?;
                if usize::from(id.0) >= engine.dicts.len() {
                    return Err(Error::NoSuchDictionary { id: id.0 });
                }
                if usize::from(id.0) != dict.index || msn <= applied {
                    continue;
                }
                match change {
                    Change::DeleteRange { lo, hi } => mine.push((msn, RangeChange::Delete { lo, hi })),
                    Change::CloneRange { from, to, lo, hi } => {
                        mine.push((msn, RangeChange::Clone { from, to, lo, hi }));
                    }
                    _ => return Err(Error::BadRecord),
                }
            }
            if !mine.is_empty() {
                let change = Tree { reach, ..engine.tree_of(dict) }.change_ranges(&mine, key_bytes_max)?;
                let is_clone =
                    |change: &&(Msn, RangeChange<'_>)| matches!(change.1, RangeChange::Clone { .. });
                let clones = mine.iter().filter(is_clone).count();
                let deletes = mine.len() - clones;
                let ranges = mine.iter().map(|(msn, change)| changed_range(*msn, change)).collect();
                prepared.changes.push(Prepared { dict, change, ranges, clones, deletes });
            }
        }
        Ok(prepared)
    }

    /// Prepares a change, with the number `msn`, that shows another tree in place of all between its bounds.
    /// All earlier messages must be in the trees, whose structures the caller has locked.
    ///
    /// # Errors
    /// Those of reading; [`Error::NoSuchDictionary`]. Nothing was changed.
    pub fn of_tree(
        engine: &'e Engine,
        _structures: &[MutexGuard<'_, ()>],
        id: DictId,
        msn: Msn,
        built: &BuiltTree<'_>,
    ) -> Result<PreparedRanges<'e>> {
        let Tree { dict, .. } = engine.tree(id)?;
        let change = engine.tree_of(dict).put_tree(built)?;
        let (lo, hi) = built.bounds();
        let mut ranges = Vec::from([RangeDelete { lo: lo.clone(), hi: hi.clone(), msn }]);
        if planted::is(Bug::IngestsMissedByTransactions) {
            ranges.clear();
        }
        let changes = Vec::from([Prepared { dict, change, ranges, clones: 0, deletes: 0 }]);
        Ok(PreparedRanges { engine, changes })
    }

    /// Notes that no contents change: transactions need not know of it.
    pub fn forget_ranges(&mut self) {
        self.changes.iter_mut().for_each(|prepared| prepared.ranges.clear());
    }

    /// How many more bytes will be owed to the device once it is installed.
    pub fn owed_bytes(&self) -> u64 {
        let mut more = 0;
        for Prepared { dict, change, .. } in &self.changes {
            let state = dict.state.read();
            for node in change.added.iter().chain(&change.changed) {
                let now = state.node(node.id).map_or(0, |node| node.charge.owed_bytes());
                more += node.charge.to_come_bytes().saturating_sub(now);
            }
            let pages = self.engine.table.lock().pages_of(change.written.iter().map(|node| node.id));
            more += pages * u64::from(self.engine.geometry.table_page_bytes());
        }
        more
    }

    /// Installs the changes; `last_msn` is the number of the last one. Views see all of them or none. Returns
    /// the numbers for events.
    pub fn install(mut self, views: &mut Views, last_msn: Msn) -> Vec<Installed> {
        let mut installed = Vec::with_capacity(self.changes.len());
        for Prepared { dict, change, ranges, clones, deletes } in self.changes.drain(..) {
            let nodes = change.added.len();
            self.engine.tree_of(dict).install_ranges(views, change);
            self.engine.recent.lock().ranges_change(DictId(dict.index as u8), ranges);
            installed.push(Installed { dictionary: dict.index, clones, deletes, nodes });
        }
        for dict in &self.engine.dicts {
            let mut state = dict.state.write();
            state.applied_msn = state.applied_msn.max(last_msn);
        }
        self.engine.unbalanced.store(true, Ordering::Relaxed);
        installed
    }
}

impl Drop for PreparedRanges<'_> {
    fn drop(&mut self) {
        for Prepared { dict, change, .. } in &self.changes {
            self.engine.tree_of(dict).cancel(change);
        }
    }
}
