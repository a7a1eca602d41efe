//! Merges that many programs need. They are registered in every store under names of the store's own, which
//! are constants here; [`StoreOptions::merge_with`](crate::StoreOptions::merge_with) gives them other names.
//!
//! ```
//! # fn main() -> betree_store::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("store");
//! use betree_store::{DictOptions, Store, merges};
//!
//! let store = Store::open(&path)?;
//! let visits = store.dict_with("visits", &DictOptions::new().merge(merges::ADD_U64))?;
//! (0..1000).try_for_each(|_| visits.upsert("/index", 1_u64.to_le_bytes()))?;
//! assert_eq!(visits.get("/index")?.as_deref(), Some(&1000_u64.to_le_bytes()[..]));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::merge::Merge;

/// See [`AddU64`].
pub const ADD_U64: &str = "betree.add_u64";
/// See [`AddI64`].
pub const ADD_I64: &str = "betree.add_i64";
/// See [`Max`].
pub const MAX: &str = "betree.max";
/// See [`Append`].
pub const APPEND: &str = "betree.append";
/// See [`UnionSet`].
pub const UNION_SET: &str = "betree.union_set";
/// The store's own merges by their names.
pub(crate) fn own() -> BTreeMap<String, Arc<dyn Merge>> {
    let merges: [(&str, Arc<dyn Merge>); 5] = [
        (ADD_U64, Arc::new(AddU64)),
        (ADD_I64, Arc::new(AddI64)),
        (MAX, Arc::new(Max)),
        (APPEND, Arc::new(Append)),
        (UNION_SET, Arc::new(UnionSet)),
    ];
    merges.map(|(name, merge)| (name.into(), merge)).into()
}

/// The first eight bytes as a number; what is missing is zero.
fn eight(bytes: &[u8]) -> [u8; 8] {
    let mut number = [0; 8];
    number.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    number
}

/// Adds numbers without a sign: value and delta are eight bytes, little-endian. An absent value is zero. A
/// sum that is too large is the largest number.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddU64;

impl Merge for AddU64 {
    fn kind(&self) -> &str {
        "add_u64"
    }

    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (old, delta) =
            (u64::from_le_bytes(eight(old.unwrap_or_default())), u64::from_le_bytes(eight(delta)));
        Ok(Some(old.saturating_add(delta).to_le_bytes().to_vec()))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(Some(older), newer).ok().flatten()
    }
}

/// Adds numbers with a sign: value and delta are eight bytes, little-endian. An absent value is zero. The sum
/// wraps around at the ends, so that it does not depend on the order of additions.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddI64;

impl Merge for AddI64 {
    fn kind(&self) -> &str {
        "add_i64"
    }

    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (old, delta) =
            (i64::from_le_bytes(eight(old.unwrap_or_default())), i64::from_le_bytes(eight(delta)));
        Ok(Some(old.wrapping_add(delta).to_le_bytes().to_vec()))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(Some(older), newer).ok().flatten()
    }
}

/// Keeps the greater of value and delta in the order of their bytes: numbers have to be big-endian for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Max;

impl Merge for Max {
    fn kind(&self) -> &str {
        "max"
    }

    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(old.map_or(delta, |old| old.max(delta)).to_vec()))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(Some(older), newer).ok().flatten()
    }
}

/// Puts the delta behind the value. A value has at most 4 MiB: a key that is only appended to cannot be read
/// beyond that, see [`Merge`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Append;

impl Merge for Append {
    fn kind(&self) -> &str {
        "append"
    }

    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(Some([old.unwrap_or_default(), delta].concat()))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(Some(older), newer).ok().flatten()
    }
}

/// Adds members to a set: value and delta are sets, each member a length of four bytes (little-endian) and
/// its bytes, as [`UnionSet::of`] makes them. The value has each member once, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnionSet;

impl UnionSet {
    /// The set of some members.
    ///
    /// ```
    /// # fn main() -> betree_store::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("store");
    /// use betree_store::{DictOptions, Store, merges::UnionSet};
    ///
    /// let store = Store::options().merge_with("union", UnionSet).open(&path)?;
    /// let tags = store.dict_with("tags", &DictOptions::new().merge("union"))?;
    /// tags.upsert("photo 1", UnionSet::of(["sea", "boat"]))?;
    /// tags.upsert("photo 1", UnionSet::of(["sun", "sea"]))?;
    /// let found = tags.get("photo 1")?.unwrap_or_default();
    /// assert_eq!(UnionSet::members(&found).collect::<Vec<_>>(), [&b"boat"[..], b"sea", b"sun"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of<M: AsRef<[u8]>>(members: impl IntoIterator<Item = M>) -> Vec<u8> {
        let mut set = Vec::new();
        for member in members {
            set.extend((member.as_ref().len() as u32).to_le_bytes());
            set.extend(member.as_ref());
        }
        set
    }

    /// The members of a set. What is no set ends it.
    pub fn members(mut set: &[u8]) -> impl Iterator<Item = &[u8]> {
        std::iter::from_fn(move || {
            let (len, rest) = set.split_first_chunk()?;
            let (member, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            set = rest;
            Some(member)
        })
    }
}

impl Merge for UnionSet {
    fn kind(&self) -> &str {
        "union_set"
    }

    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let mut members: Vec<&[u8]> = UnionSet::members(old.unwrap_or_default()).collect();
        members.extend(UnionSet::members(delta));
        members.sort_unstable();
        members.dedup();
        Ok(Some(UnionSet::of(members)))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.merge(Some(older), newer).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seeded::Rng;

    /// Deltas that are combined, in whatever groups, have the effect that they have one after the other.
    #[test]
    fn combined_deltas_are_those_that_were_combined() {
        let all: [(&str, &dyn Merge); 5] =
            [("u64", &AddU64), ("i64", &AddI64), ("max", &Max), ("append", &Append), ("set", &UnionSet)];
        for (name, merge) in all {
            for seed in 0..200 {
                let mut rng = Rng::new(seed);
                let delta = |rng: &mut Rng| match name {
                    "set" => UnionSet::of((0..rng.below(4)).map(|_| [b'a' + rng.below(5) as u8])),
                    // Near the ends too.
                    _ if rng.percent(30) => {
                        rng.pick(&[u64::MAX, i64::MAX as u64, i64::MIN as u64]).to_le_bytes().to_vec()
                    }
                    _ => rng.below_u64(100).to_le_bytes()[..rng.below(9)].to_vec(),
                };
                let deltas: Vec<Vec<u8>> = (0..6).map(|_| delta(&mut rng)).collect();
                let old = rng.percent(50).then(|| delta(&mut rng));
                let apply = |old: Option<Vec<u8>>, deltas: &[Vec<u8>]| {
                    deltas.iter().fold(old, |old, delta| merge.merge(old.as_deref(), delta).unwrap())
                };
                let mut grouped: Vec<Vec<u8>> = Vec::new();
                for delta in &deltas {
                    match grouped.last_mut() {
                        Some(last) if rng.percent(60) => *last = merge.combine(last, delta).unwrap(),
                        _ => grouped.push(delta.clone()),
                    }
                }
                assert_eq!(apply(old.clone(), &deltas), apply(old, &grouped), "{name}, seed {seed}");
            }
        }
    }

    #[test]
    fn sums_end_at_the_ends_of_their_types_as_they_say() {
        let sum = |merge: &dyn Merge, a: u64, b: u64| {
            merge.merge(Some(&a.to_le_bytes()), &b.to_le_bytes()).unwrap().unwrap()
        };
        assert_eq!(sum(&AddU64, u64::MAX - 1, 5), u64::MAX.to_le_bytes());
        assert_eq!(sum(&AddI64, i64::MAX as u64, 1), i64::MIN.to_le_bytes());
        assert_eq!(sum(&AddI64, 3, -5_i64 as u64), (-2_i64).to_le_bytes());
    }
}
