//! The catalogue: which dictionaries a store has. It stands in the store itself, so that a change of it is
//! part of a batch like any other.
//!
//! Under the prefix zero and one byte for the kind stand: names of dictionaries, each with an entry, the
//! store's own numbers, markers of dictionaries without a name, which belong to large transactions, and the
//! names of merges, each with its kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use betree::{Batch, Cut, Env};

use crate::freeing::delete_range;
use crate::keys::{CATALOGUE, ENGINE_DICT, dict_cuts};
use crate::merge::Merges;
use crate::options::{DictOptions, MissingMerges};
use crate::shared::DictState;
use crate::steps::Steps;

/// The kinds of what the catalogue has.
const NAMES: u8 = 0;
const NUMBERS: u8 = 1;
const MARKERS: u8 = 2;
const MERGES: u8 = 3;
/// What a marker says: the dictionary of its number belongs to a large transaction.
const OF_LARGE: [u8; 1] = [1];
/// The keys of the numbers.
const LAYOUT: &[u8] = b"layout";
const NEXT: &[u8] = b"next";
const GENERATION: &[u8] = b"generation";
/// The layout that this version writes: the form of keys and of the catalogue.
const LAYOUT_VERSION: u32 = 1;
/// The form of an entry.
const ENTRY_VERSION: u8 = 1;
/// The flags of an entry.
const HAS_PARTS: u8 = 1;
const IS_EXPIRING: u8 = 2;
/// The generations of one opening of the store.
const GENERATIONS_BITS: u32 = 40;

/// What the catalogue says of a dictionary.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The number that its keys begin with.
    pub number: u32,
    /// Whether it may have values in parts.
    pub has_parts: bool,
    /// Whether its values may expire.
    pub is_expiring: bool,
    /// The name of its merge.
    pub merge: Option<String>,
}

/// The dictionaries, in memory.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub dicts: BTreeMap<String, Arc<DictState>>,
    /// The number of the next dictionary. None is ever used again.
    pub next: u32,
    /// The first generation of values in parts that was never used.
    pub generation: u64,
}

/// Why a catalogue cannot be used.
pub(crate) enum Refusal {
    NotAStore(String),
    Newer(String),
    Damaged(String),
    UnknownMerge { merge: String, dict: String },
    OtherKindOfMerge { merge: String, dict: String, was: String, is: String },
    Engine(betree::Error),
}

impl From<betree::Error> for Refusal {
    fn from(error: betree::Error) -> Refusal {
        Refusal::Engine(error)
    }
}

fn key(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&CATALOGUE.to_be_bytes()[..], &[kind], rest].concat()
}

/// Puts what a new store has.
pub(crate) fn put_new(batch: &mut Batch) {
    batch.put(ENGINE_DICT, &key(NUMBERS, LAYOUT), &LAYOUT_VERSION.to_le_bytes());
    put_next(batch, CATALOGUE + 1);
}

/// Puts the number of the next dictionary.
pub(crate) fn put_next(batch: &mut Batch, next: u32) {
    batch.put(ENGINE_DICT, &key(NUMBERS, NEXT), &next.to_le_bytes());
}

/// Puts that a generation was used.
pub(crate) fn put_generation(batch: &mut Batch, generation: u64) {
    batch.put(ENGINE_DICT, &key(NUMBERS, GENERATION), &generation.to_le_bytes());
}

/// Puts the entry of a dictionary under a name.
pub(crate) fn put_entry(batch: &mut Batch, name: &str, entry: &Entry) {
    batch.put(ENGINE_DICT, &name_key(name), &entry.stored());
}

/// Removes the entry of a name.
pub(crate) fn delete_entry(batch: &mut Batch, name: &str) {
    batch.delete(ENGINE_DICT, &name_key(name));
}

/// Marks a number whose dictionary is to go at the next opening.
pub(crate) fn put_marker(batch: &mut Batch, number: u32) {
    batch.put(ENGINE_DICT, &key(MARKERS, &number.to_be_bytes()), &OF_LARGE);
}

/// Removes the marker of a number.
pub(crate) fn delete_marker(batch: &mut Batch, number: u32) {
    batch.delete(ENGINE_DICT, &key(MARKERS, &number.to_be_bytes()));
}

/// Removes all dictionaries that markers name, with the markers.
///
/// # Errors
/// The engine's. Some may be removed.
pub(crate) fn remove_marked(env: &Env) -> betree::Result<()> {
    let markers = key(MARKERS, b"");
    let mut cursor = env.cursor(ENGINE_DICT, Cut::before(markers.clone()), Cut::after(markers.clone()));
    let mut marked = Vec::new();
    while let Some((marker, _)) = cursor.next()? {
        marked.extend(marker.get(markers.len()..).and_then(|number| <[u8; 4]>::try_from(number).ok()));
    }
    for number in marked.into_iter().map(u32::from_be_bytes).filter(|number| *number != CATALOGUE) {
        let mut batch = Batch::new();
        delete_range(&mut batch, dict_cuts(number));
        delete_marker(&mut batch, number);
        env.commit(&batch)?;
    }
    Ok(())
}

/// The kind with which a merge of that name was registered last, if it was.
fn kind_of_merge(env: &Env, name: &str) -> betree::Result<Option<Vec<u8>>> {
    env.get(ENGINE_DICT, &key(MERGES, name.as_bytes()))
}

/// Puts the kinds of the merges that are registered, unless they are there.
///
/// # Errors
/// The engine's.
pub(crate) fn put_kinds_of_merges(env: &Env, merges: &Merges) -> betree::Result<()> {
    let mut batch = Batch::new();
    for (name, kind) in merges.kinds() {
        if kind_of_merge(env, name)?.as_deref() != Some(kind.as_bytes()) {
            batch.put(ENGINE_DICT, &key(MERGES, name.as_bytes()), kind.as_bytes());
        }
    }
    if batch.is_empty() { Ok(()) } else { env.commit(&batch) }
}

/// The key of a name's entry.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    key(NAMES, name.as_bytes())
}

impl Entry {
    /// Of a new dictionary.
    pub fn new(number: u32, options: &DictOptions) -> Entry {
        let (is_expiring, merge) = (options.is_expiring, options.merge.clone());
        Entry { number, has_parts: false, is_expiring, merge }
    }

    /// The stored form.
    pub fn stored(&self) -> Vec<u8> {
        let mut bytes = vec![ENTRY_VERSION];
        bytes.extend(self.number.to_le_bytes());
        let flags = [(self.has_parts, HAS_PARTS), (self.is_expiring, IS_EXPIRING)];
        bytes.push(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        bytes.extend(self.merge.iter().flat_map(|merge| merge.bytes()));
        bytes
    }
}

/// The names and entries in their order, as `open` reads them.
pub(crate) fn entries<'c>(open: impl FnOnce(Cut, Cut) -> Steps<'c>) -> Result<Vec<(String, Entry)>, Refusal> {
    let names = key(NAMES, b"");
    let mut steps = open(Cut::before(names.clone()), Cut::after(names.clone()));
    let mut entries = Vec::new();
    while let Some((name, entry)) = steps.next()? {
        let name = name.get(names.len()..).and_then(|name| std::str::from_utf8(name).ok());
        let name = name.ok_or_else(|| Refusal::Damaged("the name of a dictionary is no text".into()))?;
        entries.push((name.into(), entry_of(name, entry)?));
    }
    Ok(entries)
}

/// The entry of a name in its stored form.
pub(crate) fn entry_of(name: &str, bytes: &[u8]) -> Result<Entry, Refusal> {
    let damaged = || Refusal::Damaged(format!("the entry of the dictionary {name:?} is none"));
    let (version, rest) = bytes.split_first().ok_or_else(damaged)?;
    if *version > ENTRY_VERSION {
        return Err(Refusal::Newer(format!("the dictionary {name:?} has version {version}")));
    }
    let (number, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let (flags, merge) = rest.split_first().ok_or_else(damaged)?;
    if flags & !(HAS_PARTS | IS_EXPIRING) != 0 {
        return Err(Refusal::Newer(format!("the dictionary {name:?} has flags {flags:#x}")));
    }
    let merge = std::str::from_utf8(merge).map_err(|_| damaged())?;
    let merge = Some(merge.to_owned()).filter(|merge| !merge.is_empty());
    let [has_parts, is_expiring] = [HAS_PARTS, IS_EXPIRING].map(|flag| flags & flag != 0);
    Ok(Entry { number: u32::from_le_bytes(*number), has_parts, is_expiring, merge })
}

fn number<const BYTES: usize>(env: &Env, name: &[u8]) -> Result<Option<[u8; BYTES]>, Refusal> {
    let found = env.get(ENGINE_DICT, &key(NUMBERS, name))?;
    let wrong = || Refusal::Damaged(format!("its number {:?} is none", name.escape_ascii().to_string()));
    found.map(|bytes| bytes.try_into().map_err(|_| wrong())).transpose()
}

impl Catalogue {
    /// Reads the catalogue.
    pub fn load(env: &Env, merges: &Merges, missing: MissingMerges) -> Result<Catalogue, Refusal> {
        match number(env, LAYOUT)?.map(u32::from_le_bytes) {
            None => {
                return Err(Refusal::NotAStore("it is a volume without a catalogue of dictionaries".into()));
            }
            Some(LAYOUT_VERSION) => {}
            Some(version) => return Err(Refusal::Newer(format!("it has layout {version}"))),
        }
        let next = number(env, NEXT)?.map(u32::from_le_bytes);
        let next = next.ok_or_else(|| Refusal::Damaged("it has no next number".into()))?;
        let opening =
            number(env, GENERATION)?.map_or(0, |last| (u64::from_le_bytes(last) >> GENERATIONS_BITS) + 1);
        let mut dicts = BTreeMap::new();
        for (name, dict) in entries(|lo, hi| Steps::Plain(env.cursor(ENGINE_DICT, lo, hi)))? {
            if dict.number == CATALOGUE || dict.number >= next {
                return Err(Refusal::Damaged(format!(
                    "the dictionary {name:?} has a number that was not given out"
                )));
            }
            if let Some(merge) = dict.merge.as_ref().filter(|merge| !merges.has(merge))
                && missing == MissingMerges::Refuse
            {
                return Err(Refusal::UnknownMerge { merge: merge.clone(), dict: name });
            }
            let state = Arc::new(DictState::new(&name, dict));
            dicts.insert(name, state);
        }
        for (name, kind) in merges.kinds() {
            let bound = dicts.iter().find(|(_, dict)| dict.merge.as_deref() == Some(name));
            if let Some((dict, _)) = bound
                && let Some(was) = kind_of_merge(env, name)?
                && was != kind.as_bytes()
            {
                let (merge, dict, is) = (name.to_owned(), dict.clone(), kind.to_owned());
                let was = String::from_utf8_lossy(&was).into_owned();
                return Err(Refusal::OtherKindOfMerge { merge, dict, was, is });
            }
        }
        Ok(Catalogue { dicts, next, generation: opening << GENERATIONS_BITS })
    }
}

#[cfg(test)]
mod tests;
