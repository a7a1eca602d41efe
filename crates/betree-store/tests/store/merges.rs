//! Merges: what fails, what was dropped, and what upserts cost.

use betree_store::{DictOptions, Error, Store, StoreOptions, merges};

use crate::{append, appending, options, store};

/// A merge that panics at some deltas.
fn fragile(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
    assert!(delta != b"bad", "a bad delta");
    append(old, delta)
}

fn opened(options: StoreOptions, folder: &tempfile::TempDir) -> Store {
    options.open(folder.path().join("store")).unwrap()
}

#[test]
fn a_panic_in_a_merge_is_an_error_with_its_name_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fragile = Store::options().cache_bytes(1 << 20).merge("append", fragile);
    let store = opened(fragile.clone(), &folder);
    let (notes, plain) = (store.dict_with("notes", &appending()).unwrap(), store.dict("plain").unwrap());
    for delta in ["a", "bad", "b"] {
        notes.upsert("k", delta).unwrap();
    }
    notes.upsert("l", "fine").unwrap();
    plain.put("p", "v").unwrap();
    let is_failed = |error: &Error| matches!(error, Error::MergeFailed { merge, why, .. } if merge == "append" && why.contains("a bad delta"));
    assert!(is_failed(&notes.get("k").unwrap_err()));
    assert!(is_failed(&notes.iter().next().unwrap().unwrap_err()));
    assert_eq!(notes.get("l").unwrap().unwrap(), "fine");
    // Whatever becomes of the store with such a delta, what was durable is there for a merge that does not
    // fail.
    store.sync().unwrap();
    for i in 0..3000_u32 {
        if plain.put(i.to_be_bytes(), [7; 100]).is_err() {
            break;
        }
    }
    drop((store, notes, plain));
    let store = opened(options(), &folder);
    let notes = store.open_dict("notes").unwrap();
    assert_eq!(notes.get("k").unwrap().unwrap(), "abadb");
    assert_eq!(notes.get("l").unwrap().unwrap(), "fine");
    assert_eq!(store.open_dict("plain").unwrap().get("p").unwrap().unwrap(), "v");
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_value_that_a_merge_makes_too_large_is_an_error() {
    let (_folder, store) = store();
    let notes = store.dict_with("notes", &appending()).unwrap();
    let part = vec![7; 500_000];
    (0..9).for_each(|_| notes.upsert("k", &part).unwrap());
    let failed = notes.get("k");
    assert!(
        matches!(&failed, Err(Error::MergeFailed { why, .. }) if why.contains("over the limit")),
        "{failed:?}"
    );
}

#[test]
fn a_store_does_not_need_the_merge_of_a_dropped_dictionary() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(options(), &folder);
    let notes = store.dict_with("notes", &appending()).unwrap();
    (0..3000).for_each(|i| notes.upsert((i % 500).to_string(), [b'x'; 100]).unwrap());
    store.drop_dict("notes").unwrap();
    store.sync().unwrap();
    store.abandon();
    drop((store, notes));
    let without = Store::options().cache_bytes(1 << 20);
    let store = opened(without, &folder);
    assert_eq!(store.dicts(), [""; 0]);
    let dict = store.dict("d").unwrap();
    (0..3000_u32).for_each(|i| dict.put(i.to_be_bytes(), [7; 100]).unwrap());
    assert_eq!(store.check().unwrap(), []);
    store.close().unwrap();
}

#[test]
fn a_counter_is_merged_once_however_often_it_is_added_to() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[derive(Clone)]
    struct Counted(Arc<AtomicU64>);
    impl betree_store::Merge for Counted {
        fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
            self.0.fetch_add(1, Relaxed);
            merges::AddU64.merge(old, delta)
        }
        fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            merges::AddU64.combine(older, newer)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let merge = Counted(Arc::default());
    let store = opened(Store::options().cache_bytes(1 << 20).merge_with("add", merge.clone()), &folder);
    let hits = store.dict_with("hits", &DictOptions::new().merge("add")).unwrap();
    (0..20_000).for_each(|_| hits.upsert("k", 1_u64.to_le_bytes()).unwrap());
    assert_eq!(hits.get("k").unwrap().unwrap(), 20_000_u64.to_le_bytes());
    let merged = merge.0.load(Relaxed);
    assert!(merged <= 10, "{merged} merges");
}
