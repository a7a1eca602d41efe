//! Iterators from both ends.

use std::borrow::Cow;
use std::ops::Bound;

use betree_store::{Dict, DictOptions, Isolation, Iter};

use crate::{filled, keys, store};

#[test]
fn both_ends_meet_at_each_place_once() {
    let (_folder, store) = store();
    let names: Vec<String> = (0..30).map(|i| format!("{i:02}")).collect();
    let dict = filled(&store, "d", names.clone());
    // Neighbours of the dictionary must not be met.
    filled(&store, "e", ["00".into()]);
    for from_front in 0..=names.len() {
        let mut pairs = dict.iter();
        let mut met: Vec<String> =
            (&mut pairs).take(from_front).map(|p| format!("{:?}", p.unwrap().0)).collect();
        let mut back: Vec<String> = (&mut pairs).rev().map(|p| format!("{:?}", p.unwrap().0)).collect();
        back.reverse();
        met.append(&mut back);
        assert_eq!(met, names.iter().map(|n| format!("b\"{n}\"")).collect::<Vec<_>>(), "{from_front}");
        assert!(pairs.next().is_none() && pairs.next_back().is_none());
    }
}

#[test]
fn alternating_ends_return_each_pair_once_in_a_tree_with_many_leaves() {
    let (_folder, store) = store();
    let names: Vec<String> = (0..15_000).map(|i| format!("{i:06}{}", "x".repeat(20))).collect();
    let dict = filled(&store, "d", names.clone());
    store.check().unwrap();
    let mut pairs = dict.iter();
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while let Some(pair) = pairs.next() {
        front.push(pair.unwrap().0);
        back.extend(pairs.next_back().map(|pair| pair.unwrap().0));
    }
    back.reverse();
    front.append(&mut back);
    assert!(front.iter().eq(names.iter()));
}

#[test]
fn ranges_have_the_ends_that_they_say() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["a", "a\0", "ab", "b", "b\u{ff}", "c"].map(String::from));
    let found = |range: (Bound<&str>, Bound<&str>)| {
        dict.range::<&str>(range)
            .map(|pair| String::from_utf8(pair.unwrap().0.into_vec()).unwrap())
            .collect::<Vec<_>>()
    };
    use Bound::{Excluded, Included, Unbounded};
    assert_eq!(found((Included("a"), Excluded("b"))), ["a", "a\0", "ab"]);
    assert_eq!(found((Excluded("a"), Included("b"))), ["a\0", "ab", "b"]);
    assert_eq!(found((Excluded("b"), Unbounded)), ["b\u{ff}", "c"]);
    assert_eq!(found((Unbounded, Included("a"))), ["a"]);
    assert_eq!(found((Excluded("c"), Unbounded)), [""; 0]);
    assert_eq!(found((Included("c"), Excluded("a"))), [""; 0], "a range from back to front is empty");
    assert_eq!(found((Unbounded, Unbounded)), keys(&dict));
    let prefix: Vec<_> = dict.prefix("b").map(|pair| pair.unwrap().0).collect();
    assert_eq!(prefix, ["b", "b\u{ff}"]);
}

#[test]
fn changes_ahead_are_met_and_none_twice() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", (0..5000).map(|i| format!("{i:04}")));
    let mut last = None;
    for (pair, number) in dict.iter().zip(0..) {
        let (key, _) = pair.unwrap();
        assert!(last.as_ref() < Some(&key), "{last:?} before {key:?}");
        // Behind the iterator, where it must not be met.
        dict.put(format!("{number:04}-behind"), "").unwrap();
        dict.delete(&key).unwrap();
        last = Some(key);
    }
    assert!(last.unwrap()[..] >= b"4999"[..]);
}

#[test]
fn first_and_last_and_popping_take_pairs_in_order() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["b", "a", "c"].map(String::from));
    assert_eq!(dict.first().unwrap().unwrap().0, "a");
    assert_eq!(dict.last().unwrap().unwrap().0, "c");
    assert_eq!(dict.pop_last().unwrap().unwrap().1, "c");
    assert_eq!(dict.pop_first().unwrap().unwrap().1, "a");
    assert_eq!(dict.pop_first().unwrap().unwrap().1, "b");
    assert!(dict.pop_first().unwrap().is_none() && dict.is_empty().unwrap());
}

#[test]
fn an_owned_iterator_is_one_that_keeps_its_store() {
    let (_folder, store) = store();
    let names: Vec<String> = (0..1500).map(|i| format!("{i:04}")).collect();
    filled(&store, "d", names.clone());
    for stride in 1..9 {
        let mut pairs = store.open_dict("d").unwrap().owned_range("0100".."1400");
        let mut expected: std::collections::VecDeque<_> = names[100..1400].iter().collect();
        // Runs of both directions, of different lengths, so that the pairs read from both ends meet.
        for step in 0..1400 {
            let is_forward = step % (stride * 7) < stride * 4;
            let (met, right) = match is_forward {
                true => (pairs.next(), expected.pop_front()),
                false => (pairs.next_back(), expected.pop_back()),
            };
            assert_eq!(
                met.transpose().unwrap().map(|(key, _)| key.into_vec()),
                right.map(|r| r.clone().into())
            );
        }
    }
    assert_eq!(store.open_dict("d").unwrap().owned_prefix("12").count(), 100);
}

#[test]
fn an_owned_iterator_ends_with_the_first_error() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", (0..1500).map(|i| format!("{i:04}")));
    let mut pairs = dict.owned_prefix("");
    assert_eq!(pairs.next().unwrap().unwrap().0, "0000");
    assert_eq!(pairs.next_back().unwrap().unwrap().0, "1499");
    store.drop_dict("d").unwrap();
    let rest: Vec<_> = pairs.by_ref().collect();
    let (last, others) = rest.split_last().unwrap();
    assert!(others.len() < 10 && others.iter().all(Result::is_ok), "what was read comes first");
    assert!(matches!(last, Err(betree_store::Error::DictDropped { .. })));
    assert!(pairs.next().is_none() && pairs.next_back().is_none());
}

/// Values of all stored forms: plain, beginning as a reference to parts does, in parts, with a time.
fn of_all_forms(dict: &Dict) {
    let mark = [0x9e, 0xd1, 0x5c, 0x3b, 0xa4, 0x07, 0xf2, 0x68];
    let year_2200 = std::time::UNIX_EPOCH + std::time::Duration::from_secs(7_258_118_400);
    for number in 0..40_u8 {
        let key = [b'k', number];
        match number % 4 {
            0 => dict.put(key, [&mark[..], &[number]].concat()).unwrap(),
            1 => dict.put(key, seeded::bytes(u64::from(number), 0, (1 << 20) + 1)).unwrap(),
            2 => dict.put_until(key, [number; 9], year_2200).unwrap(),
            _ => dict.put(key, [number; 100]).unwrap(),
        }
    }
}

/// An iterator that lends returns what one that copies does, in any order of directions.
fn check_lent<'d>(iter: impl Fn() -> Iter<'d>) {
    for stride in 1..5 {
        let (mut lending, mut copying) = (iter(), iter());
        let mut count = 0;
        for step in 0..50 {
            let is_forward = step % (stride * 2) < stride;
            let (lent, copied) = match is_forward {
                true => (lending.next_lent().unwrap(), copying.next()),
                false => (lending.next_back_lent().unwrap(), copying.next_back()),
            };
            let lent = lent.map(|(key, value)| (key.to_vec(), value.into_owned()));
            let copied = copied.transpose().unwrap();
            let copied = copied.map(|(key, value)| (key.into_vec(), value.into_vec()));
            count += usize::from(lent.is_some());
            assert!(lent == copied, "step {step} of {stride}: not {:?}", copied.map(|(key, _)| key));
        }
        assert_eq!(count, 40);
    }
}

#[test]
fn pairs_that_are_lent_are_those_that_are_copied() {
    let (_folder, store) = store();
    let dict = store.dict_with("d", &DictOptions::new().expiring()).unwrap();
    of_all_forms(&dict);
    check_lent(|| dict.iter());
    store.check().unwrap();
    check_lent(|| dict.iter());
    let then = store.view().dict("d").unwrap();
    check_lent(|| then.iter());
    let mut own = store.begin(Isolation::Serializable);
    own.put(&dict, [b'k', 3], "its own").unwrap();
    check_lent(|| own.iter(&dict));
}

#[test]
fn lent_values_are_not_copied() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", (0..100).map(|i| format!("{i:02}{}", "x".repeat(200))));
    // From the tree: what is in a memtable is copied while writers wait.
    store.check().unwrap();
    let (mut one, mut other) = (dict.iter(), dict.iter());
    for _ in 0..50 {
        let (Some((_, Cow::Borrowed(one))), Some((_, Cow::Borrowed(other)))) =
            (one.next_lent().unwrap(), other.next_lent().unwrap())
        else {
            panic!("a plain value is lent");
        };
        assert!(std::ptr::eq(one, other), "two iterators lend the same bytes");
    }
    let (mut one, mut other) = (dict.iter(), dict.iter());
    for _ in 0..50 {
        let (one, other) = (one.next_back_lent().unwrap(), other.next_back_lent().unwrap());
        assert!(std::ptr::eq(&*one.unwrap().1, &*other.unwrap().1), "also from the last");
    }
}

#[test]
fn an_iterator_that_lends_ends_with_the_first_error() {
    let (_folder, store) = store();
    let dict = filled(&store, "d", ["a", "b", "c"].map(String::from));
    let mut pairs = dict.iter();
    assert_eq!(pairs.next_lent().unwrap().unwrap().0, b"a");
    store.drop_dict("d").unwrap();
    assert!(matches!(pairs.next_lent(), Err(betree_store::Error::DictDropped { .. })));
    assert!(pairs.next_lent().unwrap().is_none() && pairs.next_back_lent().unwrap().is_none());
}
