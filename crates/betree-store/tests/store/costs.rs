//! What calls cost, as counts.

use std::os::unix::fs::MetadataExt;

use crate::{appending, filled, options, store};

/// A dictionary of some MiB, which is more than the cache, written and not in memory.
fn large(path: &std::path::Path, pairs: u32) -> betree_store::Store {
    let store = options().open(path).unwrap();
    let dict = store.dict("large").unwrap();
    for part in 0..pairs / 1000 {
        let mut batch = store.batch();
        for i in 0..1000 {
            let key = part * 1000 + i;
            batch.put(&dict, key.to_be_bytes(), seeded::bytes(u64::from(key), 0, 200)).unwrap();
        }
        batch.commit().unwrap();
    }
    store.close().unwrap();
    options().open(path).unwrap()
}

#[test]
fn changes_read_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = large(&folder.path().join("store"), 30_000);
    let (dict, notes) = (store.open_dict("large").unwrap(), store.dict_with("notes", &appending()).unwrap());
    let before = store.stats().engine;
    for key in 0..200_u32 {
        dict.put(key.to_be_bytes(), "new").unwrap();
        dict.delete((key + 1000).to_be_bytes()).unwrap();
        notes.upsert("all", "x").unwrap();
    }
    dict.delete_range(2000_u32.to_be_bytes()..20_000_u32.to_be_bytes()).unwrap();
    let after = store.stats().engine;
    assert_eq!(after.point_queries, before.point_queries);
    assert_eq!(after.range_queries, before.range_queries);
    assert_eq!(after.device_reads, before.device_reads);
}

#[test]
fn many_keys_are_waited_for_as_often_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = large(&folder.path().join("store"), 30_000);
    let dict = store.open_dict("large").unwrap();
    // The interior nodes come to memory. Half of the cache holds what is read below.
    dict.get(0_u32.to_be_bytes()).unwrap();
    let rounds = || store.stats().engine.device_read_rounds;
    for many in [false, true] {
        let keys: Vec<_> = (1..=20_u32).map(|at| (at * 1400 + u32::from(many) * 700).to_be_bytes()).collect();
        let before = rounds();
        let found = if many {
            dict.get_many(&keys).unwrap()
        } else {
            keys.iter().map(|key| dict.get(key).unwrap()).collect()
        };
        let all = keys
            .iter()
            .zip(found)
            .all(|(key, found)| found.unwrap() == seeded::bytes(u64::from(u32::from_be_bytes(*key)), 0, 200));
        assert!(all);
        let waits = rounds() - before;
        match many {
            true => assert!(waits <= store.stats().engine.height + 1, "{waits} waits"),
            false => assert!(waits >= 20, "{waits} waits"),
        }
    }
}

#[test]
fn the_parts_of_many_values_are_waited_for_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let value = |key: u32| seeded::bytes(u64::from(key), 0, (1 << 20) + 1 + key as usize * 100_000);
    let open = || options().cache_bytes(64 << 20).open(&path).unwrap();
    let store = open();
    let dict = store.dict("large").unwrap();
    (0..8).for_each(|key: u32| dict.put(key.to_be_bytes(), value(key)).unwrap());
    store.close().unwrap();
    let store = open();
    let (dict, view) = (store.open_dict("large").unwrap(), store.view().dict("large").unwrap());
    let keys: Vec<_> = (0..9_u32).chain([3]).rev().map(u32::to_be_bytes).collect();
    let before = store.stats().engine;
    let found = dict.get_many(&keys).unwrap();
    let after = store.stats().engine;
    for (key, found) in keys.iter().zip(&found) {
        let key = u32::from_be_bytes(*key);
        assert!(*found == Some(value(key).into()).filter(|_| key < 8), "{key}");
    }
    // To the pairs, and to the parts.
    let rounds = after.device_read_rounds - before.device_read_rounds;
    assert!(rounds <= 2 * (after.height + 1), "{rounds} waits");
    assert_eq!(after.range_queries, before.range_queries, "no value was read by itself");
    assert!(view.get_many(&keys).unwrap() == found);
    let transaction = store.begin(betree_store::Isolation::Serializable);
    assert!(transaction.get_many(&dict, &keys).unwrap() == found);
}

#[test]
fn a_clone_of_a_dictionary_costs_no_more_for_a_larger_one() {
    let cost = |pairs| {
        let folder = tempfile::tempdir().unwrap();
        let store = large(&folder.path().join("store"), pairs);
        let before = store.stats().engine;
        let copy = store.clone_dict("large", "copy").unwrap();
        let after = store.stats().engine;
        let cost = after.device_reads - before.device_reads;
        assert_eq!(copy.iter().count(), pairs as usize);
        (cost, after.height)
    };
    for (reads, height) in [cost(2_000), cost(100_000)] {
        // The path to each end of the source, header and pieces.
        assert!(reads <= 4 * height, "{reads} reads in a tree of {height} levels");
    }
}

#[test]
fn a_new_store_takes_little_room_and_its_size_is_no_matter() {
    let (folder, store) = store();
    filled(&store, "d", ["k".into()]);
    store.close().unwrap();
    let path = folder.path().join("store");
    let shown = std::fs::metadata(&path).unwrap().len();
    assert!(shown < 10 << 20, "{shown} bytes, of which the log has 8 MiB");
    let taken = taken_bytes(&path);
    assert!(taken < 1 << 20, "{taken} bytes");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

/// What a file takes on its disk.
fn taken_bytes(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn what_is_deleted_or_overwritten_gives_its_room_back_to_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = options().open(&path).unwrap();
    let empty = taken_bytes(&path);
    // Bytes that do not compress; the log of 8 MiB comes to take all of its room too.
    let fill = |seed: u64| {
        let dict = store.dict("d").unwrap();
        (0..5000_u32).for_each(|i| {
            dict.put(i.to_be_bytes(), seeded::bytes(seed << 32 | u64::from(i), 0, 2000)).unwrap()
        });
        store.check().unwrap();
    };
    fill(1);
    let once = taken_bytes(&path);
    assert!(once > empty + (9 << 20), "{once} bytes");
    (2..6).for_each(fill);
    let often = taken_bytes(&path);
    assert!(often < once + (10 << 20), "{once} bytes became {often} when the same keys were put again");
    store.drop_dict("d").unwrap();
    // It writes a checkpoint, frees nodes, and writes another one: as threads do in a minute.
    store.check().unwrap();
    let after = taken_bytes(&path);
    assert!(after < 2 << 20, "{often} bytes became {after} when all was deleted");
}
