use betree::Cut;

use super::*;
use crate::options::Durability;

fn open(path: &std::path::Path) -> Store {
    Store::options().cache_bytes(1 << 20).durability(Durability::Manual).open(path).unwrap()
}

/// The numbers of dictionaries that have keys, and those of markers.
fn numbers(store: &Store) -> (Vec<u32>, Vec<u32>) {
    let mut cursor = store.shared.env.cursor(ENGINE_DICT, Cut::LOW, Cut::HIGH);
    let (mut dicts, mut markers) = (Vec::new(), Vec::new());
    while let Some((key, _)) = cursor.next().unwrap() {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
        match (number(key), key[4]) {
            (0, 2) => markers.push(number(&key[5..])),
            (0, _) => {}
            (of, _) => dicts.push(of),
        }
    }
    dicts.dedup();
    (dicts, markers)
}

/// A crash at each point of a large transaction leaves the dictionary as it was or as it will be, and nothing
/// else.
#[test]
fn a_crash_leaves_no_clone_behind() {
    for (point, should) in [("begun", 100), ("changed", 100), ("dropped", 100), ("committed", 200)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = open(&path);
        let dict = store.dict("d").unwrap();
        (0..100_u32).for_each(|key| dict.put(key.to_be_bytes(), vec![7; 200]).unwrap());
        let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
        assert_eq!(numbers(&store), (vec![1, 2, 3], vec![2, 3]));
        let work = large.dict(&dict).unwrap();
        let mut left = Some(large);
        if point != "begun" {
            (100..200_u32).for_each(|key| work.put(key.to_be_bytes(), vec![7; 200]).unwrap());
        }
        match point {
            "dropped" => drop(left.take()),
            "committed" => assert!(matches!(left.take().unwrap().commit().unwrap(), Outcome::Committed(_))),
            _ => {}
        }
        if left.is_none() {
            assert_eq!(numbers(&store), (vec![1], vec![]));
        }
        store.sync().unwrap();
        store.abandon();
        drop((left, work, dict, store));

        let store = open(&path);
        assert_eq!(numbers(&store), (vec![1], vec![]), "{point}");
        assert_eq!((store.dicts(), store.open_dict("d").unwrap().iter().count()), (vec!["d".into()], should));
        assert_eq!(store.check().unwrap(), []);
        // Numbers that were given out are not used again.
        store.dict("e").unwrap().put("k", "v").unwrap();
        assert_eq!(numbers(&store).0, [1, 4]);
    }
}
