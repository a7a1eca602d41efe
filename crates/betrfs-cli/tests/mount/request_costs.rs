//! Costs of operations in kernel requests and tree queries.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::mounted::Mounted;

const FILES: u64 = 200;

fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Removes requests that the kernel sends at any later time, even while the next work is counted.
fn awaited(mut requests: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    for name in ["forget", "batch_forget", "release"] {
        requests.remove(name);
    }
    requests
}

#[test]
fn making_a_small_file_takes_five_requests_and_no_query() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let work = || {
        for i in 0..FILES {
            fs::write(mounted.path(format!("d/f{i}")), b"two hundred bytes".repeat(12)).unwrap();
        }
    };
    let mut requests = BTreeMap::new();
    let queries = mounted.tree_queries_of(|| requests = mounted.requests_of(work));
    assert_eq!(queries, 0);
    // The kernel asks for the parent's attributes again before it checks a permission in it.
    let getattr = requests.remove("getattr").unwrap_or(0);
    assert!(getattr <= FILES + 1, "{getattr} getattr");
    // The fifth is a RELEASE, for which nobody waits. There is no request for capabilities. One getattr comes
    // from the counting itself.
    let expected = [("lookup", FILES), ("create", FILES), ("write", FILES)];
    assert_eq!(awaited(requests), counts(expected));
}

#[test]
fn unpacking_a_file_takes_nine_requests_and_no_query() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let work = || {
        for i in 0..FILES {
            // As tar does it.
            let mut file = fs::File::options();
            let mut file =
                file.write(true).create_new(true).mode(0o600).open(mounted.path(format!("d/f{i}"))).unwrap();
            file.write_all(&b"two hundred bytes".repeat(12)).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            std::os::unix::fs::fchown(&file, Some(7), Some(7)).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
        }
    };
    let mut requests = BTreeMap::new();
    let queries = mounted.tree_queries_of(|| requests = mounted.requests_of(work));
    assert_eq!(queries, 0);
    let getattr = requests.remove("getattr").unwrap_or(0);
    assert!(getattr <= FILES + 1, "{getattr} getattr");
    // The kernel asks for capabilities before it changes the owner, but not before a write. One getattr comes
    // from the counting itself.
    assert_eq!(
        awaited(requests),
        counts([
            ("lookup", FILES),
            ("create", FILES),
            ("write", FILES),
            ("setattr", 3 * FILES),
            ("getxattr", FILES),
        ])
    );
}

#[test]
fn removing_a_file_takes_two_requests_and_no_query() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let name = |i| mounted.path(format!("d/f{i}"));
    (0..FILES).for_each(|i| fs::write(name(i), b"x").unwrap());
    let mut requests = BTreeMap::new();
    let work = || (0..FILES).for_each(|i| fs::remove_file(name(i)).unwrap());
    let queries = mounted.tree_queries_of(|| requests = mounted.requests_of(work));
    assert_eq!(queries, 0);
    let getattr = requests.remove("getattr").unwrap_or(0);
    assert!(getattr <= FILES + 1, "{getattr} getattr");
    assert_eq!(awaited(requests), counts([("unlink", FILES)]));
}

#[test]
fn an_absent_name_is_asked_for_once_and_costs_no_query() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let ask = || (0..FILES).for_each(|i| assert!(!mounted.path(format!("d/absent{i}")).exists()));
    let mut requests = BTreeMap::new();
    let queries = mounted.tree_queries_of(|| requests = mounted.requests_of(ask));
    assert_eq!(queries, 0, "a directory made by this mount is known whole");
    assert_eq!(awaited(requests), counts([("lookup", FILES)]));
    assert_eq!(awaited(mounted.requests_of(ask)), counts([]), "the kernel remembers what is absent");
}

#[test]
fn cached_objects_are_not_requested_again() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let name = |i| mounted.path(format!("d/f{i}"));
    (0..FILES).for_each(|i| fs::write(name(i), b"contents").unwrap());
    let stat = || (0..FILES).for_each(|i| assert_eq!(fs::metadata(name(i)).unwrap().len(), 8));
    stat();
    assert_eq!(awaited(mounted.requests_of(stat)), counts([]));
    let read = || (0..FILES).for_each(|i| assert_eq!(fs::read(name(i)).unwrap(), b"contents"));
    // The first read makes the kernel drop the access time, the second asks for it.
    read();
    read();
    let mut requests = mounted.requests_of(read);
    // The kernel may have evicted a page, now or in the second read, which then was the first read of that
    // file.
    for rarely in ["read", "statx"] {
        let asked = requests.remove(rarely).unwrap_or(0);
        assert!(asked <= FILES / 10, "{asked} {rarely}");
    }
    assert_eq!(awaited(requests), counts([("open", FILES)]));
}

#[test]
fn listing_with_attributes_needs_no_lookups() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    (0..FILES).for_each(|i| fs::write(mounted.path(format!("d/f{i}")), b"x").unwrap());
    mounted.remount();
    let work = || {
        let entries = fs::read_dir(mounted.path("d")).unwrap();
        assert_eq!(entries.map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>(), FILES);
    };
    let mut requests = BTreeMap::new();
    let queries = mounted.tree_queries_of(|| requests = mounted.requests_of(work));
    assert!(queries <= 4, "{queries} queries for one directory");
    let lookups = requests.get("lookup").copied().unwrap_or(0);
    assert!(lookups <= 1 + FILES / 4, "{lookups} lookups: {requests:?}");
    assert!(requests.contains_key("readdirplus"));
}

/// Walks a directory depth first; calls `each` with every file.
fn walk(dir: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), each);
        } else {
            each(&entry.path());
        }
    }
}

/// `DIRS` directories with `FILES_EACH` files each, cold.
fn cold_directories() -> Mounted {
    let mounted = Mounted::new();
    for d in 0..DIRS {
        fs::create_dir(mounted.path(format!("d{d}"))).unwrap();
        (0..FILES_EACH).for_each(|f| fs::write(mounted.path(format!("d{d}/f{f}")), b"x").unwrap());
    }
    mounted.remount();
    mounted
}

const DIRS: u64 = 20;
const FILES_EACH: u64 = 10;

#[test]
fn a_walk_takes_two_requests_for_each_directory_and_brings_no_files() {
    let mounted = cold_directories();
    let mut files = Vec::new();
    let mut names = || walk(&mounted.path(""), &mut |file| files.push(file.to_owned()));
    let mut requests = mounted.requests_of(&mut names);
    assert!(requests.remove("opendir").unwrap_or(0) <= 1);
    // Either request may find the end of a directory.
    let listings = ["readdirplus", "readdir"].map(|name| requests.remove(name).unwrap_or(0));
    assert_eq!(listings.iter().sum::<u64>(), 2 * (DIRS + 1));
    assert_eq!(awaited(requests), counts([]));
    assert_eq!(files.len() as u64, DIRS * FILES_EACH);
    // Objects that did not come along are looked up on access.
    let stat = || files.iter().for_each(|file| assert_eq!(fs::metadata(file).unwrap().len(), 1));
    assert_eq!(mounted.requests_of(stat).get("lookup"), Some(&(DIRS * FILES_EACH)));
}

#[test]
fn a_walk_that_asks_for_files_gets_them_with_the_listings() {
    let mounted = cold_directories();
    let mut bytes = 0;
    let mut sizes = || walk(&mounted.path(""), &mut |file| bytes += fs::metadata(file).unwrap().len());
    let requests = mounted.requests_of(&mut sizes);
    assert_eq!(bytes, DIRS * FILES_EACH);
    // Lookups in the first directory below the root show that the task wants files.
    assert_eq!(requests.get("lookup"), Some(&FILES_EACH), "{requests:?}");
}

#[test]
fn small_overwrites_take_one_request_each_and_no_query() {
    use std::os::unix::fs::FileExt;
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), vec![0; 1 << 20]).unwrap();
    mounted.remount();
    let file = fs::OpenOptions::new().write(true).open(mounted.path("f")).unwrap();
    file.write_all_at(b"warm", 0).unwrap();
    let mut requests = BTreeMap::new();
    let work = || (1..FILES).for_each(|i| file.write_all_at(b"four", i * 5000).unwrap());
    let queries = mounted.tree_queries_of(|| requests = mounted.requests_of(work));
    assert_eq!((queries, awaited(requests)), (0, counts([("write", FILES - 1)])));
}
