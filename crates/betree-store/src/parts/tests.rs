//! Parts come and go with the values that refer to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::{Dict, DictOptions, Durability, Store};

const LARGE: usize = 600_000;
const MANY: &[&str] = &["a", "b\0", "b\0\0", "c", "d", "e", "f"];

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let options = Store::options().cache_bytes(1 << 20).durability(Durability::Manual);
    let store = options.open(folder.path().join("store")).unwrap();
    (folder, store)
}

/// The number of parts that are stored.
fn parts(dict: &Dict) -> usize {
    let (lo, hi) = keys::Keys::Prefix(Vec::new()).parts(dict.state.number);
    let mut cursor = dict.shared.env.cursor(ENGINE_DICT, lo, hi);
    std::iter::from_fn(|| cursor.next().unwrap().map(|_| ())).count()
}

fn put_all(dict: &Dict) {
    MANY.iter().for_each(|key| dict.put(key, seeded::bytes(1, 0, LARGE)).unwrap());
}

#[test]
fn no_parts_are_left_of_what_was_replaced_or_removed() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    put_all(&dict);
    let of_one = parts(&dict) / MANY.len();
    assert!(of_one > 1);
    put_all(&dict);
    assert_eq!(parts(&dict), MANY.len() * of_one);
    let mut left = MANY.len();
    let mut is_left = |less: usize, what: &str| {
        left -= less;
        assert_eq!(parts(&dict), left * of_one, "{what}");
    };
    dict.put("a", "small").unwrap();
    is_left(1, "a small value");
    dict.delete("c").unwrap();
    is_left(1, "a delete");
    dict.delete_range("b".."c").unwrap();
    is_left(2, "a range");
    dict.delete_prefix("d").unwrap();
    is_left(1, "a prefix");
    let mut batch = store.batch();
    batch.put(&dict, "e", "small").unwrap();
    batch.delete_range(&dict, "f"..).unwrap();
    batch.commit().unwrap();
    is_left(2, "a batch");
    dict.put("g", [7; LARGE]).unwrap();
    dict.pop_last().unwrap();
    is_left(0, "a pair that was taken out");
    put_all(&dict);
    dict.rename_prefix("b", "c").unwrap();
    assert_eq!(parts(&dict), 6 * of_one, "c took the place of one, b is two");
    dict.clear().unwrap();
    assert_eq!(parts(&dict), 0);
}

#[test]
fn a_batch_puts_only_the_parts_that_its_end_refers_to() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    dict.put("a", [1; LARGE]).unwrap();
    let of_one = parts(&dict);
    let mut batch = store.batch();
    for key in ["a", "b", "c", "d", "e", "e"] {
        batch.put(&dict, key, [2; LARGE]).unwrap();
    }
    batch.delete_range(&dict, "b".."c").unwrap();
    batch.delete(&dict, "c").unwrap();
    batch.put(&dict, "d", "small").unwrap();
    for _ in 0..2 {
        batch.commit().unwrap();
        assert_eq!(parts(&dict), 2 * of_one, "those of a and e");
        dict.put("a", [3; LARGE]).unwrap();
    }
}

#[test]
fn parts_that_a_crash_has_left_go_with_the_next_value_of_their_key() {
    let (folder, store) = store();
    let dict = store.dict("d").unwrap();
    dict.put("k", [1; LARGE]).unwrap();
    let of_one = parts(&dict);
    let reference = Reference { generation: 77, len: LARGE as u64, expires_ns: None };
    let large = Large { dict: &dict.state, key: b"k", value: &[2; LARGE], reference };
    large.put_parts(&dict.shared).unwrap();
    store.sync().unwrap();
    assert_eq!(parts(&dict), 2 * of_one);
    store.abandon();
    drop((store, dict));
    let store = Store::open(folder.path().join("store")).unwrap();
    let dict = store.dict("d").unwrap();
    assert_eq!(dict.get("k").unwrap().unwrap(), [1; LARGE]);
    dict.put("k", [3; LARGE]).unwrap();
    assert_eq!(parts(&dict), of_one);
    assert_eq!(dict.get("k").unwrap().unwrap(), [3; LARGE]);
}

#[test]
fn a_dictionary_without_large_values_has_puts_that_read_nothing() {
    let (_folder, store) = store();
    let (with, without) = (store.dict("with").unwrap(), store.dict("without").unwrap());
    with.put("k", [1; LARGE]).unwrap();
    let queries = || store.stats().engine.point_queries;
    let before = queries();
    without.put("k", "v").unwrap();
    without.delete("l").unwrap();
    assert_eq!(queries(), before);
    with.put("k", "v").unwrap();
    assert!(queries() > before);
}

#[test]
fn a_range_without_others_is_what_lies_between_them() {
    let cut = |at: u8| Cut::before([at]);
    let without = |lo, hi, others: &[(u8, u8)]| {
        let others: Vec<_> = others.iter().map(|(lo, hi)| (cut(*lo), cut(*hi))).collect();
        let rest = without((cut(lo), cut(hi)), &others);
        rest.iter().map(|(lo, hi)| (lo.bytes()[0], hi.bytes()[0])).collect::<Vec<_>>()
    };
    assert_eq!(without(2, 8, &[]), [(2, 8)]);
    assert_eq!(without(2, 8, &[(0, 2), (8, 9)]), [(2, 8)]);
    assert_eq!(without(2, 8, &[(0, 3), (4, 5), (7, 9)]), [(3, 4), (5, 7)]);
    assert_eq!(without(2, 8, &[(1, 9)]), []);
}

/// The engine would take a part for a value that has expired, if it began as one.
#[test]
fn a_large_value_may_hold_what_looks_like_one_that_has_expired_at_each_part() {
    let (_folder, store) = store();
    let dict = store.dict_with("d", &DictOptions::new().expiring()).unwrap();
    let looks = expiring::expiring(1, Deltas::Never, b"");
    let mut value = seeded::bytes(1, 0, LARGE);
    let part = part_bytes(&dict.shared);
    for at in (0..LARGE - looks.len()).step_by(part) {
        // Also there, where a part begins that was put off by one byte.
        for at in [at, at + 1 + looks.len()] {
            value[at..at + looks.len()].copy_from_slice(&looks);
        }
    }
    let expires = SystemTime::now() + Duration::from_secs(100_000);
    for until in [None, Some(expires)] {
        match until {
            None => dict.put("k", &value).unwrap(),
            Some(expires) => dict.put_until("k", &value, expires).unwrap(),
        }
        assert!(parts(&dict) > LARGE / part);
        assert!(dict.get("k").unwrap().unwrap() == value);
        assert!(dict.get_many(&["k"]).unwrap()[0].as_deref() == Some(&value[..]));
        assert!(store.view().dict("d").unwrap().get("k").unwrap().unwrap() == value);
    }
    dict.delete("k").unwrap();
    assert_eq!(parts(&dict), 0);
}

#[test]
fn parts_expire_with_their_value_and_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (seconds, time) = (Arc::new(AtomicU64::new(0)), |at| UNIX_EPOCH + Duration::from_secs(at));
    let clock = seconds.clone();
    let options = Store::options().cache_bytes(1 << 20).durability(Durability::Manual);
    let options = options.clock(move || time(clock.load(Ordering::SeqCst)));
    let store = options.open(folder.path().join("store")).unwrap();
    // What there is to remove is counted here.
    drop(store.shared.sweeper.lock().take());
    let dict = store.dict_with("d", &DictOptions::new().expiring()).unwrap();
    put_all(&dict);
    let of_one = parts(&dict) / MANY.len();
    for key in &MANY[..3] {
        dict.put_until(key, seeded::bytes(2, 0, LARGE), time(5)).unwrap();
    }
    store.check().unwrap();
    assert_eq!(parts(&dict), MANY.len() * of_one);
    seconds.store(5, Ordering::SeqCst);
    assert_eq!(parts(&dict), (MANY.len() - 3) * of_one, "those of the others are seen");
    let (lo, hi) = keys::Keys::Prefix(Vec::new()).parts(dict.state.number);
    let sweep = || store.shared.env.remove_expired(ENGINE_DICT, &lo, &hi, usize::MAX).unwrap().removed;
    assert_eq!(sweep(), 3 * of_one as u64);
    assert_eq!((sweep(), dict.remove_expired().unwrap(), dict.remove_expired().unwrap()), (0, 3, 0));
    assert_eq!(dict.iter().count(), MANY.len() - 3);
}
