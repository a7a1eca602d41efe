//! Dictionaries and their names.

use betree_store::{DictOptions, Error};

use crate::{appending, filled, keys, options, store};

#[test]
fn dictionaries_are_found_again_with_their_merges_and_contents() {
    let (folder, store) = store();
    let names: Vec<String> = (0..300).map(|i| format!("dict {i:03}")).collect();
    for name in &names {
        store.dict(name).unwrap().put("name", name).unwrap();
    }
    store.dict_with("notes", &appending()).unwrap().upsert("k", "a").unwrap();
    store.close().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    assert_eq!(store.dicts().len(), 301);
    assert_eq!(store.stats().dicts, 301);
    for name in &names {
        assert_eq!(store.open_dict(name).unwrap().get("name").unwrap().unwrap(), name);
    }
    let notes = store.open_dict("notes").unwrap();
    notes.upsert("k", "b").unwrap();
    assert_eq!(notes.get("k").unwrap().unwrap(), "ab");
}

#[test]
fn a_name_that_is_used_again_is_another_dictionary() {
    let (folder, store) = store();
    let old = filled(&store, "d", ["x".into()]);
    let mut pairs = old.iter();
    store.drop_dict("d").unwrap();
    let new = filled(&store, "d", ["y".into()]);
    assert_eq!(keys(&new), ["y"]);
    assert!(matches!(old.get("x"), Err(Error::DictDropped { name }) if name == "d"));
    assert!(matches!(old.put("x", ""), Err(Error::DictDropped { .. })));
    assert!(matches!(old.delete_range("a"..), Err(Error::DictDropped { .. })));
    assert!(matches!(old.pop_first(), Err(Error::DictDropped { .. })));
    assert!(matches!(old.estimate("a"..), Err(Error::DictDropped { .. })));
    assert!(matches!(pairs.next(), Some(Err(Error::DictDropped { .. }))));
    assert!(pairs.next().is_none() && pairs.next_back().is_none(), "it is fused");
    store.close().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    assert_eq!(keys(&store.open_dict("d").unwrap()), ["y"]);
}

#[test]
fn an_iterator_that_has_begun_tells_that_its_dictionary_was_dropped() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", (0..1000).map(|i| format!("{i:04}")));
    let mut pairs = dict.iter();
    assert_eq!(pairs.next().unwrap().unwrap().0, "0000");
    store.drop_dict("d").unwrap();
    let rest: Vec<_> = pairs.collect();
    assert!(matches!(rest.as_slice(), [Err(Error::DictDropped { .. })]), "{rest:?}");
}

#[test]
fn numbers_are_not_used_again_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = options().open(&path).unwrap();
    filled(&store, "first", ["x".into()]);
    store.sync().unwrap();
    store.drop_dict("first").unwrap();
    store.sync().unwrap();
    store.abandon();
    let store = options().open(&path).unwrap();
    assert_eq!(store.dicts(), [""; 0]);
    assert!(store.dict("second").unwrap().is_empty().unwrap());
}

#[test]
fn a_renamed_dictionary_keeps_its_handles_and_a_cloned_one_its_merge() {
    let (_folder, store) = store();
    let notes = store.dict_with("notes", &appending()).unwrap();
    notes.upsert("k", "1").unwrap();
    store.rename_dict("notes", "letters").unwrap();
    assert_eq!(notes.name(), "letters");
    notes.upsert("k", "2").unwrap();
    let copy = store.clone_dict("letters", "copy").unwrap();
    copy.upsert("k", "3").unwrap();
    notes.upsert("k", "4").unwrap();
    assert_eq!(copy.get("k").unwrap().unwrap(), "123");
    assert_eq!(notes.get("k").unwrap().unwrap(), "124");
    assert_eq!(store.dicts(), ["copy", "letters"]);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let (_folder, store) = store();
    store.dict("a").unwrap();
    store.dict("b").unwrap();
    let long = "n".repeat(256);
    assert!(matches!(store.dict(""), Err(Error::BadName { .. })));
    assert!(matches!(store.dict(&long), Err(Error::BadName { .. })));
    store.dict(&long[..255]).unwrap();
    assert!(matches!(store.open_dict("c"), Err(Error::NoSuchDict { name }) if name == "c"));
    assert!(matches!(store.drop_dict("c"), Err(Error::NoSuchDict { .. })));
    assert!(matches!(store.rename_dict("c", "d"), Err(Error::NoSuchDict { .. })));
    assert!(matches!(store.rename_dict("a", "b"), Err(Error::DictExists { name }) if name == "b"));
    assert!(matches!(store.rename_dict("a", "a"), Err(Error::DictExists { .. })));
    assert!(matches!(store.clone_dict("a", "b"), Err(Error::DictExists { .. })));
    assert!(matches!(store.clone_dict("c", "d"), Err(Error::NoSuchDict { .. })));
    assert!(matches!(store.create("a", &DictOptions::new()), Err(Error::DictExists { .. })));
    let merge = DictOptions::new().merge("nobody registered this");
    assert!(matches!(store.create("e", &merge), Err(Error::UnknownMerge { .. })));
    assert_eq!(store.dicts().len(), 3);
}
