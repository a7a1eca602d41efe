//! Copies, snapshots, walks and removals of whole trees.

use std::path::PathBuf;

use betrfs_std::{FileType, Fs};

use crate::support::*;

fn paths(fs: &Fs, from: &str) -> Vec<String> {
    let mut paths: Vec<String> = fs
        .walk(from)
        .map(|entry| entry.unwrap().into_path().into_os_string().into_string().unwrap())
        .collect();
    paths.sort();
    paths
}

fn tree(fs: &Fs) {
    fs.create_dir_all("tree/deep/er").unwrap();
    fs.write("tree/file", "text").unwrap();
    fs.hard_link("tree/file", "tree/deep/name").unwrap();
    fs.symlink("../file", "tree/deep/link").unwrap();
}

const BELOW: [&str; 6] = ["", "/deep", "/deep/er", "/deep/link", "/deep/name", "/file"];

#[test]
fn a_copy_of_a_tree_and_its_source_go_their_own_ways() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    tree(&fs);
    fs.clone_tree("tree", "copy").unwrap();
    assert_eq!(paths(&fs, "copy"), BELOW.map(|below| format!("copy{below}")));
    fs.write("copy/deep/link", "changed").unwrap();
    assert_eq!(
        (fs.read("copy/deep/name").unwrap(), fs.read("tree/file").unwrap()),
        (b"changed".to_vec(), b"text".to_vec())
    );
    assert_eq!(errno(fs.clone_tree("tree", "copy")), 17);
    fs.clone_tree("tree/deep/link", "link").unwrap();
    assert!(fs.symlink_metadata("link").unwrap().is_symlink(), "a link is copied itself");
    fs.clone_tree("tree/file", "one").unwrap();
    assert_eq!(fs.read("one").unwrap(), b"text");
    assert_sound(&fs);
}

#[test]
fn a_tree_is_removed_but_not_what_a_link_leads_to() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    tree(&fs);
    fs.symlink("tree", "link").unwrap();
    fs.remove_dir_all("link").unwrap();
    assert!(!fs.exists("link").unwrap() && fs.exists("tree/file").unwrap());
    assert_eq!((errno(fs.rm_tree("tree/file")), errno(fs.rm_tree("missing"))), (20, 2));
    fs.snapshot("tree/deep", "one").unwrap();
    assert_eq!(errno(fs.rm_tree("tree")), 16, "a snapshot holds it");
    fs.remove_snapshot("tree/deep", "one").unwrap();
    fs.rm_tree("tree").unwrap();
    assert_eq!(paths(&fs, "/"), ["/"]);
    assert_sound(&fs);
}

#[test]
fn snapshots_stay_as_they_were() {
    let scratch = Scratch::new();
    tree(&scratch.fs);
    scratch.fs.snapshot("tree", "one").unwrap();
    scratch.fs.write("tree/file", "changed").unwrap();
    scratch.fs.snapshot("tree", "two").unwrap();
    let Scratch { fs, folder: _folder } = scratch.reopened();
    assert_eq!(fs.snapshots("tree").unwrap(), ["one", "two"]);
    let read = |name: &str| fs.read_to_string(format!("tree/.betrfs-snapshots/{name}/file")).unwrap();
    assert_eq!((read("one"), read("two")), ("text".into(), "changed".into()));
    assert!(!paths(&fs, "/").iter().any(|path| path.contains("betrfs")), "a walk does not meet them");
    fs.remove_snapshot("tree", "one").unwrap();
    assert_eq!(fs.snapshots("tree").unwrap(), ["two"]);
    assert_eq!(errno(fs.remove_snapshot("tree", "one")), 2);
}

#[test]
fn a_walk_has_bounds_and_follows_no_link() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    tree(&fs);
    fs.symlink("..", "tree/up").unwrap();
    let collect = |walk: betrfs_std::Walk| {
        let mut found: Vec<(PathBuf, usize)> =
            walk.map(|entry| entry.map(|entry| (entry.path().to_owned(), entry.depth())).unwrap()).collect();
        found.sort();
        found
    };
    let at = |path: &str, depth| (PathBuf::from(path), depth);
    assert_eq!(collect(fs.walk("tree").max_depth(0)), [at("tree", 0)]);
    assert_eq!(
        collect(fs.walk("tree").min_depth(1).max_depth(1)),
        [at("tree/deep", 1), at("tree/file", 1), at("tree/up", 1)]
    );
    assert_eq!(collect(fs.walk("tree").min_depth(3)), []);
    assert_eq!(collect(fs.walk("tree/file")), [at("tree/file", 0)]);
    let kinds: Vec<FileType> = fs.walk("tree/up").map(|entry| entry.unwrap().file_type()).collect();
    assert_eq!(kinds.len(), 8, "the path itself is followed: {kinds:?}");
    let mut walk = fs.walk("tree");
    let mut seen = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = entry.unwrap();
        if entry.path().ends_with("deep") {
            walk.skip_current_dir();
        }
        seen.push(entry.path().display().to_string());
    }
    assert_eq!((seen.len(), seen.iter().any(|path| path.contains("er"))), (4, false));
    assert_eq!(errno(fs.walk("missing").collect::<betrfs_std::Result<Vec<_>>>()), 2);
}

/// Deeper than any path.
#[test]
fn a_walk_goes_deeper_than_paths() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    let name = "n".repeat(200);
    let mut dir = fs.open_dir("/").unwrap();
    let mut depth = 0;
    while dir.create_dir(&name).is_ok() {
        dir = dir.open_dir(&name).unwrap();
        depth += 1;
    }
    drop(dir);
    let walked = fs.walk("/").min_depth(1).filter(|entry| entry.as_ref().unwrap().metadata().is_ok()).count();
    assert_eq!(walked, depth);
    assert!(depth > 5, "{depth}");
    fs.rm_tree(&name).unwrap();
    assert_eq!(fs.walk("/").count(), 1);
}

#[test]
fn a_large_directory_is_listed_once_each() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.create_dir("dir").unwrap();
    for at in 0..2000 {
        fs.write(format!("dir/{at}"), "").unwrap();
    }
    let mut names: Vec<u32> = fs
        .read_dir("dir")
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert_eq!(
                (entry.file_type(), entry.ino()),
                (FileType::Regular, entry.metadata().unwrap().ino())
            );
            entry.file_name().to_str().unwrap().parse().unwrap()
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, (0..2000).collect::<Vec<u32>>());
}

#[test]
fn usage_and_room_are_told() {
    let Scratch { fs, folder: _folder } = Scratch::new();
    fs.write("file", seeded::bytes(7, 0, 4 << 20)).unwrap();
    fs.create_dir("dir").unwrap();
    fs.copy("file", "dir/copy").unwrap();
    let (file, dir) = (fs.usage("file").unwrap(), fs.usage("dir").unwrap());
    assert!(file.stored_bytes > 1 << 20 && dir.stored_bytes > 1 << 20, "{file:?} {dir:?}");
    assert!(dir.exclusive_bytes < 1 << 19, "the copy shares its contents: {dir:?}");
    let room = fs.statfs().unwrap();
    assert!(room.total_bytes < VOLUME_BYTES && room.available_bytes < room.total_bytes - (1 << 20));
}
