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
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 40);
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
