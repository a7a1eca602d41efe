//! Values that expire, by a clock that tests set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use betree_store::{Dict, DictOptions, Error, Isolation, Outcome, Store, StoreOptions};
use tempfile::TempDir;

use crate::{appending, keys, options};

/// Seconds since 1970, as the store has them.
#[derive(Clone, Default)]
pub struct Seconds(Arc<AtomicU64>);

impl Seconds {
    pub fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Options with this clock.
    pub fn options(&self) -> StoreOptions {
        let own = self.clone();
        options().clock(move || time(own.now()))
    }
}

/// A time in seconds since 1970.
pub fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn expiring_store() -> (TempDir, Store, Seconds) {
    let (folder, seconds) = (tempfile::tempdir().unwrap(), Seconds::default());
    let store = seconds.options().open(folder.path().join("store")).unwrap();
    (folder, store, seconds)
}

fn expiring(store: &Store, name: &str) -> Dict {
    store.dict_with(name, &DictOptions::new().expiring()).unwrap()
}

#[test]
fn every_reader_goes_by_its_own_time() {
    // Also where all has gone from memory to the tree.
    for is_in_tree in [false, true] {
        let (_folder, store, seconds) = expiring_store();
        let dict = expiring(&store, "d");
        dict.put_until("a", "1", time(5)).unwrap();
        dict.put("b", "2").unwrap();
        dict.put_for("c", "3", Duration::from_secs(9)).unwrap();
        if is_in_tree {
            store.check().unwrap();
        }
        let (view, own) = (store.view(), store.begin(Isolation::Serializable));
        let then = view.dict("d").unwrap();
        seconds.set(4);
        assert_eq!(keys(&dict), ["a", "b", "c"]);
        assert_eq!(dict.expires_at("a").unwrap(), Some(time(5)));
        assert_eq!(dict.expires_at("b").unwrap(), None);
        assert_eq!(dict.expires_at("c").unwrap(), Some(time(9)));
        seconds.set(5);
        assert_eq!(keys(&dict), ["b", "c"]);
        assert_eq!(dict.owned_prefix("").rev().count(), 2);
        assert!(!dict.contains("a").unwrap() && dict.expires_at("a").unwrap().is_none());
        let found = dict.get_many(&["a", "b", "c"]).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true]);
        // Both began before.
        assert_eq!(then.get("a").unwrap().unwrap(), "1");
        assert_eq!((then.iter().count(), then.expires_at("a").unwrap()), (3, Some(time(5))));
        assert_eq!(own.get(&dict, "a").unwrap().unwrap(), "1");
        assert_eq!(own.expires_at(&dict, "a").unwrap(), Some(time(5)));
        assert_eq!(store.view().dict("d").unwrap().iter().count(), 2);
        // That something expires is no change of others.
        assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)));
        // The clock of an open store does not go back.
        seconds.set(3);
        assert!(!dict.contains("a").unwrap());
    }
}

#[test]
fn upserts_leave_a_value_its_time_and_find_none_that_has_expired() {
    let (_folder, store, seconds) = expiring_store();
    let dict = store.dict_with("d", &appending().expiring()).unwrap();
    for is_in_tree in [false, true] {
        let at = seconds.now();
        dict.put_until("a", "1", time(at + 5)).unwrap();
        dict.upsert("b", "1").unwrap();
        dict.put_until("c", "1", time(at + 5)).unwrap();
        if is_in_tree {
            store.check().unwrap();
        }
        dict.upsert("a", "2").unwrap();
        dict.put("c", "2").unwrap();
        assert_eq!(dict.get("a").unwrap().unwrap(), "12");
        assert_eq!(dict.expires_at("a").unwrap(), Some(time(at + 5)));
        seconds.set(at + 5);
        assert_eq!(keys(&dict), ["b", "c"], "a plain put has no time");
        dict.upsert("a", "3").unwrap();
        assert_eq!(dict.get("a").unwrap().unwrap(), "3");
        assert_eq!(dict.expires_at("a").unwrap(), None);
        dict.clear().unwrap();
    }
}

#[test]
fn batches_and_transactions_put_values_that_expire() {
    let (_folder, store, seconds) = expiring_store();
    let dict = store.dict_with("d", &appending().expiring()).unwrap();
    let mut batch = store.batch();
    batch.put_until(&dict, "a", "1", time(5)).unwrap();
    batch.put_for(&dict, "b", "1", Duration::from_secs(6)).unwrap();
    batch.upsert(&dict, "a", "2").unwrap();
    batch.commit().unwrap();
    let mut own = store.begin(Isolation::Snapshot);
    seconds.set(4);
    own.put_for(&dict, "c", "1", Duration::from_secs(7)).unwrap();
    own.upsert(&dict, "c", "2").unwrap();
    own.put_until(&dict, "e", "1", time(1)).unwrap();
    own.upsert(&dict, "e", "2").unwrap();
    assert_eq!(own.get(&dict, "c").unwrap().unwrap(), "12");
    assert_eq!(own.get(&dict, "e").unwrap().unwrap(), "12", "its time is that of its beginning");
    assert!(matches!(own.commit().unwrap(), Outcome::Committed(_)));
    assert_eq!(keys(&dict), ["a", "b", "c"]);
    assert_eq!(dict.expires_at("c").unwrap(), Some(time(7)));
    assert_eq!(dict.get("a").unwrap().unwrap(), "12");
    for (at, left) in [(5, &["b", "c"][..]), (6, &["c"]), (7, &[])] {
        seconds.set(at);
        assert_eq!(keys(&dict), left);
    }
}

#[test]
fn what_is_cloned_backed_up_or_worked_on_in_large_keeps_its_time() {
    let (folder, store, seconds) = expiring_store();
    let dict = expiring(&store, "d");
    for (key, until) in [("x/1", 5), ("x/2", 9)] {
        dict.put_until(key, "v", time(until)).unwrap();
    }
    dict.clone_prefix("x/", "y/").unwrap();
    let copy = store.clone_dict("d", "copy").unwrap();
    let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
    large.dict(&dict).unwrap().put_until("z", "v", time(5)).unwrap();
    seconds.set(4);
    let backup = folder.path().join("backup");
    store.backup(&backup, |_| ()).unwrap();
    seconds.set(5);
    // What has expired meanwhile is no conflict, and is not brought back.
    dict.put("x/1", "new").unwrap();
    assert!(matches!(large.commit().unwrap(), Outcome::Committed(_)));
    assert_eq!(keys(&dict), ["x/1", "x/2", "y/2"]);
    assert_eq!(keys(&copy), ["x/2", "y/2"]);
    assert_eq!(copy.expires_at("y/2").unwrap(), Some(time(9)));
    assert!(copy.is_expiring());
    let of_backup = |at: u64| {
        seconds.set(at);
        keys(&seconds.options().open(&backup).unwrap().open_dict("d").unwrap())
    };
    assert_eq!(of_backup(4), ["x/1", "x/2", "y/1", "y/2"]);
    assert_eq!(of_backup(5), ["x/2", "y/2"]);
    assert_eq!(of_backup(9), [""; 0]);
}

#[test]
fn a_large_value_expires_with_its_parts() {
    const LARGE_BYTES: usize = 600_000;
    let (_folder, store, seconds) = expiring_store();
    let dict = expiring(&store, "d");
    let value = |number: u64| seeded::bytes(number, 0, LARGE_BYTES);
    (0..10).for_each(|number| dict.put_until(format!("{number}"), value(number), time(5)).unwrap());
    dict.put("stays", value(10)).unwrap();
    let view = store.view();
    assert_eq!(dict.get("3").unwrap().unwrap(), value(3));
    assert_eq!(dict.get_many(&["7", "stays"]).unwrap()[0].as_deref(), Some(&value(7)[..]));
    seconds.set(5);
    assert_eq!((keys(&dict), dict.get("3").unwrap()), (vec!["stays".to_owned()], None));
    let then = view.dict("d").unwrap();
    assert_eq!(then.get("3").unwrap().unwrap(), value(3));
    assert_eq!(then.get_many(&["7"]).unwrap()[0].as_deref(), Some(&value(7)[..]));
    drop((then, view));
    // The store's own thread may have been there before, or be there now.
    let removed =
        std::iter::repeat_with(|| dict.remove_expired().unwrap()).take_while(|removed| *removed > 0);
    assert!(removed.sum::<u64>() <= 10);
    // That thread's view keeps a check from comparing the space, which is no problem.
    let found = store.check().unwrap();
    assert!(found.iter().all(|finding| !finding.is_problem), "{found:?}");
    assert_eq!(dict.get("stays").unwrap().unwrap(), value(10));
}

#[test]
fn only_dictionaries_that_were_made_so_have_values_that_expire() {
    let (_folder, store, _) = expiring_store();
    let plain = store.dict("plain").unwrap();
    let refused = |result: betree_store::Result<()>| {
        assert!(matches!(&result, Err(Error::NoExpiry { dict }) if dict == "plain"), "{result:?}");
    };
    refused(plain.put_until("k", "v", time(5)));
    refused(plain.put_for("k", "v", Duration::from_secs(5)));
    refused(store.batch().put_until(&plain, "k", "v", time(5)));
    refused(store.begin(Isolation::Snapshot).put_until(&plain, "k", "v", time(5)));
    refused(store.dict_with("plain", &DictOptions::new().expiring()).map(drop));
    assert!(plain.is_empty().unwrap() && !plain.is_expiring());
    let made = store.run(Isolation::Snapshot, |own| own.create("own", &DictOptions::new().expiring()));
    made.unwrap().put_until("k", "v", time(5)).unwrap();
    assert!(store.open_dict("own").unwrap().is_expiring());
    // One that is there need not be asked for it.
    assert!(store.dict_with("own", &DictOptions::new()).unwrap().is_expiring());
    assert_eq!(plain.remove_expired().unwrap(), 0);
}
