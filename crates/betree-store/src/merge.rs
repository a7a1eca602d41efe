//! Merges: the meaning of upserts, for each dictionary its own.
//!
//! The engine knows one upsert function and no dictionary. So each delta begins with the number of its
//! dictionary's merge, which is made from the name: it must be known before the catalogue can be read, when
//! the log is replayed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use betree::Upsert;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::keys::NAME_BYTES_MAX;
use crate::value::{stored, whole};

/// A merge: the new value from the old one and a delta.
pub(crate) type MergeFn = dyn Fn(Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync;

/// The number of a merge, which its deltas begin with.
type MergeNumber = [u8; 4];

/// The number of the merge of a name.
pub(crate) fn number_of(name: &str) -> MergeNumber {
    (xxh3_64(name.as_bytes()) as u32).to_le_bytes()
}

/// The registered merges.
pub(crate) struct Merges {
    by_number: BTreeMap<MergeNumber, (String, Arc<MergeFn>)>,
}

impl Merges {
    /// Takes them from the options.
    ///
    /// # Errors
    /// [`Error::BadMerge`].
    pub fn of(named: &BTreeMap<String, Arc<MergeFn>>) -> Result<Merges> {
        let mut by_number = BTreeMap::new();
        for (name, function) in named {
            let bad = |why| Error::BadMerge { merge: name.clone(), why };
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(bad("a name has between 1 and 255 bytes"));
            }
            match by_number.entry(number_of(name)) {
                Entry::Vacant(place) => place.insert((name.clone(), function.clone())),
                Entry::Occupied(_) => return Err(bad("its name has the same number as another's")),
            };
        }
        Ok(Merges { by_number })
    }

    /// Whether a merge of that name is registered.
    pub fn has(&self, name: &str) -> bool {
        self.by_number.get(&number_of(name)).is_some_and(|(known, _)| known == name)
    }
}

impl Upsert for Merges {
    fn name(&self) -> &str {
        "betree-store"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> betree::Result<Option<Vec<u8>>> {
        let failed = |name: &str, why: String| betree::Error::Upsert { name: name.into(), why };
        let Some((number, delta)) = delta.split_first_chunk() else {
            return Err(failed("of no number", "the delta is too short".into()));
        };
        let Some((name, function)) = self.by_number.get(number) else {
            let name = format!("number {}", u32::from_le_bytes(*number));
            return Err(failed(&name, "it is not registered".into()));
        };
        // A merge gets copies of nothing that outlives the call, so a panic leaves nothing half changed.
        let merged = catch_unwind(AssertUnwindSafe(|| {
            // A dictionary with a merge has no values in parts.
            function(old.map(whole), delta).map(|new| stored(&new).into_owned())
        }));
        merged.map_err(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            failed(name, format!("it panicked: {}", text.unwrap_or_default()))
        })
    }
}
