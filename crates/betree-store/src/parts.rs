//! Large values: stored in parts that are committed before the pair that refers to them, so that a reader,
//! and a crash, meet the old value or the new one, each whole.

use std::borrow::Cow;
use std::ops::Range;

use betree::{Batch, Cut};

use crate::bytes::Value;
use crate::catalogue;
use crate::error::{Error, Result};
use crate::expiring::{self, Deltas, Timed};
use crate::keys::{self, ENGINE_DICT};
use crate::merge::Unmergeable;
use crate::shared::{DictState, Shared};
use crate::steps::Steps;
use crate::value::{MARK, Reference, Stored};

/// A part, unless the log is small, in bytes: what a scan of a large value reads at once.
const PART_BYTES: usize = 256 << 10;
/// The largest value that is stored whole, unless the log is small, in bytes.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// More than a change takes in a batch beside its key and value, in bytes.
const CHANGE_BYTES: usize = 64;
/// The largest value in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The largest value that a store keeps whole: two of them fit into a batch.
pub(crate) fn whole_bytes_max(shared: &Shared) -> usize {
    (shared.env.batch_bytes_max() / 2).min(WHOLE_BYTES_MAX)
}

/// The length of all parts of a value but the last, in bytes.
fn part_bytes(shared: &Shared) -> usize {
    PART_BYTES.min(whole_bytes_max(shared) / 2).max(1)
}

/// What a put of a large value needs.
pub(crate) struct Large<'v> {
    pub dict: &'v DictState,
    pub key: &'v [u8],
    pub value: &'v [u8],
    pub reference: Reference,
}

impl Large<'_> {
    /// The cuts around its parts.
    pub fn cuts(&self) -> (Cut, Cut) {
        let parts = keys::parts_of_value(self.dict.number, self.key, self.reference.generation);
        (Cut::before(parts.clone()), Cut::after(parts))
    }

    /// Commits the parts, in several batches. The caller has the dictionary alone. After an error some may be
    /// there, which nothing refers to.
    pub fn put_parts(&self, shared: &Shared) -> Result<()> {
        // Before any is there: a part that is left behind is found by who deletes its range.
        self.dict.set_has_parts();
        let mut batch = Batch::new();
        // With the first of them, that there are parts, and that the generation was used.
        catalogue::put_generation(&mut batch, self.reference.generation);
        if !self.dict.is_of_large() {
            catalogue::put_entry(&mut batch, &self.dict.name(), &self.dict.entry());
        }
        let batch_bytes_max = shared.env.batch_bytes_max();
        let part_bytes = part_bytes(shared);
        let mut key = keys::parts_of_value(self.dict.number, self.key, self.reference.generation);
        let prefix_len = key.len();
        for (number, part) in (0_u32..).zip(parts_of(self.value, part_bytes)) {
            let part = stored_part(part, self.reference);
            key.truncate(prefix_len);
            key.extend(number.to_be_bytes());
            if batch.bytes() + key.len() + part.len() + CHANGE_BYTES > batch_bytes_max {
                shared.commit(&std::mem::take(&mut batch))?;
            }
            batch.put(ENGINE_DICT, &key, &part);
        }
        shared.commit(&batch)
    }
}

/// A value in parts. None begins as what is stored with a mark: the engine would take the one for a value
/// that expires, whatever the user has put there.
fn parts_of(value: &[u8], part_bytes: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let len = if rest.starts_with(&MARK) { 1 } else { part_bytes.min(rest.len()) };
        let (part, behind) = rest.split_at_checked(len)?;
        rest = behind;
        Some(part).filter(|part| !part.is_empty())
    })
}

/// A part as it is stored: it expires with its value.
fn stored_part(part: &[u8], of: Reference) -> Cow<'_, [u8]> {
    match of.expires_ns {
        None => Cow::Borrowed(part),
        Some(at_ns) => Cow::Owned(expiring::expiring(at_ns, Deltas::Never, part)),
    }
}

/// What a part holds, from what is stored.
fn part_in(stored: &[u8], of: Reference) -> &[u8] {
    match of.expires_ns {
        None => stored,
        Some(_) => Timed::of(stored).inner.unwrap_or_default(),
    }
}

/// The value that a reference leads to, as `open` reads its parts; `None` if they are not all there: it was
/// replaced meanwhile.
fn read_parts<'c>(
    shared: &Shared,
    number: u32,
    key: &[u8],
    reference: Reference,
    open: impl FnOnce(Cut, Cut) -> Steps<'c>,
) -> Result<Option<Value>> {
    let parts = keys::parts_of_value(number, key, reference.generation);
    let mut cursor = open(Cut::before(parts.clone()), Cut::after(parts));
    let mut value = Vec::new();
    while let Some((_, part)) = cursor.next().map_err(|error| shared.error(error))? {
        let part = part_in(part, reference);
        if value.len() + part.len() > VALUE_BYTES_MAX {
            return Ok(None);
        }
        value.extend_from_slice(part);
    }
    Ok(Some(value).filter(|value| value.len() as u64 == reference.len).map(Value::from))
}

/// The value in what was read of a key; `None` if the key was removed meanwhile.
pub(crate) fn value_of(
    shared: &Shared,
    dict: &DictState,
    key: &[u8],
    read: Vec<u8>,
) -> Result<Option<Value>> {
    let open = |lo, hi| Steps::Plain(shared.env.cursor(ENGINE_DICT, lo, hi));
    let mut stored = Stored::of(read);
    loop {
        let reference = match stored {
            Stored::Whole(value) => return Ok(Some(value.into())),
            Stored::Unmerged(waiting) => {
                return merged(shared, (&dict.name(), key), dict.merge.as_deref(), &waiting);
            }
            Stored::Absent => return Ok(None),
            Stored::Unknown => return Err(damaged(shared, &dict.name(), UNKNOWN_FORM)),
            Stored::Parts(reference) => reference,
        };
        if let Some(value) = read_parts(shared, dict.number, key, reference, open)? {
            return Ok(Some(value));
        }
        let again = shared.env.get(ENGINE_DICT, &keys::pair_key(dict.number, key));
        let Some(again) = again.map_err(|error| shared.error(error))? else { return Ok(None) };
        stored = Stored::of(again);
        if stored == Stored::Parts(reference)
            && read_parts(shared, dict.number, key, reference, open)?.is_none()
        {
            dict.refuse_if_dropped()?;
            return Err(damaged(shared, &dict.name(), NO_PARTS));
        }
    }
}

/// A dictionary as it was at a moment.
#[derive(Clone, Copy)]
pub(crate) struct Then<'d> {
    pub number: u32,
    pub name: &'d str,
    pub merge: Option<&'d str>,
}

/// The values in what was read of keys, in the order of these. The parts of all are read together, by
/// `get_many`. Where they are not all there, `read_again` decides.
pub(crate) fn values_of<K: AsRef<[u8]>>(
    shared: &Shared,
    dict: Then<'_>,
    keys: &[K],
    read: Vec<Option<Vec<u8>>>,
    get_many: impl FnOnce(&[Vec<u8>]) -> betree::Result<Vec<Option<Vec<u8>>>>,
    read_again: impl Fn(&[u8], Vec<u8>) -> Result<Option<Value>>,
) -> Result<Vec<Option<Value>>> {
    let mut values: Vec<Option<Value>> = Vec::with_capacity(keys.len());
    let mut in_parts: Vec<(usize, Reference, Range<usize>)> = Vec::new();
    let mut part_keys: Vec<Vec<u8>> = Vec::new();
    for (index, (key, read)) in keys.iter().zip(read).enumerate() {
        values.push(match read.map(Stored::of) {
            None | Some(Stored::Absent) => None,
            Some(Stored::Whole(value)) => Some(value.into()),
            Some(Stored::Unmerged(waiting)) => {
                merged(shared, (dict.name, key.as_ref()), dict.merge, &waiting)?
            }
            Some(Stored::Unknown) => return Err(damaged(shared, dict.name, UNKNOWN_FORM)),
            Some(Stored::Parts(reference)) => {
                let from = part_keys.len();
                // A longer one is damaged, and has no parts here.
                if reference.len <= VALUE_BYTES_MAX as u64 {
                    let parts = keys::parts_of_value(dict.number, key.as_ref(), reference.generation);
                    let count = reference.len.div_ceil(part_bytes(shared) as u64) as u32;
                    part_keys.extend((0..count).map(|part| [&parts[..], &part.to_be_bytes()].concat()));
                }
                in_parts.push((index, reference, from..part_keys.len()));
                None
            }
        });
    }
    if in_parts.is_empty() {
        return Ok(values);
    }
    let parts = get_many(&part_keys).map_err(|error| shared.error(error))?;
    for (index, reference, range) in in_parts {
        let of_value = parts.get(range).unwrap_or_default();
        let parts = of_value.iter().map(|part| part.as_deref().map(|part| part_in(part, reference)));
        let whole: Option<Vec<&[u8]>> = parts.collect();
        let whole = whole.map(|parts| parts.concat()).filter(|value| value.len() as u64 == reference.len);
        let value = match (whole, keys.get(index)) {
            (Some(value), _) => Some(value.into()),
            (None, Some(key)) => read_again(key.as_ref(), reference.stored())?,
            (None, None) => None,
        };
        if let Some(place) = values.get_mut(index) {
            *place = value;
        }
    }
    Ok(values)
}

/// The value in what was read of a key, as of one moment, at which `open` reads its parts; `None` if deltas
/// remove it.
pub(crate) fn value_then<'c>(
    shared: &Shared,
    Then { number, name, merge }: Then<'_>,
    key: &[u8],
    read: Vec<u8>,
    open: impl FnOnce(Cut, Cut) -> Steps<'c>,
) -> Result<Option<Value>> {
    match Stored::of(read) {
        Stored::Whole(value) => Ok(Some(value.into())),
        Stored::Absent => Ok(None),
        Stored::Unmerged(waiting) => merged(shared, (name, key), merge, &waiting),
        Stored::Unknown => Err(damaged(shared, name, UNKNOWN_FORM)),
        Stored::Parts(reference) => {
            let value = read_parts(shared, number, key, reference, open)?;
            value.map_or_else(|| Err(damaged(shared, name, NO_PARTS)), |value| Ok(Some(value)))
        }
    }
}

/// The value of a key of a dictionary, with the deltas that wait for its merge.
fn merged(
    shared: &Shared,
    (dict, key): (&str, &[u8]),
    merge: Option<&str>,
    waiting: &[u8],
) -> Result<Option<Value>> {
    let why = match shared.merges.value_of(waiting, shared.env.batch_bytes_max()) {
        Ok(value) => return Ok(value.map(Value::from)),
        Err(why) => why,
    };
    let failed = |merge, why| {
        let (dict, key) = (dict.to_owned(), key.to_vec().into());
        Error::MergeFailed { dict, key, merge, why }
    };
    Err(match (why, merge) {
        (Unmergeable::Failed { merge, why }, _) => failed(merge, why),
        (Unmergeable::Dropped { why: Some(why), dropped }, merge) => {
            let text = format!("{why}, and {}", Unmergeable::Dropped { why: None, dropped });
            failed(merge.unwrap_or_default().into(), text)
        }
        (dropped @ Unmergeable::Dropped { why: None, .. }, merge) => {
            failed(merge.unwrap_or_default().into(), dropped.to_string())
        }
        (Unmergeable::Unregistered, Some(merge)) => {
            Error::UnknownMerge { merge: merge.into(), dict: Some(dict.into()) }
        }
        (Unmergeable::Unregistered, None) => damaged(shared, dict, NO_MERGE),
        (Unmergeable::Unknown, _) => damaged(shared, dict, UNKNOWN_FORM),
    })
}

const UNKNOWN_FORM: &str = "is stored in a form that is not known";
const NO_MERGE: &str = "has deltas, and the dictionary no merge";
const NO_PARTS: &str = "refers to parts that are not there";

fn damaged(shared: &Shared, dict: &str, what: &str) -> Error {
    Error::Damaged { path: shared.path.clone(), why: format!("a value of the dictionary {dict:?} {what}") }
}

/// A range without some others, which are in order and do not overlap.
pub(crate) fn without((lo, hi): (Cut, Cut), others: &[(Cut, Cut)]) -> Vec<(Cut, Cut)> {
    let mut rest = Vec::new();
    let mut from = lo;
    for (start, end) in others {
        if *end <= from || *start >= hi {
            continue;
        }
        rest.push((from, start.clone()));
        from = end.clone();
    }
    rest.push((from, hi));
    rest.retain(|(from, to)| from < to);
    rest
}

#[cfg(test)]
mod tests;
