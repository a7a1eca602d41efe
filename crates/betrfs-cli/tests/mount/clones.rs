//! Clones, removals of trees and usage, as processes see them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

use crate::changes::change;
use crate::mapping::Mapping;
use crate::mounted::{Mounted, betrfs, ok, refused};

fn clone(source: &Path, target: &Path) -> Output {
    betrfs().arg("clone").arg(source).arg(target).output().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory with a bit of everything.
fn sample(mounted: &Mounted) {
    let dir = mounted.path("source");
    fs::create_dir_all(dir.join("inner/empty")).unwrap();
    fs::write(dir.join("small"), b"few bytes").unwrap();
    fs::write(dir.join("inner/large"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(dir.join("small"), dir.join("inner/name")).unwrap();
    symlink("small", dir.join("link")).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o2750)).unwrap();
    fs::set_permissions(dir.join("small"), Permissions::from_mode(0o604)).unwrap();
}

#[test]
fn a_clone_of_a_directory_is_the_same_and_changes_apart() {
    let mounted = Mounted::new();
    sample(&mounted);
    let (source, copy) = (mounted.path("source"), mounted.path("copy"));
    ok(&clone(&source, &copy));
    assert_eq!(names(&mounted.dir), ["copy", "source"]);
    assert_eq!(names(&copy), ["inner", "link", "small"]);
    assert_eq!(names(&copy.join("inner")), ["empty", "large", "name"]);
    let (from, to) = (fs::metadata(&source).unwrap(), fs::metadata(&copy).unwrap());
    assert_eq!((to.mode(), to.nlink(), to.mtime()), (from.mode(), from.nlink(), from.mtime()));
    let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    for name in ["", "small", "inner", "inner/large", "link"] {
        assert_ne!(inode(&source.join(name)), inode(&copy.join(name)), "{name}");
    }
    assert_eq!(inode(&copy.join("small")), inode(&copy.join("inner/name")));
    assert_eq!(fs::metadata(copy.join("small")).unwrap().mode() & 0o777, 0o604);

    fs::write(copy.join("small"), b"changed in the copy").unwrap();
    fs::write(source.join("inner/large"), b"changed in the source").unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    fs::create_dir(source.join("new")).unwrap();
    for _ in 0..2 {
        assert_eq!(fs::read(source.join("small")).unwrap(), b"few bytes");
        assert_eq!(fs::read(copy.join("inner/name")).unwrap(), b"changed in the copy");
        assert!(fs::read(copy.join("inner/large")).unwrap() == vec![7; 3 << 20]);
        assert_eq!(names(&copy), ["inner", "small"]);
        assert_eq!(names(&source), ["inner", "link", "new", "small"]);
        mounted.remount();
    }
    let before = inode(&copy.join("inner/large"));
    fs::rename(copy.join("inner"), mounted.path("out of it")).unwrap();
    mounted.remount();
    assert_eq!(inode(&mounted.path("out of it/large")), before);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn a_clone_of_a_file_has_its_size_and_bytes_at_once() {
    let mounted = Mounted::new();
    let (source, copy) = (mounted.path("source"), mounted.path("copy"));
    let file = File::create(&source).unwrap();
    file.write_all_at(&[5; 5_000_001], 0).unwrap();
    ok(&clone(&source, &copy));
    assert_eq!(fs::metadata(&copy).unwrap().len(), 5_000_001);
    file.write_all_at(b"after", 1_000_000).unwrap();
    assert!(fs::read(&copy).unwrap() == [5; 5_000_001]);
    let file = OpenOptions::new().write(true).open(&copy).unwrap();
    file.set_len(10).unwrap();
    assert_eq!(fs::read(&copy).unwrap(), [5; 10]);
    assert_eq!(fs::read(&source).unwrap()[1_000_000..1_000_006], *b"after\x05");
}

#[test]
fn data_written_to_a_mapping_is_in_the_clone() {
    let mounted = Mounted::new();
    let dir = mounted.path("source");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("mapped"), vec![1; 100_000]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(dir.join("mapped")).unwrap();
    let mut mapping = Mapping::of(&file, 100_000);
    for round in 2..6 {
        mapping[50_000..60_000].fill(round);
        let copy = mounted.path(format!("copy{round}"));
        ok(&clone(&dir, &copy));
        mapping[50_000] = 99;
        let copied = fs::read(copy.join("mapped")).unwrap();
        assert!(copied[50_000..60_000] == [round; 10_000] && copied[0] == 1);
    }
}

#[test]
fn cp_shares_data() {
    let mounted = Mounted::new();
    let (source, copy) = (mounted.path("source"), mounted.path("copy"));
    fs::write(&source, vec![9; 100 << 20]).unwrap();
    let log_bytes = || mounted.stats()["engine"]["device_write_bytes"].as_u64().unwrap();
    mounted.remount();
    let before = log_bytes();
    let copied = std::process::Command::new("cp").arg(&source).arg(&copy).status().unwrap();
    assert!(copied.success());
    File::open(&copy).unwrap().sync_all().unwrap();
    let written = log_bytes() - before;
    assert!(written < 10 << 20, "{written} bytes written");
    assert!(fs::read(&copy).unwrap() == vec![9; 100 << 20]);
}

#[test]
fn a_tree_is_removed_at_once_and_open_files_in_it_live_on() {
    let mounted = Mounted::new();
    sample(&mounted);
    let dir = mounted.path("source");
    fs::hard_link(dir.join("small"), mounted.path("outside")).unwrap();
    let open = OpenOptions::new().read(true).write(true).open(dir.join("inner/large")).unwrap();
    let remove = |dir: &Path| betrfs().arg("rm-tree").arg(dir).output().unwrap();
    refused(&remove(&mounted.dir), &["mounted on it"]);
    refused(&remove(&mounted.path("outside")), &["it is no directory"]);
    refused(&remove(&mounted.path("none")), &["No such file"]);
    refused(&remove(&dir.join("inner/..")), &["not as"]);
    symlink("source", mounted.path("link")).unwrap();
    refused(&remove(Path::new(&format!("{}/", mounted.path("link").display()))), &[]);
    fs::remove_file(mounted.path("link")).unwrap();
    fs::create_dir(dir.join(".betrfs-snapshots/s")).unwrap();
    refused(&remove(&dir), &["a snapshot holds it", "source/.betrfs-snapshots/s", "rm-tree --snapshots"]);
    fs::remove_dir(dir.join(".betrfs-snapshots/s")).unwrap();
    refused(&remove(tempfile::tempdir().unwrap().path()), &["on no BetrFS mount"]);
    assert_eq!(names(&dir), ["inner", "link", "small"]);
    assert_eq!(fs::metadata(mounted.path("outside")).unwrap().nlink(), 3);
    ok(&remove(&dir));
    assert_eq!(names(&mounted.dir), ["outside"]);
    assert_eq!(fs::metadata(mounted.path("outside")).unwrap().nlink(), 1);
    open.write_all_at(b"still", 0).unwrap();
    let mut bytes = vec![0; 3 << 20];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..5] == *b"still" && bytes[5..] == [7; (3 << 20) - 5]);
    // New files with the same names are new.
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("inner/large"), b"new").unwrap();
    drop((open, bytes));
    assert_eq!(fs::read(dir.join("inner/large")).unwrap(), b"new");
    mounted.remount();
    assert_eq!(names(&dir), ["inner"]);
    assert_eq!(fs::read(mounted.path("outside")).unwrap(), b"few bytes");
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn a_bind_mount_is_not_removed() {
    let mounted = Mounted::new();
    let (shown, over) = (mounted.path("shown"), mounted.path("over"));
    let remove = || betrfs().arg("rm-tree").arg(&over).output().unwrap();
    fs::create_dir(&over).unwrap();
    fs::create_dir(&shown).unwrap();
    fs::write(shown.join("file"), b"bytes").unwrap();
    rustix::mount::mount_bind(&shown, &over).unwrap();
    refused(&remove(), &["mounted on it"]);
    assert_eq!(fs::read(shown.join("file")).unwrap(), b"bytes");
    rustix::mount::unmount(&over, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    ok(&remove());
    assert_eq!(names(&mounted.dir), ["shown"]);
    assert_eq!(fs::read(shown.join("file")).unwrap(), b"bytes");
}

#[test]
fn a_directory_below_which_something_is_mounted_is_not_removed() {
    let mounted = Mounted::new();
    let (shown, over) = (mounted.path("shown"), mounted.path("over"));
    // The kernel escapes such a name in its list of mounts.
    let below = over.join("a b\\ü");
    let remove = || betrfs().arg("rm-tree").arg(&over).output().unwrap();
    fs::create_dir_all(&below).unwrap();
    fs::create_dir(&shown).unwrap();
    fs::write(over.join("file"), b"bytes").unwrap();
    rustix::mount::mount_bind(&shown, &below).unwrap();
    refused(&remove(), &["mounted"]);
    assert_eq!(fs::read(over.join("file")).unwrap(), b"bytes");
    rustix::mount::unmount(&below, rustix::mount::UnmountFlags::NOFOLLOW).unwrap();
    ok(&remove());
    assert_eq!(names(&mounted.dir), ["shown"]);
}

#[test]
fn on_a_read_only_mount_nothing_is_filled_or_emptied() {
    use rustix::io::Errno;
    use rustix::ioctl::{Getter, ioctl, opcode};
    const SOURCE: u32 = opcode::read::<u64>(b'B', 1);
    const FILL: u32 = opcode::write::<u64>(b'B', 2);
    const EMPTY: u32 = opcode::none(b'B', 3);
    let mounted = Mounted::new();
    sample(&mounted);
    fs::create_dir(mounted.path("copy")).unwrap();
    mounted.umount();
    ok(&mounted.try_mount(&["-o", "ro"]));
    let (source, copy) =
        (File::open(mounted.path("source")).unwrap(), File::open(mounted.path("copy")).unwrap());
    // SAFETY: the argument has the type that the ioctl writes.
    let token = unsafe { ioctl(&source, Getter::<SOURCE, u64>::new()) }.unwrap();
    let filled = change(&copy, FILL, &token.to_le_bytes());
    let emptied = change(&source, EMPTY, &[]);
    assert_eq!((filled, emptied), (Err(Errno::ROFS), Err(Errno::ROFS)));
    refused(&betrfs().arg("rm-tree").arg(mounted.path("source")).output().unwrap(), &["Read-only"]);
    assert_eq!(names(&mounted.path("source")), ["inner", "link", "small"]);
    assert_eq!(names(&mounted.path("copy")), Vec::<String>::new());
}

#[test]
fn after_a_removal_the_remaining_names_are_counted_right() {
    const MAPPED_BYTES: usize = 16 << 20;
    let mounted = Mounted::new();
    let (dir, outside) = (mounted.path("source"), mounted.path("outside"));
    fs::create_dir(&dir).unwrap();
    fs::write(&outside, b"").unwrap();
    fs::hard_link(&outside, dir.join("name")).unwrap();
    // The kernel takes time to write back a mapping's dirty pages.
    let file = File::create_new(dir.join("mapped")).unwrap();
    file.set_len(MAPPED_BYTES as u64).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(dir.join("mapped")).unwrap();
    let mut mapping = Mapping::of(&file, MAPPED_BYTES);
    mapping.fill(1);
    assert_eq!(fs::metadata(&outside).unwrap().nlink(), 2);
    betrfs_fuse::remove_tree(&dir, betrfs::SnapshotsBelow::Hold).unwrap();
    assert_eq!(fs::metadata(&outside).unwrap().nlink(), 1);
    assert!(mapping.iter().all(|byte| *byte == 1));
}

#[test]
fn usage_shows_stored_shared_and_freed_space() {
    let mounted = Mounted::new();
    let (source, copy) = (mounted.path("source"), mounted.path("copy"));
    fs::create_dir_all(source.join("inner")).unwrap();
    let noise = betree_sim::Rng::new(7);
    let mut noise = std::iter::repeat_with({
        let mut noise = noise;
        move || noise.next_u64()
    });
    for file in 0..16 {
        let bytes: Vec<u8> = noise.by_ref().take(128 << 10).flat_map(u64::to_le_bytes).collect();
        fs::write(source.join(format!("inner/{file}")), bytes).unwrap();
    }
    let usage = |path: &Path| {
        mounted.remount();
        let output = betrfs().arg("usage").arg(path).args(["--format", "json"]).output().unwrap();
        ok(&output);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        ["stored_bytes", "shared_bytes", "freed_bytes"].map(|name| told[name].as_u64().unwrap() >> 20)
    };
    let [stored, shared, freed] = usage(&source);
    assert!((16..19).contains(&stored) && shared == 0 && freed >= 16, "{stored} {shared} {freed}");
    ok(&clone(&source, &copy));
    for path in [&source, &copy] {
        let [stored, shared, freed] = usage(path);
        assert!((15..19).contains(&stored) && shared > 8 && freed < 8, "{stored} {shared} {freed}");
    }
    ok(&betrfs().arg("rm-tree").arg(&source).output().unwrap());
    let [stored, ..] = usage(&copy);
    assert!((15..19).contains(&stored), "{stored}");
    let elsewhere = tempfile::tempdir().unwrap();
    refused(&betrfs().arg("usage").arg(elsewhere.path()).output().unwrap(), &["on no BetrFS mount"]);
}

#[test]
fn bad_clones_are_refused_with_the_reason_and_leave_nothing() {
    let mounted = Mounted::new();
    let other = Mounted::new();
    sample(&mounted);
    let source = mounted.path("source");
    refused(&clone(&mounted.path("none"), &mounted.path("copy")), &["none", "No such file"]);
    refused(&clone(&source, &mounted.path("source/small")), &["exists"]);
    refused(&clone(&source, &other.path("copy")), &["not on the mount"]);
    refused(&clone(&source, &mounted.path("none/copy")), &["No such file"]);
    let elsewhere = tempfile::tempdir().unwrap();
    refused(&clone(elsewhere.path(), &mounted.path("copy")), &["on no BetrFS mount"]);
    assert_eq!(names(&mounted.dir), ["source"]);
    assert_eq!(names(&other.dir), Vec::<String>::new());
}
