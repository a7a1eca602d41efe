//! Values that are stored in parts.

use std::sync::Arc;

use betree_store::{Dict, Error, KEY_BYTES_MAX, Store, VALUE_BYTES_MAX};
use seeded::Rng;

use crate::{appending, keys, options, store};

const MIB: usize = 1 << 20;

fn text(seed: u64, len: usize) -> Vec<u8> {
    seeded::bytes(seed, 0, len)
}

fn is(dict: &Dict, key: &str, seed: u64, len: usize) -> bool {
    dict.get(key).unwrap().is_some_and(|value| value == text(seed, len))
}

/// The bytes that a dictionary takes on the disk once all is written.
fn taken(store: &Store) -> u64 {
    store.check().unwrap();
    store.check().unwrap();
    store.stats().used_bytes
}

#[test]
fn large_values_are_put_read_replaced_and_found_again() {
    let (folder, store) = store();
    let dict = store.dict("d").unwrap();
    for (len, seed) in [(MIB, 1), (64 * MIB, 2), (3 * MIB + 1, 3), (10, 4), (2 * MIB, 5)] {
        dict.put("k", text(seed, len)).unwrap();
        assert!(is(&dict, "k", seed, len), "{len} bytes");
    }
    dict.put("l", text(6, MIB)).unwrap();
    dict.put("m", "small").unwrap();
    store.close().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    let dict = store.open_dict("d").unwrap();
    assert!(is(&dict, "k", 5, 2 * MIB) && is(&dict, "l", 6, MIB));
    let lens: Vec<_> = dict.iter().rev().map(|pair| pair.unwrap().1.len()).collect();
    assert_eq!(lens, [5, MIB, 2 * MIB]);
    let found = dict.get_many(&["m", "k", "k", "n"]).unwrap();
    let lens: Vec<_> = found.iter().map(|value| value.as_ref().map(|value| value.len())).collect();
    assert_eq!(lens, [Some(5), Some(2 * MIB), Some(2 * MIB), None]);
    let estimate = dict.estimate("k".."l").unwrap();
    // Each put of a key that waits above a leaf counts, as if the key were new: there were five. The parts of
    // the values would be 70.
    assert!((1..=5).contains(&estimate.pairs), "{} pairs: parts are no pairs", estimate.pairs);
    let pairs = dict.estimate::<&str>(..).unwrap().pairs;
    assert!((3..=7).contains(&pairs), "{pairs} pairs");
    let taken_bytes = estimate.stored_bytes;
    assert!((2 * MIB as u64..5 * MIB as u64).contains(&taken_bytes), "{taken_bytes} bytes");
    assert_eq!(dict.pop_first().unwrap().unwrap().1, text(5, 2 * MIB));
    assert_eq!(keys(&dict), ["l", "m"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_value_is_too_large_above_its_limit_and_where_there_is_a_merge() {
    let (_folder, store) = store();
    let (dict, notes) = (store.dict("d").unwrap(), store.dict_with("notes", &appending()).unwrap());
    let refused = dict.put("k", vec![0; VALUE_BYTES_MAX + 1]);
    assert!(
        matches!(&refused, Err(Error::ValueTooLarge { limit_bytes: VALUE_BYTES_MAX, key, .. }) if *key == "k"),
        "{refused:?}"
    );
    let refused = notes.put("k", text(1, MIB));
    assert!(matches!(refused, Err(Error::ValueTooLarge { .. })), "{refused:?}");
    let refused = notes.upsert("k", text(1, MIB));
    assert!(matches!(refused, Err(Error::ValueTooLarge { .. })), "{refused:?}");
    // Each zero in a key takes two bytes before the parts.
    let zeros = vec![0; KEY_BYTES_MAX / 2];
    let refused = dict.put(&zeros, text(1, MIB));
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    dict.put(&zeros[20..], text(1, MIB)).unwrap();
    assert_eq!(dict.get(&zeros[20..]).unwrap().unwrap().len(), MIB);
    assert_eq!(dict.iter().count() + notes.iter().count(), 1);
}

#[test]
fn clones_have_the_parts_and_keep_them() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    dict.put("from/a", text(1, MIB)).unwrap();
    dict.put("from/b\0", text(2, MIB)).unwrap();
    dict.put("to/c", text(3, MIB)).unwrap();
    let before = taken(&store);
    dict.clone_prefix("from/", "to/").unwrap();
    let copy = store.clone_dict("d", "copy").unwrap();
    dict.rename_prefix("from/", "moved\0/").unwrap();
    copy.put("from/a", "small").unwrap();
    assert_eq!(keys(&dict), ["moved\0/a", "moved\0/b\0", "to/a", "to/b\0"]);
    assert!(is(&dict, "to/a", 1, MIB) && is(&dict, "moved\0/b\0", 2, MIB));
    assert!(is(&copy, "to/a", 1, MIB) && is(&copy, "from/b\0", 2, MIB));
    copy.put("to/a", text(4, MIB)).unwrap();
    store.drop_dict("d").unwrap();
    assert!(is(&copy, "to/a", 4, MIB) && is(&copy, "from/b\0", 2, MIB) && is(&copy, "to/b\0", 2, MIB));
    let after = taken(&store);
    assert!(after < before + MIB as u64, "{before} bytes became {after}");
}

#[test]
fn batches_hold_large_values_in_their_order() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    dict.put("a", text(1, MIB)).unwrap();
    let mut batch = store.batch();
    batch.put(&dict, "a", text(2, MIB)).unwrap();
    batch.put(&dict, "b", text(3, MIB)).unwrap();
    batch.delete_range(&dict, "b"..).unwrap();
    batch.put(&dict, "c", text(4, MIB)).unwrap();
    batch.put(&dict, "c", "small").unwrap();
    batch.put(&dict, "d", text(5, MIB)).unwrap();
    batch.delete(&dict, "d").unwrap();
    batch.put(&dict, "e", text(6, MIB)).unwrap();
    batch.put(&dict, "e", text(7, MIB)).unwrap();
    // Twice: it can be committed again, also when others have changed what it puts.
    for _ in 0..2 {
        batch.commit().unwrap();
        assert_eq!(keys(&dict), ["a", "c", "e"]);
        assert!(is(&dict, "a", 2, MIB) && is(&dict, "e", 7, MIB));
        dict.put("a", text(8, MIB)).unwrap();
        dict.delete("e").unwrap();
    }
}

#[test]
fn after_a_crash_a_large_value_is_the_old_one_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut rng = Rng::new(1);
    let (mut at_least, mut last) = (0_u64, 0_u64);
    for _ in 0..6 {
        let store = options().open(&path).unwrap();
        let dict = store.dict("d").unwrap();
        let found = dict.get("k").unwrap().map(|value| value.into_vec());
        let which = (at_least..=last).find(|seed| match seed {
            0 => found.is_none(),
            seed => found.as_ref().is_some_and(|found| *found == text(*seed, 3 * MIB)),
        });
        let which = which.expect("it is none of those that were put");
        (at_least, last) = (which, which);
        for _ in 0..rng.between(1, 4) {
            last += 1;
            dict.put("k", text(last, 3 * MIB)).unwrap();
            if rng.percent(40) {
                store.sync().unwrap();
                at_least = last;
            }
        }
        store.abandon();
    }
}

#[test]
fn readers_meet_whole_values_while_they_are_replaced() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    let put = |seed: u64| dict.put("k", text(seed, MIB + seed as usize)).unwrap();
    put(0);
    std::thread::scope(|scope| {
        let writer = Arc::new(scope.spawn(|| (1..40).for_each(put)));
        for _ in 0..2 {
            let (dict, writer) = (&dict, writer.clone());
            scope.spawn(move || {
                let mut last = 0;
                while last < 39 {
                    let is_over = writer.is_finished();
                    let (_, value) = dict.iter().next().unwrap().unwrap();
                    let seed = value.len() - MIB;
                    let is_whole = value == text(seed as u64, value.len());
                    assert!(seed >= last && is_whole, "{seed} after {last}");
                    assert!(seed == 39 || !is_over, "the writer has ended, and {seed} is there");
                    last = seed;
                }
            });
        }
    });
}

#[test]
fn values_that_look_like_references_are_values() {
    let (_folder, store) = store();
    let notes = store.dict_with("notes", &appending()).unwrap();
    let mark = [0x9e, 0xd1, 0x5c, 0x3b, 0xa4, 0x07, 0xf2, 0x68];
    let like_a_reference = [&mark[..], &[1; 17]].concat();
    notes.put("k", &like_a_reference).unwrap();
    notes.put("l", mark).unwrap();
    notes.upsert("l", [1; 17]).unwrap();
    notes.upsert("m", mark).unwrap();
    assert_eq!(notes.get("k").unwrap().unwrap(), like_a_reference);
    assert_eq!(notes.get("l").unwrap().unwrap(), like_a_reference);
    assert_eq!(notes.last().unwrap().unwrap().1, mark);
}
