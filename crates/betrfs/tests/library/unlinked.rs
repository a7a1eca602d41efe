//! Files that are unlinked while they are open.

use crate::support::*;
use std::time::Duration;

use betree::{Cut, DictId};
use betrfs::{Error, InodeId, RenameFlags, SNAPSHOTS_NAME, SetAttr, SnapshotsBelow, Volume, XattrMode};

fn open_file(volume: &Volume, parent: InodeId, name: &str, bytes: &[u8]) -> InodeId {
    let file = mkfile(volume, parent, name);
    volume.open_inode(file.node).unwrap();
    volume.write(file.node, 0, bytes).unwrap();
    file.node
}

fn close(volume: &Volume, node: InodeId) {
    volume.release_node(node);
    volume.forget(node, 1);
}

/// Number of keys in `data`.
fn data_keys(volume: &Volume) -> usize {
    let mut cursor = volume.env().cursor(DictId(1), Cut::LOW, Cut::HIGH);
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn an_unlinked_file_is_read_and_written_until_its_last_close() {
    let (_disk, volume) = volume();
    let node = open_file(&volume, ROOT, "f", &[1; 10_000]);
    volume.unlink(ROOT, b"f").unwrap();
    assert_eq!(volume.lookup(ROOT, b"f"), Err(Error::NotFound));
    assert_eq!(volume.getattr(node).unwrap().nlink, 0);
    volume.write(node, 20_000, &[2; 10]).unwrap();
    volume.setattr(node, &SetAttr { size: Some(15_000), kill_set_id: true, ..SetAttr::default() }).unwrap();
    volume.set_xattr(node, b"user.x", &[3; 9000], XattrMode::Any).unwrap();
    assert_eq!(volume.get_xattr(node, b"user.x").unwrap(), [3; 9000]);
    let mut expected = vec![1; 10_000];
    expected.resize(15_000, 0);
    assert_eq!(read_all(&volume, node), expected);
    assert_eq!(volume.link(node, ROOT, b"again"), Err(Error::NotFound));
    assert_sound(&volume);
    close(&volume, node);
    assert_eq!(volume.getattr(node), Err(Error::Stale));
    assert_eq!(data_keys(&volume), 0);
    assert_sound(&volume);
}

#[test]
fn an_unlinked_file_that_is_not_open_is_gone_at_once() {
    let (_disk, volume) = volume();
    let file = mkfile(&volume, ROOT, "f");
    volume.write(file.node, 0, &[1; 100_000]).unwrap();
    volume.unlink(ROOT, b"f").unwrap();
    assert_eq!(data_keys(&volume), 0);
    assert_eq!(volume.getattr(file.node).unwrap().nlink, 0, "still held by a lookup");
    assert_eq!(volume.open_inode(file.node), Err(Error::Stale));
    assert_eq!(volume.write(file.node, 0, b"x"), Err(Error::Stale));
}

#[test]
fn a_new_file_of_the_same_name_is_another_file() {
    let (disk, volume) = volume();
    let old = open_file(&volume, ROOT, "f", &[1; 10_000]);
    volume.unlink(ROOT, b"f").unwrap();
    let new = open_file(&volume, ROOT, "f", &[2; 5000]);
    assert_eq!(read_all(&volume, old), [1; 10_000]);
    assert_eq!(read_all(&volume, new), [2; 5000]);
    assert_eq!(volume.getattr(new).unwrap().nlink, 1);
    assert_sound(&volume);
    close(&volume, old);
    assert_eq!(contents(&volume, "/f"), [2; 5000]);
    volume.unlink(ROOT, b"f").unwrap();
    let third = open_file(&volume, ROOT, "f", &[3; 5000]);
    assert_eq!(read_all(&volume, new), [2; 5000]);
    close(&volume, new);
    close(&volume, third);
    assert_sound(&volume);
    volume.close().unwrap();
    assert_eq!(contents(&disk.open(), "/f"), [3; 5000]);
}

#[test]
fn a_file_renamed_over_an_open_one_leaves_that_readable() {
    let (_disk, volume) = volume();
    let old = open_file(&volume, ROOT, "old", &[1; 10_000]);
    let new = open_file(&volume, ROOT, "new", &[2; 9000]);
    volume.rename(ROOT, b"new", ROOT, b"old", RenameFlags::default()).unwrap();
    assert_eq!(read_all(&volume, old), [1; 10_000]);
    assert_eq!(read_all(&volume, new), [2; 9000]);
    assert_sound(&volume);
    // The new file is itself replaced while it is open, by a third.
    let third = open_file(&volume, ROOT, "new", &[3; 100]);
    volume.rename(ROOT, b"new", ROOT, b"old", RenameFlags::default()).unwrap();
    close(&volume, old);
    assert_eq!(read_all(&volume, new), [2; 9000]);
    close(&volume, new);
    assert_eq!(contents(&volume, "/old"), [3; 100]);
    close(&volume, third);
    assert_sound(&volume);
}

/// A rename is atomic for a program that opens the name: the file may be replaced between its lookup and its
/// opening, and must not be gone.
#[test]
fn a_file_that_was_looked_up_and_then_replaced_can_still_be_opened() {
    let (_disk, volume) = volume();
    for round in 0..3u8 {
        let new = mkfile(&volume, ROOT, "new");
        volume.write(new.node, 0, &[round; 9000]).unwrap();
        let old = volume.lookup(ROOT, b"f");
        volume.rename(ROOT, b"new", ROOT, b"f", RenameFlags::default()).unwrap();
        volume.forget(new.node, 1);
        if let Ok(old) = old {
            volume.open_inode(old.node).unwrap();
            assert_eq!(read_all(&volume, old.node), [round - 1; 9000]);
            volume.release_node(old.node);
            assert_eq!(volume.getattr(old.node).unwrap().nlink, 0);
            volume.forget(old.node, 1);
        }
        assert_eq!(contents(&volume, "/f"), [round; 9000]);
        assert_eq!(data_keys(&volume), 3, "what nobody holds any more is deleted");
        assert_sound(&volume);
    }
}

#[test]
fn directories_of_the_same_name_leave_an_unlinked_open_file_alone() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = open_file(&volume, dir.node, "f", &[1; 10_000]);
    volume.unlink(dir.node, b"f").unwrap();
    // A directory under the same name, with a large attribute.
    let inner = mkdir(&volume, dir.node, "f");
    volume.set_xattr(inner.node, b"user.x", &[7; 3000], XattrMode::Any).unwrap();
    mkfile(&volume, inner.node, "below");
    volume.rename(dir.node, b"f", dir.node, b"g", RenameFlags::default()).unwrap();
    assert_eq!(read_all(&volume, file), [1; 10_000]);
    // The directory above moves, and its blocks with it.
    volume.rename(ROOT, b"d", ROOT, b"e", RenameFlags::default()).unwrap();
    assert_eq!(read_all(&volume, file), [1; 10_000]);
    assert_sound(&volume);
    // Its old key is free again, the new one is not.
    let at_old = mkdir(&volume, ROOT, "d");
    open_file(&volume, at_old.node, "f", b"old place");
    open_file(&volume, dir.node, "f", b"new place");
    close(&volume, file);
    assert_eq!(contents(&volume, "/d/f"), b"old place");
    assert_eq!(contents(&volume, "/e/f"), b"new place");
    assert_eq!(volume.get_xattr(inner.node, b"user.x").unwrap(), [7; 3000]);
    assert_sound(&volume);
}

#[test]
fn a_directory_made_anew_does_not_inherit_its_blocks() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    let file = open_file(&volume, dir.node, "f", &[1; 10_000]);
    volume.unlink(dir.node, b"f").unwrap();
    volume.rmdir(ROOT, b"d").unwrap();
    assert_eq!(volume.create(dir.node, b"x", &new_file()), Err(Error::NotFound));
    let again = mkdir(&volume, ROOT, "d");
    let new = mkfile(&volume, again.node, "f");
    volume.setattr(new.node, &SetAttr { size: Some(9000), ..SetAttr::default() }).unwrap();
    assert_eq!(read_all(&volume, new.node), [0; 9000]);
    assert_eq!(read_all(&volume, file), [1; 10_000]);
    // Another directory can be moved over the occupied keys.
    let other = mkdir(&volume, ROOT, "o");
    open_file(&volume, other.node, "f", b"other");
    volume.unlink(again.node, b"f").unwrap();
    volume.rename(ROOT, b"o", ROOT, b"d", RenameFlags::default()).unwrap();
    assert_eq!(read_all(&volume, file), [1; 10_000]);
    assert_eq!(contents(&volume, "/d/f"), b"other");
    assert_sound(&volume);
    close(&volume, file);
    assert_eq!(data_keys(&volume), 1);
    assert_eq!(contents(&volume, "/d/f"), b"other");
    assert_sound(&volume);
}

#[test]
fn open_files_outlive_the_directories_above_them() {
    for depth in [1, 2] {
        let (disk, volume) = volume();
        let path: Vec<InodeId> = (0..depth).fold(vec![ROOT], |mut path, i| {
            path.push(mkdir(&volume, path[i], "d").node);
            path
        });
        let dir = path[depth];
        let file = open_file(&volume, dir, "f", &[1; 50_000]);
        for i in 0..10 {
            let other = mkfile(&volume, dir, &format!("g{i}"));
            volume.write(other.node, 0, &[2; 9000]).unwrap();
            volume.unlink(dir, format!("g{i}").as_bytes()).unwrap();
        }
        volume.unlink(dir, b"f").unwrap();
        for parent in path[..depth].iter().rev() {
            // A second entry in each of them.
            mkfile(&volume, *parent, "x");
            volume.unlink(*parent, b"x").unwrap();
            volume.rmdir(*parent, b"d").unwrap();
        }
        volume.env().checkpoint().unwrap();
        assert_eq!(read_all(&volume, file), [1; 50_000], "{depth} directories");
        assert_sound(&volume);
        close(&volume, file);
        assert_eq!(data_keys(&volume), 0);
        volume.close().unwrap();
        assert_sound(&disk.open());
    }
}

#[test]
fn linked_files_live_on_too() {
    let (_disk, volume) = volume();
    let node = open_file(&volume, ROOT, "a", &[1; 10_000]);
    volume.set_xattr(node, b"user.x", &[7; 3000], XattrMode::Any).unwrap();
    volume.link(node, ROOT, b"b").unwrap();
    volume.unlink(ROOT, b"a").unwrap();
    assert_eq!(volume.getattr(node).unwrap().nlink, 1);
    volume.unlink(ROOT, b"b").unwrap();
    assert_eq!(read_all(&volume, node), [1; 10_000]);
    assert_eq!(volume.get_xattr(node, b"user.x").unwrap(), [7; 3000]);
    assert_sound(&volume);
    volume.release_node(node);
    volume.forget(node, 2);
    assert_eq!(data_keys(&volume), 0);
}

#[test]
fn unlinked_files_left_by_a_crash_are_deleted_at_the_next_opening() {
    let (disk, volume) = volume();
    for i in 0..20 {
        open_file(&volume, ROOT, &format!("f{i}"), &[1; 10_000]);
        volume.unlink(ROOT, format!("f{i}").as_bytes()).unwrap();
    }
    open_file(&volume, ROOT, "f0", b"new");
    volume.sync().unwrap();
    volume.env().abandon();
    drop(volume);
    let volume = disk.open();
    assert_sound(&volume);
    assert_eq!(contents(&volume, "/f0"), b"new");
    assert_eq!(data_keys(&volume), 1);
}

#[test]
fn a_removed_working_directory_is_empty_and_refuses_entries() {
    let (_disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d");
    volume.open_inode(dir.node).unwrap();
    volume.rmdir(ROOT, b"d").unwrap();
    assert_eq!(volume.lookup(dir.node, b"x"), Err(Error::NotFound));
    assert_eq!(volume.create(dir.node, b"x", &new_file()), Err(Error::NotFound));
    assert_eq!(names(&volume, dir.node), Vec::<String>::new());
    assert_eq!(volume.getattr(dir.node).unwrap().nlink, 0);
    volume.setattr(dir.node, &SetAttr { perm: Some(0o700), ..SetAttr::default() }).unwrap();
    close(&volume, dir.node);
    assert_eq!(volume.getattr(dir.node), Err(Error::Stale));
}

#[test]
fn a_file_without_a_name_is_deleted_at_its_last_close_unless_linked() {
    let (disk, volume) = volume();
    let dir = mkdir(&volume, ROOT, "d").node;
    let unnamed = || {
        let node = volume.create_unnamed(dir, &new_file()).unwrap().node;
        volume.open_inode(node).unwrap();
        volume.write(node, 0, &[1; 10_000]).unwrap();
        volume.set_xattr(node, b"user.large", &[2; 9000], XattrMode::Any).unwrap();
        volume.set_xattr(node, b"user.small", b"3", XattrMode::Any).unwrap();
        node
    };
    let (lost, named, forgotten) = (unnamed(), unnamed(), unnamed());
    assert_eq!(volume.getattr(named).unwrap().nlink, 0);
    assert!(names(&volume, dir).is_empty());
    assert_sound(&volume);
    close(&volume, lost);
    assert_eq!(volume.getattr(lost), Err(Error::Stale));

    let ino = volume.link(named, dir, b"name").unwrap().attr.ino;
    volume.link(named, ROOT, b"other").unwrap();
    assert_eq!(volume.getattr(named).unwrap().nlink, 2);
    assert_eq!(volume.link(named, dir, b"name"), Err(Error::Exists));
    volume.write(named, 10_000, b"after").unwrap();
    close(&volume, named);
    assert_sound(&volume);
    // Never closed, never named: its blocks are deleted when the volume is opened next.
    volume.write(forgotten, 0, b"x").unwrap();
    volume.close().unwrap();
    drop(volume);

    let volume = disk.open();
    assert_sound(&volume);
    let mut expected = vec![1; 10_000];
    expected.extend_from_slice(b"after");
    assert_eq!(contents(&volume, "/d/name"), expected);
    assert_eq!(contents(&volume, "/other"), expected);
    let entry = volume.resolve(b"/other").unwrap();
    assert_eq!((entry.attr.ino, entry.attr.nlink), (ino, 2));
    assert_eq!(volume.get_xattr(entry.node, b"user.large").unwrap(), [2; 9000]);
    assert_eq!(volume.get_xattr(entry.node, b"user.small").unwrap(), b"3");
    volume.forget(entry.node, 1);
    volume.unlink(ROOT, b"other").unwrap();
    volume.unlink(dir, b"name").unwrap();
    assert_eq!(data_keys(&volume), 0);
    assert_sound(&volume);
}

/// A caller may hold a looked-up file as long as memory allows: its space must not wait for that.
#[test]
fn a_file_removed_while_open_frees_its_space_at_its_last_close() {
    let mut disk = Disk::new();
    disk.options.names_are_looked_up_again = true;
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    let mut open = vec![open_file(&volume, dir, "small", &[1; 5000])];
    open.push(open_file(&volume, dir, "large", &[2; 100_000]));
    open.push(open_file(&volume, dir, "linked", &[3; 50_000]));
    volume.link(open[2], dir, b"other").unwrap();
    let snapshots = volume.lookup(dir, SNAPSHOTS_NAME).unwrap().node;
    mkdir(&volume, snapshots, "s");
    let taken = volume.resolve(b"/d/.betrfs-snapshots/s/large").unwrap().node;
    volume.open_inode(taken).unwrap();
    open.push(taken);
    volume.rmdir(snapshots, b"s").unwrap();
    volume.remove_below(dir, SnapshotsBelow::Hold).unwrap();
    open.push(open_file(&volume, dir, "unlinked", &[4; 70_000]));
    volume.unlink(dir, b"unlinked").unwrap();
    let replaced = open_file(&volume, dir, "replaced", &[5; 60_000]);
    mkfile(&volume, dir, "new");
    volume.rename(dir, b"new", dir, b"replaced", RenameFlags::default()).unwrap();
    open.push(replaced);
    for node in &open {
        // Opened twice: it stays until the last close.
        volume.open_inode(*node).unwrap();
        volume.release_node(*node);
        assert!(!read_all(&volume, *node).is_empty());
    }
    for node in &open {
        let before = data_keys(&volume);
        volume.release_node(*node);
        assert!(data_keys(&volume) < before, "{node:?} keeps its blocks");
        assert_eq!(volume.getattr(*node).unwrap().nlink, 0);
    }
    open.iter().for_each(|node| assert_eq!(volume.open_inode(*node), Err(Error::Stale)));
    assert_eq!(data_keys(&volume), 0);
    assert_sound(&volume);
    open.iter().for_each(|node| volume.forget(*node, 1));
    volume.close().unwrap();
    assert_sound(&disk.open());
}

/// Number of names of files with several names.
fn links(volume: &Volume) -> usize {
    let mut cursor = volume.env().cursor(DictId(2), Cut::LOW, Cut::HIGH);
    std::iter::from_fn(|| cursor.next().unwrap().map(drop)).count()
}

/// Where a caller that gets `Stale` looks the name up again, a replaced file is deleted at once unless it is
/// open; otherwise the new file would have to be stored elsewhere.
#[test]
fn a_replaced_file_that_is_not_open_is_deleted_at_once_where_names_are_looked_up_again() {
    let mut disk = Disk::new();
    let platform = TestPlatform::new();
    disk.options.platform = platform.clone();
    disk.options.names_are_looked_up_again = true;
    let volume = disk.open();
    let replace = |round: u8| {
        let new = mkfile(&volume, ROOT, "new").node;
        volume.write(new, 0, &[round; 9000]).unwrap();
        volume.rename(ROOT, b"new", ROOT, b"f", RenameFlags::default()).unwrap();
        new
    };
    let mut held = vec![replace(0)];
    for round in 1..5 {
        held.push(replace(round));
        assert_eq!((links(&volume), data_keys(&volume)), (0, 3));
        assert_eq!(contents(&volume, "/f"), vec![round; 9000]);
    }
    // An open file lives on.
    volume.open_inode(held[4]).unwrap();
    held.push(replace(5));
    assert!(read_all(&volume, held[4]) == [4; 9000]);
    volume.release_node(held[4]);
    // A late opening is refused once. The file found by the next lookup can be opened, even if it is replaced
    // before that.
    held.push(replace(6));
    assert_eq!(volume.open_inode(held[5]), Err(Error::Stale));
    let again = volume.lookup(ROOT, b"f").unwrap().node;
    held.push(replace(7));
    for _ in 0..2 {
        volume.open_inode(again).unwrap();
        assert!(read_all(&volume, again) == [6; 9000]);
        volume.release_node(again);
    }
    // Some time later no second try is waited for.
    platform.pass(Duration::from_secs(60));
    replace(8);
    assert_eq!(volume.open_inode(*held.last().unwrap()), Err(Error::Stale));
    assert_sound(&volume);
}
