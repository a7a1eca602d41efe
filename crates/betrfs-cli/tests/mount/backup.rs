//! `betrfs backup` of a mounted volume.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::interrupting::interrupted;
use crate::mounted::{Mounted, SetOnDrop, betrfs, ok, refused};
use crate::schemas::valid;

fn backup(mounted: &Mounted, file: &Path) -> Output {
    betrfs().arg("backup").arg(&mounted.dir).arg(file).args(["--format", "json"]).output().unwrap()
}

/// Mounts a copy.
fn mounted_copy(file: &Path) -> Mounted {
    let mut copy = Mounted::unmounted();
    copy.volume = file.to_owned();
    copy.mount();
    copy
}

/// The number in a file.
fn number(path: &Path) -> u64 {
    u64::from_le_bytes(fs::read(path).unwrap().try_into().unwrap())
}

#[test]
fn a_backup_is_a_volume_as_of_one_moment_while_others_go_on() {
    let mounted = Mounted::new();
    let contents = |file: u64| seeded::bytes(file, 0, 100_000);
    fs::create_dir(mounted.path("tree")).unwrap();
    (0..50).for_each(|file| fs::write(mounted.path(format!("tree/{file}")), contents(file)).unwrap());
    fs::hard_link(mounted.path("tree/7"), mounted.path("link")).unwrap();
    ok(&betrfs().arg("clone").arg(mounted.path("tree")).arg(mounted.path("copy")).output().unwrap());
    ok(&betrfs().args(["snapshot", "create"]).arg(mounted.path("tree")).arg("before").output().unwrap());
    let files = ["first", "second"].map(|name| {
        fs::write(mounted.path(name), 0u64.to_le_bytes()).unwrap();
        File::options().write(true).open(mounted.path(name)).unwrap()
    });
    let is_over = AtomicBool::new(false);
    let copies: Vec<_> = (0..4).map(|each| mounted.volume.with_file_name(format!("copy{each}"))).collect();
    std::thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        let writer = scope.spawn(|| {
            let mut count = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                count += 1;
                // Past the kernel's pages, so that the server has each write when it returns.
                for file in &files {
                    file.write_all_at(&count.to_le_bytes(), 0).unwrap();
                    file.sync_data().unwrap();
                }
                fs::write(mounted.path("tree/49"), contents(count)).unwrap();
                fs::rename(mounted.path("tree/49"), mounted.path("tree/49x")).unwrap();
                fs::rename(mounted.path("tree/49x"), mounted.path("tree/49")).unwrap();
            }
            count
        });
        copies.iter().for_each(|copy| ok(&backup(&mounted, copy)));
        drop(over);
        assert!(writer.join().unwrap() > 0);
    });
    let mut last = 0;
    for copy in &copies {
        let found = fs::metadata(copy).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        assert!(found.blocks() * 512 < 200 << 20, "{} blocks of a volume of 1 GiB", found.blocks());
        ok(&betrfs().arg("check").arg(copy).output().unwrap());
        let copy = mounted_copy(copy);
        let (first, second) = (number(&copy.path("first")), number(&copy.path("second")));
        assert!(first == second || first == second + 1, "{first} and {second} are of no moment");
        assert!(first >= last, "{first} after {last}");
        last = first;
        let trees = ["tree", "copy", "tree/.betrfs-snapshots/before"];
        for (tree, file) in trees.iter().flat_map(|tree| (0..49).map(move |file| (tree, file))) {
            let path = copy.path(format!("{tree}/{file}"));
            assert!(fs::read(&path).unwrap() == contents(file), "{}", path.display());
        }
        assert_eq!(fs::metadata(copy.path("link")).unwrap().nlink(), 2);
        // Clones and snapshots share their data in the copy too.
        let usage = betrfs().arg("usage").arg(copy.path("copy")).args(["--format", "json"]).output().unwrap();
        ok(&usage);
        let usage: serde_json::Value = serde_json::from_slice(&usage.stdout).unwrap();
        assert!(usage["freed_bytes"].as_u64().unwrap() < 1 << 20, "{usage}");
        copy.umount();
    }
    assert!(last > 0);
}

#[test]
fn a_backup_that_fails_leaves_no_file_and_says_why() {
    let mounted = Mounted::new();
    let data = seeded::bytes(1, 0, 20 << 20);
    fs::write(mounted.path("data"), &data).unwrap();
    let taken = mounted.volume.with_file_name("taken");
    fs::write(&taken, b"mine").unwrap();
    refused(&backup(&mounted, &taken), &["taken", "exists"]);
    assert_eq!(fs::read(&taken).unwrap(), b"mine");

    let small = mounted.volume.with_file_name("small");
    fs::create_dir(&small).unwrap();
    rustix::mount::mount("tmpfs", &small, c"tmpfs", MountFlags::empty(), Some(c"size=8m")).unwrap();
    let full = backup(&mounted, &small.join("copy"));
    let is_left = small.join("copy").exists();
    rustix::mount::unmount(&small, UnmountFlags::DETACH).unwrap();
    refused(&full, &["small/copy", "No space left"]);
    assert!(!is_left);

    let nowhere = betrfs().arg("backup").arg(&small).arg(small.join("copy")).output().unwrap();
    refused(&nowhere, &["no BetrFS volume is mounted"]);
    // The server goes on, and its space is all there.
    assert!(fs::read(mounted.path("data")).unwrap() == data);
    mounted.umount();
    ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
}

#[test]
fn an_interrupted_backup_leaves_no_file() {
    let mounted = Mounted::new();
    fs::write(mounted.path("data"), seeded::bytes(2, 0, 200 << 20)).unwrap();
    let copy = mounted.volume.with_file_name("copy");
    let begin = || {
        let _ = fs::remove_file(&copy);
        let mut command = betrfs();
        command.arg("backup").arg(&mounted.dir).arg(&copy);
        command
    };
    refused(&interrupted(begin, || copy.exists()), &["interrupted"]);
    assert!(!copy.exists());
    let output = backup(&mounted, &copy);
    ok(&output);
    let document = serde_json::from_slice(&output.stdout).unwrap();
    valid("backup", &document);
    assert_eq!(document["volume_bytes"], 1u64 << 30);
}
