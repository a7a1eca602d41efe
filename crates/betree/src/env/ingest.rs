//! Ingests: pairs in order become leaves at once, apart from the tree, and come into it as one change.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::MutexGuard;
use betree_platform::sync::atomic::Ordering;

use super::commit::Committer;
use super::{Env, View};
use crate::cache::Cache;
use crate::engine::admission::Claim;
use crate::engine::commit_ranges::PreparedRanges;
use crate::error::{Error, Result};
use crate::events;
use crate::key::Cut;
use crate::message::Msn;
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::store::{Encoded, Outgoing, PlaceNode};
use crate::transaction::{Footprint, Since};
use crate::tree::{BuiltTree, TreeBuilder};

/// Pairs of at most one part in this many of a node are committed as a batch: a leaf for so few would cost
/// more than it saves.
const FEW_PARTS: u64 = 4;
/// How often the range is looked at, and existing pairs are merged in, before writers wait meanwhile.
const TRIES_AT_ONCE: u32 = 8;

/// What a tree in place of a range changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaces {
    /// The pairs that are there: for transactions, a change of the range.
    Contents,
    /// The nodes in which the same pairs are.
    Layout,
}

/// What an ingest has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// The number of pairs.
    pub pairs: u64,
    /// The bytes of their keys and values.
    pub pair_bytes: u64,
    /// The bytes of nodes that it has written to the device, in whole blocks; 0 where the pairs were few and
    /// went the way of a batch.
    pub written_bytes: u64,
}

impl Env {
    /// Puts pairs in the order of their keys, at once and as one change: readers, views and a crash meet all
    /// of them or none. Other pairs between them stay. They become durable with the next
    /// [`sync`](Env::sync) or [`checkpoint`](Env::checkpoint); since the log cannot name them, that is a
    /// checkpoint, and until then nothing later becomes durable either.
    ///
    /// The pairs do not pass the log, a memtable or the upper nodes of the tree: each leaf is written to the
    /// device once, when it is full, by the threads of [`run_writeback`](Env::run_writeback) if there are
    /// any, while the next one fills. Where there were pairs between the first key and the last, all of the
    /// range is written a second time, with these merged in. Pairs of less than a quarter of a node in all
    /// are committed as a batch. In memory are one leaf, at most two nodes on their way to the device, and
    /// what the node table holds of each node.
    ///
    /// A transaction that depends on any key between the first and the last meets a conflict. If others
    /// change that range before it is in place, the range is looked at again; after eight times, writers wait
    /// meanwhile.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{DictId, Error};
    ///
    /// let numbers = (0..10_000_u32).map(|number| Ok::<_, Error>((number.to_be_bytes(), b"value")));
    /// assert_eq!(env.ingest(DictId(0), numbers)?.pairs, 10_000);
    /// assert!(env.get(DictId(0), &77_u32.to_be_bytes())?.is_some());
    ///
    /// let doubled = ["a", "b", "b"].map(|key| Ok((key, "")));
    /// assert_eq!(env.ingest(DictId(0), doubled), Err(Error::NotInOrder { position: 2 }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInOrder`], [`Error::KeyTooLong`], [`Error::TooLarge`] of a pair, [`Error::NoSpace`],
    /// [`Error::ReadOnly`], [`Error::NoSuchDictionary`], those of the device, and those of `pairs`; nothing
    /// was changed, and all space was given back.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        self: &Arc<Self>,
        dict: DictId,
        pairs: impl IntoIterator<Item = core::result::Result<(K, V), E>>,
    ) -> core::result::Result<Ingested, E> {
        self.writable_now()?;
        let tree = self.engine.tree(dict)?;
        // Whoever changes the range from here on is noticed at the end.
        let view = View::of(self.clone(), self.engine.begin_transaction());
        let _ingesting = self.engine.unnamed.begin_ingest();
        let place = |encoded| self.place_with_room(encoded);
        let memory = self.memory_apart();
        let mut builder = TreeBuilder::new(tree, &memory, &place);
        for pair in pairs {
            let (key, value) = pair?;
            builder.push(key.as_ref(), value.as_ref())?;
        }
        let mut ingested = Ingested { pairs: builder.pairs(), pair_bytes: builder.bytes(), written_bytes: 0 };
        let few_bytes = u64::from(self.engine.geometry.node_bytes) / FEW_PARTS;
        if let Some(batch) = builder.take_few(dict, few_bytes.min(self.batch_bytes_max() as u64 / 2))? {
            drop(view);
            self.commit(&batch)?;
            return Ok(ingested);
        }
        if let Some(built) = builder.finish()? {
            let (nodes, bounds) = (built.len(), [built.bounds().0.clone(), built.bounds().1.clone()]);
            ingested.written_bytes = self.put_in_place(dict, built, view)?;
            events::ingested(usize::from(dict.0), ingested.pairs, nodes, ingested.written_bytes);
            self.engine.counters.commits.fetch_add(1, Ordering::Relaxed);
            self.note_put(dict, bounds);
        }
        Ok(ingested)
    }

    /// Tells the engine's other parts of a tree that was put in place.
    pub(super) fn note_put(&self, dict: DictId, bounds: [Cut; 2]) {
        // What the range showed before.
        self.engine.admission.expect_space(0);
        self.engine.note_range(dict, bounds);
        // Memtables came to the trees; other threads may wait for that.
        self.scheduler.tell_done(None);
        self.scheduler.call();
    }

    /// A cache that nothing is evicted from: it counts what an ingest has in memory.
    pub(super) fn memory_apart(&self) -> Cache {
        Cache::new(usize::MAX, self.engine.geometry.fanout_max)
    }

    /// Gives a node of an ingest its place once there is room for it.
    pub(super) fn place_with_room(&self, encoded: Encoded) -> Result<Outgoing> {
        let claim = self.claim(encoded.bytes());
        // The place is taken before another claim is looked at.
        let commit = self.lock_with_room(&claim)?;
        self.writable(&commit)?;
        self.engine.place_node(encoded)
    }

    fn claim(&self, needed_bytes: u64) -> Claim {
        let beside_bytes = self.engine.room().reserve_bytes();
        Claim { needed_bytes, beside_bytes, drawn_bytes: 0, is_taken_always: false }
    }

    /// Puts a tree of pairs in its place, with the pairs that are there between them merged in as of a moment
    /// after which nobody has changed the range. Returns the bytes that were written for it.
    fn put_in_place(self: &Arc<Self>, dict: DictId, built: BuiltTree<'_>, view: View) -> Result<u64> {
        let (lo, hi) = built.bounds();
        let mut footprint = Footprint::default();
        footprint.add_range(dict, lo.clone(), hi.clone());
        let place = |encoded| self.place_with_room(encoded);
        let mut view = view;
        let mut written_bytes = built.written_bytes();
        for _ in 0..TRIES_AT_ONCE {
            match self.merged(dict, &built, &view, &place) {
                Ok(merged) => {
                    written_bytes += merged.as_ref().map_or(0, BuiltTree::written_bytes);
                    let tree = merged.as_ref().unwrap_or(&built);
                    if self.put_unless_changed(
                        dict,
                        tree,
                        &footprint,
                        view.last_change(),
                        Replaces::Contents,
                    )? {
                        return Ok(written_bytes);
                    }
                }
                Err(Error::ViewEnded) => {}
                Err(error) => return Err(error),
            }
            view = View::of(self.clone(), self.engine.begin_transaction());
        }
        drop(view);
        Ok(written_bytes + self.put_while_others_wait(dict, &built)?)
    }

    /// As [`put_in_place`](Env::put_in_place), while no writer can change anything. Returns the bytes that
    /// were written for what was merged.
    fn put_while_others_wait(self: &Arc<Self>, dict: DictId, built: &BuiltTree<'_>) -> Result<u64> {
        let structures = self.engine.lock_structures();
        let mut commit = self.commit.lock();
        if self.is_frozen() {
            // A freeze needs the structures to begin.
            drop((commit, structures));
            drop(self.lock_thawed());
            return self.put_while_others_wait(dict, built);
        }
        self.writable(&commit)?;
        self.engine.freeze(true);
        self.engine.absorb_at_roots(&structures)?;
        let view = View::of(self.clone(), self.engine.begin_view());
        // To make room, others would have to commit.
        let place =
            |encoded: Encoded| match self.engine.room().fits_or_is_backed(&self.claim(encoded.bytes()), 0) {
                true => self.engine.place_node(encoded),
                false => Err(Error::NoSpace),
            };
        let merged = self.merged(dict, built, &view, &place)?;
        let tree = merged.as_ref().unwrap_or(built);
        self.install_tree(dict, tree, &structures, &mut commit, Replaces::Contents)?;
        Ok(merged.as_ref().map_or(0, BuiltTree::written_bytes))
    }

    /// A tree of the pairs of another and of those that a view has between them; where both have a key, the
    /// other's. `None` if the view has none.
    fn merged<'e>(
        &'e self,
        dict: DictId,
        built: &BuiltTree<'_>,
        view: &View,
        place: PlaceNode<'_>,
    ) -> Result<Option<BuiltTree<'e>>> {
        fn owned((key, value): (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
            (key.to_vec(), value.to_vec())
        }
        let (lo, hi) = built.bounds();
        let mut there = view.cursor(dict, lo.clone(), hi.clone());
        let mut next = there.next()?.map(owned);
        if next.is_none() {
            return Ok(None);
        }
        let memory = self.memory_apart();
        let mut out = TreeBuilder::new(self.engine.tree(dict)?, &memory, place);
        for leaf in built.leaves() {
            for run in leaf? {
                for pair in run.points(0, run.len()) {
                    while let Some((key, value)) = next.take_if(|(key, _)| key.as_slice() <= &*pair.key) {
                        if key != *pair.key {
                            out.add(&key, &value)?;
                        }
                        next = there.next()?.map(owned);
                    }
                    out.add(&pair.key, pair.value)?;
                }
            }
        }
        out.finish()
    }

    /// Puts a tree in its place, unless anything of the footprint was changed since a moment. `false` if it
    /// may have been.
    pub(super) fn put_unless_changed(
        &self,
        dict: DictId,
        built: &BuiltTree<'_>,
        footprint: &Footprint,
        since: Msn,
        replaces: Replaces,
    ) -> Result<bool> {
        let engine = &self.engine;
        engine.freeze(true);
        engine.absorb_all()?;
        engine.resume_rebalance()?;
        let structures = engine.lock_structures();
        // Read before the writers' lock is taken: the same again then reads nothing.
        drop(PreparedRanges::of_tree(engine, &structures, dict, since, built)?);
        let mut commit = self.commit.lock();
        if self.is_frozen() {
            // A freeze needs the structures to begin.
            drop((commit, structures));
            drop(self.lock_thawed());
            return self.put_unless_changed(dict, built, footprint, since, replaces);
        }
        self.writable(&commit)?;
        let is_unchanged = matches!(engine.changed_since(footprint, since), Since::Unchanged);
        if !is_unchanged && !planted::is(Bug::IngestOverLaterChanges) {
            return Ok(false);
        }
        engine.freeze(true);
        engine.absorb_at_roots(&structures)?;
        self.install_tree(dict, built, &structures, &mut commit, replaces)?;
        Ok(true)
    }

    /// Puts a tree in its place. All earlier messages are in the trees.
    fn install_tree(
        &self,
        dict: DictId,
        built: &BuiltTree<'_>,
        structures: &[MutexGuard<'_, ()>],
        commit: &mut Committer,
        replaces: Replaces,
    ) -> Result<()> {
        let engine = &self.engine;
        let msn = commit.next_msn;
        let mut prepared = PreparedRanges::of_tree(engine, structures, dict, msn, built)?;
        if replaces == Replaces::Layout {
            prepared.forget_ranges();
        }
        if !engine.room().fits_or_is_backed(&self.claim(0), prepared.owed_bytes()) {
            return Err(Error::NoSpace);
        }
        // Nothing after this line fails.
        self.log.give_up(msn);
        let mut views = engine.views.lock();
        prepared.install(&mut views, msn);
        views.visible = msn;
        drop(views);
        built.set_named();
        commit.next_msn = msn + 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
