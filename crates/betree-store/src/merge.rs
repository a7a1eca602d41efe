//! Merges: the meaning of upserts, for each dictionary its own.
//!
//! The engine knows one upsert function and no dictionary. So each delta begins with the number of its
//! dictionary's merge, which is made from the name: it must be known before the catalogue can be read, when
//! the log is replayed.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use betree::Upsert;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::keys::NAME_BYTES_MAX;
use crate::value::{stored, whole};

/// The largest value that a merge makes, in bytes.
pub(crate) const MERGED_BYTES_MAX: usize = 4 << 20;
/// Deltas are not combined into one above this, in bytes.
const COMBINED_BYTES_MAX: usize = 64 << 10;

/// What an upsert does to a value. A closure of the old value and the delta is one.
///
/// It must depend on its arguments alone: it runs whenever the value is read until it was merged for good. It
/// does not get the key, which a clone may have changed.
///
/// A merge that panics, or makes a value above 4 MiB, has failed: the value cannot be read
/// ([`Error::MergeFailed`]), and where it is to be merged for good the store takes no more changes. Nothing
/// is lost by it: what was put and the deltas are there for a store that is opened with a merge that does not
/// fail.
pub trait Merge: Send + Sync {
    /// The new value from the old one, if there is one, and a delta; `None` removes the key.
    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>>;

    /// One delta with the effect of two, if there is one. A counter that is added to a million times is then
    /// one addition.
    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let _ = (older, newer);
        None
    }
}

impl<F> Merge for F
where
    F: Fn(Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync,
{
    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        self(old, delta)
    }
}

/// The number of a merge, which its deltas begin with.
type MergeNumber = [u8; 4];

/// The number of the merge of a name.
pub(crate) fn number_of(name: &str) -> MergeNumber {
    (xxh3_64(name.as_bytes()) as u32).to_le_bytes()
}

/// A merge and its name.
struct Registered {
    name: String,
    merge: Arc<dyn Merge>,
}

/// The registered merges.
pub(crate) struct Merges {
    by_number: BTreeMap<MergeNumber, Registered>,
}

impl Merges {
    /// Takes them from the options.
    ///
    /// # Errors
    /// [`Error::BadMerge`].
    pub fn of(named: &BTreeMap<String, Arc<dyn Merge>>) -> Result<Merges> {
        let mut by_number = BTreeMap::new();
        for (name, merge) in named {
            let bad = |why| Error::BadMerge { merge: name.clone(), why };
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(bad("a name has between 1 and 255 bytes"));
            }
            match by_number.entry(number_of(name)) {
                Entry::Vacant(place) => place.insert(Registered { name: name.clone(), merge: merge.clone() }),
                Entry::Occupied(_) => return Err(bad("its name has the same number as another's")),
            };
        }
        Ok(Merges { by_number })
    }

    /// Whether a merge of that name is registered.
    pub fn has(&self, name: &str) -> bool {
        self.by_number.get(&number_of(name)).is_some_and(|known| known.name == name)
    }

    /// The merge that a delta is for, and the rest of the delta.
    fn of_delta<'d>(&self, delta: &'d [u8]) -> Option<(&Registered, &'d [u8])> {
        let (number, rest) = delta.split_first_chunk()?;
        Some((self.by_number.get(number)?, rest))
    }
}

impl Upsert for Merges {
    fn name(&self) -> &str {
        "betree-store"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> betree::Result<Option<Vec<u8>>> {
        // All merges of dictionaries that there are are registered, or the store is not opened. So this delta
        // is of a dictionary that was dropped, or the store is about to be refused, with nothing written.
        let Some((Registered { name, merge }, delta)) = self.of_delta(delta) else {
            return Ok(old.map(<[u8]>::to_vec));
        };
        // A dictionary with a merge has no values in parts.
        let merged = catch_unwind(AssertUnwindSafe(|| merge.merge(old.map(whole), delta)));
        let failed = |why| betree::Error::Upsert { name: name.clone(), why };
        match merged {
            Err(panic) => Err(failed(format!("it panicked: {}", text_of(&*panic)))),
            Ok(Some(new)) if new.len() > MERGED_BYTES_MAX => {
                let bytes = new.len();
                Err(failed(format!("its value of {bytes} bytes is over the limit of {MERGED_BYTES_MAX}")))
            }
            Ok(new) => Ok(new.map(|new| stored(&new).into_owned())),
        }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let (number, _) = older.split_first_chunk::<4>()?;
        let (Registered { merge, .. }, newer) = self.of_delta(newer.strip_prefix(number).map(|_| newer)?)?;
        let (_, older) = self.of_delta(older)?;
        // One that panics is kept as two, and fails where it is applied.
        let both = catch_unwind(AssertUnwindSafe(|| merge.combine(older, newer))).ok()??;
        (both.len() <= COMBINED_BYTES_MAX).then(|| [&number[..], &both].concat())
    }
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("nothing more is known")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merges::{AddU64, Append};

    fn merges() -> Merges {
        let named: [(&str, Arc<dyn Merge>); 2] = [("add", Arc::new(AddU64)), ("append", Arc::new(Append))];
        Merges::of(&named.map(|(name, merge)| (name.to_owned(), merge)).into()).unwrap()
    }

    fn delta(name: &str, delta: &[u8]) -> Vec<u8> {
        [&number_of(name)[..], delta].concat()
    }

    #[test]
    fn deltas_of_one_merge_are_combined_and_of_two_are_not() {
        let merges = merges();
        let [one, two] = [1_u64, 2].map(u64::to_le_bytes);
        let both = merges.combine(&delta("add", &one), &delta("add", &two));
        assert_eq!(both, Some(delta("add", &3_u64.to_le_bytes())));
        assert_eq!(merges.combine(&delta("add", &one), &delta("append", &two)), None);
        assert_eq!(merges.combine(&delta("other", &one), &delta("other", &two)), None);
        assert_eq!(merges.combine(b"", &delta("add", &one)), None);
        let half = vec![7; COMBINED_BYTES_MAX / 2 + 1];
        assert_eq!(merges.combine(&delta("append", &half), &delta("append", &half)), None);
    }

    #[test]
    fn a_delta_of_no_registered_merge_leaves_the_value() {
        assert_eq!(merges().apply(Some(b"old"), &delta("other", b"x")), Ok(Some(b"old".to_vec())));
        assert_eq!(merges().apply(None, b"x"), Ok(None));
    }
}
