//! Keys of the dictionaries.
//!
//! The components of a path are joined by the byte 00, which no name contains, and the separator before the
//! last is doubled: `/a/b/c` is `00 a 00 b 00 00 c`. So the entries of a directory have one prefix
//! ([`entries`]), everything below it has one prefix ([`subtree`]), and an entry's key is above all keys
//! below its siblings. A *path* here is the key without the doubling (`00 a 00 b 00 c`; the root's is empty),
//! from which the keys below it are made.
//!
//! Other keys begin with another byte: 01 objects (files with several names), 02 markers of what has no name,
//! 03 snapshots, 04 detached trees (`key/detached.rs`), 05 the root's own record and the volume's record. 06
//! and above are for later versions: a check reports a key there, and nothing reads it.
//!
//! The snapshots of a directory are the entries of the path made of 03, the directory's path and 00. Because
//! no component is empty, the snapshots of its subdirectories have other keys, and all of them together have
//! one prefix ([`snapshots_path`]). The snapshot `s` of `/a` has the key `03 00 a 00 00 00 s` and the path
//! `03 00 a 00 00 s`.
//!
//! The keys of `data` begin with the own key of an entry: `key/data.rs`.

mod data;
mod describe;
mod detached;

use alloc::vec::Vec;

use betree::{Cut, KEY_BYTES_MAX};

pub(crate) use data::{
    DataTag, all_blocks, block, block_numbers, blocks, blocks_from, data, first_block_behind, quota_use,
    split_data, xattr, xattrs,
};
pub(crate) use describe::{describe, describe_cut, described};
pub(crate) use detached::{
    all_detached, detached, detached_number, detached_objects, detached_own, detached_path,
    detached_snapshots,
};

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest own key: the keys made of it in `data` must fit as well.
pub(crate) const OWN_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - 2 - NAME_BYTES_MAX;

const OBJECT: u8 = 0x01;
const MARKER: u8 = 0x02;
const SNAPSHOT: u8 = 0x03;
const ROOT: u8 = 0x05;
/// The key of the root's record.
pub(crate) const ROOT_KEY: [u8; 1] = [ROOT];
/// The key of the volume's record.
pub(crate) const VOLUME_KEY: [u8; 2] = [ROOT, 0x01];

/// The path of `name` in the directory of this path.
pub(crate) fn child_path(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut child = Vec::with_capacity(path.len() + 1 + name.len());
    child.extend_from_slice(path);
    child.push(0);
    child.extend_from_slice(name);
    child
}

/// The own key of `name` in the directory of this path.
pub(crate) fn entry(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(path.len() + 2 + name.len());
    key.extend_from_slice(path);
    key.extend_from_slice(&[0, 0]);
    key.extend_from_slice(name);
    key
}

/// The own key of the directory of this path.
pub(crate) fn own(path: &[u8]) -> Vec<u8> {
    match path.iter().rposition(|b| *b == 0) {
        None => ROOT_KEY.to_vec(),
        Some(at) => {
            let (parent, name) = path.split_at(at);
            entry(parent, name.get(1..).unwrap_or(&[]))
        }
    }
}

/// The directory's path and the name in an own key.
pub(crate) fn split_entry(own: &[u8]) -> Option<(&[u8], &[u8])> {
    let (path, rest) = split_doubled(own)?;
    let is_name = !rest.is_empty() && rest.len() <= NAME_BYTES_MAX && !rest.contains(&0);
    is_name.then_some((path, rest))
}

/// Splits at the doubled separator behind a well-formed path: the path, and the rest.
fn split_doubled(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let doubled = |from: usize| {
        let at = key.get(from..)?.windows(2).position(|two| two == [0, 0])?;
        Some(from + at)
    };
    let at = match *key.first()? {
        0 => doubled(0)?,
        // The directory's path is followed by an empty component, and that by the snapshot's name.
        SNAPSHOT => match doubled(1)? {
            at if key.get(at + 2) == Some(&0) => at + 1,
            at => doubled(at + 2)?,
        },
        _ => return None,
    };
    Some((key.get(..at)?, key.get(at + 2..)?))
}

/// Whether a key or path belongs to a snapshot; the path of the snapshots themselves does.
pub(crate) fn is_in_snapshot(key: &[u8]) -> bool {
    key.first() == Some(&SNAPSHOT)
}

/// The path whose entries are the snapshots of the directory of this path. It is the prefix of all keys in
/// snapshots of the directory and of those below it.
pub(crate) fn snapshots_path(path: &[u8]) -> Vec<u8> {
    let mut snapshots = Vec::with_capacity(path.len() + 2);
    snapshots.extend_from_slice(path);
    snapshots.push(0);
    in_snapshots(snapshots)
}

/// A path moved into the key space of snapshots.
pub(crate) fn in_snapshots(mut path: Vec<u8>) -> Vec<u8> {
    path.insert(0, SNAPSHOT);
    path
}

/// Bounds of all keys in snapshots of a directory and of those below it.
pub(crate) fn snapshots(path: &[u8]) -> (Cut, Cut) {
    within(snapshots_path(path))
}

/// Bounds of all keys in snapshots of directories below a directory, without its own snapshots.
pub(crate) fn snapshots_below(path: &[u8]) -> (Cut, Cut) {
    // The name of a directory below is no empty component, as the one that its own snapshots have there.
    let own = child_path(&snapshots_path(path), b"");
    (Cut::after(own), snapshots(path).1)
}

/// Bounds of all names, those in snapshots too, without objects and markers.
pub(crate) fn names() -> [(Cut, Cut); 2] {
    [(Cut::LOW, Cut::before([OBJECT])), within(alloc::vec![SNAPSHOT])]
}

/// The path of the directory whose snapshots are the entries of this path.
pub(crate) fn snapshots_of(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(&[SNAPSHOT])?.strip_suffix(&[0])
}

/// The path of the directory whose snapshot contains this key or path.
pub(crate) fn snapshots_holder(key: &[u8]) -> Option<&[u8]> {
    let inside = key.strip_prefix(&[SNAPSHOT])?;
    let end = inside.windows(2).position(|two| two == [0, 0])?;
    inside.get(..end)
}

/// The components of the path of an own key, from the root on. The empty one stands for
/// [`SNAPSHOTS_NAME`](crate::SNAPSHOTS_NAME).
pub(crate) fn components(own: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let (path, name) = split_entry(own)?;
    Some(path.split(|byte| *byte == 0).skip(1).chain([name]))
}

/// Bounds of the own keys of a directory's entries.
pub(crate) fn entries(path: &[u8]) -> (Cut, Cut) {
    within(entry(path, b""))
}

/// Bounds of all keys strictly below a directory, in each of the dictionaries.
pub(crate) fn subtree(path: &[u8]) -> (Cut, Cut) {
    within(child_path(path, b""))
}

/// Whether a key lies strictly below a directory.
pub(crate) fn is_below(path: &[u8], key: &[u8]) -> bool {
    key.strip_prefix(path).is_some_and(|rest| rest.first() == Some(&0))
}

/// Bounds of all keys that begin with a prefix.
pub(crate) fn within(prefix: Vec<u8>) -> (Cut, Cut) {
    (Cut::before(prefix.clone()), Cut::after(prefix))
}

/// The key of a file with several names.
pub(crate) fn object(oid: u64) -> Vec<u8> {
    numbered(OBJECT, oid)
}

/// Bounds of all objects.
pub(crate) fn objects() -> (Cut, Cut) {
    within(all_objects())
}

/// The prefix of all objects.
pub(crate) fn all_objects() -> Vec<u8> {
    alloc::vec![OBJECT]
}

/// The object id in the key of an object.
pub(crate) fn object_id(key: &[u8]) -> Option<u64> {
    let (kind, oid) = key.split_first()?;
    (*kind == OBJECT).then_some(u64::from_be_bytes(oid.try_into().ok()?))
}

/// The key of a marker.
pub(crate) fn marker(oid: u64) -> Vec<u8> {
    numbered(MARKER, oid)
}

/// The number in the key of a marker.
pub(crate) fn marker_id(key: &[u8]) -> Option<u64> {
    let (kind, oid) = key.split_first()?;
    (*kind == MARKER).then_some(u64::from_be_bytes(oid.try_into().ok()?))
}

/// Bounds of all markers.
pub(crate) fn markers() -> (Cut, Cut) {
    within(alloc::vec![MARKER])
}

/// Bounds of keys of `meta` that have no meaning, between those that have one and behind them.
pub(crate) fn meaningless() -> [(Cut, Cut); 6] {
    let between = |kind, next| (Cut::after([kind]), Cut::before([next]));
    [
        between(OBJECT, MARKER),
        between(MARKER, SNAPSHOT),
        between(SNAPSHOT, detached::DETACHED),
        between(detached::DETACHED, ROOT),
        (Cut::just_after(&ROOT_KEY), Cut::before(VOLUME_KEY)),
        (Cut::just_after(&VOLUME_KEY), Cut::HIGH),
    ]
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The first byte of a key that only later versions understand.
pub(crate) fn reserved_space(key: &[u8]) -> Option<u8> {
    key.first().copied().filter(|first| *first > ROOT)
}

#[cfg(test)]
mod tests;
