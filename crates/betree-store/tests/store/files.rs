//! What may happen to the file of a store from outside: it is of another kind, cut short, replaced, removed,
//! or not to be written. Each is a typed error, and nothing is lost by it.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use betree_store::{Error, Store};
use rustix::thread::CapabilitySet;

use crate::{filled, keys, options, store};

/// So many bytes of a file that is none of a store: more than a superblock takes.
const FILE_BYTES: usize = 1 << 20;

/// The beginnings of files of well-known kinds, by what identifies them.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let with = |place: usize, magic: &[u8]| {
        let mut bytes = vec![0; FILE_BYTES];
        bytes[place..place + magic.len()].copy_from_slice(magic);
        bytes
    };
    let mut program = vec![0; FILE_BYTES];
    let own = std::env::current_exe().unwrap();
    fs::File::open(own).unwrap().read_exact(&mut program).unwrap();
    assert!(program.starts_with(b"\x7fELF"));
    vec![
        ("sqlite", with(0, b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20")),
        ("gzip", with(0, b"\x1f\x8b\x08\0\0\0\0\0\0\x03")),
        ("zip", with(0, b"PK\x03\x04\x14\0\0\0\x08\0")),
        ("ELF", program),
        ("ext4", with(1024 + 56, b"\x53\xef\x01\0\x01\0")),
        ("xfs", with(0, b"XFSB\0\0\x10\0")),
        ("text", b"a line of a text\n".repeat(FILE_BYTES / 17)),
        ("a short text", b"a text".to_vec()),
        ("noise", seeded::bytes(1, 0, FILE_BYTES)),
        ("zeros", vec![0; FILE_BYTES]),
    ]
}

#[test]
fn a_file_of_another_kind_is_no_store_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for (kind, contents) in kinds() {
        fs::write(&path, &contents).unwrap();
        for opened in [options().open(&path), options().read_only(true).open(&path)] {
            let Err(Error::NotAStore { path: told, why }) = opened else { panic!("{kind}: {opened:?}") };
            assert!(told == path && !why.is_empty(), "{kind}: {why}");
        }
        assert!(fs::read(&path).unwrap() == contents, "{kind}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made beside it");
}

/// A program for temporary files has made it, say: the store has its owner and its permissions.
#[test]
fn an_empty_file_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let before = fs::metadata(&path).unwrap();
    for refused in [options().create(false), options().read_only(true)] {
        let opened = refused.open(&path);
        assert!(matches!(&opened, Err(Error::NotAStore { why, .. }) if why.contains("empty")), "{opened:?}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
    let store = options().open(&link).unwrap();
    filled(&store, "d", ["k".to_owned()]);
    let second = options().open(&path);
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
    store.close().unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    let store = options().create(false).open(&path).unwrap();
    assert_eq!(keys(&store.open_dict("d").unwrap()), ["k"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// The log of a store with the least cache, without the superblocks before it.
const LOG_BYTES: u64 = 8 << 20;

/// The size of a file as `ls -l` shows it, and the bytes that it takes.
fn sizes(path: &Path) -> (u64, u64) {
    let found = fs::metadata(path).unwrap();
    (found.len(), found.blocks() * 512)
}

/// What a program that knows no holes would copy.
#[test]
fn the_size_that_a_file_shows_is_in_proportion_to_what_it_takes() {
    // The log, of which little is written at first, and some nodes.
    const LEAST_BYTES: u64 = 10 << 20;
    let (folder, store) = store();
    let path = folder.path().join("store");
    assert!(sizes(&path).0 <= LEAST_BYTES);
    let dict = store.dict("d").unwrap();
    for round in 0..20_u32 {
        for key in 0..1000_u32 {
            dict.put([round, key].map(u32::to_be_bytes).concat(), seeded::bytes(key.into(), 0, 2000))
                .unwrap();
        }
        store.sync().unwrap();
        let (shown, taken) = sizes(&path);
        assert!(shown <= 2 * taken + LEAST_BYTES, "{shown} bytes are shown, and {taken} taken");
    }
    // What is overwritten goes where something was freed.
    for round in 0..20_u32 {
        for key in 0..1000_u32 {
            dict.put([round, key].map(u32::to_be_bytes).concat(), seeded::bytes(1, 0, 2000)).unwrap();
        }
    }
    store.sync().unwrap();
    let (shown, taken) = sizes(&path);
    assert!(shown <= 4 * taken + LEAST_BYTES, "{shown} bytes are shown, and {taken} taken");
    assert_eq!(store.check().unwrap(), []);
    let copy = folder.path().join("backup");
    store.backup(&copy, |_| ()).unwrap();
    let (shown, taken) = sizes(&copy);
    assert!(shown <= 2 * taken + LEAST_BYTES, "{shown} bytes are shown, and {taken} taken");
    store.close().unwrap();
    // A copy without holes is the same store.
    let whole = folder.path().join("whole");
    fs::write(&whole, fs::read(&path).unwrap()).unwrap();
    for path in [&path, &whole, &copy] {
        let store = options().read_only(true).open(path).unwrap();
        assert_eq!(store.open_dict("d").unwrap().iter().map(Result::unwrap).count(), 20_000);
        store.close().unwrap();
        let store = options().open(path).unwrap();
        store.open_dict("d").unwrap().put("more", "v").unwrap();
        assert_eq!(store.check().unwrap(), []);
    }
}

/// Nothing else would carry out deletes of single keys, which are small, before much else was written.
#[test]
fn the_space_of_single_deletes_is_released() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = store.dict("d").unwrap();
    for key in 0..20_000_u32 {
        dict.put(key.to_be_bytes(), seeded::bytes(key.into(), 0, 1000)).unwrap();
    }
    store.close().unwrap();
    // The log takes 8 MiB at most.
    let (_, full) = sizes(&path);
    assert!(full > 18_000_000, "{full} bytes");
    let store = options().open(&path).unwrap();
    let dict = store.open_dict("d").unwrap();
    (0..20_000_u32).filter(|key| key % 10 != 0).for_each(|key| dict.delete(key.to_be_bytes()).unwrap());
    store.close().unwrap();
    let (_, taken) = sizes(&path);
    assert!(taken < full - 12_000_000, "{taken} of {full} bytes");
    let store = options().open(&path).unwrap();
    assert_eq!(store.open_dict("d").unwrap().iter().map(Result::unwrap).count(), 2000);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn what_is_no_file_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let (link, fifo) = (folder.path().join("link"), folder.path().join("fifo"));
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    for path in [folder.path(), &link, &fifo, Path::new("/dev/null")] {
        for opened in [options().open(path), options().read_only(true).open(path)] {
            assert!(matches!(opened, Err(Error::NotAStore { .. })), "{path:?}: {opened:?}");
        }
    }
    let dangling = folder.path().join("dangling");
    std::os::unix::fs::symlink(folder.path().join("absent"), &dangling).unwrap();
    let opened = options().create(false).open(&dangling);
    assert!(matches!(opened, Err(Error::NoSuchStore { .. })), "{opened:?}");
}

/// Sets the size of a file.
fn cut(path: &Path, bytes: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_file_that_was_cut_short_is_refused_and_opens_again_once_it_is_whole() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    filled(&store, "d", (0..3000).map(|i| format!("{i:05}")));
    store.close().unwrap();
    let whole = fs::metadata(&path).unwrap().len();
    let all_there = |store: &Store| {
        assert_eq!(store.open_dict("d").unwrap().iter().map(Result::unwrap).count(), 3000);
    };
    let contents = fs::read(&path).unwrap();
    let mut refused = 0;
    for bytes in (LOG_BYTES..whole).step_by(4096).chain([whole - 1]) {
        cut(&path, bytes);
        match options().read_only(true).open(&path) {
            // Nothing was stored in what is gone, or second copies alone.
            Ok(store) => all_there(&store),
            Err(Error::NotAStore { why, .. }) => {
                assert!(why.contains("truncated"), "{why}");
                assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
                refused += 1;
            }
            Err(error) => panic!("{bytes}: {error:?}"),
        }
        fs::write(&path, &contents).unwrap();
    }
    assert!(refused > 5, "{refused} refused");
    let store = options().open(&path).unwrap();
    all_there(&store);
    assert_eq!(store.check().unwrap(), []);
    store.close().unwrap();
    // What is gone cannot come back; nor is it made again in its place.
    for bytes in [LOG_BYTES, 1 << 20, 100_000, 4096, 1] {
        cut(&path, bytes);
        let opened = options().open(&path);
        assert!(matches!(opened, Err(Error::NotAStore { .. })), "{bytes}: {opened:?}");
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    }
}

#[test]
fn a_file_that_is_cut_short_below_an_open_store_fails_and_never_gives_wrong_values() {
    const VALUE_BYTES: usize = 1000;
    let (folder, store) = store();
    let path = folder.path().join("store");
    let dict = store.dict("d").unwrap();
    let value = |key: u32| seeded::bytes(key.into(), 0, VALUE_BYTES);
    // More than the cache holds.
    (0..6000_u32).for_each(|key| dict.put(key.to_be_bytes(), value(key)).unwrap());
    store.sync().unwrap();
    cut(&path, 10 << 20);
    let mut failed = 0;
    for key in 0..6000_u32 {
        match dict.get(key.to_be_bytes()) {
            Ok(found) => assert!(found.is_some_and(|found| *found == value(key)[..]), "{key}"),
            Err(Error::Engine { path: told, .. }) if told == path => failed += 1,
            Err(error) => panic!("{key}: {error}"),
        }
    }
    assert!(failed > 100, "{failed} reads failed");
    let scanned = dict.iter().find_map(Result::err);
    assert!(matches!(scanned, Some(Error::Engine { .. })), "{scanned:?}");
    // It may go on, or not; in any case it ends.
    let _ = dict.put("new", "v").and_then(|()| store.sync());
    store.abandon();
    drop((dict, store));
    let reopened = options().open(&path);
    assert!(matches!(reopened, Err(Error::NotAStore { .. } | Error::Engine { .. })), "{reopened:?}");
}

#[test]
fn a_file_that_is_replaced_or_removed_below_an_open_store_is_left_alone() {
    let (folder, first) = store();
    let path = folder.path().join("store");
    let dict = filled(&first, "first", ["a".into()]);
    let other = folder.path().join("other");
    let second = options().open(&other).unwrap();
    filled(&second, "second", ["b".into()]);
    second.close().unwrap();
    fs::rename(&other, &path).unwrap();
    // The first one has its file still, which has no name any more.
    dict.put("c", "v").unwrap();
    first.sync().unwrap();
    assert_eq!(keys(&dict), ["a", "c"]);
    let second = options().open(&path).unwrap();
    assert_eq!(second.dicts(), ["second"]);
    filled(&second, "second", ["d".into()]);
    first.close().unwrap();
    assert_eq!(keys(&second.open_dict("second").unwrap()), ["b", "d"]);

    fs::remove_file(&path).unwrap();
    let third = options().open(&path).unwrap();
    assert_eq!(third.dicts(), Vec::<String>::new());
    assert_eq!(keys(&second.open_dict("second").unwrap()), ["b", "d"]);
    second.close().unwrap();
    assert!(third.check().unwrap().is_empty());
}

/// Runs on a thread whose permissions are those of any user: root may write what is read-only.
fn as_any_user(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            rustix::thread::set_capabilities(None, sets).unwrap();
            body();
        });
        thread.join().unwrap();
    });
}

fn is_forbidden(opened: &betree_store::Result<Store>) -> bool {
    matches!(opened, Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied)
}

#[test]
fn a_read_only_file_is_read_and_not_changed() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    filled(&store, "d", ["a".into()]);
    store.close().unwrap();
    as_any_user(|| {
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        let opened = options().open(&path);
        assert!(is_forbidden(&opened), "{opened:?}");
        let reader = options().read_only(true).open(&path).unwrap();
        assert_eq!(keys(&reader.open_dict("d").unwrap()), ["a"]);
        let refused = reader.open_dict("d").unwrap().put("b", "");
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
        reader.close().unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        let opened = options().read_only(true).open(&path);
        assert!(is_forbidden(&opened), "{opened:?}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(keys(&options().open(&path).unwrap().open_dict("d").unwrap()), ["a"]);
    });
}

#[test]
fn in_a_read_only_folder_a_store_is_used_and_none_is_made() {
    let (folder, store) = store();
    let path = folder.path().join("store");
    filled(&store, "d", ["a".into()]);
    store.close().unwrap();
    as_any_user(|| {
        fs::set_permissions(folder.path(), Permissions::from_mode(0o500)).unwrap();
        let store = options().open(&path).unwrap();
        let dict = store.open_dict("d").unwrap();
        dict.put("b", "").unwrap();
        let made = options().open(folder.path().join("new"));
        assert!(is_forbidden(&made), "{made:?}");
        let copied = store.backup(folder.path().join("copy"), |_| ());
        assert!(matches!(copied, Err(Error::Io { .. })), "{copied:?}");
        store.close().unwrap();
        assert_eq!(keys(&options().open(&path).unwrap().open_dict("d").unwrap()), ["a", "b"]);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
