use std::collections::BTreeSet;

use betree::Cut;

use super::*;
use crate::keys::Meaning;
use crate::options::Durability;

/// The dictionaries and keys of all parts in a store, of values that something refers to or not.
fn parts(store: &Store) -> Vec<(u32, Vec<u8>)> {
    const PARTS: u8 = 1;
    let mut cursor = store.shared.env.cursor(ENGINE_DICT, Cut::LOW, Cut::HIGH);
    let mut found = BTreeSet::new();
    while let Some((engine_key, _)) = cursor.next().unwrap() {
        if let Meaning::Pair(number, key) = keys::meaning(engine_key)
            && engine_key[4] == PARTS
        {
            found.insert((number, key));
        }
    }
    found.into_iter().collect()
}

#[test]
fn values_in_parts_come_along_with_clones_and_leave_nothing_behind() {
    const LARGE_BYTES: usize = 3 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::options().cache_bytes(1 << 20).durability(Durability::Manual);
    let store = store.open(folder.path().join("store")).unwrap();
    let dict = store.dict("d").unwrap();
    let large = seeded::bytes(1, 0, LARGE_BYTES);
    for key in ["a/1", "a/2", "a/3", "b/1"] {
        dict.put(key, &large).unwrap();
    }
    let mut own = store.begin(Isolation::Serializable);
    own.put(&dict, "a/2", "small").unwrap();
    own.clone_prefix(&dict, "a/", "b/").unwrap();
    own.delete(&dict, "b/3").unwrap();
    let copy = own.clone_dict("d", "copy").unwrap();
    own.delete_prefix(&dict, "a/").unwrap();
    own.put(&copy, "a/1", "small too").unwrap();
    assert_eq!(own.get(&dict, "b/1").unwrap().unwrap(), large);
    assert_eq!(own.get(&copy, "b/1").unwrap().unwrap(), large);
    assert_eq!(
        own.iter(&copy).map(|pair| pair.unwrap().1.len()).collect::<Vec<_>>(),
        [9, 5, LARGE_BYTES, LARGE_BYTES, 5]
    );
    assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)));
    assert_eq!(dict.iter().map(|pair| pair.unwrap().1.len()).collect::<Vec<_>>(), [LARGE_BYTES, 5]);
    assert_eq!(
        copy.iter().map(|pair| pair.unwrap().1.len()).collect::<Vec<_>>(),
        [9, 5, LARGE_BYTES, LARGE_BYTES, 5]
    );
    assert_eq!(copy.get("a/3").unwrap().unwrap(), large);
    assert_eq!(parts(&store), [(1, b"b/1".to_vec()), (2, b"a/3".to_vec()), (2, b"b/1".to_vec())]);
}
