//! Merges: the meaning of upserts, for each dictionary its own.
//!
//! The engine knows one upsert function and no dictionary. So each delta begins with the number of its
//! dictionary's merge, which is made from the name: it must be known before the catalogue can be read, when
//! the log is replayed.
//!
//! Where values expire, each delta begins with the time at which it was made: it finds no value that had
//! expired then, and leaves another its time.
//!
//! A delta whose merge is not registered, or fails, stays beside the value ([`Unmerged`]), and so do all that
//! come later, up to a limit above which they are only counted. The engine goes on, and a reader of the key
//! meets the failure.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use betree::Upsert;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::expiring::{self, Deltas, TIMED_DELTA, Timed};
use crate::keys::NAME_BYTES_MAX;
use crate::unmerged::{DROPPED_DELTA, Dropped, Unmerged};

/// The largest value that a merge makes, in bytes.
const MERGED_BYTES_MAX: usize = 4 << 20;
/// The largest value with deltas that wait for its merge, in bytes.
const UNMERGED_BYTES_MAX: usize = 6 << 20;
/// What a value leaves of the largest one that its volume stores, in bytes: a backup puts it with its key and
/// time in one batch.
const BESIDE_BYTES: usize = 128 << 10;
/// Deltas are not combined into one above this, in bytes.
const COMBINED_BYTES_MAX: usize = 64 << 10;
/// What names of the store's own merges begin with.
pub(crate) const OWN_NAMES: &str = "betree.";

/// What an upsert does to a value. A closure of the old value and the delta is one that never fails.
///
/// It must depend on its arguments alone: it runs whenever the value is read until it was merged for good, in
/// any thread, also in several at once. It does not get the key, which a clone may have changed. It must not
/// call the store: the store may hold locks.
///
/// A merge fails by an error, by a panic, or by a value above 4 MiB (of a store with a small log, above half
/// a batch). Readers of the key then get [`Error::MergeFailed`], until it is [put](crate::Dict::put) or
/// deleted; no other key is affected. The old value and the deltas are kept, for a later version of the merge
/// that does not fail, as long as they take at most half as much again together. The deltas above that are
/// dropped, and the error reports how many: the key cannot be read again before a put or a delete.
pub trait Merge: Send + Sync {
    /// The new value from the old one, if there is one, and a delta; `None` removes the key.
    ///
    /// # Errors
    /// Why there is no new value, in words for [`Error::MergeFailed`].
    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> std::result::Result<Option<Vec<u8>>, String>;

    /// What it does, in a word. The store keeps it beside the merge's name: with a dictionary bound to the
    /// merge, it does not open with another kind under that name ([`Error::OtherKindOfMerge`]).
    fn kind(&self) -> &str {
        "function"
    }

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
    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> std::result::Result<Option<Vec<u8>>, String> {
        Ok(self(old, delta))
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

/// Why a delta could not be merged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unmergeable {
    /// Its merge is not registered.
    #[error("it is not registered")]
    Unregistered,
    /// The merge of this name has failed.
    #[error("{why}")]
    Failed { merge: String, why: String },
    /// Too many deltas have waited for it.
    #[error(
        "{} changes of {} bytes that would make the value too large were dropped: put or delete the key",
        dropped.deltas, dropped.bytes
    )]
    Dropped { dropped: Dropped, why: Option<Box<Unmergeable>> },
    /// The old value is stored in a form that no merge makes.
    #[error("the old value is stored in a form that is not known")]
    Unknown,
}

/// The largest values of a volume, in bytes.
#[derive(Clone, Copy)]
struct Room {
    merged_bytes: usize,
    unmerged_bytes: usize,
}

impl Room {
    /// Of a volume that stores values of at most `bytes_max` bytes.
    fn of(bytes_max: usize) -> Room {
        let beside_bytes = BESIDE_BYTES.min(bytes_max / 4);
        let unmerged_bytes = (bytes_max - beside_bytes).min(UNMERGED_BYTES_MAX);
        Room { merged_bytes: (unmerged_bytes / 3 * 2).min(MERGED_BYTES_MAX), unmerged_bytes }
    }
}

/// The registered merges.
pub(crate) struct Merges {
    by_number: BTreeMap<MergeNumber, Registered>,
}

/// Merges by their names.
pub(crate) type Named = BTreeMap<String, Arc<dyn Merge>>;

impl Merges {
    /// The store's own, and those of the options.
    ///
    /// # Errors
    /// [`Error::BadMerge`].
    pub fn of(own: &Named, named: &Named) -> Result<Merges> {
        let bad = |name: &String, why| Error::BadMerge { merge: name.clone(), why };
        if let Some(name) = named.keys().find(|name| name.starts_with(OWN_NAMES)) {
            return Err(bad(name, "names that begin with \"betree.\" are the store's own"));
        }
        let mut by_number = BTreeMap::new();
        for (name, merge) in own.iter().chain(named) {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(bad(name, "a name has between 1 and 255 bytes"));
            }
            if [TIMED_DELTA, DROPPED_DELTA].contains(&number_of(name)) {
                return Err(bad(name, "its name has a number that deltas use otherwise"));
            }
            match by_number.entry(number_of(name)) {
                Entry::Vacant(place) => place.insert(Registered { name: name.clone(), merge: merge.clone() }),
                Entry::Occupied(_) => return Err(bad(name, "its name has the same number as another's")),
            };
        }
        Ok(Merges { by_number })
    }

    /// Whether a merge of that name is registered.
    pub fn has(&self, name: &str) -> bool {
        self.by_number.get(&number_of(name)).is_some_and(|known| known.name == name)
    }

    /// The names and kinds of all but the store's own.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.by_number.values().filter(|known| !known.name.starts_with(OWN_NAMES));
        all.map(|known| (&*known.name, known.merge.kind()))
    }

    /// The merge that a delta is for, and the rest of the delta.
    fn of_delta<'d>(&self, delta: &'d [u8]) -> Option<(&Registered, &'d [u8])> {
        let (number, rest) = delta.split_first_chunk()?;
        Some((self.by_number.get(number)?, rest))
    }

    /// The new value from the old one, if there is one, and a delta as the engine has it.
    fn merged(
        &self,
        old: Option<&[u8]>,
        delta: &[u8],
        bytes_max: usize,
    ) -> std::result::Result<Option<Vec<u8>>, Unmergeable> {
        let (Registered { name, merge }, delta) = self.of_delta(delta).ok_or(Unmergeable::Unregistered)?;
        let failed = |why| Unmergeable::Failed { merge: name.clone(), why };
        match catch_unwind(AssertUnwindSafe(|| merge.merge(old, delta))) {
            Err(panic) => Err(failed(format!("it panicked: {}", text_of(&*panic)))),
            Ok(Err(why)) => Err(failed(why)),
            Ok(Ok(Some(new))) if new.len() > bytes_max => {
                let bytes = new.len();
                Err(failed(format!("its value of {bytes} bytes is over the limit of {bytes_max} bytes")))
            }
            Ok(Ok(new)) => Ok(new),
        }
    }

    /// Merges the deltas that wait, up to the first that cannot be, and says why that is.
    fn merge_waiting(
        &self,
        value: &mut Unmerged<'_>,
        bytes_max: usize,
    ) -> std::result::Result<(), Unmergeable> {
        let mut merged = 0;
        let done = value.deltas.iter().try_for_each(|delta| {
            value.base = self.merged(value.base.as_deref(), delta, bytes_max)?.map(Cow::Owned);
            merged += 1;
            Ok(())
        });
        value.deltas.drain(..merged);
        done
    }

    /// The value in a stored form that has deltas which wait, in a volume that stores values of at most
    /// `bytes_max` bytes; `None` if it is none, or they remove it.
    ///
    /// # Errors
    /// Why there is no value.
    pub fn value_of(
        &self,
        stored: &[u8],
        bytes_max: usize,
    ) -> std::result::Result<Option<Vec<u8>>, Unmergeable> {
        let mut value = Unmerged::of(Some(stored)).ok_or(Unmergeable::Unknown)?;
        let merged = self.merge_waiting(&mut value, Room::of(bytes_max).merged_bytes);
        if let Some(dropped) = value.dropped {
            return Err(Unmergeable::Dropped { dropped, why: merged.err().map(Box::new) });
        }
        merged?;
        Ok(value.base.map(Cow::into_owned))
    }
}

impl Upsert for Merges {
    fn name(&self) -> &str {
        "betree-store"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        self.apply_within(old, delta, usize::MAX)
    }

    fn apply_within(&self, stored: Option<&[u8]>, delta: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let room = Room::of(bytes_max);
        let (made_ns, delta) = expiring::made(delta);
        let Timed { expires_ns, inner } = stored.map_or(Timed { expires_ns: None, inner: None }, Timed::of);
        let was_past = expires_ns.zip(made_ns).is_some_and(|(expires_ns, made_ns)| expires_ns <= made_ns);
        let (expires_ns, old) = if was_past { (None, None) } else { (expires_ns, inner) };
        // A value of an unknown form stays as it is: its readers get an error before and after.
        let Some(mut value) = Unmerged::of(old) else { return stored.map(<[u8]>::to_vec) };
        value.deltas.push(delta);
        if value.dropped.is_some() || self.merge_waiting(&mut value, room.merged_bytes).is_err() {
            value.bound(room.unmerged_bytes);
        }
        match (expires_ns, value.into_stored()) {
            (None, new) => new,
            (Some(at_ns), Some(new)) => Some(expiring::expiring(at_ns, Deltas::Perhaps, &new)),
            (Some(at_ns), None) => Some(expiring::absent_until(at_ns)),
        }
    }

    fn expires_at_ns(&self, value: &[u8]) -> Option<i64> {
        expiring::expires_ns(value)
    }

    fn left_of_expired(&self, value: &[u8]) -> Option<Vec<u8>> {
        expiring::left_of_expired(value)
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let ((older_ns, older), (newer_ns, newer)) = (expiring::made(older), expiring::made(newer));
        if older_ns != newer_ns {
            // A value may expire between them, and then only one of them finds it.
            return None;
        }
        let (number, _) = older.split_first_chunk::<4>()?;
        let (Registered { merge, .. }, newer) = self.of_delta(newer.strip_prefix(number).map(|_| newer)?)?;
        let (_, older) = self.of_delta(older)?;
        // One that panics is kept as two, and fails where it is applied.
        let both = catch_unwind(AssertUnwindSafe(|| merge.combine(older, newer))).ok()??;
        let both = (both.len() <= COMBINED_BYTES_MAX).then(|| [&number[..], &both].concat())?;
        Some(match newer_ns {
            None => both,
            Some(made_ns) => expiring::timed_delta(made_ns, &both),
        })
    }
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("nothing more is known")
}

#[cfg(test)]
mod tests {
    use seeded::Rng;

    use super::*;
    use crate::merges::{AddI64, AddU64, Append, Max, UnionSet};

    fn merges() -> Merges {
        let named: [(&str, Arc<dyn Merge>); 2] = [("add", Arc::new(AddU64)), ("append", Arc::new(Append))];
        Merges::of(&BTreeMap::new(), &named.map(|(name, merge)| (name.to_owned(), merge)).into()).unwrap()
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
    fn a_delta_finds_what_had_not_expired_when_it_was_made() {
        let merges = merges();
        let made = |made_ns, text: &[u8]| expiring::timed_delta(made_ns, &delta("append", text));
        let until_nine = |value: &[u8]| Some(expiring::expiring(9, Deltas::Perhaps, value));
        let apply = |old: Option<Vec<u8>>, delta: &[u8]| merges.apply(old.as_deref(), delta);
        assert_eq!(apply(until_nine(b"a"), &made(8, b"b")), until_nine(b"ab"));
        assert_eq!(apply(until_nine(b"a"), &made(9, b"b")), Some(b"b".to_vec()));
        assert_eq!(apply(Some(b"a".to_vec()), &made(9, b"b")), Some(b"ab".to_vec()));
        assert_eq!(apply(None, &made(9, b"b")), Some(b"b".to_vec()));
        // What is left of one makes nothing that is seen, and hides nothing that comes later.
        let left = merges.left_of_expired(&until_nine(b"a").unwrap());
        assert_eq!(apply(left.clone(), &made(8, b"b")), until_nine(b"b"));
        assert_eq!(apply(left, &made(9, b"b")), Some(b"b".to_vec()));
        // Deltas wait beside the time.
        let unknown = expiring::timed_delta(8, &delta("other", b"x"));
        let waiting = apply(until_nine(b"a"), &unknown);
        assert_eq!(waiting.as_deref().and_then(expiring::expires_ns), Some(9));
        assert_eq!(apply(waiting, &made(9, b"b")), Some(b"b".to_vec()));
        // Only those of one time are combined.
        assert_eq!(merges.combine(&made(8, b"a"), &made(8, b"b")), Some(made(8, b"ab")));
        assert_eq!(merges.combine(&made(8, b"a"), &made(9, b"b")), None);
    }

    /// The law by which the engine may replace two deltas: the value is the same, whether it has expired when
    /// they were made or not.
    #[test]
    fn a_combined_delta_has_the_effect_of_both_on_values_that_expire() {
        let names = ["u64", "i64", "max", "append", "set"];
        let all: [Arc<dyn Merge>; 5] =
            [Arc::new(AddU64), Arc::new(AddI64), Arc::new(Max), Arc::new(Append), Arc::new(UnionSet)];
        let named = names.map(str::to_owned).into_iter().zip(all).collect();
        let merges = Merges::of(&BTreeMap::new(), &named).unwrap();
        let (mut combined, mut kept) = (0, 0);
        for seed in 0..3000 {
            let mut rng = Rng::new(seed);
            let name = *rng.pick(&names);
            let bytes = |rng: &mut Rng| rng.below_u64(1000).to_le_bytes()[..rng.below(9)].to_vec();
            let made = |rng: &mut Rng| {
                let delta = delta(name, &bytes(rng));
                if rng.percent(20) { delta } else { expiring::timed_delta(rng.between(8, 9) as i64, &delta) }
            };
            let (older, newer) = (made(&mut rng), made(&mut rng));
            let Some(both) = merges.combine(&older, &newer) else {
                kept += 1;
                continue;
            };
            combined += 1;
            let inner = bytes(&mut rng);
            let timed = [8, 9, 10].map(|ns| expiring::expiring(ns, Deltas::Perhaps, &inner));
            for old in [None, Some(inner)].into_iter().chain(timed.map(Some)) {
                let apply = |old: Option<&[u8]>, delta: &[u8]| merges.apply(old, delta);
                let one_by_one = apply(apply(old.as_deref(), &older).as_deref(), &newer);
                assert_eq!(one_by_one, apply(old.as_deref(), &both), "{name}, seed {seed}: {old:?}");
            }
        }
        assert!(combined > 500 && kept > 500, "{combined} combined, {kept} kept");
    }

    #[test]
    fn a_key_that_a_merge_removes_keeps_its_time() {
        let gone: Arc<dyn Merge> =
            Arc::new(|old: Option<&[u8]>, delta: &[u8]| (old.is_none()).then(|| delta.to_vec()));
        let merges = Merges::of(&BTreeMap::new(), &[("gone".to_owned(), gone)].into()).unwrap();
        let made = |made_ns| expiring::timed_delta(made_ns, &delta("gone", b"new"));
        let removed = merges.apply(Some(&expiring::expiring(9, Deltas::Perhaps, b"a")), &made(8));
        assert_eq!(removed, Some(expiring::absent_until(9)));
        let again = merges.apply(removed.as_deref(), &made(8));
        assert_eq!(again, Some(expiring::expiring(9, Deltas::Perhaps, b"new")));
        assert_eq!(merges.apply(removed.as_deref(), &made(9)), Some(b"new".to_vec()));
    }

    #[test]
    fn deltas_wait_for_their_merge_and_are_merged_in_their_order_with_it() {
        let (with, without) = (merges(), Merges::of(&BTreeMap::new(), &BTreeMap::new()).unwrap());
        let appended = [&b"a"[..], b"b", b"c"].map(|text| delta("append", text));
        for old in [None, Some(&b"old"[..]), Some(b"")] {
            // Of three deltas some wait, whichever.
            for known in 0..8 {
                let mut value = old.map(<[u8]>::to_vec);
                for (number, delta) in appended.iter().enumerate() {
                    let merges = if known >> number & 1 == 1 { &with } else { &without };
                    value = merges.apply(value.as_deref(), delta);
                }
                let value = value.unwrap();
                let expected = [old.unwrap_or_default(), b"abc"].concat();
                assert_eq!(with.value_of(&value, usize::MAX), Ok(Some(expected.clone())), "{known:b}");
                let is_merged = known >> 2 == 1;
                assert_eq!(value == expected, is_merged, "{known:b}: the last one merges all that wait");
                let alone = without.value_of(&value, usize::MAX);
                assert_eq!(
                    alone,
                    if is_merged { Ok(Some(expected)) } else { Err(Unmergeable::Unregistered) }
                );
            }
        }
    }

    #[test]
    fn deltas_behind_one_that_fails_wait_for_it() {
        let fragile = |old: Option<&[u8]>, delta: &[u8]| match delta {
            b"bad" => panic!("a bad delta"),
            b"gone" => None,
            delta => Some([old.unwrap_or_default(), delta].concat()),
        };
        let fragile: Arc<dyn Merge> = Arc::new(fragile);
        let fragile = Merges::of(&BTreeMap::new(), &[("append".to_owned(), fragile)].into()).unwrap();
        let after = |deltas: &[&str]| {
            deltas.iter().fold(None, |value: Option<Vec<u8>>, text| {
                fragile.apply(value.as_deref(), &delta("append", text.as_bytes()))
            })
        };
        let waiting = after(&["a", "gone", "b", "bad", "c"]).unwrap();
        let failed = fragile.value_of(&waiting, usize::MAX);
        assert!(
            matches!(&failed, Err(Unmergeable::Failed { merge, why }) if merge == "append" && why == "it panicked: a bad delta"),
            "{failed:?}"
        );
        // What was merged before it is not merged again.
        assert_eq!(merges().value_of(&waiting, usize::MAX), Ok(Some(b"bbadc".to_vec())));
        assert_eq!(after(&["a", "gone"]), None);
    }

    /// What waits is bounded, with a merge that fails and one that is not registered: what comes later is
    /// counted, and readers learn of it. A delta after a delete begins anew.
    #[test]
    fn what_waits_is_bounded_and_what_is_dropped_is_reported() {
        let merges = merges();
        let part = vec![7; 1 << 20];
        for name in ["other", "append"] {
            let (mut value, mut after) = (None, Vec::new());
            for _ in 0..100 {
                value = merges.apply(value.as_deref(), &delta(name, &part));
                after.push(value.as_deref().map_or(0, <[u8]>::len));
            }
            assert!(after.iter().all(|bytes| *bytes <= UNMERGED_BYTES_MAX), "{name}: {after:?}");
            let Err(Unmergeable::Dropped { dropped, why }) = merges.value_of(&value.unwrap(), usize::MAX)
            else {
                panic!("{name}: no delta was dropped")
            };
            // Five deltas of 1 MiB wait for a merge that is not known; four are merged by one that is, and
            // one waits for it.
            let bytes = (dropped.deltas) * (part.len() as u64 + 4);
            assert_eq!(dropped, Dropped { deltas: 95, bytes }, "{name}");
            match name {
                "other" => assert_eq!(why.as_deref(), Some(&Unmergeable::Unregistered)),
                _ => assert!(why.is_some_and(|why| why.to_string().contains("over the limit"))),
            }
            assert_eq!(merges.apply(None, &delta("append", b"a")).as_deref(), Some(&b"a"[..]));
        }
    }

    #[test]
    fn a_delta_leaves_a_value_of_an_unknown_form_as_it_is() {
        let merges = merges();
        let unknown = [&crate::value::MARK[..], &[9]].concat();
        for unknown in [unknown.clone(), expiring::expiring(9, Deltas::Perhaps, &unknown)] {
            assert_eq!(merges.apply(Some(&unknown), &delta("add", b"")).as_ref(), Some(&unknown));
        }
        // A delta without a number is none of ours, and is kept.
        assert_eq!(
            merges.value_of(&merges.apply(None, b"x").unwrap(), usize::MAX),
            Err(Unmergeable::Unregistered)
        );
    }
}
