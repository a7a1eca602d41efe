//! Batches over dictionaries.

use std::time::Duration;

use betree_store::{Durability, Error};

use crate::{filled, keys, options, store};

#[test]
fn a_batch_with_a_dropped_dictionary_changes_nothing() {
    let (_folder, store) = store();
    let (a, b) = (store.dict("a").unwrap(), store.dict("b").unwrap());
    let mut batch = store.batch();
    batch.put(&a, "k", "v").unwrap();
    batch.put(&b, "k", "v").unwrap();
    store.drop_dict("b").unwrap();
    assert!(matches!(batch.commit(), Err(Error::DictDropped { name }) if name == "b"));
    assert!(a.is_empty().unwrap());
}

#[test]
fn changes_take_effect_in_their_order() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["a".into()]);
    let mut batch = store.batch();
    batch.put(&dict, "b", "").unwrap();
    batch.delete_range(&dict, "a"..).unwrap();
    batch.put(&dict, "c", "").unwrap();
    batch.delete(&dict, "c").unwrap();
    batch.put(&dict, "d", "").unwrap();
    assert_eq!(batch.len(), 5);
    batch.commit().unwrap();
    assert_eq!(keys(&dict), ["d"]);
}

#[test]
fn a_batch_of_another_store_or_over_its_limit_is_refused() {
    let (_folder, store) = store();
    let (_other_folder, other) = crate::store();
    let (here, there) = (store.dict("d").unwrap(), other.dict("d").unwrap());
    let mut batch = store.batch();
    assert!(matches!(batch.put(&there, "k", "v"), Err(Error::OtherStore { .. })));
    assert!(batch.is_empty());
    let mut number = 0_u32;
    while batch.bytes() <= batch.bytes_max() {
        batch.put(&here, number.to_be_bytes(), [7; 100_000]).unwrap();
        number += 1;
    }
    let limit = batch.bytes_max();
    assert!(matches!(batch.commit(), Err(Error::BatchTooLarge { bytes, limit_bytes })
        if bytes == batch.bytes() && limit_bytes == limit));
    assert!(here.is_empty().unwrap());
}

#[test]
fn after_a_crash_a_batch_is_there_wholly_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for round in 0..5 {
        let store = options().open(&path).unwrap();
        let dicts: Vec<_> = (0..4).map(|i| store.dict(&i.to_string()).unwrap()).collect();
        let counts: Vec<_> = dicts.iter().map(|dict| dict.iter().count()).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        assert!(counts[0] >= round * 10, "{counts:?}");
        for i in 0..30 {
            let mut batch = store.batch();
            dicts.iter().for_each(|dict| batch.put(dict, format!("{round}/{i}"), [1; 3000]).unwrap());
            batch.commit().unwrap();
            if i == 9 {
                store.sync().unwrap();
            }
        }
        store.abandon();
    }
}

#[test]
fn changes_are_durable_when_they_are_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let crash_after = |durability, key: &str, pause| {
        let store = options().durability(durability).open(&path).unwrap();
        store.dict("d").unwrap().put(key, "").unwrap();
        std::thread::sleep(pause);
        store.abandon();
    };
    let now = Duration::ZERO;
    crash_after(Durability::PerCommit, "per commit", now);
    crash_after(Durability::Every(Duration::from_millis(20)), "soon", Duration::from_secs(2));
    crash_after(Durability::Every(now), "at once", Duration::from_secs(2));
    crash_after(Durability::Manual, "never synced", now);
    let dict = options().open(&path).unwrap().open_dict("d").unwrap();
    assert_eq!(keys(&dict), ["at once", "per commit", "soon"]);
}
