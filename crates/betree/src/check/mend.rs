//! The repair of a volume: changes that are prepared in memory, and become one checkpoint or none.
//!
//! The checkpoint takes only blocks that the one before it does not name, and the log is not touched. So that
//! one stays whole, and the volume can go back to it until the next opening for changes writes another.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree_platform::Device;
use hashbrown::HashSet;

use super::children;
use super::references::SLOTS_AT_ONCE;
use super::walk::Walk;
use super::{Finding, Place};
use crate::batch::Batch;
use crate::env::Env;
use crate::env::recover::FOR_READING;
use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
use crate::format::superblock::features::Features;
use crate::format::superblock::slots;
use crate::format::superblock::table_copy::TableCopy;
use crate::io::Disk;
use crate::key::Cut;
use crate::message::{RangeDelete, RangeSet};
use crate::node_id::NodeId;
use crate::settings::{DictId, OpenMode};

/// The superblock's tag of a repair: the generation before it, which the repair has left as it was.
const REPAIRED_TAG: u16 = 1;

/// What [`Env::note_damage`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotedDamage {
    /// The number of structures that were lost.
    pub lost: u64,
    /// The lost interior nodes whose children were found again. What was pending in one is lost, so the keys
    /// in its range may be as in an older state.
    pub found_again: Vec<Place>,
    /// The nodes whose blocks others claim too, and that are there as they were written: they get blocks of
    /// their own.
    pub moved: Vec<Place>,
}

impl Env {
    /// Sets the references in the node table to the number of edges and GOTOs that lead to each node, in
    /// memory alone. A node to which nothing leads goes, and with it the space that it takes. Where a node
    /// that may lead to others cannot be read, numbers only grow. Returns how many were wrong.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if it was not opened for a repair; [`Error::Interrupted`] by `progress`; those of
    /// the device.
    pub fn mend_references(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        self.refuse_unless_repairing()?;
        self.engine.assign_all_unowned()?;
        let structures = self.engine.lock_structures();
        let (live, dead) = self.engine.begin_fixed(&structures);
        let mut ignore = |_: Finding| ();
        let mut walk = Walk::new(&self.engine, &live, &mut ignore);
        let counted = walk
            .trees(progress)
            .and_then(|()| walk.dead(dead, progress))
            .and_then(|_| walk.count_references());
        self.engine.end_view(&live);
        let wrong = counted?.wrong;
        for (id, counted, references) in &wrong {
            let mut table = self.engine.table.lock();
            if *counted == 0 {
                table.remove(*id);
            } else {
                table.count(*id, i64::from(*counted) - i64::from(*references));
                drop(table);
                // It was taken for dead at the opening.
                self.engine.dicts.iter().for_each(|dict| dict.dead.lock().retain(|dead| dead != id));
            }
        }
        drop(structures);
        // What cannot be read of a node that the log's changes have left need not be written.
        while self.engine.free_one()? {}
        Ok(wrong.len() as u64)
    }

    /// Puts known damage in the place of everything that cannot be read, in memory alone: reads of it give
    /// [`Error::KnownDamage`], and all else can be changed, deletes and puts over it too. Where the children
    /// of a lost interior node are found again, it gets a new one in its place, without the messages that it
    /// had: keys below may be as in an older state. Nodes whose blocks others claim too get blocks of their
    /// own, if they can be read. What the opening has put known damage in the place of counts too.
    ///
    /// Known damage is of keys, so what reached to lost nodes counts them still: call
    /// [`mend_references`](Env::mend_references) afterwards.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if it was not opened for a repair; [`Error::UnknownKind`] if a later version made
    /// a part of it; those of the device that are no damage. It is not to be written then.
    pub fn note_damage(&self) -> Result<NotedDamage> {
        self.refuse_unless_repairing()?;
        self.engine.assign_all_unowned()?;
        let structures = self.engine.lock_structures();
        let found_again = children::put_back(&self.engine, &structures)?;
        let mut lost = found_again.len() as u64 + self.opened.given_up;
        let mut seen = HashSet::new();
        for dict in &self.engine.dicts {
            lost += self.engine.tree_of(dict).note_damage(&mut seen)?;
        }
        let moved = self.move_disputed(&seen)?;
        let is_dead_lost = self.go_if_dead_are_lost(&seen)?;
        if lost > 0 {
            // From the next checkpoint on: versions that do not know it would take it for a range delete.
            self.checkpoint.lock().superblock.features.incompat |= Features::KNOWN_DAMAGE;
        }
        Ok(NotedDamage { lost: lost + u64::from(is_dead_lost), found_again, moved })
    }

    /// Takes all nodes but those of trees, `seen`, out of the node table if a node that waits to be freed, or
    /// one that it leads to, cannot be read: they would never be freed. So too if others claim the blocks of
    /// one: it would keep them. Returns whether that is so.
    fn go_if_dead_are_lost(&self, seen: &HashSet<NodeId>) -> Result<bool> {
        let mut dead = HashSet::<NodeId>::new();
        let mut is_lost = false;
        for dict in &self.engine.dicts {
            dict.retry_unread_dead();
            dead.extend(dict.dead.lock().iter().copied());
            is_lost = is_lost || self.engine.tree_of(dict).is_dead_lost(seen)?;
        }
        let disputed: HashSet<NodeId> = {
            let nodes = self.opened.disputed.nodes.iter();
            nodes.filter(|node| self.is_disputed(node)).map(|node| node.id).collect()
        };
        let mut table = self.engine.table.lock();
        let firsts = (0..).step_by(SLOTS_AT_ONCE as usize);
        let nodes = firsts.map_while(|first| table.nodes_in(first, SLOTS_AT_ONCE)).flatten();
        let others: Vec<_> = nodes.filter(|(id, _)| !seen.contains(id)).collect();
        // Of these nothing tells the dictionary.
        is_lost = is_lost || others.iter().any(|(id, references)| *references == 0 && !dead.contains(id));
        is_lost = is_lost || others.iter().any(|(id, _)| disputed.contains(id));
        if is_lost {
            self.engine.dicts.iter().for_each(|dict| dict.dead.lock().clear());
            others.iter().for_each(|(id, _)| table.remove(*id));
        }
        Ok(is_lost)
    }

    /// Applies a batch without clones in memory alone: readers and checks see it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if it was not opened for a repair; those of [`commit`](Env::commit) and of the
    /// device.
    pub fn apply_in_memory(&self, batch: &Batch) -> Result<()> {
        self.refuse_unless_repairing()?;
        batch.validate()?;
        if batch.is_empty() {
            return Ok(());
        }
        {
            let mut commit = self.commit.lock();
            self.engine.take(commit.next_msn, batch.record())?;
            commit.next_msn += batch.len() as u64;
        }
        self.absorb()
    }

    /// Puts known damage over all keys of a dictionary in these ranges, in memory alone, whatever is there:
    /// for what the caller knows to be lost. Readers get [`Error::KnownDamage`], and what is written later
    /// over it heals it.
    ///
    /// # Errors
    /// As [`apply_in_memory`](Env::apply_in_memory).
    pub fn note_lost(&self, dict: DictId, ranges: &[(Cut, Cut)]) -> Result<()> {
        self.refuse_unless_repairing()?;
        // It goes over all that is in the tree, and the newest is in the memtable.
        self.absorb()?;
        let mut lost = RangeSet::default();
        ranges.iter().filter(|(lo, hi)| lo < hi).for_each(|(lo, hi)| lost.insert(lo, hi, 0));
        let lost = lost.within(&Cut::LOW, &Cut::HIGH);
        if lost.is_empty() {
            return Ok(());
        }
        let lost = lost.into_iter().map(|range| RangeDelete::damage(range.lo, range.hi));
        self.engine.lose(dict, lost.collect())?;
        self.checkpoint.lock().superblock.features.incompat |= Features::KNOWN_DAMAGE;
        Ok(())
    }

    /// Brings everything in memtables into the trees.
    fn absorb(&self) -> Result<()> {
        self.engine.freeze(true);
        self.engine.absorb_all()?;
        self.engine.resume_rebalance()?;
        Ok(())
    }

    /// Makes everything in memory one checkpoint, by which the volume is closed: a crash leaves it either as
    /// it was, or repaired. Nothing can be applied afterwards. Returns the generation of the superblock.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if it was not opened for a repair, or a repair was written; [`Error::NoSpace`];
    /// those of the device.
    pub fn write_repair(&self) -> Result<u64> {
        self.refuse_unless_repairing()?;
        let disk = &self.engine.store.disk;
        let mut committed = self.checkpoint.lock();
        let loaded = self.opened.made.is_none().then(|| slots::load(disk)).transpose()?;
        disk.accept_writes(FOR_READING)?;
        self.mend_table();
        self.note_bad_node_copies()?;
        // Before a newer generation is written, this one needs both copies: one may be the way back.
        let copied = match loaded {
            Some(loaded) => loaded.repair_slots(disk),
            None => self.opened.made.iter().try_for_each(|made| made.write(disk)),
        };
        let written = copied.and_then(|()| {
            let structures = self.engine.lock_structures();
            self.engine.renew_bad_copies(&structures)?;
            let commit = self.commit.lock();
            self.engine.freeze(true);
            self.engine.absorb_at_roots(&structures)?;
            self.free_dead()?;
            let captured = self.engine.capture(commit.next_msn);
            let log_start = self.log.start_for(captured.first_unapplied(self.engine.dicts.len()));
            let mut superblock = Superblock { clean: true, log_start, ..committed.superblock.clone() };
            let before = committed.superblock.generation.to_le_bytes();
            if !superblock.tail.set(REPAIRED_TAG, &before) {
                return Err(Error::NoSpace);
            }
            drop((commit, structures));
            self.engine.write_checkpoint(&mut committed, captured, superblock, &|| ())
        });
        disk.refuse_from_now_on("the repair was written");
        written.map(|()| committed.superblock.generation)
    }

    /// Frees the nodes that nothing leads to any more. After the repair nothing tells the dictionary of a
    /// leaf among them that cannot be read, and it would never be freed. The caller has locked all
    /// structures.
    fn free_dead(&self) -> Result<()> {
        for dict in &self.engine.dicts {
            while self.engine.tree_of(dict).free_one()? {}
        }
        Ok(())
    }

    /// Has the next checkpoint write the nodes anew of which one copy is bad.
    fn note_bad_node_copies(&self) -> Result<()> {
        let store = &self.engine.store;
        for first in (0..).step_by(SLOTS_AT_ONCE as usize) {
            let Some(nodes) = self.engine.table.lock().nodes_in(first, SLOTS_AT_ONCE) else { break };
            for (id, _) in nodes {
                let Some(place) = self.engine.table.lock().place(id) else { continue };
                if !store.read_copies(id, &place)?.one_bad.is_empty() {
                    store.note_bad_copy(&place.extent);
                }
            }
        }
        Ok(())
    }

    fn refuse_unless_repairing(&self) -> Result<()> {
        if self.opened.mode == OpenMode::Repair && !self.opened.has_unknown_features {
            return Ok(());
        }
        Err(Error::ReadOnly { why: "it was not opened for a repair".into() })
    }
}

/// Takes back the repair of a volume that was not opened for changes since: its last checkpoint becomes the
/// one before the repair, log included. Returns the generation that it came back to; `None`, without a
/// change, if the newest superblock is not of a repair.
///
/// # Errors
/// As [`Env::open`].
pub fn undo_repair(device: Arc<dyn Device>) -> Result<Option<u64>> {
    let disk = Disk::new(device);
    let loaded = slots::load(&disk)?;
    let newest = &loaded.superblock;
    let Some(before) = generation_before(newest) else { return Ok(None) };
    let copies: Vec<_> = slots::copies(&disk)?.into_iter().filter_map(|(_, found)| found.ok()).collect();
    let Some(old) = copies.into_iter().find(|copy| copy.generation == before) else { return Ok(None) };
    loaded.repair_slots(&disk)?;
    let copy = TableCopy::of(&old);
    let mut old = Superblock { generation: newest.generation + 1, ..old };
    // The place of the second copy counts for one generation alone. If there was room for it, there is.
    let _is_put = TableCopy::put(copy.as_ref(), old.generation, &mut old.tail);
    slots::store(&disk, &old)?;
    Ok(Some(before))
}

/// The generation before a repair, if a superblock is that of the repair itself: later ones keep its tag.
fn generation_before(superblock: &Superblock) -> Option<u64> {
    let (_, value) = superblock.tail.iter().find(|(tag, _)| *tag == REPAIRED_TAG)?;
    let before = u64::from_le_bytes(value.try_into().ok()?);
    (before.checked_add(1) == Some(superblock.generation)).then_some(before)
}
