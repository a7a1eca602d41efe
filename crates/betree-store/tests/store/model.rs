//! Random changes of several dictionaries against maps, with closing, crashes and opening between them.

use std::collections::BTreeMap;
use std::path::Path;

use betree_store::{Dict, Error, Store, WriteBatch};
use seeded::Rng;

use crate::{append, appending, options};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// The dictionaries by name. Those whose names begin with "a" have the appending merge.
type Dicts = BTreeMap<String, Map>;

const NAMES: &[&str] = &["a", "ab", "c", "d", "e"];
const STEPS: usize = 400;

fn key(rng: &mut Rng) -> Vec<u8> {
    // Short ones that are prefixes of each other, of bytes that matter: zero, and the highest.
    let len = rng.below(5);
    (0..len).map(|_| *rng.pick(&[0, 1, b'k', 0xff])).collect()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.percent(5) { rng.below(40_000) } else { rng.below(20) };
    seeded::bytes(rng.next_u64(), 0, len)
}

/// One that is stored in parts, now and then.
fn put_value(rng: &mut Rng, has_merge: bool) -> Vec<u8> {
    if has_merge || !rng.percent(2) { value(rng) } else { seeded::bytes(rng.next_u64(), 0, 600_000) }
}

fn dict_of(store: &Store, name: &str) -> Dict {
    if name.starts_with('a') {
        store.dict_with(name, &appending()).unwrap()
    } else {
        store.dict(name).unwrap()
    }
}

/// Adds a change to a batch and to the maps.
fn change(rng: &mut Rng, store: &Store, batch: &mut WriteBatch, dicts: &mut Dicts) {
    let Some(name) = dicts.keys().nth(rng.below(dicts.len())).cloned() else { return };
    let (dict, map) = (store.open_dict(&name).unwrap(), dicts.get_mut(&name).unwrap());
    match rng.below(10) {
        0..=4 => {
            let (key, value) = (key(rng), put_value(rng, name.starts_with('a')));
            batch.put(&dict, &key, &value).unwrap();
            map.insert(key, value);
        }
        5..=6 => {
            let key = key(rng);
            batch.delete(&dict, &key).unwrap();
            map.remove(&key);
        }
        7..=8 if name.starts_with('a') => {
            let (key, delta) = (key(rng), value(rng));
            batch.upsert(&dict, &key, &delta).unwrap();
            let new = append(map.get(&key).map(Vec::as_slice), &delta).unwrap();
            map.insert(key, new);
        }
        _ => {
            let (from, to) = (key(rng), key(rng));
            batch.delete_range(&dict, from.as_slice()..to.as_slice()).unwrap();
            map.retain(|key, _| *key < from || *key >= to);
        }
    }
}

/// Ingests pairs, which are durable then; now and then not in order.
fn ingest(rng: &mut Rng, store: &Store, dicts: &mut Dicts) -> bool {
    let Some(name) = dicts.keys().nth(rng.below(dicts.len())).cloned() else { return false };
    let (dict, map) = (store.open_dict(&name).unwrap(), dicts.get_mut(&name).unwrap());
    let pairs: Map =
        (0..rng.between(0, 60)).map(|_| (key(rng), put_value(rng, name.starts_with('a')))).collect();
    if rng.percent(10) && !pairs.is_empty() {
        let doubled = rng.below(pairs.len());
        let again = pairs.iter().nth(doubled);
        let refused = dict.ingest(pairs.iter().take(doubled + 1).chain(again));
        assert!(
            matches!(refused, Err(Error::NotInOrder { position, .. }) if position == doubled as u64 + 1),
            "{refused:?}"
        );
        return false;
    }
    assert_eq!(dict.ingest(&pairs).unwrap().pairs, pairs.len() as u64);
    map.extend(pairs);
    true
}

/// Clones or renames a prefix.
fn clone_prefix(rng: &mut Rng, store: &Store, dicts: &mut Dicts) {
    let Some(name) = dicts.keys().nth(rng.below(dicts.len())).cloned() else { return };
    let (dict, map) = (store.open_dict(&name).unwrap(), dicts.get_mut(&name).unwrap());
    let (mut from, mut to) = (key(rng), key(rng));
    from.truncate(2);
    to.truncate(2);
    let source: Map =
        map.iter().filter(|(key, _)| key.starts_with(&from)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if rng.percent(50) {
        dict.clone_prefix(&from, &to).unwrap();
    } else {
        dict.rename_prefix(&from, &to).unwrap();
        map.retain(|key, _| !key.starts_with(&from));
    }
    map.retain(|key, _| !key.starts_with(&to));
    map.extend(source.into_iter().map(|(key, value)| ([&to, &key[from.len()..]].concat(), value)));
}

/// A change of the catalogue.
fn change_names(rng: &mut Rng, store: &Store, dicts: &mut Dicts) {
    let (from, to) = (rng.pick(NAMES).to_string(), rng.pick(NAMES).to_string());
    // A name says which merge a dictionary has.
    let fits = from.starts_with('a') == to.starts_with('a');
    match rng.below(4) {
        0 if dicts.contains_key(&from) => {
            store.drop_dict(&from).unwrap();
            dicts.remove(&from);
        }
        1 if fits && dicts.contains_key(&from) && !dicts.contains_key(&to) => {
            store.clone_dict(&from, &to).unwrap();
            dicts.insert(to, dicts[&from].clone());
        }
        2 if fits && dicts.contains_key(&from) && !dicts.contains_key(&to) => {
            store.rename_dict(&from, &to).unwrap();
            let map = dicts.remove(&from).unwrap();
            dicts.insert(to, map);
        }
        _ => {
            dict_of(store, &to);
            dicts.entry(to).or_default();
        }
    }
}

fn contents(store: &Store) -> Dicts {
    let map = |name: &String| {
        let pairs = store.open_dict(name).unwrap();
        pairs.iter().map(|pair| pair.map(|(k, v)| (k.into_vec(), v.into_vec())).unwrap()).collect()
    };
    store.dicts().iter().map(|name| (name.clone(), map(name))).collect()
}

fn compare(rng: &mut Rng, store: &Store, dicts: &Dicts, at: &str) {
    assert!(contents(store) == *dicts, "{at}: {:?}", store.dicts());
    for (name, map) in dicts {
        let dict = store.open_dict(name).unwrap();
        let wanted: Vec<Vec<u8>> = (0..10).map(|_| key(rng)).collect();
        let found = dict.get_many(&wanted).unwrap();
        for (key, found) in wanted.iter().zip(found) {
            assert_eq!(found.map(Vec::from).as_ref(), map.get(key), "{at}: {key:?}");
        }
        let (from, to) = (key(rng), key(rng));
        let expected: Vec<_> = map.iter().filter(|(key, _)| **key >= from && **key < to).collect();
        let backwards =
            dict.range(from.as_slice()..to.as_slice()).rev().map(|pair| pair.unwrap().0.into_vec());
        let expected_back: Vec<_> = expected.iter().rev().map(|(key, _)| (*key).clone()).collect();
        assert_eq!(backwards.collect::<Vec<_>>(), expected_back, "{at}: {from:?} to {to:?}");
    }
}

fn history(seed: u64, path: &Path) {
    let mut rng = Rng::new(seed);
    let mut store = options().open(path).unwrap();
    let mut dicts = Dicts::new();
    // What the store was after each commit since the last that is sure to be durable.
    let mut since_sync = vec![dicts.clone()];
    for step in 0..STEPS {
        let at = format!("seed {seed}, step {step}");
        match rng.below(100) {
            65..=69 => {
                if ingest(&mut rng, &store, &mut dicts) {
                    since_sync.clear();
                }
            }
            0..=69 => {
                let mut batch = store.batch();
                (0..rng.between(1, 8)).for_each(|_| change(&mut rng, &store, &mut batch, &mut dicts));
                batch.commit().unwrap();
            }
            70..=79 => change_names(&mut rng, &store, &mut dicts),
            80..=86 => clone_prefix(&mut rng, &store, &mut dicts),
            87..=89 => compare(&mut rng, &store, &dicts, &at),
            90..=94 => {
                store.sync().unwrap();
                since_sync.clear();
            }
            95..=96 => {
                store.close().unwrap();
                store = options().open(path).unwrap();
                compare(&mut rng, &store, &dicts, &at);
                since_sync.clear();
            }
            _ => {
                store.abandon();
                store = options().open(path).unwrap();
                let found = contents(&store);
                assert!(since_sync.contains(&found), "{at}: it is of no moment since the last sync");
                dicts = found;
                since_sync.clear();
            }
        }
        since_sync.push(dicts.clone());
    }
    assert_eq!(store.check().unwrap(), [], "seed {seed}");
    compare(&mut rng, &store, &dicts, &format!("seed {seed}, in the end"));
}

#[test]
fn random_histories_are_those_of_maps() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..12 {
        history(seed, &folder.path().join(seed.to_string()));
    }
}
