//! Many pairs at once.

use betree_store::{Dict, Error, Store};

use crate::{appending, filled, keys, options, store};

const MIB: usize = 1 << 20;

fn value(number: u32, len: usize) -> Vec<u8> {
    seeded::bytes(u64::from(number), 0, len)
}

fn pairs(numbers: impl Iterator<Item = u32>) -> impl Iterator<Item = ([u8; 4], Vec<u8>)> {
    numbers.map(|number| (number.to_be_bytes(), value(number, 200)))
}

/// The bytes that all takes in the file once all is written.
fn taken(store: &Store) -> u64 {
    (0..2).for_each(|_| assert_eq!(store.check().unwrap(), []));
    store.stats().used_bytes
}

#[test]
fn pairs_are_there_at_once_durable_and_written_once() {
    let (folder, store) = store();
    let (dict, other) = (store.dict("d").unwrap(), filled(&store, "other", ["k".into()]));
    store.sync().unwrap();
    let before = store.stats().engine;
    let ingested = dict.ingest(pairs(0..50_000)).unwrap();
    let after = store.stats().engine;
    assert_eq!((ingested.pairs, ingested.pair_bytes), (50_000, 50_000 * 204));
    let written = after.device_write_bytes - before.device_write_bytes;
    assert!(written < ingested.pair_bytes / 20 * 23, "{written} bytes for {}", ingested.pair_bytes);
    assert_eq!(after.log_write_bytes, before.log_write_bytes);
    store.abandon();
    let store = options().open(folder.path().join("store")).unwrap();
    let dict = store.open_dict("d").unwrap();
    let found = dict.iter().map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec())).unwrap());
    assert!(found.eq(pairs(0..50_000).map(|(key, value)| (key.to_vec(), value))));
    drop(other);
    assert_eq!(keys(&store.open_dict("other").unwrap()), ["k"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn an_ingested_pair_is_a_put_and_those_between_stay() {
    let (_folder, store) = store();
    let notes = store.dict_with("notes", &appending()).unwrap();
    for key in ["k05000", "k05000x", "k09999x"] {
        notes.upsert(key, "older").unwrap();
    }
    let pairs = (0..10_000).map(|number| (format!("k{number:05}"), "new"));
    notes.ingest(pairs.clone()).unwrap();
    assert_eq!(notes.get("k05000").unwrap().unwrap(), "new");
    assert_eq!(notes.get("k05000x").unwrap().unwrap(), "older");
    notes.upsert("k05000", "er").unwrap();
    assert_eq!(notes.get("k05000").unwrap().unwrap(), "newer");
    assert_eq!(notes.iter().count(), 10_002);
    // What looks like a reference to parts is none.
    let marked = [0x9e, 0xd1, 0x5c, 0x3b, 0xa4, 0x07, 0xf2, 0x68, 1, 2, 3];
    let dict = store.dict("d").unwrap();
    dict.ingest([("a", &marked[..]), ("b", b"")]).unwrap();
    assert_eq!(dict.get("a").unwrap().unwrap(), marked[..]);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["k".into()]);
    let refused = dict.ingest(pairs((0..5000).chain([4999])));
    assert!(
        matches!(&refused, Err(Error::NotInOrder { dict, position: 5000 }) if dict == "d"),
        "{refused:?}"
    );
    let stopped = dict.try_ingest(pairs(0..5000).map(Ok).chain([Err(Stopped(None))]));
    assert!(matches!(stopped, Err(Stopped(None))), "{stopped:?}");
    let long = dict.ingest([(vec![0; betree_store::KEY_BYTES_MAX + 1], "")]);
    assert!(matches!(long, Err(Error::KeyTooLong { .. })), "{long:?}");
    assert_eq!(keys(&dict), ["k"]);
    store.drop_dict("d").unwrap();
    assert!(matches!(dict.ingest(pairs(0..10)), Err(Error::DictDropped { .. })));
}

/// The error of a caller.
#[derive(Debug)]
struct Stopped(Option<Error>);

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped(Some(error))
    }
}

/// Small values, and at each tenth a large one.
fn mixed(seed: u32, count: u32) -> impl Iterator<Item = ([u8; 4], Vec<u8>)> {
    (0..count).map(move |number| {
        let len = if number % 10 == 3 { 2 * MIB } else { 1000 };
        (number.to_be_bytes(), value(seed << 16 | number, len))
    })
}

fn holds(dict: &Dict, seed: u32, count: u32) -> bool {
    let found = dict.iter().map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec())).unwrap());
    found.eq(mixed(seed, count).map(|(key, value)| (key.to_vec(), value)))
}

#[test]
fn values_in_parts_come_with_their_pairs_and_go_with_them() {
    let (folder, store) = store();
    let dict = store.dict("d").unwrap();
    let ingested = dict.ingest(mixed(1, 60)).unwrap();
    assert_eq!(ingested.pair_bytes, 60 * 4 + 6 * 2 * MIB as u64 + 54 * 1000);
    assert!(holds(&dict, 1, 60));
    let once = taken(&store);
    // Replaced by others, and by small ones: their parts go.
    dict.ingest(mixed(2, 60)).unwrap();
    assert!(holds(&dict, 2, 60));
    let twice = taken(&store);
    assert!(twice < once + 2 * MIB as u64, "{once} bytes, then {twice}");
    let refused = dict.try_ingest(mixed(3, 60).map(Ok).chain([Err(Stopped(None))]));
    assert!(matches!(refused, Err(Stopped(None))), "{refused:?}");
    assert!(holds(&dict, 2, 60));
    let refused = taken(&store);
    assert!(refused < once + 2 * MIB as u64, "{once} bytes, then {refused}");
    dict.ingest(pairs(0..60)).unwrap();
    let small = taken(&store);
    assert!(small < 2 * MIB as u64, "{small} bytes");
    assert!(dict.iter().map(|pair| pair.unwrap().1.into_vec()).eq(pairs(0..60).map(|(_, value)| value)));
    dict.ingest(mixed(4, 30)).unwrap();
    store.abandon();
    let store = options().open(folder.path().join("store")).unwrap();
    let dict = store.open_dict("d").unwrap();
    assert_eq!(dict.iter().collect::<Result<Vec<_>, _>>().unwrap().len(), 60);
    assert!(dict.get(13_u32.to_be_bytes()).unwrap().unwrap() == value(4 << 16 | 13, 2 * MIB));
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_view_of_before_and_others_dictionaries_are_as_they_were() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["b".into()]);
    let view = store.view();
    dict.ingest((0..5000).map(|number| (format!("a{number:04}"), "new"))).unwrap();
    assert_eq!(view.dict("d").unwrap().iter().count(), 1);
    assert_eq!(dict.iter().count(), 5001);
}
