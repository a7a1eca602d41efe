//! Keys and records: an input is a list of pairs (dictionary, length of the key, key, length of the value,
//! value), which are put into the dictionaries of the sound volume.

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env};
use betree_sim::MemDevice;
use betrfs::Volume;

use crate::volume::{CACHE_BYTES, sample};

const DICTS: u8 = 4;
/// The most inputs that the corpus begins with.
const EXAMPLES_MAX: usize = 40;
/// The kinds of markers of a detached tree, and its number: below those of some of its files, for a copy.
const REMOVED: u8 = 1;
const COPY: u8 = 2;
const KEPT: u8 = 3;
const DETACHED_NUMBER: u64 = 1;
/// The most pairs of an input.
const PAIRS_MAX: usize = 64;

/// Puts the pairs of an input into the sound volume.
///
/// # Errors
/// The engine's, in words.
pub fn forge(input: &[u8]) -> Result<MemDevice, String> {
    let device = Arc::new(sample()?);
    let env =
        Env::open(device.clone(), Volume::engine_options(CACHE_BYTES)).map_err(|error| error.to_string())?;
    let mut rest = input;
    for _ in 0..PAIRS_MAX {
        let Some((dict, after)) = rest.split_first() else { break };
        let Some((key, after)) = counted(after) else { break };
        let Some((value, after)) = counted(after) else { break };
        rest = after;
        let mut batch = Batch::new();
        batch.put(DictId(dict % DICTS), key, value);
        // A key may be too long.
        let _ = env.commit(&batch);
    }
    env.close().map_err(|error| error.to_string())?;
    drop(env);
    Ok(device.copy())
}

/// What a length of two bytes precedes, and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    Some(rest.split_at(len))
}

/// Pairs of the sound volume, each one an input.
pub fn examples() -> Vec<Vec<u8>> {
    let Ok(device) = sample() else { return Vec::new() };
    let Ok(env) = Env::open(Arc::new(device), Volume::engine_options(CACHE_BYTES)) else { return Vec::new() };
    let mut all = Vec::new();
    for dict in 0..DICTS {
        let mut cursor = env.cursor(DictId(dict), Cut::LOW, Cut::HIGH);
        while let Ok(Some((key, value))) = cursor.next() {
            all.push(pair(dict, key, &value[..value.len().min(400)]));
        }
    }
    env.abandon();
    let step = all.len().div_ceil(EXAMPLES_MAX).max(1);
    all.into_iter().step_by(step).chain([REMOVED, COPY, KEPT].map(detached)).collect()
}

fn pair(dict: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let lens = [key.len() as u16, value.len() as u16].map(u16::to_le_bytes);
    [&[dict], &lens[0][..], key, &lens[1], value].concat()
}

/// What a crash leaves of the removal, the copy or the way back of a tree with linked files: a marker of this
/// kind, and names of the files with the lowest numbers.
fn detached(kind: u8) -> Vec<u8> {
    let key = |first: u8, rest: &[u8]| [&[first][..], &DETACHED_NUMBER.to_be_bytes(), rest].concat();
    // What is kept is of the root.
    let of: &[u8] = if kind == KEPT { b"\x01\0\0\0\0\0\0\0kept" } else { b"" };
    let mut all = pair(0, &key(2, b""), &[&[1, kind, 0, 0], of].concat());
    for number in 1..=3u64 {
        let name = key(4, &[&[0, 0][..], &[b'a' + number as u8]].concat());
        all.extend(pair(0, &name, b"no record"));
        all.extend(pair(1, &[&name[..], &[0], &[0; 8]].concat(), b"bytes"));
        all.extend(pair(2, &name, &number.to_be_bytes()));
    }
    all
}
