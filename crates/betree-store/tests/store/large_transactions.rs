//! Transactions larger than memory.

use std::collections::BTreeMap;

use betree_store::{Conflict, Dict, Error, Isolation, LargeTransaction, Outcome, Store};
use seeded::Rng;

use crate::{append, appending, filled, keys, store};

const BOTH: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

fn committed(large: LargeTransaction) {
    let outcome = large.commit().unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

fn conflict(large: LargeTransaction) -> Conflict {
    match large.commit().unwrap() {
        Outcome::Conflict(conflict) => conflict,
        Outcome::Committed(_) => panic!("it committed"),
    }
}

#[test]
fn much_more_than_memory_is_committed_by_one_batch_that_copies_nothing() {
    const PAIRS: u32 = 20_000;
    for isolation in BOTH {
        let (_folder, store) = store();
        let dict = filled(&store, "d", ["old".into()]);
        let large = store.begin_large(isolation, &[&dict]).unwrap();
        let work = large.dict(&dict).unwrap();
        let value = |number: u32| seeded::bytes(u64::from(number), 0, 400);
        for number in 0..PAIRS {
            work.put(number.to_be_bytes(), value(number)).unwrap();
        }
        work.delete("old").unwrap();
        assert_eq!(work.iter().count(), PAIRS as usize);
        assert_eq!(keys(&dict), ["old"], "nobody else sees it");
        assert_eq!(store.dicts(), ["d"]);
        let before = store.stats().engine;
        committed(large);
        let after = store.stats().engine;
        assert_eq!(after.commits - before.commits, 1);
        // The work has eight times the cache.
        let written = after.device_write_bytes - before.device_write_bytes;
        assert!(written < 2 << 20, "{written} bytes");
        assert_eq!(dict.iter().count(), PAIRS as usize);
        assert_eq!(dict.get(77_u32.to_be_bytes()).unwrap().unwrap(), value(77));
        assert!(matches!(work.get("old"), Err(Error::DictDropped { .. })));
        assert!(matches!(work.put("new", ""), Err(Error::DictDropped { .. })));
        assert_eq!(store.check().unwrap(), []);
    }
}

/// Its name, a change of each side, and whether both can stay.
type Case = (&'static str, fn(&Dict), fn(&Dict), bool);

#[test]
fn what_others_have_changed_is_kept_or_is_a_conflict() {
    let pairs = || ["a", "b", "c", "d", "e"].map(String::from);
    let cases: [Case; 8] = [
        ("other keys", |work| work.put("a", "mine").unwrap(), |dict| dict.put("b", "theirs").unwrap(), true),
        ("a key", |work| work.put("b", "mine").unwrap(), |dict| dict.put("b", "theirs").unwrap(), false),
        ("a delete", |work| work.put("b", "mine").unwrap(), |dict| dict.delete("b").unwrap(), false),
        ("deleted", |work| work.delete("b").unwrap(), |dict| dict.put("b", "theirs").unwrap(), false),
        ("a range", |work| work.delete_range("a".."c").unwrap(), |dict| dict.put("b", "1").unwrap(), false),
        ("into it", |work| work.delete_range("a".."c").unwrap(), |dict| dict.put("b", "new").unwrap(), false),
        (
            "behind it",
            |work| work.delete_range("a".."b").unwrap(),
            |dict| dict.put("b", "new").unwrap(),
            true,
        ),
        ("a source", |work| work.clone_prefix("b", "x").unwrap(), |dict| dict.put("b", "2").unwrap(), false),
    ];
    for (case, mine, theirs, commits) in cases {
        for isolation in BOTH {
            let (_folder, store) = store();
            let dict = filled(&store, "d", pairs());
            let large = store.begin_large(isolation, &[&dict]).unwrap();
            let work = large.dict(&dict).unwrap();
            mine(&work);
            let mine = keys(&work);
            theirs(&dict);
            let theirs: Vec<_> = dict.iter().map(Result::unwrap).collect();
            if commits && isolation == Isolation::Snapshot {
                committed(large);
                assert_eq!(keys(&dict), mine, "{case}");
                assert!(dict.get("b").unwrap().is_some_and(|value| value == "theirs" || value == "new"));
            } else {
                let Conflict { dict: name, key, .. } = conflict(large);
                assert_eq!((name.as_str(), key.unwrap()), ("d", b"b".to_vec().into()), "{case}");
                assert!(dict.iter().map(Result::unwrap).eq(theirs), "{case}");
            }
            assert_eq!(store.check().unwrap(), []);
        }
    }
}

#[test]
fn ranges_of_batches_and_of_small_transactions_count_as_wholes() {
    let changes: [fn(&Store, &Dict); 3] = [
        |store, work| {
            let mut batch = store.batch();
            batch.delete_prefix(work, "b").unwrap();
            batch.commit().unwrap();
        },
        |store, work| {
            let mut own = store.begin(Isolation::Snapshot);
            own.delete_range(work, "b".."c").unwrap();
            assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)));
        },
        |store, work| {
            let mut own = store.begin(Isolation::Snapshot);
            own.clone_prefix(work, "a", "x").unwrap();
            assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)));
        },
    ];
    for change in changes {
        let (_folder, store) = store();
        let dict = filled(&store, "d", ["a".into()]);
        let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
        change(&store, &large.dict(&dict).unwrap());
        dict.put("b1", "theirs").unwrap();
        assert_eq!(conflict(large).key.unwrap(), "b1");
    }
}

#[test]
fn several_dictionaries_change_together_and_a_dropped_one_is_a_conflict() {
    let (folder, store) = store();
    let (a, b) = (filled(&store, "a", ["1".into()]), filled(&store, "b", ["2".into()]));
    let other = filled(&store, "other", ["3".into()]);
    let large = store.begin_large(Isolation::Snapshot, &[&b, &a, &b]).unwrap();
    assert!(matches!(large.dict(&other), Err(Error::NoSuchDict { .. })));
    large.dict(&a).unwrap().put("new", "").unwrap();
    large.dict(&b).unwrap().clear().unwrap();
    store.rename_dict("a", "renamed").unwrap();
    committed(large);
    assert_eq!(
        (keys(&a), keys(&b), store.dicts()),
        (vec!["1".into(), "new".into()], vec![], vec!["b".into(), "other".into(), "renamed".into()])
    );

    let large = store.begin_large(Isolation::Snapshot, &[&a, &b]).unwrap();
    large.dict(&a).unwrap().put("more", "").unwrap();
    store.drop_dict("b").unwrap();
    let Conflict { dict, key, .. } = conflict(large);
    assert_eq!((dict.as_str(), key), ("b", None));
    assert_eq!(keys(&a), ["1", "new"]);
    assert!(matches!(store.begin_large(Isolation::Snapshot, &[&b]), Err(Error::DictDropped { .. })));
    let foreign = crate::options().open(folder.path().join("foreign")).unwrap().dict("d").unwrap();
    assert!(matches!(store.begin_large(Isolation::Snapshot, &[&foreign]), Err(Error::OtherStore { .. })));
    drop(store.begin_large(Isolation::Snapshot, &[&a]).unwrap());
    assert_eq!(keys(&a), ["1", "new"]);
}

#[test]
fn a_small_transaction_beside_a_large_one_conflicts() {
    for isolation in BOTH {
        let (_folder, store) = store();
        let dict = filled(&store, "d", ["a".into(), "b".into()]);
        let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
        large.dict(&dict).unwrap().put("a", "large").unwrap();
        let mut small = store.begin(isolation);
        small.get(&dict, "a").unwrap();
        small.put(&dict, "a", "small").unwrap();
        committed(large);
        assert!(matches!(small.commit().unwrap(), Outcome::Conflict(_)));
        assert_eq!(dict.get("a").unwrap().unwrap(), "large");
    }
}

#[test]
fn values_in_parts_are_put_and_those_of_others_are_kept() {
    const LARGE_BYTES: usize = 3 << 20;
    let (folder, store) = store();
    let dict = store.dict("d").unwrap();
    let value = |seed| seeded::bytes(seed, 0, LARGE_BYTES);
    dict.put("old", value(1)).unwrap();
    let plain = filled(&store, "plain", ["a".into()]);
    let large = store.begin_large(Isolation::Snapshot, &[&dict, &plain]).unwrap();
    large.dict(&dict).unwrap().put("mine", value(2)).unwrap();
    large.dict(&plain).unwrap().put("first", value(3)).unwrap();
    dict.put("theirs", value(4)).unwrap();
    dict.delete("old").unwrap();
    committed(large);
    assert_eq!(keys(&plain), ["a", "first"]);
    store.close().unwrap();
    let store = crate::options().open(folder.path().join("store")).unwrap();
    let (dict, plain) = (store.open_dict("d").unwrap(), store.open_dict("plain").unwrap());
    let found: Vec<_> = dict.iter().map(|pair| pair.unwrap()).collect();
    assert_eq!(
        found,
        [("mine", 2), ("theirs", 4)].map(|(key, seed)| (key.as_bytes().to_vec().into(), value(seed).into()))
    );
    assert_eq!(plain.get("first").unwrap().unwrap(), value(3));
    // A put in a dictionary that has got parts removes them.
    plain.put("first", "small").unwrap();
    store.check().unwrap();
    assert!(plain.estimate::<&str>(..).unwrap().stored_bytes < 1 << 20);
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn change(rng: &mut Rng, dict: &Dict, map: &mut Map) {
    let key = |rng: &mut Rng| vec![rng.below(40) as u8];
    let (at, other, value) = (key(rng), key(rng), seeded::bytes(rng.next_u64(), 0, rng.below(30)));
    match rng.below(8) {
        0 => {
            dict.delete(&at).unwrap();
            map.remove(&at);
        }
        1 => {
            dict.upsert(&at, &value).unwrap();
            let new = append(map.get(&at).map(Vec::as_slice), &value).unwrap();
            map.insert(at, new);
        }
        2 if rng.percent(30) && at < other => {
            dict.delete_range(at.as_slice()..other.as_slice()).unwrap();
            map.retain(|key, _| *key < at || *key >= other);
        }
        _ => {
            dict.put(&at, &value).unwrap();
            map.insert(at, value);
        }
    }
}

/// Keys whose values differ.
fn differ(a: &Map, b: &Map) -> Vec<Vec<u8>> {
    let all: std::collections::BTreeSet<&Vec<u8>> = a.keys().chain(b.keys()).collect();
    all.into_iter().filter(|key| a.get(*key) != b.get(*key)).cloned().collect()
}

/// Random changes on both sides: what each has changed alone is there, and of a key that both have changed
/// there is a conflict.
#[test]
fn both_sides_are_merged_as_maps_are() {
    let (mut commits, mut conflicts) = (0, 0);
    for seed in 0..120 {
        let rng = &mut Rng::new(seed);
        let (_folder, store) = store();
        let dict = store.dict_with("d", &appending()).unwrap();
        let mut now = Map::new();
        (0..20).for_each(|_| change(rng, &dict, &mut now));
        let then = now.clone();
        let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
        let work = large.dict(&dict).unwrap();
        let mut own = now.clone();
        for _ in 0..rng.below(12) {
            match rng.percent(60) {
                true => change(rng, &work, &mut own),
                false => change(rng, &dict, &mut now),
            }
            if rng.percent(10) {
                store.check().unwrap();
            }
        }
        let (mine, theirs) = (differ(&then, &own), differ(&then, &now));
        let both = mine.iter().any(|key| theirs.contains(key));
        match large.commit().unwrap() {
            Outcome::Committed(_) => {
                assert!(!both, "seed {seed}");
                commits += usize::from(!mine.is_empty() && !theirs.is_empty());
                for key in mine {
                    match own.get(&key) {
                        Some(value) => now.insert(key, value.clone()),
                        None => now.remove(&key),
                    };
                }
            }
            Outcome::Conflict(conflict) => {
                assert!(theirs.contains(&conflict.key.unwrap().into_vec()), "seed {seed}");
                conflicts += 1;
            }
        }
        let found: Map = dict.iter().map(Result::unwrap).map(|(k, v)| (k.into_vec(), v.into_vec())).collect();
        assert_eq!(found, now, "seed {seed}");
    }
    assert!(commits > 10 && conflicts > 10, "{commits} merges, {conflicts} conflicts");
}
