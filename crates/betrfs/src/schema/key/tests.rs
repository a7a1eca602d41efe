//! Tests of keys: that they are as documented, and come back as what they were made of.

use alloc::collections::BTreeMap;
use alloc::vec;

use super::*;

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
                let path = inner.iter().fold(child_path(&snapshots, name), |path, n| child_path(&path, n));
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
    fn walk<'a>(dir: &[&'static [u8]], all: &'a [Vec<&'static [u8]>], out: &mut Vec<&'a Vec<&'static [u8]>>) {
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
