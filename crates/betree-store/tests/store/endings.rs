//! A store that ends while others are at work with it, and what lives longer than its store.

use std::sync::mpsc;

use betree_store::{Error, Isolation};

use crate::child::in_a_fork;
use crate::{filled, keys, options, store};

const PAIRS: usize = 3000;

fn names() -> impl Iterator<Item = String> {
    (0..PAIRS).map(|i| format!("{i:05}"))
}

#[test]
fn what_was_taken_from_a_store_outlives_it_and_keeps_it_open() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = filled(&store, "d", names());
    let mut iter = dict.owned_range::<&str>(..);
    assert!(iter.next().unwrap().is_ok());
    let view = store.view();
    let mut small = store.begin(Isolation::Serializable);
    small.put(&dict, "small", "").unwrap();
    let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
    large.dict(&dict).unwrap().put("large", "").unwrap();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let writer = {
        let dict = dict.clone();
        std::thread::spawn(move || {
            may_go_on.recv().unwrap();
            dict.put("thread", "")
        })
    };
    drop((store, dict));
    assert!(matches!(options().open(&path), Err(Error::InUse { .. })));

    assert_eq!(iter.by_ref().map(Result::unwrap).count(), PAIRS - 1);
    assert_eq!(view.dict("d").unwrap().iter().count(), PAIRS);
    go_on.send(()).unwrap();
    writer.join().unwrap().unwrap();
    assert!(matches!(small.commit(), Ok(betree_store::Outcome::Committed(_))));
    assert!(matches!(large.commit(), Ok(betree_store::Outcome::Committed(_))));
    drop(view);
    assert!(matches!(options().open(&path), Err(Error::InUse { .. })));
    // The last of them closes it.
    drop(iter);
    let store = options().open(&path).unwrap();
    let found = keys(&store.open_dict("d").unwrap());
    assert_eq!(found[PAIRS..], ["large", "small", "thread"]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_store_that_is_closed_ends_what_is_at_work_with_it() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = filled(&store, "d", names());
    let mut iter = dict.owned_range::<&str>(..);
    assert!(iter.next().unwrap().is_ok());
    let (view, mut small) = (store.view(), store.begin(Isolation::Snapshot));
    let of_view = view.dict("d").unwrap();
    small.put(&dict, "small", "").unwrap();
    let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
    let work = large.dict(&dict).unwrap();
    work.put("large", "").unwrap();
    let (begun, has_begun) = mpsc::channel();
    let writer = {
        let dict = dict.clone();
        std::thread::spawn(move || {
            for number in 0_u64.. {
                match dict.put(format!("thread/{number:06}"), [7; 100]) {
                    Ok(()) if number == 100 => begun.send(()).unwrap(),
                    Ok(()) => {}
                    Err(error) => return (number, error),
                }
            }
            unreachable!("the store is closed")
        })
    };
    has_begun.recv().unwrap();
    store.close().unwrap();
    let (accepted, error) = writer.join().unwrap();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    let ended = iter.find_map(Result::err);
    assert!(matches!(ended, Some(Error::Closed { .. })), "{ended:?}");
    assert!(matches!(of_view.get("00001"), Err(Error::Closed { .. })));
    assert!(matches!(view.dict("d"), Err(Error::Closed { .. })));
    assert!(matches!(small.commit(), Err(Error::Closed { .. })));
    assert!(matches!(work.put("more", ""), Err(Error::Closed { .. })));
    assert!(matches!(large.commit(), Err(Error::Closed { .. })));

    // Everything that was accepted is there, and nothing of what did not commit, though the handles live.
    let again = options().open(&path).unwrap();
    let found = keys(&again.open_dict("d").unwrap());
    assert_eq!(found.len() as u64, PAIRS as u64 + accepted);
    assert!(!found.contains(&"small".into()) && !found.contains(&"large".into()));
    assert_eq!(again.dicts(), ["d"]);
    assert_eq!(again.check().unwrap(), []);
}

/// Whatever a fork calls or drops, it is refused, and neither hangs nor writes.
#[test]
fn a_fork_is_refused_and_leaves_the_store_to_its_parent() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = filled(&store, "d", names());
    store.sync().unwrap();
    let mut all = Some((store.clone(), dict.clone(), store.view(), dict.owned_range::<&str>(..)));
    let transaction = store.begin(Isolation::Snapshot);
    let large = store.begin_large(Isolation::Snapshot, &[&dict]).unwrap();
    let mut both = Some((transaction, large));
    let code = in_a_fork(|| {
        let Some((store, dict, view, mut iter)) = all.take() else { return 100 };
        let told = [
            dict.put("child", "").err(),
            dict.get("00000").err(),
            store.sync().err(),
            store.close().err(),
            view.dict("d").err(),
            iter.next().and_then(Result::err),
            store.begin(Isolation::Snapshot).commit().err(),
        ];
        let bad = told.iter().position(|told| !matches!(told, Some(Error::Forked { .. })));
        drop((store, dict, view, iter, both.take()));
        bad.map_or(0, |at| at as i32 + 1)
    });
    assert_eq!(code, 0, "the number of the call that was not refused");
    assert!(matches!(options().open(&path), Err(Error::InUse { .. })), "the lock is the parent's");
    dict.put("parent", "").unwrap();
    store.sync().unwrap();
    drop((all, both));
    store.abandon();
    drop((dict, store));
    let store = options().open(&path).unwrap();
    assert_eq!(keys(&store.open_dict("d").unwrap()).len(), PAIRS + 1);
    assert_eq!(store.check().unwrap(), []);
}
