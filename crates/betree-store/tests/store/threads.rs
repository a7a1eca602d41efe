//! Many threads use one store.

use std::collections::BTreeSet;
use std::sync::Mutex;

use betree_store::Error;

use crate::{appending, store};

const THREADS: usize = 4;

#[test]
fn upserts_of_many_threads_are_all_there() {
    let (_folder, store) = store();
    let notes = store.dict_with("notes", &appending()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let notes = &notes;
            scope.spawn(move || (0..500).for_each(|_| notes.upsert("k", [thread as u8]).unwrap()));
        }
    });
    let value = notes.get("k").unwrap().unwrap();
    let count = |thread| value.iter().filter(|byte| **byte == thread as u8).count();
    assert!((0..THREADS).all(|thread| count(thread) == 500), "{} bytes", value.len());
}

#[test]
fn each_job_is_taken_by_one_thread() {
    let (_folder, store) = store();
    let jobs = crate::filled(&store, "jobs", (0..400).map(|i| format!("{i:03}")));
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((job, _)) = jobs.pop_first().unwrap() {
                    taken.lock().unwrap().push(job);
                }
            });
        }
    });
    let taken = taken.into_inner().unwrap();
    assert_eq!((taken.len(), taken.iter().collect::<BTreeSet<_>>().len()), (400, 400));
}

#[test]
fn dictionaries_come_and_go_under_threads_that_use_them() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..60 {
                    let dict = match store.dict("shared") {
                        Ok(dict) => dict,
                        // Made by another, and dropped by a third before it could be opened.
                        Err(Error::NoSuchDict { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let used = dict
                        .put(format!("{thread}/{round}"), "")
                        .and_then(|()| dict.iter().try_for_each(|pair| pair.map(|_| ())));
                    assert!(matches!(used, Ok(()) | Err(Error::DictDropped { .. })), "{used:?}");
                    if round % 7 == thread {
                        let dropped = store.drop_dict("shared");
                        assert!(matches!(dropped, Ok(()) | Err(Error::NoSuchDict { .. })), "{dropped:?}");
                    }
                }
            });
        }
    });
    assert_eq!(store.check().unwrap(), []);
    // What was dropped has left nothing, whoever changed it meanwhile.
    store.dicts().iter().for_each(|name| store.drop_dict(name).unwrap());
    assert!(store.dict("last").unwrap().is_empty().unwrap());
}
