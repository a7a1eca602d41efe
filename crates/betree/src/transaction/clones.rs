//! Clones inside of a transaction: what one takes along, and the batch that they come to.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use super::private::Replaced;
use super::{Layer, Stretch, Stretches};
use crate::batch::Batch;
use crate::error::Result;
use crate::format::record::{Change, Changes};
use crate::key::{Cut, Translation};
use crate::message::Kind;
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::upsert::Upsert;

/// What becomes of the source of a clone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceStays {
    /// It is as it was.
    Yes,
    /// It is removed: the clone is a rename.
    No,
}

/// Changes of one key from the last that does not depend on those before it on, oldest first.
type KeyChanges<'l> = Vec<(Kind, &'l [u8])>;

/// The changes of points of one dictionary that count.
#[derive(Default)]
struct Points<'l> {
    by_key: BTreeMap<Vec<u8>, KeyChanges<'l>>,
}

impl<'l> Points<'l> {
    fn add(&mut self, key: &[u8], kind: Kind, value: &'l [u8]) {
        let changes = self.by_key.entry(key.to_vec()).or_default();
        if !kind.is_upsert() {
            changes.clear();
        }
        changes.push((kind, value));
    }

    /// Takes those in `[lo, hi)` out.
    fn take(&mut self, lo: &Cut, hi: &Cut) -> BTreeMap<Vec<u8>, KeyChanges<'l>> {
        let (Some(from), to) = (lo.first_key_behind(), hi.first_key_behind()) else { return BTreeMap::new() };
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let keys: Vec<Vec<u8>> =
            self.by_key.range((Bound::Included(from), to)).map(|(key, _)| key.clone()).collect();
        keys.into_iter().filter_map(|key| self.by_key.remove_entry(&key)).collect()
    }
}

/// The changes of points in layers that count, by dictionary.
fn points_of(layers: &[Layer]) -> Result<BTreeMap<DictId, Points<'_>>> {
    let mut all: BTreeMap<DictId, Points<'_>> = BTreeMap::new();
    for layer in layers {
        if let Some(Replaced { dict, lo, hi }) = &layer.replaced {
            all.entry(*dict).or_default().take(lo, hi);
        }
        for change in Changes::of(layer.batch.record()) {
            let (dict, change) = change?;
            let points = all.entry(dict).or_default();
            match change {
                Change::Put { key, value, asked } => points.add(key, Kind::Put(asked), value),
                Change::Delete { key } => points.add(key, Kind::Delete, &[]),
                Change::Upsert { key, delta, asked } => points.add(key, Kind::Upsert(asked), delta),
                Change::DeleteRange { lo, hi } => drop(points.take(&lo, &hi)),
                // It is in the stretches.
                Change::CloneRange { .. } => {}
            }
        }
    }
    Ok(all)
}

/// A clone that is about to be made.
pub(crate) struct OwnClone<'l> {
    dict: DictId,
    to: &'l [u8],
    /// Where the keys lead afterwards.
    stretches: Stretches,
    /// The source, as it leads to the view.
    source: Vec<Stretch>,
    /// The changes of points in the source, under their keys in the clone.
    points: Vec<(Vec<u8>, KeyChanges<'l>)>,
}

impl<'l> OwnClone<'l> {
    /// The clone of what is behind the prefix `from` to the prefix `to`, over layers.
    ///
    /// # Errors
    /// None, unless the layers' records are none.
    pub fn of(
        layers: &'l [Layer],
        dict: DictId,
        [from, to]: [&'l [u8]; 2],
        source_stays: SourceStays,
    ) -> Result<OwnClone<'l>> {
        let now = layers.last().and_then(|layer| layer.stretches(dict));
        let mut stretches = now.cloned().unwrap_or_default();
        let source = match source_stays {
            SourceStays::Yes => stretches.clone_prefix(from, to),
            SourceStays::No => stretches.rename_prefix(from, to),
        };
        let there = Translation { strip_len: from.len(), prepend: to.to_vec() };
        let taken = match points_of(layers)?.get_mut(&dict) {
            Some(points) => points.take(&Cut::before(from), &Cut::after(from)),
            None => BTreeMap::new(),
        };
        let points =
            taken.into_iter().map(|(key, changes)| (there.key(&key).into_owned(), changes)).collect();
        Ok(OwnClone { dict, to, stretches, source, points })
    }

    /// How many clones a batch of all changes in its dictionary has.
    pub fn clones(&self) -> usize {
        self.stretches.clones()
    }

    /// What it adds to the transaction, in bytes.
    pub fn bytes(&self) -> usize {
        let points = self
            .points
            .iter()
            .flat_map(|(key, changes)| changes.iter().map(|(_, value)| key.len() + value.len()));
        self.to.len()
            + self.source.iter().map(|part| part.lo.bytes().len()).sum::<usize>()
            + points.sum::<usize>()
    }

    /// Makes a layer without changes the one that begins with it.
    pub fn into_layer(self, mut layer: Layer, function: &dyn Upsert) -> Layer {
        let OwnClone { dict, to, stretches, source, points } = self;
        let (lo, hi) = (Cut::before(to), Cut::after(to));
        layer.set_stretches(dict, stretches);
        layer.writes.add_range(dict, lo.clone(), hi.clone());
        if !planted::is(Bug::SourcesOfClonesUnchecked) {
            for (lo, hi) in source.iter().filter_map(Stretch::source) {
                layer.sources.add_range(dict, lo, hi);
            }
        }
        layer.replaced = Some(Replaced { dict, lo, hi });
        for (key, changes) in points {
            for (kind, value) in changes {
                match kind {
                    Kind::Put(_) => layer.put(dict, &key, value),
                    Kind::Delete => layer.delete(dict, &key),
                    Kind::Upsert(_) => layer.upsert(dict, &key, value, function),
                }
            }
        }
        layer
    }
}

/// The batch of all changes of layers with clones among them. It reads the sources, deletes ranges, clones,
/// and changes points, in this order, whatever the order in which the transaction did.
///
/// # Errors
/// None, unless the layers' records are none.
pub(crate) fn batch_of(layers: &[Layer]) -> Result<Batch> {
    let mut batch = Batch::new();
    layers.iter().for_each(|layer| batch.take_marks(&layer.batch));
    for (dict, stretches) in layers.iter().next_back().into_iter().flat_map(Layer::all_stretches) {
        stretches.add_to(&mut batch, dict);
    }
    for (dict, points) in points_of(layers)? {
        for (key, changes) in points.by_key {
            for (kind, value) in changes {
                match kind {
                    Kind::Put(_) => batch.put(dict, &key, value),
                    Kind::Delete => batch.delete(dict, &key),
                    Kind::Upsert(_) => batch.upsert(dict, &key, value),
                }
            }
        }
    }
    Ok(batch)
}
