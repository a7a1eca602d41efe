//! What is not a store, or not allowed, is a typed error, and nothing is lost by it.

use betree_store::{DictOptions, Error, KEY_BYTES_MAX, Store};

use crate::{appending, keys, options, store};

#[test]
fn a_store_that_is_open_is_refused_with_its_holder() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let again = options().open(&path);
    let holder = std::process::id();
    assert!(matches!(again, Err(Error::InUse { holder: Some(pid), .. }) if pid == holder), "{again:?}");
    drop(store);
    options().open(&path).unwrap();
}

#[test]
fn a_store_that_several_make_at_once_is_made_once() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| options().open(&path))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let open: Vec<_> = opened.iter().filter(|opened| opened.is_ok()).collect();
        assert_eq!(open.len(), 1, "{opened:?}");
        let is_refused = |opened: &Result<Store, Error>| matches!(opened, Ok(_) | Err(Error::InUse { .. }));
        assert!(opened.iter().all(is_refused), "{opened:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
}

#[test]
fn what_is_no_store_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    for contents in [b"a text".to_vec(), vec![0; 1 << 20]] {
        std::fs::write(&path, &contents).unwrap();
        let opened = Store::open(&path);
        assert!(matches!(opened, Err(Error::NotAStore { .. })), "{opened:?}");
        assert!(std::fs::read(&path).unwrap() == contents);
    }
    let opened = Store::open(folder.path());
    assert!(matches!(opened, Err(Error::NotAStore { .. })), "{opened:?}");
    let nowhere = folder.path().join("no folder/store");
    let opened = Store::open(&nowhere);
    assert!(matches!(opened, Err(Error::Io { .. })), "{opened:?}");
    let absent = folder.path().join("absent");
    let opened = Store::options().create(false).open(&absent);
    assert!(matches!(opened, Err(Error::NoSuchStore { .. })), "{opened:?}");
    assert!(!absent.exists());
}

#[test]
fn keys_and_values_have_limits() {
    let (_folder, store) = store();
    let dict = store.dict("d").unwrap();
    let key = vec![b'k'; KEY_BYTES_MAX];
    dict.put(&key, "v").unwrap();
    assert_eq!(dict.get(&key).unwrap().unwrap(), "v");
    assert_eq!(dict.first().unwrap().unwrap().0, key);
    let longer = vec![b'k'; KEY_BYTES_MAX + 1];
    let is_too_long = |error: &Error| matches!(error, Error::KeyTooLong { dict, limit_bytes, .. } if dict == "d" && *limit_bytes == KEY_BYTES_MAX);
    for refused in [
        dict.put(&longer, ""),
        dict.delete(&longer),
        dict.delete_range(longer.as_slice()..),
        dict.clone_prefix("k", &longer),
        store.batch().put(&dict, &longer, ""),
    ] {
        assert!(is_too_long(refused.as_ref().unwrap_err()), "{refused:?}");
    }
    assert_eq!(dict.get(&longer).unwrap(), None);
    assert_eq!(dict.iter().count(), 1);
}

#[test]
fn upserts_need_the_merge_that_the_dictionary_was_made_with() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let (plain, notes) = (store.dict("plain").unwrap(), store.dict_with("notes", &appending()).unwrap());
    assert!(matches!(plain.upsert("k", "v"), Err(Error::NoMerge { dict }) if dict == "plain"));
    notes.upsert("k", "v").unwrap();
    let other = store.dict_with("notes", &DictOptions::new());
    assert!(matches!(other, Err(Error::OtherMerge { .. })), "{other:?}");
    store.close().unwrap();
    let opened = Store::open(&path);
    assert!(
        matches!(&opened, Err(Error::UnknownMerge { merge, dict: Some(dict) }) if merge == "append" && dict == "notes"),
        "{opened:?}"
    );
    let store = options().open(&path).unwrap();
    assert_eq!(store.open_dict("notes").unwrap().get("k").unwrap().unwrap(), "v");
    let bad = Store::options().merge("", crate::append).open(&path);
    assert!(matches!(bad, Err(Error::BadMerge { .. })), "{bad:?}");
}

/// What the file holds.
fn data_of(path: &std::path::Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn a_store_whose_merge_is_missing_is_refused_with_nothing_written() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let notes = store.dict_with("notes", &appending()).unwrap();
    (0..2000).for_each(|i| notes.upsert((i % 50).to_string(), [b'x'; 100]).unwrap());
    store.sync().unwrap();
    store.abandon();
    let before = data_of(&path);
    for _ in 0..2 {
        let opened = Store::open(&path);
        assert!(matches!(opened, Err(Error::UnknownMerge { .. })), "{opened:?}");
        assert!(data_of(&path) == before);
    }
    let store = options().open(&path).unwrap();
    let value = store.open_dict("notes").unwrap().get("7").unwrap().unwrap();
    assert_eq!(value, [b'x'; 4000]);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_store_opened_for_reading_shows_what_a_crash_left_and_writes_nothing() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = crate::filled(&store, "d", (0..3000).map(|i| format!("{i:05}")));
    store.sync().unwrap();
    store.abandon();
    drop((store, dict));
    let before = data_of(&path);
    let for_reading = || options().read_only(true).open(&path).unwrap();
    let readers = [for_reading(), for_reading()];
    for store in &readers {
        let dict = store.open_dict("d").unwrap();
        assert_eq!(dict.iter().count(), 3000);
        assert!(matches!(dict.put("k", "v"), Err(Error::ReadOnly { .. })));
        assert!(matches!(store.dict("new"), Err(Error::ReadOnly { .. })));
        assert!(matches!(store.drop_dict("d"), Err(Error::ReadOnly { .. })));
        assert_eq!(dict.get("00007").unwrap().unwrap(), "00007", "a refused drop is none");
        store.sync().unwrap();
    }
    assert!(matches!(options().open(&path), Err(Error::InUse { .. })), "it has readers");
    let [first, second] = readers;
    first.close().unwrap();
    drop(second);
    assert!(data_of(&path) == before);
    assert_eq!(options().open(&path).unwrap().open_dict("d").unwrap().iter().count(), 3000);
    let absent = options().read_only(true).open(folder.path().join("absent"));
    assert!(matches!(absent, Err(Error::NoSuchStore { .. })), "{absent:?}");
}

#[test]
fn a_volume_of_a_file_system_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let device = std::sync::Arc::new(betree_std::FileDevice::create(&path, 32 << 20).unwrap());
    let geometry = betree::Geometry::for_volume(32 << 20, 3);
    betree::Env::format(device.clone(), &geometry, [7; 16]).unwrap();
    device.release();
    let opened = Store::open(&path);
    assert!(matches!(opened, Err(Error::NotAStore { .. })), "{opened:?}");
    // Nothing says yet which upserts it has: it must not have become a volume of ours.
    let device = std::sync::Arc::new(betree_std::FileDevice::open(&path).unwrap());
    let options = betree::Options::new(1 << 20, std::sync::Arc::new(betree::Replace));
    betree::Env::open(device, options).unwrap();
}

#[test]
fn a_closed_store_says_so_and_a_dropped_one_stays_open_for_its_dictionaries() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = store.dict("d").unwrap();
    drop(store);
    dict.put("k", "v").unwrap();
    assert!(matches!(options().open(&path), Err(Error::InUse { .. })));
    drop(dict);
    let store = options().open(&path).unwrap();
    let dict = store.open_dict("d").unwrap();
    assert_eq!(keys(&dict), ["k"]);
    let mut batch = store.batch();
    batch.put(&dict, "l", "").unwrap();
    store.close().unwrap();
    store.close().unwrap();
    let is_closed = |error: &Error| matches!(error, Error::Closed { path: closed } if *closed == path);
    assert!(is_closed(&dict.get("k").unwrap_err()));
    assert!(is_closed(&dict.put("k", "").unwrap_err()));
    assert!(is_closed(&dict.iter().next().unwrap().unwrap_err()));
    assert!(is_closed(&batch.commit().unwrap_err()));
    assert!(is_closed(&store.sync().unwrap_err()));
    assert!(is_closed(&store.dict("d").unwrap_err()));
    assert!(is_closed(&store.check().unwrap_err()));
    options().open(&path).unwrap();
}
