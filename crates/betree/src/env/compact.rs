//! Compactions: a range is rewritten as an ingest would have left it, a few leaves at a time.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use super::ingest::Replaces;
use super::{Env, Isolation, Outcome, View};
use crate::error::{Error, Result};
use crate::key::Cut;
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::store::PlaceNode;
use crate::transaction::Footprint;
use crate::tree::{BuiltTree, TreeBuilder};

/// The most leaves of a step.
const LEAVES_AT_ONCE: u32 = 8;
/// How often a step is tried where others change its range meanwhile.
const TRIES_MAX: u32 = 4;
/// After so many steps a checkpoint gives the space of the old leaves back.
const STEPS_A_CHECKPOINT: u64 = 8;

/// What a compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// The number of its steps.
    pub steps: u64,
    /// The bytes of nodes that it has written to the device, in whole blocks.
    pub written_bytes: u64,
    /// The number of stretches of keys that were left as they are because clones share their nodes.
    pub shared: u64,
    /// The number of steps that were left out because others changed their keys again and again.
    pub busy: u64,
}

impl Env {
    /// Rewrites what is in `[lo, hi)`: afterwards its leaves are full, each in one piece on the device, in
    /// the order of their keys, and no message waits above them. Contents do not change: readers, views,
    /// transactions and a crash meet the same pairs before, meanwhile and behind.
    ///
    /// It takes steps of eight leaves, or as many as a node has children; writers wait for no more than
    /// putting a step in place. A step reads its pairs and writes them once. Where others change its keys
    /// meanwhile it is tried again, four times at most. What clones share is left alone: written anew it
    /// would take its space a second time. Every eight steps there is a checkpoint, for the space of what was
    /// replaced; where there is no room for a step, one more. The last steps are durable with the caller's
    /// [`sync`](Env::sync).
    ///
    /// `go_on` is called before each step is put in place, and may end the compaction there.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use std::ops::ControlFlow;
    ///
    /// use betree::{Batch, Cut, DictId};
    ///
    /// let mut batch = Batch::new();
    /// (0..1000_u32).rev().for_each(|number| batch.put(DictId(0), &number.to_be_bytes(), b"value"));
    /// env.commit(&batch)?;
    /// let done = env.compact(DictId(0), &Cut::LOW, &Cut::HIGH, |_| ControlFlow::Continue(()))?;
    /// assert_eq!(done.steps, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`], [`Error::NoSuchDictionary`], [`Error::ViewEnded`] where space
    /// is short; those of the device. Contents are as before, and the steps before it are done.
    pub fn compact(
        self: &Arc<Self>,
        dict: DictId,
        lo: &Cut,
        hi: &Cut,
        mut go_on: impl FnMut(&Compacted) -> ControlFlow<()>,
    ) -> Result<Compacted> {
        self.writable_now()?;
        // What was deleted shares nothing.
        self.bring_down()?;
        let mut done = Compacted::default();
        let mut at = lo.clone();
        while at < *hi {
            let (until, is_shared) = self.stretch(dict, &at, hi)?;
            if is_shared {
                done.shared += 1;
                at = until;
                continue;
            }
            while at < until {
                match self.compact_leaves(dict, &at, &until, &mut done, &mut go_on)? {
                    Some(end) => at = end,
                    None => return Ok(done),
                }
                if done.steps.is_multiple_of(STEPS_A_CHECKPOINT) {
                    self.bring_down()?;
                    self.checkpoint()?;
                }
            }
        }
        self.bring_down()?;
        Ok(done)
    }

    /// Brings the new nodes to their places in the tree, where they free those that they replace.
    fn bring_down(&self) -> Result<()> {
        self.unless_unreadable(self.engine.reclaim_hidden(1))?;
        self.engine.resume_rebalance()?;
        while self.engine.free_one()? {}
        Ok(())
    }

    /// The end of the keys behind `at` and before `hi` that are all shared, or all not.
    fn stretch(self: &Arc<Self>, dict: DictId, at: &Cut, hi: &Cut) -> Result<(Cut, bool)> {
        let view = self.view();
        view.fix_versions();
        let tree = view.tree(dict)?;
        let first = tree.sharing_at(at)?;
        let mut end = first.hi;
        while end < *hi {
            let next = tree.sharing_at(&end)?;
            if next.is_shared != first.is_shared {
                break;
            }
            end = next.hi;
        }
        Ok((end.min(hi.clone()), first.is_shared))
    }

    /// Rewrites the first leaves of `[at, until)`. Returns where they end, `None` if the caller has enough.
    fn compact_leaves(
        self: &Arc<Self>,
        dict: DictId,
        at: &Cut,
        until: &Cut,
        done: &mut Compacted,
        go_on: &mut impl FnMut(&Compacted) -> ControlFlow<()>,
    ) -> Result<Option<Cut>> {
        let _ingesting = self.engine.unnamed.begin_ingest();
        let place = |encoded| self.place_with_room(encoded);
        let (mut end, mut had_space) = (None, true);
        for _ in 0..TRIES_MAX {
            // Whoever changes the range from here on is noticed at the end.
            let view = View::of(self.clone(), self.engine.begin_transaction());
            let (built, behind) = match self.built_anew(dict, &view, at, until, &place) {
                Err(Error::ViewEnded) => continue,
                Err(Error::NoSpace) if core::mem::take(&mut had_space) => {
                    drop(view);
                    self.bring_down()?;
                    // The second frees what the first one's predecessor named alone.
                    self.checkpoint()?;
                    self.checkpoint()?;
                    continue;
                }
                built => built?,
            };
            end = Some(behind.clone());
            if go_on(done).is_break() {
                return Ok(None);
            }
            let is_in_place = match &built {
                Some(built) => {
                    let mut footprint = Footprint::default();
                    if !planted::is(Bug::CompactionOverLaterChanges) {
                        footprint.add_range(dict, at.clone(), behind.clone());
                    }
                    let since = view.last_change();
                    self.put_unless_changed(dict, built, &footprint, since, Replaces::Layout)?
                }
                None => self.delete_nothing(dict, at, &behind)?,
            };
            if is_in_place {
                done.steps += 1;
                if let Some(built) = built {
                    done.written_bytes += built.written_bytes();
                    let (lo, hi) = built.bounds();
                    self.note_put(dict, [lo.clone(), hi.clone()]);
                }
                return Ok(Some(behind));
            }
        }
        done.busy += 1;
        end.ok_or(Error::ViewEnded).map(Some)
    }

    /// A tree of the first pairs in `[at, until)`, and where it ends; `None` in place of the tree if there
    /// are no pairs.
    fn built_anew<'e>(
        &'e self,
        dict: DictId,
        view: &View,
        at: &Cut,
        until: &Cut,
        place: PlaceNode<'_>,
    ) -> Result<(Option<BuiltTree<'e>>, Cut)> {
        let memory = self.memory_apart();
        let mut out = TreeBuilder::new(self.engine.tree(dict)?, &memory, place).starting_at(at.clone());
        // What has expired stays: a delta that was made before may come yet.
        let mut pairs = view.cursor_with_expired(dict, at.clone(), until.clone());
        let leaves_max = LEAVES_AT_ONCE.min(self.engine.geometry.fanout_max);
        let (mut leaves, mut end) = (0, until.clone());
        while let Some((key, value)) = pairs.next()? {
            if let Some(between) = out.leaf_end_before(key, value) {
                leaves += 1;
                if leaves == leaves_max {
                    end = between;
                    break;
                }
            }
            out.add(key, value)?;
        }
        Ok((out.finish_at(end.clone())?, end))
    }

    /// Deletes what nobody sees in a range without pairs. `false` if there are some by now.
    fn delete_nothing(self: &Arc<Self>, dict: DictId, lo: &Cut, hi: &Cut) -> Result<bool> {
        let mut transaction = self.begin(Isolation::Snapshot);
        let usage = transaction.view().usage(dict, lo, hi)?;
        if usage.stored_bytes == 0 {
            return Ok(true);
        }
        let first = transaction.view().cursor_with_expired(dict, lo.clone(), hi.clone()).next()?.is_some();
        if first {
            return Ok(false);
        }
        transaction.delete_range(dict, lo, hi)?;
        transaction.mark_freeing(usage.stored_bytes);
        Ok(matches!(transaction.commit()?, Outcome::Committed(_)))
    }
}
