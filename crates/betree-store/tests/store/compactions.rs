//! Compactions of a dictionary's range.

use betree_store::Error;

use crate::{appending, options, store};

#[test]
fn pairs_parts_and_merges_stay_and_the_file_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    let (dict, notes) = (store.dict("d").unwrap(), store.dict_with("notes", &appending()).unwrap());
    for round in 0..4_u64 {
        for number in 0..5000_u64 {
            let key = (number * 7919 % 5000).to_be_bytes();
            dict.put(key, seeded::bytes(number, round, 200)).unwrap();
        }
        notes.upsert("all", [b'0' + round as u8]).unwrap();
    }
    (0..5000_u64).filter(|key| key % 4 != 0).for_each(|key| dict.delete(key.to_be_bytes()).unwrap());
    dict.put("large", vec![7; 1 << 20]).unwrap();
    store.sync().unwrap();
    let before: Vec<_> = dict.iter().map(Result::unwrap).collect();
    let used_bytes = store.stats().used_bytes;
    let done = dict.compact::<&str>(..).unwrap();
    assert!(done.written_bytes > 1250 * 208 && done.busy == 0, "{done:?}");
    notes.compact("a"..).unwrap();
    let after: Vec<_> = dict.iter().map(Result::unwrap).collect();
    assert!(after == before && after.len() == 1251);
    assert_eq!(notes.get("all").unwrap().as_deref(), Some(&b"0123"[..]));
    store.check().unwrap();
    let now_bytes = store.stats().used_bytes;
    assert!(now_bytes < used_bytes, "{now_bytes} bytes, {used_bytes} before");
    store.close().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    let again: Vec<_> = store.open_dict("d").unwrap().iter().map(Result::unwrap).collect();
    assert!(again == before);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn it_is_refused_where_changes_are() {
    let (folder, store) = store();
    let dict = store.dict("d").unwrap();
    dict.put("k", "v").unwrap();
    store.drop_dict("d").unwrap();
    assert!(matches!(dict.compact::<&str>(..), Err(Error::DictDropped { .. })));
    let other = store.dict("other").unwrap();
    store.close().unwrap();
    assert!(matches!(other.compact::<&str>(..), Err(Error::Closed { .. })));
    let store = options().read_only(true).open(folder.path().join("store")).unwrap();
    assert!(matches!(store.open_dict("other").unwrap().compact::<&str>(..), Err(Error::ReadOnly { .. })));
}
