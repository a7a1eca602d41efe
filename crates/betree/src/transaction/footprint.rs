//! What a transaction depends on: keys and ranges that must not have changed when it commits.

use alloc::vec::Vec;

use crate::key::Cut;
use crate::memtable::ChangeSource;
use crate::message::Msn;
use crate::settings::DictId;

/// Keys and ranges of keys of several dictionaries.
#[derive(Default)]
pub(crate) struct Footprint {
    pub keys: Vec<(DictId, Vec<u8>)>,
    pub ranges: Vec<(DictId, Cut, Cut)>,
}

/// A change that is newer than a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Newer {
    pub dict: DictId,
    /// The changed key, or the first that a changed range can hold.
    pub key: Vec<u8>,
    pub msn: Msn,
}

impl Footprint {
    /// Adds a key, unless it was added last.
    pub fn add_key(&mut self, dict: DictId, key: &[u8]) {
        if self.keys.last().is_none_or(|(last_dict, last)| *last_dict != dict || last != key) {
            self.keys.push((dict, key.to_vec()));
        }
    }

    /// Adds a range.
    pub fn add_range(&mut self, dict: DictId, lo: Cut, hi: Cut) {
        if lo < hi {
            self.ranges.push((dict, lo, hi));
        }
    }

    /// Adds all of another one.
    pub fn append(&mut self, mut other: Footprint) {
        self.keys.append(&mut other.keys);
        self.ranges.append(&mut other.ranges);
    }

    /// Whether it depends on nothing.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// A change of `dict` in a source that is newer than `since` and in the footprint.
    pub fn newer_in(&self, dict: DictId, source: &impl ChangeSource, since: Msn) -> Option<Newer> {
        if source.last_msn() <= since {
            return None;
        }
        let mut keys = self.keys.iter().filter(|(id, _)| *id == dict);
        let mut ranges = self.ranges.iter().filter(|(id, ..)| *id == dict);
        let key = keys.find_map(|(_, key)| {
            let msn = source.newest_msn(key).filter(|msn| *msn > since)?;
            Some((key.clone(), msn))
        });
        let found = key.or_else(|| ranges.find_map(|(_, lo, hi)| source.newer_within(lo, hi, since)));
        found.map(|(key, msn)| Newer { dict, key, msn })
    }
}
