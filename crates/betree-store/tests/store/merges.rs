//! Merges: what fails, what was dropped, and what upserts cost.

use betree_store::{
    DictOptions, Error, Isolation, MissingMerges, Outcome, Store, StoreOptions, Value, merges,
};

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
    notes.put("replaced", "bad").unwrap();
    notes.upsert("replaced", "bad").unwrap();
    for delta in ["a", "bad", "b"] {
        notes.upsert("k", delta).unwrap();
    }
    notes.upsert("l", "fine").unwrap();
    plain.put("p", "v").unwrap();
    let is_failed = |error: &Error| matches!(error, Error::MergeFailed { merge, why, .. } if merge == "append" && why.contains("a bad delta"));
    assert!(is_failed(&notes.get("k").unwrap_err()));
    assert!(is_failed(&notes.iter().next().unwrap().unwrap_err()));
    assert_eq!(notes.get("l").unwrap().unwrap(), "fine");
    // The flushes meet it too, and go on.
    for i in 0..3000_u32 {
        plain.put(i.to_be_bytes(), [7; 100]).unwrap();
        notes.upsert("k", "").unwrap();
    }
    assert_eq!(store.check().unwrap(), []);
    assert!(is_failed(&notes.get("k").unwrap_err()));
    // A value takes the place of what cannot be merged.
    notes.put("replaced", "whole").unwrap();
    assert_eq!(notes.get("replaced").unwrap().unwrap(), "whole");
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
        matches!(&failed, Err(Error::MergeFailed { why, .. }) if why.contains("too large")),
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
        fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
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

/// A store that lacks the merge of its dictionary goes on; what needs the merge says so, and nothing is lost.
#[test]
fn deltas_wait_for_a_merge_that_is_missing_through_flushes_clones_and_openings() {
    let folder = tempfile::tempdir().unwrap();
    let without = || Store::options().cache_bytes(1 << 20).missing_merges(MissingMerges::Keep);
    let store = opened(options(), &folder);
    let notes = store.dict_with("notes", &appending()).unwrap();
    (0..500).for_each(|i| notes.put(i.to_string(), "put ").unwrap());
    (0..500).for_each(|i| notes.upsert(i.to_string(), "known ").unwrap());
    drop((store, notes));

    let store = opened(without(), &folder);
    let notes = store.open_dict("notes").unwrap();
    let is_missing = |error: &Error, of: &str| matches!(error, Error::UnknownMerge { merge, dict: Some(dict) } if merge == "append" && dict == of);
    for _ in 0..3 {
        (100..500).for_each(|i| notes.upsert(i.to_string(), "unknown ").unwrap());
        assert_eq!(store.check().unwrap(), []);
    }
    assert!(is_missing(&notes.get("300").unwrap_err(), "notes"));
    assert!(is_missing(
        &notes.first().map_or_else(|error| error, |_| notes.get("100").unwrap_err()),
        "notes"
    ));
    // What has no deltas, and what was replaced, is read; the rest is deleted, cloned, seen by views.
    notes.put("300", "whole").unwrap();
    assert_eq!(notes.get("300").unwrap().unwrap(), "whole");
    notes.delete("301").unwrap();
    assert_eq!(notes.get("301").unwrap(), None);
    let copy = store.clone_dict("notes", "copy").unwrap();
    copy.upsert("200", "copied ").unwrap();
    assert!(is_missing(&copy.get("200").unwrap_err(), "copy"));
    let view = store.view();
    assert!(is_missing(&view.dict("notes").unwrap().get("200").unwrap_err(), "notes"));
    let mut own = store.begin(Isolation::Serializable);
    assert!(is_missing(&own.get(&notes, "200").unwrap_err(), "notes"));
    assert!(is_missing(&own.expect(&notes, "200", |_| true).unwrap_err(), "notes"));
    own.upsert(&notes, "0", "unknown ").unwrap();
    assert!(is_missing(&own.get(&notes, "0").unwrap_err(), "notes"));
    assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)));
    // A dictionary that is made needs one that is known.
    let made = store.create("made", &appending());
    assert!(is_missing(&made.unwrap_err(), "made"));
    store.backup(folder.path().join("backup"), |_| ()).unwrap();
    drop((store, notes, copy, view));

    for name in ["store", "backup"] {
        let store = options().open(folder.path().join(name)).unwrap();
        let (notes, copy) = (store.open_dict("notes").unwrap(), store.open_dict("copy").unwrap());
        let waited = "put known unknown unknown unknown ";
        assert_eq!(notes.get("200").unwrap().unwrap(), waited, "{name}");
        assert_eq!(copy.get("200").unwrap().unwrap(), format!("{waited}copied "), "{name}");
        assert_eq!(notes.get("0").unwrap().unwrap(), "put known unknown ");
        assert_eq!(notes.get("300").unwrap().unwrap(), "whole");
        assert_eq!(notes.iter().map(Result::unwrap).count(), 499);
        // With the merge, they are merged for good by what comes next.
        notes.upsert("200", "at last").unwrap();
        assert_eq!(notes.get("200").unwrap().unwrap(), format!("{waited}at last"));
        assert_eq!(store.check().unwrap(), []);
    }
}

#[test]
fn the_store_s_own_merges_need_no_registration_and_their_names_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let plain = || Store::options().cache_bytes(1 << 20);
    let store = opened(plain(), &folder);
    let one = 1_u64.to_le_bytes();
    for (name, delta, twice) in [
        (merges::ADD_U64, &one[..], 2_u64.to_le_bytes().to_vec()),
        (merges::ADD_I64, &one[..], 2_u64.to_le_bytes().to_vec()),
        (merges::MAX, b"m", b"m".to_vec()),
        (merges::APPEND, b"a", b"aa".to_vec()),
        (merges::UNION_SET, &merges::UnionSet::of(["s"]), merges::UnionSet::of(["s"])),
    ] {
        let dict = store.dict_with(name, &DictOptions::new().merge(name)).unwrap();
        (0..2).for_each(|_| dict.upsert("k", delta).unwrap());
        assert_eq!(dict.get("k").unwrap().unwrap(), twice, "{name}");
    }
    store.close().unwrap();
    assert_eq!(opened(plain(), &folder).dicts().len(), 5);
    for name in [merges::MAX, "betree.mine"] {
        let refused = plain().merge(name, append).open(folder.path().join("other"));
        assert!(matches!(&refused, Err(Error::BadMerge { merge, .. }) if merge == name), "{refused:?}");
    }
}

#[test]
fn what_a_merge_says_when_it_fails_is_in_the_error() {
    struct Picky;
    impl betree_store::Merge for Picky {
        fn merge(&self, _: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
            if delta == b"bad" { Err("I do not like it".into()) } else { Ok(Some(delta.to_vec())) }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let store = opened(Store::options().cache_bytes(1 << 20).merge_with("picky", Picky), &folder);
    let dict = store.dict_with("d", &DictOptions::new().merge("picky")).unwrap();
    dict.upsert("k", "good").unwrap();
    assert_eq!(dict.get("k").unwrap().unwrap(), "good");
    dict.upsert("k", "bad").unwrap();
    let failed = dict.get("k");
    let Err(Error::MergeFailed { merge, why, .. }) = &failed else { panic!("{failed:?}") };
    assert_eq!((merge.as_str(), why.as_str()), ("picky", "I do not like it"));
}

/// How a key of a dictionary comes to have no value: its merge makes one that is too large, fails, panics, or
/// is not registered.
fn failing(how: &str) -> (StoreOptions, DictOptions) {
    let plain = || Store::options().cache_bytes(1 << 20).durability(betree_store::Durability::Manual);
    let panics = |_: Option<&[u8]>, _: &[u8]| -> Option<Vec<u8>> { panic!("always") };
    struct Fails;
    impl betree_store::Merge for Fails {
        fn merge(&self, _: Option<&[u8]>, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
            Err("always".into())
        }
    }
    let (options, merge) = match how {
        "append" => (plain(), merges::APPEND),
        "expiring append" => return (plain(), DictOptions::new().merge(merges::APPEND).expiring()),
        "panics" => (plain().merge("panics", panics), "panics"),
        "fails" => (plain().merge_with("fails", Fails), "fails"),
        _ => (plain().missing_merges(MissingMerges::Keep), "append"),
    };
    (options, DictOptions::new().merge(merge))
}

/// A pass over values that expire may hold a view meanwhile, which is no problem.
fn check(store: &Store, how: &str) {
    let found = store.check().unwrap();
    assert!(!found.iter().any(|finding| finding.is_problem), "{how}: {found:?}");
}

/// A key whose merge makes no value, however many deltas it gets, concerns nobody else: flushes,
/// checkpoints, replays, openings, checks, clones, views, compactions and backups go on. Its readers get an
/// error with its name, until it is put or deleted.
#[test]
fn a_key_without_a_value_affects_no_other_however_many_deltas_it_gets() {
    for how in ["append", "expiring append", "panics", "fails", "not registered"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let (options, dict_options) = failing(how);
        if how == "not registered" {
            let store = opened(self::options(), &folder);
            store.dict_with("log", &dict_options).unwrap();
            store.close().unwrap();
        }
        let mut store = options.open(&path).unwrap();
        let mut log = store.dict_with("log", &dict_options).unwrap();
        let other = store.dict("other").unwrap();
        log.put("before", "b").unwrap();
        let delta = vec![b'x'; 100_000];
        let many: Vec<&str> = (0..130).map(|_| "today").collect();
        for (number, key) in many.iter().enumerate() {
            other.put(number.to_string(), "v").unwrap();
            log.upsert(key, &delta).unwrap();
            if number % 10 == 9 {
                store.sync().unwrap_or_else(|error| panic!("{how}: {error}"));
            }
        }
        log.put("tomorrow", "t").unwrap();
        let refused = |error: Error| {
            let text = error.to_string();
            let is_named = match &error {
                Error::MergeFailed { dict, key, .. } => dict == "log" && &**key == b"today",
                _ => false,
            };
            assert!(is_named && text.contains("dropped: put or delete the key"), "{how}: {text}");
        };
        let seen = |store: &Store, log: &betree_store::Dict, path: &str| {
            refused(log.get("today").unwrap_err());
            // Iterators go on after the key.
            let pairs = |found: &mut dyn Iterator<Item = betree_store::Result<_>>| -> Vec<Option<_>> {
                found
                    .map(|pair: betree_store::Result<(_, Value)>| pair.map(|(_, v)| v).map_err(refused).ok())
                    .collect()
            };
            let [before, after] = [b"b", b"t"].map(|value| Some(Value::from(value.to_vec())));
            let forward = [before.clone(), None, after.clone()];
            let backward = [after, None, before];
            assert_eq!(pairs(&mut log.iter()), forward, "{how}, {path}");
            assert_eq!(pairs(&mut log.iter().rev()), backward, "{how}, {path}");
            assert_eq!(pairs(&mut log.owned_prefix("")), forward, "{how}, {path}");
            assert_eq!(pairs(&mut log.owned_prefix("").rev()), backward, "{how}, {path}");
            let other = store.open_dict("other").unwrap();
            assert_eq!(other.iter().map(Result::unwrap).count(), many.len(), "{how}, {path}");
            let view = store.view();
            refused(view.dict("log").unwrap().get("today").unwrap_err());
            assert_eq!(view.dict("log").unwrap().get("before").unwrap().unwrap(), "b");
        };
        seen(&store, &log, "open");
        check(&store, how);
        store.clone_dict("log", "copy").unwrap();
        log.compact::<&[u8]>(..).unwrap();
        other.compact::<&[u8]>(..).unwrap();
        seen(&store, &log, "compacted");
        let own = store.begin_large(Isolation::Snapshot, &[&log]).unwrap();
        log.upsert("today", &delta).unwrap();
        own.dict(&log).unwrap().put("own", "o").unwrap();
        assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)), "{how}");
        log.delete("own").unwrap();
        seen(&store, &log, "taken over");
        store.backup(folder.path().join("backup"), |_| ()).unwrap();
        let copy = options.open(folder.path().join("backup")).unwrap();
        seen(&copy, &copy.open_dict("log").unwrap(), "a backup");
        check(&copy, how);
        drop(copy);

        // A crash: the changes that came last are in the log alone.
        store.sync().unwrap();
        store.abandon();
        drop((store, log, other));
        let reader = options.clone().read_only(true).open(&path).unwrap();
        seen(&reader, &reader.open_dict("log").unwrap(), "read-only");
        drop(reader);
        store = options.open(&path).unwrap();
        log = store.open_dict("log").unwrap();
        seen(&store, &log, "replayed");

        // A put or a delete brings the key back, for deltas too.
        let copy = store.open_dict("copy").unwrap();
        copy.put("today", "whole").unwrap();
        assert_eq!(copy.get("today").unwrap().unwrap(), "whole", "{how}");
        log.delete("today").unwrap();
        assert_eq!(log.get("today").unwrap(), None, "{how}");
        log.upsert("today", "x").unwrap();
        match how {
            "append" | "expiring append" => assert_eq!(log.get("today").unwrap().unwrap(), "x"),
            _ => assert!(log.get("today").is_err(), "{how}"),
        }
        check(&store, how);
        store.close().unwrap();
        options.open(&path).unwrap().close().unwrap();
    }
}

/// Another function under the same name would merge the deltas that wait differently.
#[test]
fn a_merge_of_another_kind_under_the_same_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plain = || Store::options().cache_bytes(1 << 20);
    let function = || plain().merge("m", append);
    let kinds = [plain().merge_with("m", merges::Append), plain().merge_with("m", merges::Max), function()];
    // While no dictionary is bound to it, the name is free.
    kinds.iter().for_each(|options| drop(opened(options.clone(), &folder)));
    let store = opened(kinds[0].clone(), &folder);
    let dict = store.dict_with("d", &DictOptions::new().merge("m")).unwrap();
    dict.upsert("k", "a").unwrap();
    drop((store, dict));
    for read_only in [false, true] {
        for (options, kind) in [(&kinds[1], "max"), (&kinds[2], "function")] {
            let refused = options.clone().read_only(read_only).open(folder.path().join("store"));
            let Err(Error::OtherKindOfMerge { dict, merge, was, is, .. }) = refused else {
                panic!("{kind}: {refused:?}")
            };
            assert_eq!((&*dict, &*merge, &*was, &*is), ("d", "m", "append", kind));
        }
    }
    // Whoever needs no merge opens it, and a rename or a clone changes nothing of that.
    let store = opened(plain().missing_merges(MissingMerges::Keep), &folder);
    store.rename_dict("d", "e").unwrap();
    store.clone_dict("e", "f").unwrap();
    drop(store);
    assert!(kinds[1].open(folder.path().join("store")).is_err());
    let store = opened(kinds[0].clone(), &folder);
    assert_eq!(store.open_dict("f").unwrap().get("k").unwrap().unwrap(), "a");
    ["e", "f"].iter().for_each(|name| store.drop_dict(name).unwrap());
    drop(store);
    opened(kinds[1].clone(), &folder);
}
