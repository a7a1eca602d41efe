//! Copies of a store in use.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use betree_store::{Error, Key, Store, Value, View};

use crate::{appending, filled, options, store};

/// All that a view shows.
fn contents(view: &View) -> Vec<(String, Vec<(Key, Value)>)> {
    let dicts = view.dicts().unwrap();
    let pairs = |name: &str| view.dict(name).unwrap().iter().map(Result::unwrap).collect();
    dicts.into_iter().map(|name| (name.clone(), pairs(&name))).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Dictionaries of all kinds.
fn mixed() -> (tempfile::TempDir, Store) {
    let (folder, store) = store();
    filled(&store, "small", (0..20_000).map(|i| format!("{i:06}")));
    store.clone_dict("small", "clone").unwrap().delete_range("0".."005000").unwrap();
    let large = store.dict("large").unwrap();
    large.put("a", vec![1; 5 << 20]).unwrap();
    large.put("b", vec![2; 500_000]).unwrap();
    let notes = store.dict_with("notes", &appending()).unwrap();
    (0..100).for_each(|i| notes.upsert(format!("{}", i % 7), format!("{i} ")).unwrap());
    store.dict("dropped").unwrap();
    store.drop_dict("dropped").unwrap();
    (folder, store)
}

#[test]
fn a_backup_holds_all_of_one_moment_while_writers_go_on() {
    let (folder, store) = mixed();
    let path = folder.path().join("copy");
    let expected = contents(&store.view());
    let is_done = AtomicBool::new(false);
    let mut reports = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = None;
        let mut begin = || {
            // From the first report on: the view has begun.
            scope.spawn(|| {
                let (small, large) = (store.open_dict("small").unwrap(), store.open_dict("large").unwrap());
                for turn in 0_u32.. {
                    if turn > 50 && is_done.load(Relaxed) {
                        break;
                    }
                    small.put(format!("{:06}", turn * 7 % 20_000), "new").unwrap();
                    small.put(format!("x{turn}"), "new").unwrap();
                    if turn == 5 {
                        large.put("a", vec![3; 3 << 20]).unwrap();
                        store.drop_dict("notes").unwrap();
                        store.rename_dict("clone", "renamed").unwrap();
                    }
                }
            })
        };
        let done = store.backup(&path, |progress| {
            writer.get_or_insert_with(&mut begin);
            reports.push(progress.clone());
        });
        is_done.store(true, Relaxed);
        done.unwrap();
    });
    assert!(reports.len() > 4 && reports.is_sorted_by_key(|report| report.bytes), "{}", reports.len());
    assert!(reports.iter().any(|report| report.dict == "large"));
    assert_ne!(contents(&store.view()), expected);
    let copy = options().open(&path).unwrap();
    assert!(contents(&copy.view()) == expected);
    assert_eq!(copy.check().unwrap(), []);
    // It is a store as any other: merges are bound, numbers go on.
    let notes = copy.dict_with("notes", &appending()).unwrap();
    notes.upsert("0", "more").unwrap();
    assert!(notes.get("0").unwrap().unwrap().ends_with(b"more"));
    assert!(copy.dict("new").unwrap().is_empty().unwrap());
    copy.open_dict("large").unwrap().delete("a").unwrap();
    assert_eq!(names_in(folder.path()), ["copy", "store"]);
}

#[test]
fn a_backup_is_durable_when_the_call_returns() {
    let (folder, store) = mixed();
    let path = folder.path().join("copy");
    store.backup(&path, |_| ()).unwrap();
    let expected = contents(&store.view());
    let copy = options().read_only(true).open(&path).unwrap();
    assert!(contents(&copy.view()) == expected);
    // A copy of what is open for reading.
    copy.backup(folder.path().join("second"), |_| ()).unwrap();
    let second = options().open(folder.path().join("second")).unwrap();
    assert!(contents(&second.view()) == expected);
}

#[test]
fn a_backup_onto_a_file_is_refused_and_a_failed_one_leaves_none() {
    let (folder, store) = mixed();
    for path in ["store", "other"].map(|name| folder.path().join(name)) {
        if path.ends_with("other") {
            std::fs::write(&path, "kept").unwrap();
        }
        assert!(matches!(store.backup(&path, |_| ()), Err(Error::FileExists { .. })));
    }
    assert_eq!(std::fs::read(folder.path().join("other")).unwrap(), b"kept");
    let path = folder.path().join("copy");
    let closing = store.backup(&path, |progress| {
        if progress.bytes > 1 << 20 {
            store.close().unwrap();
        }
    });
    assert!(matches!(closing, Err(Error::Closed { .. })), "{closing:?}");
    let store = options().open(folder.path().join("store")).unwrap();
    // Somebody else makes the file meanwhile.
    let late = store.backup(&path, |_| std::fs::write(&path, "theirs").unwrap());
    assert!(matches!(late, Err(Error::FileExists { .. })), "{late:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    std::fs::remove_file(&path).unwrap();
    let backup = AssertUnwindSafe(|| store.backup(&path, |_| panic!("in the callback")));
    assert!(std::panic::catch_unwind(backup).is_err());
    let nowhere = store.backup(folder.path().join("none/copy"), |_| ());
    assert!(matches!(nowhere, Err(Error::Io { .. })), "{nowhere:?}");
    assert_eq!(names_in(folder.path()), ["other", "store"]);
}
