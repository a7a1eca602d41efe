//! Keys of the dictionaries.
//!
//! The components of a path are joined by the byte 00, which no name contains, and the separator before the
//! last is doubled: `/a/b/c` is `00 a 00 b 00 00 c`. So the entries of a directory have one prefix
//! ([`entries`]), everything below it has one prefix ([`subtree`]), and an entry's key is above all keys
//! below its siblings. A *path* here is the key without the doubling (`00 a 00 b 00 c`; the root's is empty),
//! from which the keys below it are made.
//!
//! Other keys begin with another byte: 01 objects (files with several names), 02 markers of unlinked files,
//! 03 snapshots, 05 the root's own record and the volume's record. 04, and 06 and above, are for later
//! versions: a check reports a key there, and nothing reads it.
//!
//! The snapshots of a directory are the entries of the path made of 03, the directory's path and 00. Because
//! no component is empty, the snapshots of its subdirectories have other keys, and all of them together have
//! one prefix ([`snapshots_path`]). The snapshot `s` of `/a` has the key `03 00 a 00 00 00 s` and the path
//! `03 00 a 00 00 s`.
//!
//! In `data`, an entry's own key is followed by 00 and a tag: a block number of eight bytes, the first of
//! them below 80, or ff and the name of a large extended attribute. The tag fe is for later versions.

mod describe;

use alloc::vec::Vec;

use betree::{Cut, KEY_BYTES_MAX};

pub(crate) use describe::{describe, describe_cut, described};

/// The longest name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// The longest own key: the keys made of it in `data` must fit as well.
pub(crate) const OWN_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - 2 - NAME_BYTES_MAX;

const OBJECT: u8 = 0x01;
const MARKER: u8 = 0x02;
const SNAPSHOT: u8 = 0x03;
const ROOT: u8 = 0x05;
const XATTR: u8 = 0xff;
/// The tag for pairs beside a file, in a later version.
const PAIRS: u8 = 0xfe;
/// The first byte of a block number is below this.
const BLOCKS_END: u8 = 0x80;

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

/// The object id in the key of an object.
pub(crate) fn object_id(key: &[u8]) -> Option<u64> {
    let (kind, oid) = key.split_first()?;
    (*kind == OBJECT).then_some(u64::from_be_bytes(oid.try_into().ok()?))
}

/// The key of the marker of an unlinked file.
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

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(9);
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The key of a block of the file with this own key.
pub(crate) fn block(own: &[u8], number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(own.len() + 9);
    key.extend_from_slice(own);
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The prefix of the entry's own keys in `data`.
pub(crate) fn data(own: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(own.len() + 1);
    prefix.extend_from_slice(own);
    prefix.push(0);
    prefix
}

/// The prefix of all blocks of a file: no block number up to [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) begins
/// with another byte.
pub(crate) fn all_blocks(own: &[u8]) -> Vec<u8> {
    let mut prefix = block(own, 0);
    prefix.truncate(own.len() + 2);
    prefix
}

const _: () = assert!((crate::FILE_BYTES_MAX / 4096).leading_zeros() >= 8);

/// Bounds of the blocks of a file from a block on.
pub(crate) fn blocks_from(own: &[u8], first: u64) -> (Cut, Cut) {
    let mut end = own.to_vec();
    end.extend_from_slice(&[0, BLOCKS_END]);
    (Cut::before(block(own, first)), Cut::before(end))
}

/// Bounds of the blocks `[first, end)` of a file.
pub(crate) fn blocks(own: &[u8], first: u64, end: u64) -> (Cut, Cut) {
    (Cut::before(block(own, first)), Cut::before(block(own, end)))
}

/// Bounds of the blocks `[first, end)` of any file, in the bytes behind the prefix of [`data`].
pub(crate) fn block_numbers(first: u64, end: u64) -> (Cut, Cut) {
    (Cut::before(first.to_be_bytes()), Cut::before(end.to_be_bytes()))
}

/// The key of a large extended attribute.
pub(crate) fn xattr(own: &[u8], name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(own.len() + 2 + name.len());
    key.extend_from_slice(own);
    key.extend_from_slice(&[0, XATTR]);
    key.extend_from_slice(name);
    key
}

/// Bounds of the large extended attributes of an entry.
pub(crate) fn xattrs(own: &[u8]) -> (Cut, Cut) {
    within(xattr(own, b""))
}

/// The first byte of a key that only later versions understand.
pub(crate) fn reserved_space(key: &[u8]) -> Option<u8> {
    key.first().copied().filter(|first| *first == SNAPSHOT + 1 || *first > ROOT)
}

/// The meaning of a key in `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataTag<'k> {
    /// A block by its number.
    Block(u64),
    /// A large extended attribute by its name.
    Xattr(&'k [u8]),
    /// A tag that only later versions know.
    Reserved(u8),
}

/// The own key and the tag in a key of `data`.
pub(crate) fn split_data(key: &[u8]) -> Option<(&[u8], DataTag<'_>)> {
    let own_len = match *key.first()? {
        0 | SNAPSHOT => {
            let (path, rest) = split_doubled(key)?;
            path.len() + 2 + rest.iter().position(|b| *b == 0).filter(|len| *len > 0)?
        }
        OBJECT => 9,
        ROOT => 1,
        _ => return None,
    };
    let own = key.get(..own_len)?;
    let tag = key.get(own_len..)?.strip_prefix(&[0])?;
    match *tag.first()? {
        XATTR => Some((own, DataTag::Xattr(tag.get(1..).filter(|name| !name.is_empty())?))),
        PAIRS => Some((own, DataTag::Reserved(PAIRS))),
        first if first < BLOCKS_END => Some((own, DataTag::Block(u64::from_be_bytes(tag.try_into().ok()?)))),
        _ => None,
    }
}

/// The number of the first block of a file behind a cut; `u64::MAX` if there is none.
pub(crate) fn first_block_behind(own: &[u8], cut: &Cut) -> u64 {
    let Some(number) = cut.bytes().strip_prefix(data(own).as_slice()) else { return u64::MAX };
    if number.first().is_some_and(|first| *first >= BLOCKS_END) || number.is_empty() && cut.is_after() {
        return u64::MAX;
    }
    let mut whole = if cut.is_after() { [0xff; 8] } else { [0; 8] };
    for (to, from) in whole.iter_mut().zip(number) {
        *to = *from;
    }
    // The cut is behind the key of a block, or inside it.
    let is_past = cut.is_after() || number.len() > 8;
    u64::from_be_bytes(whole).saturating_add(u64::from(is_past))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;

    const NAMES: [&[u8]; 7] = [b"a", b"a\x01", b"a\xff", b"\x01", b"\xff", b"b", b"ab"];

    /// Every path of up to three of the names.
    fn paths() -> Vec<Vec<&'static [u8]>> {
        let mut all: Vec<Vec<&[u8]>> = vec![vec![]];
        let mut last = all.clone();
        for _ in 0..3 {
            last = last
                .iter()
                .flat_map(|path| {
                    NAMES.iter().map(move |name| {
                        let mut longer = path.clone();
                        longer.push(*name);
                        longer
                    })
                })
                .collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    fn path_bytes(components: &[&[u8]]) -> Vec<u8> {
        components.iter().fold(Vec::new(), |path, name| child_path(&path, name))
    }

    fn in_bounds(bounds: &(Cut, Cut), key: &[u8]) -> bool {
        !bounds.0.is_above(key) && bounds.1.is_above(key)
    }

    #[test]
    fn the_keys_are_as_documented() {
        assert_eq!(own(&path_bytes(&[b"a", b"b", b"c"])), b"\0a\0b\0\0c");
        assert_eq!(own(&path_bytes(&[b"a"])), b"\0\0a");
        assert_eq!(own(b""), ROOT_KEY);
        assert_eq!(block(b"\0\0a", 5), b"\0\0a\0\0\0\0\0\0\0\0\x05");
        assert_eq!(describe(b"\0a\0b\0\0c"), "/a/b/c");
        assert_eq!(snapshots_path(b"\0a"), b"\x03\0a\0");
        assert_eq!(entry(&snapshots_path(b"\0a"), b"s"), b"\x03\0a\0\0\0s");
        assert_eq!(describe(b"\x03\0a\0\0\0s"), "/a/.betrfs-snapshots/s");
        assert_eq!(describe(b"\x03\0\0s\0b\0\0c"), "/.betrfs-snapshots/s/b/c");
    }

    #[test]
    fn keys_in_snapshots_are_told_apart_and_give_back_their_paths() {
        let mut keys = BTreeMap::new();
        for of in paths().into_iter().filter(|path| path.len() < 3) {
            let of_bytes = path_bytes(&of);
            let snapshots = snapshots_path(&of_bytes);
            assert_eq!(snapshots_of(&snapshots), Some(of_bytes.as_slice()));
            assert_eq!(snapshots_holder(&entry(&snapshots, b"s")), Some(of_bytes.as_slice()));
            for name in NAMES {
                for inner in paths().into_iter().filter(|path| path.len() < 3) {
                    let path =
                        inner.iter().fold(child_path(&snapshots, name), |path, n| child_path(&path, n));
                    let key = own(&path);
                    let (above, last) = split_entry(&key).unwrap();
                    assert_eq!(child_path(above, last), path);
                    let block = block(&key, 0);
                    assert_eq!(split_data(&block), Some((key.as_slice(), DataTag::Block(0))));
                    assert!(in_bounds(&super::snapshots(&of_bytes), &key));
                    assert_eq!(in_bounds(&entries(&snapshots), &key), inner.is_empty());
                    assert_eq!(keys.insert(key, (of.clone(), name, inner)), None);
                }
            }
        }
    }

    #[test]
    fn no_two_paths_share_a_key_and_keys_give_back_their_paths() {
        let mut seen = BTreeMap::new();
        for path in paths() {
            let bytes = path_bytes(&path);
            let key = own(&bytes);
            if let Some((name, above)) = path.split_last() {
                assert_eq!(split_entry(&key), Some((path_bytes(above).as_slice(), *name)));
            }
            assert_eq!(seen.insert(key, path), None);
        }
    }

    #[test]
    fn entries_and_subtrees_are_one_range_each() {
        let all = paths();
        for dir in &all {
            let path = path_bytes(dir);
            for other in &all {
                let key = own(&path_bytes(other));
                let is_entry = other.len() == dir.len() + 1 && other.starts_with(dir);
                let is_under = other.len() > dir.len() && other.starts_with(dir);
                assert_eq!(in_bounds(&entries(&path), &key), is_entry, "{dir:?} {other:?}");
                assert_eq!(in_bounds(&subtree(&path), &key), is_under, "{dir:?} {other:?}");
                assert_eq!(is_below(&path, &key), is_under);
            }
        }
    }

    #[test]
    fn the_layout_is_siblings_first_then_each_subtree_whole() {
        let mut keys: Vec<_> = paths().into_iter().skip(1).collect();
        keys.sort_by_key(|path| own(&path_bytes(path)));
        // The same order from a walk: the entries of a directory, then everything below each.
        fn walk<'a>(
            dir: &[&'static [u8]],
            all: &'a [Vec<&'static [u8]>],
            out: &mut Vec<&'a Vec<&'static [u8]>>,
        ) {
            let mut children: Vec<_> =
                all.iter().filter(|p| p.len() == dir.len() + 1 && p.starts_with(dir)).collect();
            children.sort();
            out.extend(&children);
            for child in children {
                walk(child, all, out);
            }
        }
        let mut walked = Vec::new();
        walk(&[], &keys, &mut walked);
        // Subtrees follow in the order of their names, up to the separator: `a 00` is below `a 01`.
        assert_eq!(keys.iter().collect::<Vec<_>>(), walked);
    }

    #[test]
    fn data_keys_of_an_entry_are_one_range_and_parse_back() {
        let all: Vec<_> = paths().into_iter().map(|p| own(&path_bytes(&p))).chain([object(7)]).collect();
        for key in &all {
            let last = block(key, (1 << 50) - 1);
            assert_eq!(split_data(&last), Some((key.as_slice(), DataTag::Block((1 << 50) - 1))));
            let attr = xattr(key, b"user.\0x");
            assert_eq!(split_data(&attr), Some((key.as_slice(), DataTag::Xattr(b"user.\0x"))));
            for other in &all {
                let same = key == other;
                assert_eq!(in_bounds(&blocks_from(other, 0), &last), same);
                assert_eq!(in_bounds(&xattrs(other), &attr), same);
                assert!(!in_bounds(&xattrs(other), &last));
                assert!(!in_bounds(&blocks_from(other, 0), &attr));
            }
        }
        for bad in [&b""[..], b"\0", b"\0\0", b"\0\0a", b"\0\0a\0", b"\0\0a\0\x80", b"\x01abc", b"\x09"] {
            assert_eq!(split_data(bad), None, "{bad:?}");
            describe(bad);
        }
    }
}
