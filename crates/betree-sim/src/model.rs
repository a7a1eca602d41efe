//! The literal meaning of batches, as maps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::append_capped::AppendCapped;
use crate::expiry::has_expired;
use crate::failure::{Failure, wrong};
use betree::{Batch, Cursor, Cut, DictId, Env, View};

/// A dictionary as an ordinary map.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One edit of a dictionary: the model's counterpart of a message.
#[derive(Clone, PartialEq, Eq)]
pub enum Edit {
    /// Sets the value of a key.
    Put(DictId, Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(DictId, Vec<u8>),
    /// Applies [`AppendCapped`] to a key.
    Upsert(DictId, Vec<u8>, Vec<u8>),
    /// Removes the keys between two cuts.
    DeleteRange(DictId, Cut, Cut),
    /// Replaces the pairs below the second prefix by those below the first, between two cuts of the rest of
    /// the key.
    Clone(DictId, Vec<u8>, Vec<u8>, Cut, Cut),
}

impl std::fmt::Debug for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Edit::Put(dict, key, value) => write!(f, "put({}, {}, {})", dict.0, show(key), show(value)),
            Edit::Delete(dict, key) => write!(f, "delete({}, {})", dict.0, show(key)),
            Edit::Upsert(dict, key, delta) => {
                write!(f, "upsert({}, {}, {})", dict.0, show(key), show(delta))
            }
            Edit::DeleteRange(dict, lo, hi) => write!(f, "delete_range({}, {lo:?}, {hi:?})", dict.0),
            Edit::Clone(dict, from, to, lo, hi) => {
                write!(f, "clone({}, {}, {}, {lo:?}, {hi:?})", dict.0, show(from), show(to))
            }
        }
    }
}

/// The engine's batch of a list of edits.
pub fn batch_of(changes: &[Edit]) -> Batch {
    let mut batch = Batch::new();
    for change in changes {
        match change {
            Edit::Put(dict, key, value) => batch.put(*dict, key, value),
            Edit::Delete(dict, key) => batch.delete(*dict, key),
            Edit::Upsert(dict, key, delta) => batch.upsert(*dict, key, delta),
            Edit::DeleteRange(dict, lo, hi) => batch.delete_range(*dict, lo, hi),
            Edit::Clone(dict, from, to, lo, hi) if *lo == Cut::LOW && *hi == Cut::HIGH => {
                batch.clone_range(*dict, from, to);
            }
            Edit::Clone(dict, from, to, lo, hi) => batch.clone_part(*dict, from, to, lo, hi),
        }
    }
    batch
}

/// The contents that an environment should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEnv {
    dicts: Vec<Map>,
}

impl ModelEnv {
    /// An empty model with a number of dictionaries.
    pub fn new(dicts: u8) -> ModelEnv {
        ModelEnv { dicts: vec![Map::new(); usize::from(dicts)] }
    }

    /// Reads the contents of an environment by cursors, in both directions.
    ///
    /// # Errors
    /// The engine's, or the directions differ.
    pub fn read(env: &Env, dicts: u8) -> Result<ModelEnv, Failure> {
        ModelEnv::read_by(|dict| env.cursor(dict, Cut::LOW, Cut::HIGH), dicts)
    }

    /// Reads the contents as of a view's moment, as [`read`](ModelEnv::read).
    ///
    /// # Errors
    /// The engine's, or the directions differ.
    pub fn read_view(view: &View, dicts: u8) -> Result<ModelEnv, Failure> {
        ModelEnv::read_by(|dict| view.cursor(dict, Cut::LOW, Cut::HIGH), dicts)
    }

    fn read_by<'e>(cursor_of: impl Fn(DictId) -> Cursor<'e>, dicts: u8) -> Result<ModelEnv, Failure> {
        let mut found = ModelEnv::new(dicts);
        for (dict, map) in found.dicts() {
            let mut cursor = cursor_of(dict);
            let mut last: Option<Vec<u8>> = None;
            while let Some((key, value)) = cursor.next()? {
                if last.as_deref().is_some_and(|last| last >= key) {
                    return wrong(format!(
                        "{dict:?}: a scan went from {} to {}",
                        show(last.as_deref().unwrap_or_default()),
                        show(key)
                    ));
                }
                last = Some(key.to_vec());
                map.insert(key.to_vec(), value.to_vec());
            }
            let mut cursor = cursor_of(dict);
            cursor.seek(&Cut::HIGH);
            let mut forward = map.iter().rev();
            loop {
                let back = cursor.prev()?;
                let expected = forward.next().map(|(key, value)| (key.as_slice(), value.as_slice()));
                if back != expected {
                    return wrong(format!(
                        "{dict:?}: the backward scan gives {}, the forward scan gave {}",
                        show_pair(back),
                        show_pair(expected)
                    ));
                }
                if back.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// What a reader sees at a time: all but what has expired.
    pub fn seen_at(&self, time_ns: i64) -> Cow<'_, ModelEnv> {
        if !self.dicts.iter().flat_map(|map| map.values()).any(|value| has_expired(value, time_ns)) {
            return Cow::Borrowed(self);
        }
        let mut seen = self.clone();
        seen.dicts.iter_mut().for_each(|map| map.retain(|_, value| !has_expired(value, time_ns)));
        Cow::Owned(seen)
    }

    /// The keys of a dictionary whose values have expired at a time.
    pub fn expired(&self, dict: DictId, time_ns: i64) -> Vec<Vec<u8>> {
        let expired = self.dict(dict).iter().filter(|(_, value)| has_expired(value, time_ns));
        expired.map(|(key, _)| key.clone()).collect()
    }

    /// Each dictionary with its id.
    pub fn dicts(&mut self) -> impl Iterator<Item = (DictId, &mut Map)> {
        self.dicts.iter_mut().enumerate().map(|(i, map)| (DictId(i as u8), map))
    }

    /// One dictionary.
    pub fn dict(&self, dict: DictId) -> &Map {
        &self.dicts[usize::from(dict.0)]
    }

    /// Applies the edits one after the other; with clones among them, in the order of a batch with clones.
    pub fn commit(&mut self, changes: &[Edit]) {
        let mut clones = Vec::new();
        for change in changes {
            if let Edit::Clone(dict, from, to, lo, hi) = change
                && lo < hi
            {
                clones.push((*dict, from, to, lo, hi));
            }
        }
        if clones.is_empty() {
            return self.make(changes.iter());
        }
        let is_in = |key: &[u8], prefix: &[u8], lo: &Cut, hi: &Cut| {
            key.strip_prefix(prefix).is_some_and(|rest| !lo.is_above(rest) && hi.is_above(rest))
        };
        let sources: Vec<Vec<(Vec<u8>, Vec<u8>)>> = clones
            .iter()
            .map(|(dict, from, _, lo, hi)| {
                let of_source = self.dict(*dict).iter().filter(|(key, _)| is_in(key, from, lo, hi));
                of_source.map(|(key, value)| (key[from.len()..].to_vec(), value.clone())).collect()
            })
            .collect();
        self.make(changes.iter().filter(|change| matches!(change, Edit::DeleteRange(..))));
        for ((dict, from, to, lo, hi), source) in clones.iter().zip(sources) {
            if from == to {
                continue;
            }
            let map = self.dict_mut(*dict);
            map.retain(|key, _| !is_in(key, to, lo, hi));
            map.extend(source.into_iter().map(|(key, value)| ([to.as_slice(), &key].concat(), value)));
        }
        let is_point = |change: &&Edit| !matches!(change, Edit::DeleteRange(..) | Edit::Clone(..));
        self.make(changes.iter().filter(is_point));
    }

    /// The number of pairs, and the length of the longest key.
    pub fn size(&self) -> (usize, usize) {
        let keys = || self.dicts.iter().flat_map(|map| map.keys());
        (keys().count(), keys().map(Vec::len).max().unwrap_or(0))
    }

    fn make<'c>(&mut self, changes: impl Iterator<Item = &'c Edit>) {
        for change in changes {
            match change {
                Edit::Clone(..) => {}
                Edit::Put(dict, key, value) => {
                    self.dict_mut(*dict).insert(key.clone(), value.clone());
                }
                Edit::Delete(dict, key) => {
                    self.dict_mut(*dict).remove(key);
                }
                Edit::Upsert(dict, key, delta) => {
                    let map = self.dict_mut(*dict);
                    match AppendCapped::applied(map.get(key).map(Vec::as_slice), delta) {
                        Some(value) => map.insert(key.clone(), value),
                        None => map.remove(key),
                    };
                }
                Edit::DeleteRange(dict, lo, hi) => {
                    self.dict_mut(*dict).retain(|key, _| lo.is_above(key) || !hi.is_above(key));
                }
            }
        }
    }

    /// Where two contents first differ, as a sentence.
    pub fn difference(&self, should: &ModelEnv) -> Option<String> {
        let pairs = self.dicts.iter().zip(&should.dicts).enumerate();
        for (i, (is, should)) in pairs {
            let wrong = is.iter().find(|(key, value)| should.get(*key) != Some(value));
            if let Some((key, value)) = wrong {
                let should = should.get(key).map_or("absent".into(), |v| show(v));
                return Some(format!("dict {i}: {} is {}, should be {should}", show(key), show(value)));
            }
            if let Some((key, value)) = should.iter().find(|(key, _)| !is.contains_key(*key)) {
                return Some(format!("dict {i}: {} is absent, should be {}", show(key), show(value)));
            }
        }
        None
    }

    /// The puts and deletes that make other contents of these.
    pub fn edits_to(&self, other: &ModelEnv) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (id, (is, should)) in (0..).map(DictId).zip(self.dicts.iter().zip(&other.dicts)) {
            let gone = is.keys().filter(|key| !should.contains_key(*key));
            edits.extend(gone.map(|key| Edit::Delete(id, key.clone())));
            let new = should.iter().filter(|(key, value)| is.get(*key) != Some(value));
            edits.extend(new.map(|(key, value)| Edit::Put(id, key.clone(), value.clone())));
        }
        edits
    }

    fn dict_mut(&mut self, dict: DictId) -> &mut Map {
        &mut self.dicts[usize::from(dict.0)]
    }
}

/// Bytes for a reader; of a long value its start, which has its number.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 24;
    match bytes.get(..SHOWN_MAX) {
        Some(start) if bytes.len() > SHOWN_MAX => {
            format!("\"{}\"… ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// A cursor's answer for a reader.
pub(crate) fn show_pair(pair: Option<(&[u8], &[u8])>) -> String {
    pair.map_or("nothing".into(), |(key, value)| format!("{} = {}", show(key), show(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: DictId = DictId(0);

    #[test]
    fn changes_mean_what_they_say_in_their_order() {
        let mut model = ModelEnv::new(2);
        let key = |s: &str| s.as_bytes().to_vec();
        model.commit(&[
            Edit::Put(D, key("a"), key("1")),
            Edit::Put(D, key("ab"), key("2")),
            Edit::Put(D, key("b"), key("3")),
            Edit::DeleteRange(D, Cut::before(key("a")), Cut::after(key("a"))),
            Edit::Upsert(D, key("ab"), key("x")),
            Edit::Upsert(D, key("ab"), key("y")),
            Edit::Upsert(D, key("b"), key("")),
            Edit::Put(DictId(1), key("b"), key("4")),
            Edit::Delete(D, key("never there")),
        ]);
        assert_eq!(model.dict(D), &Map::from([(key("ab"), key("xy"))]));
        assert_eq!(model.dict(DictId(1)), &Map::from([(key("b"), key("4"))]));
    }

    #[test]
    fn a_difference_is_found_on_either_side() {
        let mut is = ModelEnv::new(1);
        let mut should = ModelEnv::new(1);
        assert_eq!(is.difference(&should), None);
        should.commit(&[Edit::Put(D, b"k".to_vec(), b"v".to_vec())]);
        assert!(is.difference(&should).unwrap().contains("is absent"));
        assert!(should.difference(&is).unwrap().contains("should be absent"));
        is.commit(&[Edit::Put(D, b"k".to_vec(), b"w".to_vec())]);
        assert!(is.difference(&should).unwrap().contains("should be \"v\""));
    }
}
