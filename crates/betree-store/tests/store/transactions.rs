//! Transactions: what conflicts, with which names, and what does not.

use betree_store::{Conflict, DictOptions, Error, Isolation, Outcome, Store, Transaction};

use crate::{appending, filled, keys, options, store};

fn conflict(outcome: Outcome) -> Conflict {
    match outcome {
        Outcome::Conflict(conflict) => conflict,
        Outcome::Committed(_) => panic!("it committed"),
    }
}

fn committed(transaction: Transaction) {
    let outcome = transaction.commit().unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

/// Two doctors are on call; each leaves if the other stays.
fn both_leave(store: &Store, isolation: Isolation) -> [Outcome; 2] {
    let on_call = filled(store, "on call", ["ada", "alan"].map(String::from));
    let mut both = [store.begin(isolation), store.begin(isolation)];
    for (transaction, who) in both.iter_mut().zip(["ada", "alan"]) {
        if transaction.iter(&on_call).count() == 2 {
            transaction.delete(&on_call, who).unwrap();
        }
    }
    both.map(|transaction| transaction.commit().unwrap())
}

#[test]
fn write_skew_is_possible_in_snapshots_and_refused_in_serializability() {
    let (_folder, store) = store();
    let outcomes = both_leave(&store, Isolation::Snapshot);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Committed(_))), "{outcomes:?}");
    assert!(store.open_dict("on call").unwrap().is_empty().unwrap(), "nobody is on call");

    let [first, second] = both_leave(&store, Isolation::Serializable);
    assert!(matches!(first, Outcome::Committed(_)), "{first:?}");
    let Conflict { dict, key, .. } = conflict(second);
    assert_eq!((dict.as_str(), key.as_deref()), ("on call", Some(&b"ada"[..])));
    assert_eq!(keys(&store.open_dict("on call").unwrap()), ["alan"]);
}

#[test]
fn a_conflict_tells_dictionary_key_and_the_change_of_the_other() {
    let (_folder, store) = store();
    let (a, b) = (store.dict("a").unwrap(), store.dict("b").unwrap());
    let mut own = store.begin(Isolation::Snapshot);
    own.put(&a, "same", "1").unwrap();
    own.put(&b, [0, 1, 0], "1").unwrap();
    let before = store.view().last_change();
    b.put([0, 1, 0], "2").unwrap();
    let after = store.view().last_change();
    let Conflict { dict, key, by, .. } = conflict(own.commit().unwrap());
    assert_eq!((dict.as_str(), key.unwrap().into_vec()), ("b", vec![0, 1, 0]));
    assert!(before < by && by <= after, "{before} {by} {after}");
    assert!(a.is_empty().unwrap());
}

#[test]
fn a_phantom_in_a_range_that_was_read_is_a_conflict_and_one_behind_is_none() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["a", "c", "e"].map(String::from));
    let out = store.dict("out").unwrap();
    for (new, is_conflict) in [("b", true), ("d", false)] {
        let mut own = store.begin(Isolation::Serializable);
        assert_eq!(own.iter(&dict).take(2).count(), 2);
        own.put(&out, new, "").unwrap();
        dict.put(new, "").unwrap();
        assert_eq!(matches!(own.commit().unwrap(), Outcome::Conflict(_)), is_conflict, "{new}");
        dict.delete(new).unwrap();
    }
}

#[test]
fn a_dropped_dictionary_is_read_and_conflicts() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (_folder, store) = store();
        let dict = filled(&store, "d", ["a".into()]);
        let [mut writer, reader] = [(); 2].map(|()| store.begin(isolation));
        store.drop_dict("d").unwrap();
        assert!(reader.contains(&dict, "a").unwrap() && reader.dict("d").is_ok());
        committed(reader);
        writer.put(&dict, "b", "").unwrap();
        let Conflict { dict: name, key, .. } = conflict(writer.commit().unwrap());
        assert_eq!((name.as_str(), key), ("d", None));
        // One that begins later does not know it.
        let mut later = store.begin(isolation);
        assert!(matches!(later.get(&dict, "a"), Err(Error::DictDropped { .. })));
        assert!(matches!(later.put(&dict, "a", ""), Err(Error::DictDropped { .. })));
        assert!(matches!(later.iter(&dict).next(), Some(Err(Error::DictDropped { .. }))));
        assert!(matches!(later.dict("d"), Err(Error::NoSuchDict { .. })));
    }
}

#[test]
fn names_are_made_renamed_and_dropped_with_the_commit() {
    let (folder, store) = store();
    let old = filled(&store, "old", ["a".into()]);
    let mut own = store.begin(Isolation::Snapshot);
    let new = own.create("new", &appending()).unwrap();
    own.upsert(&new, "k", "1").unwrap();
    own.drop_dict("old").unwrap();
    own.rename_dict("new", "old").unwrap();
    assert_eq!(own.dicts().unwrap(), ["old"]);
    assert!(matches!(own.get(&old, "a"), Err(Error::DictDropped { .. })));
    // Nobody else sees it.
    assert!(old.contains("a").unwrap() && store.dicts() == ["old"]);
    assert!(matches!(new.get("k"), Err(Error::NoSuchDict { .. })));
    assert!(matches!(store.begin(Isolation::Snapshot).get(&new, "k"), Err(Error::NoSuchDict { .. })));
    committed(own);
    assert!(matches!(old.get("a"), Err(Error::DictDropped { .. })));
    assert_eq!((new.name(), new.get("k").unwrap().as_deref()), ("old".into(), Some(&b"1"[..])));
    store.close().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    assert_eq!(store.dicts(), ["old"]);
    assert_eq!(store.dict_with("old", &appending()).unwrap().get("k").unwrap().unwrap(), "1");
}

#[test]
fn two_that_make_one_name_conflict() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (_folder, store) = store();
        let mut both = [(); 2].map(|()| store.begin(isolation));
        let made = both.each_mut().map(|own| own.create("new", &DictOptions::new()).unwrap());
        let [first, second] = both;
        committed(first);
        let Conflict { dict, key, .. } = conflict(second.commit().unwrap());
        assert_eq!((dict.as_str(), key), ("new", None));
        assert!(made[0].is_empty().unwrap());
        assert!(matches!(made[1].is_empty(), Err(Error::NoSuchDict { .. })));
    }
}

#[test]
fn a_savepoint_takes_names_back() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["a".into()]);
    let mut own = store.begin(Isolation::Snapshot);
    let point = own.savepoint();
    own.create("new", &DictOptions::new()).unwrap();
    own.drop_dict("d").unwrap();
    own.roll_back(point);
    own.put(&dict, "b", "").unwrap();
    committed(own);
    assert_eq!((store.dicts(), keys(&dict)), (vec!["d".into()], vec!["a".into(), "b".into()]));
}

#[test]
fn blind_upserts_all_count() {
    let (_folder, store) = store();
    let dict = store.dict_with("d", &appending()).unwrap();
    let mut both = [(); 2].map(|()| store.begin(Isolation::Snapshot));
    both.iter_mut().for_each(|own| own.upsert_blind(&dict, "k", "x").unwrap());
    both.into_iter().for_each(committed);
    let mut both = [(); 2].map(|()| store.begin(Isolation::Snapshot));
    both.iter_mut().for_each(|own| own.upsert(&dict, "k", "y").unwrap());
    let [first, second] = both;
    committed(first);
    let Conflict { dict: name, key, .. } = conflict(second.commit().unwrap());
    assert_eq!((name.as_str(), key.unwrap()), ("d", b"k".to_vec().into()));
    assert_eq!(dict.get("k").unwrap().unwrap(), "xxy");
}

#[test]
fn large_values_are_read_replaced_and_deleted_but_not_put() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    let large = vec![7; 3 << 20];
    for key in ["a", "b", "c", "d"] {
        dict.put(key, &large).unwrap();
    }
    let mut own = store.begin(Isolation::Serializable);
    assert!(matches!(own.put(&dict, "a", &large), Err(Error::ValueTooLarge { .. })));
    assert!(own.expect(&dict, "d", |value| value.is_some_and(|value| value.len() == 3 << 20)).unwrap());
    assert_eq!(own.get(&dict, "a").unwrap().unwrap(), large);
    own.put(&dict, "a", "small").unwrap();
    own.delete(&dict, "b").unwrap();
    let point = own.savepoint();
    own.delete(&dict, "d").unwrap();
    own.roll_back(point);
    own.delete_range(&dict, "c".."d").unwrap();
    let view = store.view();
    committed(own);
    assert_eq!(keys(&dict), ["a", "d"]);
    assert_eq!(dict.get("d").unwrap().unwrap(), large);
    let then = view.dict("d").unwrap();
    assert!(["a", "b", "c"].iter().all(|key| then.get(key).unwrap().unwrap() == large));
    drop((view, then));
    store.sync().unwrap();
    assert_eq!(store.check().unwrap(), []);
    assert!(dict.estimate("a"..="c").unwrap().stored_bytes < 1 << 20);
}

#[test]
fn prefixes_and_dictionaries_are_cloned_as_the_transaction_sees_them() {
    let (folder, store) = store();
    let dict = filled(&store, "d", ["a/1", "a/2", "b/old"].map(String::from));
    let mut own = store.begin(Isolation::Snapshot);
    own.put(&dict, "a/3", "a/3").unwrap();
    own.clone_prefix(&dict, "a/", "b/").unwrap();
    own.delete(&dict, "a/1").unwrap();
    let copy = own.clone_dict("d", "copy").unwrap();
    own.rename_prefix(&dict, "b/", "c/").unwrap();
    own.put(&copy, "own", "own").unwrap();
    let seen = |own: &Transaction, dict| -> Vec<String> {
        own.iter(dict).map(|pair| String::from_utf8(pair.unwrap().0.into_vec()).unwrap()).collect()
    };
    let in_dict = ["a/2", "a/3", "c/1", "c/2", "c/3"];
    let in_copy = ["a/2", "a/3", "b/1", "b/2", "b/3", "own"];
    assert_eq!(
        (seen(&own, &dict), seen(&own, &copy)),
        (in_dict.map(String::from).into(), in_copy.map(String::from).into())
    );
    assert_eq!(own.dicts().unwrap(), ["copy", "d"]);
    assert!(matches!(copy.get("own"), Err(Error::NoSuchDict { .. })));
    let commits = store.stats().engine.commits;
    committed(own);
    assert_eq!(store.stats().engine.commits, commits + 1);
    assert_eq!(
        (keys(&dict), keys(&copy)),
        (in_dict.map(String::from).into(), in_copy.map(String::from).into())
    );
    store.close().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    assert_eq!(keys(&store.open_dict("copy").unwrap()), in_copy);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_changed_source_of_a_clone_is_a_conflict_and_names_its_key() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (_folder, store) = store();
        let dict = filled(&store, "d", ["a/1", "b/1"].map(String::from));
        let mut both = [(); 2].map(|()| store.begin(isolation));
        both[0].clone_prefix(&dict, "a/", "c/").unwrap();
        both[1].clone_dict("d", "copy").unwrap();
        dict.put("a/2", "").unwrap();
        for own in both {
            let Conflict { dict: name, key, .. } = conflict(own.commit().unwrap());
            assert_eq!((name.as_str(), key.unwrap()), ("d", b"a/2".to_vec().into()));
        }
        assert_eq!((store.dicts(), keys(&dict).len()), (vec!["d".into()], 3));
        // A source that is gone at all.
        let mut own = store.begin(isolation);
        own.clone_dict("d", "copy").unwrap();
        store.drop_dict("d").unwrap();
        assert_eq!(conflict(own.commit().unwrap()).dict, "d");
        assert_eq!(store.dicts(), Vec::<String>::new());
    }
}

#[test]
fn the_first_value_in_parts_beside_a_clone_is_a_conflict() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["a/1"].map(String::from));
    let mut own = store.begin(Isolation::Serializable);
    own.clone_prefix(&dict, "a/", "b/").unwrap();
    // In the target, on which it does not depend.
    dict.put("b/1", vec![7; 3 << 20]).unwrap();
    assert_eq!(conflict(own.commit().unwrap()).dict, "d");
    assert_eq!(dict.get("b/1").unwrap().unwrap().len(), 3 << 20);
}

#[test]
fn what_a_transaction_cannot_do_is_refused_and_leaves_it_as_it_was() {
    let (folder, store) = store();
    let other_store = options().open(folder.path().join("other")).unwrap();
    let (dict, foreign) = (store.dict("d").unwrap(), other_store.dict("d").unwrap());
    let mut own = store.begin(Isolation::Snapshot);
    assert!(matches!(own.put(&foreign, "k", ""), Err(Error::OtherStore { .. })));
    assert!(matches!(own.upsert(&dict, "k", ""), Err(Error::NoMerge { .. })));
    assert!(matches!(own.create("d", &DictOptions::new()), Err(Error::DictExists { .. })));
    assert!(matches!(own.create("", &DictOptions::new()), Err(Error::BadName { .. })));
    assert!(matches!(own.rename_dict("none", "e"), Err(Error::NoSuchDict { .. })));
    assert!(matches!(own.clone_dict("none", "e"), Err(Error::NoSuchDict { .. })));
    assert!(matches!(own.clone_dict("d", "d"), Err(Error::DictExists { .. })));
    assert!(matches!(own.clone_prefix(&foreign, "a", "b"), Err(Error::OtherStore { .. })));
    assert!(matches!(own.clone_prefix(&dict, "a", vec![0; 1 << 17]), Err(Error::KeyTooLong { .. })));
    let filled = (0..10_000_u32).find_map(|i| own.put(&dict, i.to_be_bytes(), [0; 100]).err());
    assert!(matches!(filled, Some(Error::TransactionTooLarge { .. })), "{filled:?}");
    let put = own.iter(&dict).count();
    committed(own);
    assert!(put > 100 && dict.iter().count() == put);
    let mut own = store.begin(Isolation::Snapshot);
    let refused = (0..100).find_map(|i| own.clone_prefix(&dict, "", format!("copy/{i}/")).err());
    assert!(matches!(refused, Some(Error::TransactionTooLarge { .. } | Error::TooManyClones { .. })));
    let own = store.begin(Isolation::Snapshot);
    store.close().unwrap();
    assert!(matches!(own.get(&dict, "k"), Err(Error::Closed { .. })));
    assert!(matches!(own.commit(), Err(Error::Closed { .. })));
}

#[test]
fn a_clone_with_keys_that_are_too_long_is_refused_by_the_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = options().cache_bytes(16 << 20).open(folder.path().join("store")).unwrap();
    let dict = filled(&store, "d", ["a/long".into()]);
    let mut own = store.begin(Isolation::Snapshot);
    own.clone_prefix(&dict, "a/", vec![b'b'; betree_store::KEY_BYTES_MAX - 3]).unwrap();
    let refused = own.commit();
    assert!(matches!(&refused, Err(Error::KeyTooLong { dict, .. }) if dict == "d"), "{refused:?}");
    assert_eq!(keys(&dict), ["a/long"]);
}

#[test]
fn counters_of_many_threads_are_exact() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (_folder, store) = store();
        let counters = [store.dict("a").unwrap(), store.dict("b").unwrap()];
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (store, counters) = (&store, &counters);
                scope.spawn(move || {
                    for turn in 0..100 {
                        let key = [((thread + turn) % 2) as u8];
                        store
                            .run(isolation, |own| {
                                counters.iter().try_for_each(|dict| {
                                    let old = own.get(dict, key)?.map_or(0, |value| number(&value));
                                    own.put(dict, key, (old + 1).to_le_bytes())
                                })
                            })
                            .unwrap();
                    }
                });
            }
        });
        for dict in &counters {
            let sum: u64 = dict.iter().map(|pair| number(&pair.unwrap().1)).sum();
            assert_eq!(sum, 800, "{isolation:?}");
        }
    }
}
