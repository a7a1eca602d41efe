//! The changes of a transaction before it commits: memtables of its own, in layers for savepoints.

use alloc::vec::Vec;

use super::Footprint;
use crate::batch::Batch;
use crate::key::Cut;
use crate::memtable::{Found, Memtable};
use crate::message::{Bytes, Msn};
use crate::settings::DictId;
use crate::upsert::Upsert;
use crate::views::Seen;

/// The changes between two savepoints.
#[derive(Default)]
pub(crate) struct Layer {
    /// By dictionary.
    memtables: Vec<(DictId, Memtable)>,
    pub batch: Batch,
    /// The keys and ranges that depend on what they were.
    pub writes: Footprint,
    next_msn: Msn,
}

impl Layer {
    fn memtable(&self, dict: DictId) -> Option<&Memtable> {
        self.memtables.iter().find(|(id, _)| *id == dict).map(|(_, memtable)| memtable)
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
        self.change(dict, |memtable, msn, seen| memtable.put(key, msn, Bytes::Own(value.to_vec()), seen));
    }

    /// Removes a key.
    pub fn delete(&mut self, dict: DictId, key: &[u8]) {
        self.batch.delete(dict, key);
        self.change(dict, |memtable, msn, seen| memtable.delete(key, msn, seen));
    }

    /// Changes the value of a key by the environment's function.
    pub fn upsert(&mut self, dict: DictId, key: &[u8], delta: &[u8], function: &dyn Upsert) {
        self.batch.upsert(dict, key, delta);
        self.change(dict, |memtable, msn, seen| memtable.upsert(key, msn, delta, function, seen));
    }

    /// Removes every key in `[lo, hi)`.
    pub fn delete_range(&mut self, dict: DictId, lo: &Cut, hi: &Cut) {
        self.batch.delete_range(dict, lo, hi);
        self.change(dict, |memtable, msn, seen| memtable.delete_range(lo, hi, msn, seen));
    }
}

/// What a reader sees of a dictionary before all else.
#[derive(Clone, Copy)]
pub(crate) struct Overlay<'t> {
    /// Oldest first.
    layers: &'t [Layer],
    dict: DictId,
}

impl<'t> Overlay<'t> {
    /// The changes of a dictionary in layers.
    pub fn new(layers: &'t [Layer], dict: DictId) -> Overlay<'t> {
        Overlay { layers, dict }
    }

    /// No changes.
    pub fn none() -> Overlay<'static> {
        Overlay { layers: &[], dict: DictId(0) }
    }

    /// Its memtables, newest first.
    pub fn memtables(self) -> impl Iterator<Item = &'t Memtable> {
        self.layers.iter().rev().filter_map(move |layer| layer.memtable(self.dict))
    }

    /// Looks up a key, as [`Memtable::get`].
    pub fn get(self, key: &[u8], pending: &mut Vec<Vec<u8>>) -> Found {
        for memtable in self.memtables() {
            match memtable.get(key, Msn::MAX, pending) {
                Found::Open => {}
                found => return found,
            }
        }
        Found::Open
    }
}
