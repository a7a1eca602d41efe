use alloc::collections::BTreeMap;
use alloc::format;

use super::*;

type Model = BTreeMap<Vec<u8>, u64>;

fn random(state: &mut u64) -> u64 {
    // xorshift64
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn put(map: &mut KeyMap<u64>, model: &mut Model, key: &[u8], value: u64) {
    let mut old = None;
    map.change(key, value, |known| match known {
        None => Some(value),
        Some(known) => {
            old = Some(core::mem::replace(known, value));
            None
        }
    });
    assert_eq!(old, model.insert(key.to_vec(), value), "{key:?}");
}

fn same(map: &KeyMap<u64>, model: &Model, from: &[u8], to: Option<&[u8]>) {
    let bounds = |key: &Vec<u8>| **key >= *from && to.is_none_or(|to| **key < *to);
    let expected: Vec<(&[u8], &u64)> =
        model.iter().filter(|(key, _)| bounds(key)).map(|(key, value)| (key.as_slice(), value)).collect();
    assert!(map.range(from, to).eq(expected.iter().copied()), "from {from:?} to {to:?}");
    assert!(map.range(from, to).rev().eq(expected.iter().rev().copied()), "back from {to:?} to {from:?}");
    // From both ends until they meet.
    let mut both = map.range(from, to);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while let Some(entry) = both.next() {
        front.push(entry);
        back.extend(both.next_back());
    }
    assert_eq!(both.next_back(), None);
    front.extend(back.into_iter().rev());
    assert!(front == expected, "from both ends, from {from:?} to {to:?}");
}

/// Random puts, removals and ranges, compared with a model.
fn history(seed: u64, steps: u32, key: impl Fn(&mut u64) -> Vec<u8>) {
    let (mut map, mut model, mut state) = (KeyMap::default(), Model::new(), seed);
    for step in 0..steps {
        let at = key(&mut state);
        if random(&mut state).is_multiple_of(8) {
            assert_eq!(map.remove(&at), model.remove(&at), "{at:?}");
        } else {
            put(&mut map, &mut model, &at, u64::from(step));
        }
        let other = key(&mut state);
        assert_eq!(map.get(&other), model.get(&other), "{other:?}");
        if step.is_power_of_two() || step % 4000 == 0 {
            let (from, to) = if at < other { (at, other) } else { (other, at) };
            same(&map, &model, &from, Some(&to));
            same(&map, &model, &from, None);
            same(&map, &model, b"", None);
        }
    }
    same(&map, &model, b"", None);
}

#[test]
fn short_keys_agree_with_a_model() {
    for seed in 1..20 {
        history(seed, 5000, |state| {
            let len = random(state) % 12;
            (0..len).map(|_| [0, 1, 0xFE, 0xFF][random(state) as usize % 4]).collect()
        });
    }
}

#[test]
fn paths_with_common_prefixes_agree_with_a_model() {
    for seed in 1..5 {
        history(seed, 40_000, |state| {
            let (dir, file) = (random(state) % 50, random(state) % 2000);
            format!("platform/user/projects/dir{dir}\0file{file:0width$}\0", width = 1 + file as usize % 12)
                .into()
        });
    }
}

#[test]
fn any_order_of_insertion_makes_the_same_map() {
    const KEYS: u64 = 20_000;
    let orders: [fn(u64) -> u64; 4] = [
        |number| number,
        |number| KEYS - number,
        |number| number * 7919 % KEYS,
        |number| number % 100 * 200 + number / 100,
    ];
    for order in orders {
        let (mut map, mut model) = (KeyMap::default(), Model::new());
        for number in 0..KEYS {
            put(&mut map, &mut model, format!("a/common/prefix/{:08}", order(number)).as_bytes(), number);
        }
        same(&map, &model, b"", None);
    }
}

#[test]
fn insertions_in_order_fill_the_leaves() {
    let mut map = KeyMap::default();
    for number in 0..100_000_u64 {
        map.change(&number.to_be_bytes(), 1, |_| Some(()));
    }
    assert!(map.leaves.len() < 100_000 / (FANOUT / 8 * 7) + 2, "{} leaves", map.leaves.len());
    assert_eq!(map.height, 2);
}

#[test]
fn an_empty_map_has_nothing() {
    let mut map = KeyMap::<u64>::default();
    assert_eq!(map.get(b"a"), None);
    assert_eq!(map.remove(b"a"), None);
    assert_eq!(map.range(b"", None).next(), None);
    assert_eq!(map.range(b"a", Some(b"b")).next_back(), None);
    map.change(b"a", 1, |_| None);
    assert_eq!(map.get(b"a"), None);
}

#[test]
fn only_leaves_with_newer_changes_are_looked_at() {
    const KEYS: u64 = 10_000;
    let (mut map, mut model) = (KeyMap::default(), Model::new());
    (0..KEYS).for_each(|number| put(&mut map, &mut model, format!("{number:05}").as_bytes(), 1));
    assert_eq!(map.range_since(b"", None, 0).count() as u64, KEYS);
    assert_eq!(map.range_since(b"", None, 1).count(), 0);
    assert_eq!(map.range_since(b"00100", Some(b"00110"), 1).count(), 0);
    let changes: [&[u8]; 4] = [b"00000", b"05000", b"09999", b"050001"];
    for (at, changed) in changes.iter().enumerate() {
        put(&mut map, &mut model, changed, 2 + at as u64);
        let found: Vec<_> = map.range_since(b"", None, 1 + at as u64).map(|(key, _)| key).collect();
        assert!(found.contains(changed) && found.len() <= FANOUT, "{} entries", found.len());
        let far = map.range_since(b"02000", Some(b"03000"), 1 + at as u64);
        assert_eq!(far.count(), 0);
    }
    // A leaf that is split is as new as it was, in both halves.
    (0..200).for_each(|number: u64| put(&mut map, &mut model, format!("05000x{number:03}").as_bytes(), 9));
    let newer = map.range_since(b"", None, 8).filter(|(_, value)| **value == 9).count();
    assert_eq!(newer, 200);
}
