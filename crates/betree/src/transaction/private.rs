//! The changes of a transaction before it commits, in layers: a new one behind each savepoint and each clone.
//!
//! A layer has its changes of points in memtables of its own. Changes of ranges are there as well, where they
//! cover older points, and in the layer's [`Stretches`], which tell where a key leads that no point decides.
//! The points of a clone's source are copied into the clone's layer, so that no reader looks for them in an
//! older one.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Footprint, Stretch, Stretches};
use crate::batch::Batch;
use crate::key::Cut;
use crate::memtable::{Found, Memtable};
use crate::message::{Bytes, Msn, PairCompression};
use crate::planted::{self, Bug};
use crate::settings::DictId;
use crate::upsert::Upsert;
use crate::views::Seen;

/// Names one of a transaction's savepoints.
pub(crate) type SavepointId = u64;

/// A range whose contents a clone has replaced.
pub(crate) struct Replaced {
    pub dict: DictId,
    pub lo: Cut,
    pub hi: Cut,
}

/// The changes between two savepoints or clones.
#[derive(Default)]
pub(crate) struct Layer {
    /// By dictionary.
    memtables: Vec<(DictId, Memtable)>,
    /// If it begins with a clone, the range for which no older layer counts.
    pub replaced: Option<Replaced>,
    /// By dictionary, with the changes of all older layers too.
    stretches: Vec<(DictId, Arc<Stretches>)>,
    pub batch: Batch,
    /// The keys and ranges that depend on what they were.
    pub writes: Footprint,
    /// The ranges of the view that were cloned.
    pub sources: Footprint,
    /// The savepoint before it.
    pub savepoint: Option<SavepointId>,
    next_msn: Msn,
}

impl Layer {
    /// A layer without changes over another one.
    pub fn over(below: &Layer) -> Layer {
        Layer { stretches: below.stretches.clone(), ..Layer::default() }
    }

    fn memtable(&self, dict: DictId) -> Option<&Memtable> {
        self.memtables.iter().find(|(id, _)| *id == dict).map(|(_, memtable)| memtable)
    }

    /// Where the keys of a dictionary lead; `None`: to themselves.
    pub fn stretches(&self, dict: DictId) -> Option<&Stretches> {
        self.stretches.iter().find(|(id, _)| *id == dict).map(|(_, stretches)| &**stretches)
    }

    /// The dictionaries with stretches.
    pub fn all_stretches(&self) -> impl Iterator<Item = (DictId, &Stretches)> {
        self.stretches.iter().map(|(dict, stretches)| (*dict, &**stretches))
    }

    /// Says where the keys of a dictionary lead.
    pub fn set_stretches(&mut self, dict: DictId, new: Stretches) {
        match self.stretches.iter_mut().find(|(id, _)| *id == dict) {
            Some((_, stretches)) => *stretches = Arc::new(new),
            None => self.stretches.push((dict, Arc::new(new))),
        }
    }

    fn change(&mut self, dict: DictId, change: impl FnOnce(&mut Memtable, Msn, &Seen)) {
        self.next_msn += 1;
        let at = match self.memtables.iter().position(|(id, _)| *id == dict) {
            Some(at) => at,
            None => {
                self.memtables.push((dict, Memtable::default()));
                self.memtables.len() - 1
            }
        };
        if let Some((_, memtable)) = self.memtables.get_mut(at) {
            change(memtable, self.next_msn, &Seen::default());
        }
    }

    /// Sets the value of a key.
    pub fn put(&mut self, dict: DictId, key: &[u8], value: &[u8]) {
        self.batch.put(dict, key, value);
        self.change(dict, |memtable, msn, seen| {
            memtable.put(key, msn, Bytes::Own(value.to_vec()), PairCompression::Usual, seen)
        });
    }

    /// Removes a key.
    pub fn delete(&mut self, dict: DictId, key: &[u8]) {
        self.batch.delete(dict, key);
        self.change(dict, |memtable, msn, seen| memtable.delete(key, msn, seen));
    }

    /// Changes the value of a key by the environment's function.
    pub fn upsert(&mut self, dict: DictId, key: &[u8], delta: &[u8], function: &dyn Upsert) {
        self.batch.upsert(dict, key, delta);
        self.change(dict, |memtable, msn, seen| {
            memtable.upsert(key, msn, (delta, PairCompression::Usual), function, seen)
        });
    }

    /// Removes every key in `[lo, hi)`.
    pub fn delete_range(&mut self, dict: DictId, lo: &Cut, hi: &Cut) {
        self.batch.delete_range(dict, lo, hi);
        self.change(dict, |memtable, msn, seen| memtable.delete_range(lo, hi, msn, seen));
        match self.stretches.iter_mut().find(|(id, _)| *id == dict) {
            Some((_, stretches)) => Arc::make_mut(stretches).delete(lo, hi),
            None => {
                let mut stretches = Stretches::default();
                stretches.delete(lo, hi);
                self.stretches.push((dict, Arc::new(stretches)));
            }
        }
    }

    /// The number of clones of a dictionary, and of parts of such, if a range of it were removed.
    pub fn clones_without(&self, dict: DictId, lo: &Cut, hi: &Cut) -> usize {
        self.stretches(dict).map_or(0, |stretches| stretches.clones_without(lo, hi))
    }

    /// The range of a dictionary for which no older layer counts.
    fn replaced(&self, dict: DictId) -> Option<(&Cut, &Cut)> {
        let replaced = self.replaced.as_ref().filter(|replaced| replaced.dict == dict)?;
        (!planted::is(Bug::OlderPointsSeenThroughClones)).then_some((&replaced.lo, &replaced.hi))
    }
}

/// What a reader sees of a dictionary before all else.
#[derive(Clone, Copy)]
pub(crate) struct Overlay<'t> {
    /// Oldest first.
    layers: &'t [Layer],
    dict: DictId,
    stretches: Option<&'t Stretches>,
}

impl<'t> Overlay<'t> {
    /// The changes of a dictionary in layers.
    pub fn new(layers: &'t [Layer], dict: DictId) -> Overlay<'t> {
        Overlay { layers, dict, stretches: layers.last().and_then(|layer| layer.stretches(dict)) }
    }

    /// No changes.
    pub fn none() -> Overlay<'static> {
        Overlay { layers: &[], dict: DictId(0), stretches: None }
    }

    /// Looks up a key, as [`Memtable::get`].
    pub fn get(self, key: &[u8], pending: &mut Vec<Vec<u8>>) -> Found {
        for layer in self.layers.iter().rev() {
            match layer.memtable(self.dict).map(|memtable| memtable.get(key, Msn::MAX, pending)) {
                Some(Found::Open) | None => {}
                Some(found) => return found,
            }
            if layer.replaced(self.dict).is_some_and(|(lo, hi)| !lo.is_above(key) && hi.is_above(key)) {
                break;
            }
        }
        Found::Open
    }

    /// The key of the view that decides where no own point does; `None`: there is no value.
    pub fn source<'k>(self, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        self.stretches.map_or(Some(Cow::Borrowed(key)), |stretches| stretches.source(key))
    }

    /// The stretch of the keys behind a place, or of those `before` it.
    pub fn around(self, at: &Cut, before: bool) -> Stretch {
        self.stretches.map_or_else(Stretch::all, |stretches| stretches.around(at, before))
    }

    /// The ranges of the view that decide a range.
    pub fn sources(self, lo: &Cut, hi: &Cut) -> Vec<(Cut, Cut)> {
        match self.stretches {
            Some(stretches) => stretches.within(lo, hi).iter().filter_map(Stretch::source).collect(),
            None => Vec::from([(lo.clone(), hi.clone())]),
        }
    }

    /// The memtables that count for the keys behind a place, or for those `before` it, newest first. Calls
    /// `narrow` with ranges around the place within which they are the same.
    pub fn memtables_around(
        self,
        at: &Cut,
        before: bool,
        mut narrow: impl FnMut(&Cut, &Cut),
    ) -> Vec<&'t Memtable> {
        let mut memtables = Vec::new();
        for layer in self.layers.iter().rev() {
            memtables.extend(layer.memtable(self.dict));
            let Some((lo, hi)) = layer.replaced(self.dict) else { continue };
            let is_behind_hi = if before { at > hi } else { at >= hi };
            let is_before_lo = if before { at <= lo } else { at < lo };
            if is_before_lo {
                narrow(&Cut::LOW, lo);
            } else if is_behind_hi {
                narrow(hi, &Cut::HIGH);
            } else {
                narrow(lo, hi);
                break;
            }
        }
        memtables
    }
}
