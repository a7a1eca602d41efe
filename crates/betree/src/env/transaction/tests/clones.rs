//! Clones and renames of ranges inside of transactions.

use super::*;

/// All pairs of a prefix, as a transaction sees them: by a scan in each direction, and key by key.
fn seen(transaction: &Transaction, prefix: &str) -> String {
    let mut cursor = transaction.cursor(D, Cut::before(prefix), Cut::after(prefix));
    let mut pairs = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    for (key, value) in pairs.iter().rev() {
        assert_eq!(cursor.prev().unwrap(), Some((key.as_slice(), value.as_slice())));
        assert_eq!(transaction.get(D, key).unwrap().as_ref(), Some(value));
    }
    assert_eq!(cursor.prev().unwrap(), None);
    shown(&pairs)
}

/// All pairs of a prefix in the environment.
fn stored(env: &Env, prefix: &str) -> String {
    let mut cursor = env.cursor(D, Cut::before(prefix), Cut::after(prefix));
    let mut pairs = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    shown(&pairs)
}

fn shown(pairs: &[(Vec<u8>, Vec<u8>)]) -> String {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    let pairs: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{}={}", text(key), text(value))).collect();
    pairs.join(" ")
}

/// An environment with some pairs, all of them in the tree or all in a memtable.
fn with_pairs(pairs: &str, arrives: bool) -> Arc<Env> {
    let env = env();
    for pair in pairs.split(' ') {
        let (key, value) = pair.split_once('=').unwrap();
        put(&env, key.as_bytes(), value.as_bytes());
    }
    if arrives {
        env.checkpoint().unwrap();
    }
    env
}

/// Changes in a transaction, what it sees of each prefix afterwards, and what is stored once it has
/// committed.
fn comes_to(pairs: &str, body: impl Fn(&mut Transaction), should: &[(&str, &str)]) {
    for isolation in BOTH {
        for arrives in [false, true] {
            let env = with_pairs(pairs, arrives);
            let mut transaction = env.begin(isolation);
            body(&mut transaction);
            for (prefix, pairs) in should {
                assert_eq!(seen(&transaction, prefix), *pairs, "seen of {prefix}");
            }
            let commits = env.stats().commits;
            assert!(matches!(transaction.commit().unwrap(), Outcome::Committed(_)));
            assert_eq!(env.stats().commits, commits + 1, "it is one batch");
            for (prefix, pairs) in should {
                assert_eq!(stored(&env, prefix), *pairs, "stored of {prefix}");
            }
        }
    }
}

#[test]
fn changes_before_a_clone_come_along_and_changes_behind_it_do_not() {
    let body = |t: &mut Transaction| {
        t.put(D, b"a/new", b"1").unwrap();
        t.delete(D, b"a/2").unwrap();
        t.upsert(D, b"a/3", b"+").unwrap();
        t.put(D, b"b/older", b"gone").unwrap();
        t.clone_range(D, b"a/", b"b/").unwrap();
        t.put(D, b"a/1", b"later").unwrap();
        t.upsert(D, b"b/3", b"!").unwrap();
        t.upsert(D, b"b/none", b"?").unwrap();
        t.delete(D, b"b/1").unwrap();
    };
    let should = [("a/", "a/1=later a/3=w+ a/new=1"), ("b/", "b/3=w+! b/new=1 b/none=?")];
    comes_to("a/1=u a/2=v a/3=w b/none=x b/old=y", body, &should);
}

#[test]
fn a_scan_goes_over_the_borders_of_clones() {
    let body = |t: &mut Transaction| {
        t.clone_range(D, b"a/", b"b/").unwrap();
        t.clone_range(D, b"b/", b"d/").unwrap();
        t.put(D, b"b/2x", b"own").unwrap();
    };
    let all = "a/1=u a/2=v b/1=u b/2=v b/2x=own c=w d/1=u d/2=v e=z";
    let without_others = |all: &'static str| [("a", "a/1=u a/2=v"), ("b", "b/1=u b/2=v b/2x=own"), ("", all)];
    let old: String = (0..10).map(|number| format!(" k{number:02}=old")).collect();
    let all = format!("{all}{old}");
    comes_to("a/1=u a/2=v b/9=gone c=w e=z", body, &without_others(all.leak()));
}

#[test]
fn ranges_deleted_before_and_behind_a_clone_are_no_part_of_it() {
    let body = |t: &mut Transaction| {
        t.delete_range(D, &Cut::before(*b"a/2"), &Cut::before(*b"a/4")).unwrap();
        t.put(D, b"a/3", b"again").unwrap();
        t.clone_range(D, b"a/", b"b/").unwrap();
        t.delete_range(D, &Cut::before(*b"b/4"), &Cut::before(*b"b/5")).unwrap();
        t.upsert(D, b"b/2", b"+").unwrap();
        t.clone_range(D, b"b/", b"c/").unwrap();
        t.delete_range(D, &Cut::before(*b"b/"), &Cut::after(*b"b/")).unwrap();
    };
    let should = [("a/", "a/1=1 a/3=again a/4=4 a/5=5"), ("b/", ""), ("c/", "c/1=1 c/2=+ c/3=again c/5=5")];
    comes_to("a/1=1 a/2=2 a/3=3 a/4=4 a/5=5 b/4=b c/7=c", body, &should);
}

#[test]
fn renames_of_renames_and_exchanges_end_where_they_should() {
    let exchange = |t: &mut Transaction| {
        t.put(D, b"a/own", b"x").unwrap();
        t.rename_range(D, b"a/", b"t/").unwrap();
        t.rename_range(D, b"b/", b"a/").unwrap();
        t.rename_range(D, b"t/", b"b/").unwrap();
    };
    comes_to("a/1=1 b/2=2", exchange, &[("a/", "a/2=2"), ("b/", "b/1=1 b/own=x"), ("t/", "")]);
    let inside = |t: &mut Transaction| {
        t.clone_range(D, b"a/", b"a/a/").unwrap();
        t.rename_range(D, b"a/", b"a/b/").unwrap();
        t.rename_range(D, b"a/b/a/", b"a/").unwrap();
        t.put(D, b"c", b"3").unwrap();
    };
    comes_to("a/1=1 a/2=2", inside, &[("a/", "a/1=1 a/2=2"), ("c", "c=3")]);
    let there_and_back = |t: &mut Transaction| {
        t.rename_range(D, b"a/", b"b/").unwrap();
        t.rename_range(D, b"b/", b"a/").unwrap();
        t.rename_range(D, b"a/", b"a/").unwrap();
        t.put(D, b"c", b"3").unwrap();
    };
    comes_to("a/1=1 b/2=2", there_and_back, &[("a/", "a/1=1"), ("b/", ""), ("c", "c=3")]);
}

#[test]
fn a_rollback_takes_clones_back() {
    let body = |t: &mut Transaction| {
        t.clone_range(D, b"a/", b"b/").unwrap();
        let first = t.savepoint();
        t.put(D, b"b/1", b"own").unwrap();
        t.rename_range(D, b"b/", b"c/").unwrap();
        let second = t.savepoint();
        t.clone_range(D, b"c/", b"a/").unwrap();
        assert_eq!(seen(t, "a/"), "a/1=own a/2=2");
        t.roll_back(second);
        assert_eq!(seen(t, "a/"), "a/1=1 a/2=2");
        assert_eq!((seen(t, "b/").as_str(), seen(t, "c/").as_str()), ("", "c/1=own c/2=2"));
        t.roll_back(first);
        t.clone_range(D, b"a/", b"d/").unwrap();
        // It has ended, and drops nothing.
        t.roll_back(second);
    };
    let should = [("a/", "a/1=1 a/2=2"), ("b/", "b/1=1 b/2=2"), ("c/", ""), ("d/", "d/1=1 d/2=2")];
    comes_to("a/1=1 a/2=2 b/9=gone", body, &should);
}

#[test]
fn a_source_that_has_changed_is_a_conflict_in_both_isolations() {
    let clone = |t: &mut Transaction| t.clone_range(D, b"k0", b"copy/").unwrap();
    let rename = |t: &mut Transaction| t.rename_range(D, b"k0", b"copy/").unwrap();
    let of_clone = |t: &mut Transaction| {
        t.clone_range(D, b"k0", b"copy/").unwrap();
        t.clone_range(D, b"copy/4", b"other/").unwrap();
        t.delete_range(D, &Cut::before(*b"copy/"), &Cut::after(*b"copy/")).unwrap();
    };
    for body in [clone, rename, of_clone] {
        tried([false, false], &key(4), body, |env| put(env, &key(4), b"theirs"));
        tried([false, false], b"k04x", body, |env| put(env, b"k04x", b"theirs"));
        tried([true, true], b"", body, |env| put(env, b"k1", b"theirs"));
    }
    // The target is written, and never read.
    tried([false, true], b"copy/7", clone, |env| put(env, b"copy/7", b"theirs"));
    tried([true, true], b"", clone, |env| put(env, b"cop", b"theirs"));
    // A key that the source leads to is read, wherever it is read.
    let read = |t: &mut Transaction| {
        let before = t.savepoint();
        t.clone_range(D, b"k0", b"copy/").unwrap();
        assert_eq!(t.get(D, b"copy/3").unwrap().as_deref(), Some(&b"old"[..]));
        t.roll_back(before);
        t.put(D, b"mine", b"1").unwrap();
    };
    tried([true, false], &key(3), read, |env| put(env, &key(3), b"theirs"));
    tried([true, true], b"", read, |env| put(env, b"copy/3", b"theirs"));
    let scan = |t: &mut Transaction| {
        let before = t.savepoint();
        t.clone_range(D, b"k0", b"copy/").unwrap();
        t.delete_range(D, &Cut::before(*b"copy/2"), &Cut::before(*b"copy/5")).unwrap();
        assert_eq!(seen(t, "copy/").split(' ').count(), 7);
        t.roll_back(before);
        t.put(D, b"mine", b"1").unwrap();
    };
    tried([true, false], b"k06x", scan, |env| put(env, b"k06x", b"theirs"));
    tried([true, true], b"", scan, |env| put(env, b"k03x", b"theirs"));
}

#[test]
fn others_see_a_clone_as_a_change_of_its_target_alone() {
    for isolation in BOTH {
        let env = env();
        let mut reader = env.begin(Serializable);
        reader.get(D, b"copy/3").unwrap();
        reader.put(D, b"mine", b"1").unwrap();
        let mut beside = env.begin(Serializable);
        beside.get(D, &key(3)).unwrap();
        beside.put(D, b"mine too", b"1").unwrap();
        let mut transaction = env.begin(isolation);
        transaction.clone_range(D, b"k0", b"copy/").unwrap();
        assert!(commits(transaction, b""));
        assert!(!commits(reader, b"copy/3"));
        assert!(commits(beside, b""));
    }
}

#[test]
fn a_transaction_older_than_the_memory_of_changes_looks_at_its_sources() {
    for (theirs, outcome) in [(key(4), false), (b"l".to_vec(), true)] {
        let env = env();
        let mut transaction = env.begin(Snapshot);
        transaction.clone_range(D, b"k0", b"copy/").unwrap();
        put(&env, &theirs, b"theirs");
        for number in 0..20_000u32 {
            put(&env, &[b"z".as_slice(), &number.to_be_bytes()].concat(), b"");
            env.run_due_work().unwrap();
        }
        env.checkpoint().unwrap();
        assert!(matches!(env.engine.recent.lock().since(&Footprint::default(), 1), Since::Unknown));
        assert_eq!(commits(transaction, &key(4)), outcome);
    }
}

#[test]
fn too_many_clones_are_refused_and_leave_the_transaction_as_it_was() {
    let env = env();
    let mut transaction = env.begin(Snapshot);
    for number in 0..CLONES_MAX {
        transaction.clone_range(D, b"k0", format!("copy/{number:02}").as_bytes()).unwrap();
    }
    let limit = CLONES_MAX;
    assert_eq!(transaction.clone_range(D, b"k0", b"more"), Err(Error::TooManyClones { limit }));
    let cut = transaction.delete_range(D, &Cut::before(*b"copy/074"), &Cut::before(*b"copy/075"));
    assert_eq!(cut, Err(Error::TooManyClones { limit }));
    assert!(commits(transaction, b""));
    assert_eq!(stored(&env, "copy/07").split(' ').count(), 10);
    assert_eq!(stored(&env, "more"), "");

    // What a clone copies counts.
    let mut transaction = env.begin(Snapshot);
    transaction.put(D, b"a/1", &[7; 20 << 10]).unwrap();
    assert!(matches!(transaction.clone_range(D, b"a/", b"b/"), Err(Error::TooLarge { .. })));
    assert!(matches!(transaction.rename_range(D, b"a/", b"b/"), Err(Error::TooLarge { .. })));
    let unknown = transaction.clone_range(DictId(9), b"a/", b"b/");
    assert_eq!(unknown, Err(Error::NoSuchDictionary { id: 9 }));
    assert_eq!(transaction.get(D, b"b/1").unwrap(), None);
    assert!(commits(transaction, b""));
}

#[test]
fn a_range_deleted_over_an_own_point_in_another_dictionary_stays_deleted_beside_a_clone() {
    let env = env();
    let mut transaction = env.begin(Snapshot);
    transaction.put(OTHER, b"x/1", b"gone").unwrap();
    transaction.delete_range(OTHER, &Cut::before(*b"x/"), &Cut::after(*b"x/")).unwrap();
    transaction.put(OTHER, b"x/2", b"there").unwrap();
    transaction.clone_range(D, b"k0", b"copy/").unwrap();
    assert!(commits(transaction, b""));
    assert_eq!(env.get(OTHER, b"x/1").unwrap(), None);
    assert_eq!(env.get(OTHER, b"x/2").unwrap().as_deref(), Some(&b"there"[..]));
}
