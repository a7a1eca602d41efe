//! Quotas of directories in which something was lost: a repair makes of their use what can be read, which is
//! all that removals take from it later.

use std::sync::Arc;

use betree_sim::MemDevice;
use betrfs::{InodeId, Quota, QuotaLimits, SnapshotsBelow, Volume};

use crate::repair::{DATA, META};
use crate::repair_changes::{leaves, repair_of, without};
use crate::support::*;

const FILES: u64 = 150;
const FILE_BYTES: u64 = 3072;

/// A directory `q` with a quota, and one beside it without, which has another name of each file.
fn sample() -> Disk {
    let disk = Disk::of_tiny_nodes(32 << 20);
    let volume = disk.open();
    let [q, beside] = ["q", "beside"].map(|name| mkdir(&volume, ROOT, name).node);
    volume.set_quota(q, QuotaLimits::default()).unwrap();
    for file in 0..FILES {
        let name = format!("file{file}");
        let made = volume.create_with(q, name.as_bytes(), &new_file(), &[7; FILE_BYTES as usize]).unwrap();
        if file % 2 == 0 {
            volume.link(made.node, q, format!("other{file}").as_bytes()).unwrap();
        }
        mkfile(&volume, beside, &name);
    }
    volume.close().unwrap();
    drop(volume);
    disk
}

fn used(volume: &Volume, dir: InodeId) -> Quota {
    volume.quota(dir).unwrap().unwrap()
}

fn open(disk: &Disk, device: &Arc<MemDevice>) -> Volume {
    Volume::open(device.clone(), disk.options.clone()).unwrap()
}

#[test]
fn a_lost_use_of_a_quota_becomes_what_is_there() {
    let disk = sample();
    let mut lost = 0;
    for leaf in leaves(&disk, DATA.0) {
        let device = without(&disk, &[leaf]);
        let repaired = repair_of(&disk, &device);
        assert_eq!(repaired.after.problems, []);
        lost += usize::from(repaired.mended.iter().any(|mended| mended.code == "wrong-quota-use"));
        let volume = open(&disk, &device);
        let q = volume.resolve(b"/q").unwrap().node;
        let quota = used(&volume, q);
        assert_eq!((quota.used.bytes, quota.used.objects), (FILES * FILE_BYTES, FILES));
        volume.close().unwrap();
    }
    assert_eq!(lost, 1, "one leaf has it");
}

/// Of files whose record was lost, nothing tells how large they were.
#[test]
fn lost_files_count_for_no_quota_before_they_are_removed_or_after() {
    let disk = sample();
    let mut met = 0;
    for leaf in leaves(&disk, META.0) {
        let device = without(&disk, &[leaf]);
        assert_eq!(repair_of(&disk, &device).after.problems, []);
        let volume = open(&disk, &device);
        let Ok(q) = volume.resolve(b"/q") else { continue };
        let Ok(Some(quota)) = volume.quota(q.node) else { continue };
        if quota.used.objects < FILES {
            met += 1;
            for file in (0..FILES).step_by(2) {
                for name in [format!("file{file}"), format!("other{file}")] {
                    if volume.lookup_lost(q.node, name.as_bytes()).is_ok() {
                        volume.unlink(q.node, name.as_bytes()).unwrap();
                    }
                }
            }
            assert_eq!(volume.check(&mut |_, _| ()).unwrap().problems, []);
            volume.remove_below(q.node, SnapshotsBelow::Go).unwrap();
            let quota = used(&volume, q.node);
            assert_eq!((quota.used.bytes, quota.used.objects), (0, 0));
            assert_eq!(volume.check(&mut |_, _| ()).unwrap().problems, []);
        }
        volume.close().unwrap();
    }
    assert!(met > 2, "{met}");
}

/// Names below a directory whose own record is lost, of which some are lost too: the list of them has these
/// still, and their files are there.
#[test]
fn copies_count_no_more_of_a_lost_directory_than_what_they_are_made_of() {
    const LINKED: usize = 200;
    let mut met = 0;
    for links_alone_max in [2, 1000] {
        let mut disk = Disk::of_tiny_nodes(32 << 20);
        disk.options.links_alone_max = links_alone_max;
        let volume = disk.open();
        let q = mkdir(&volume, ROOT, "q").node;
        volume.set_quota(q, QuotaLimits::default()).unwrap();
        let sub = mkdir(&volume, q, "sub").node;
        for file in 0..LINKED {
            let name = format!("file{file:03}");
            let made = volume.create_with(sub, name.as_bytes(), &new_file(), b"text").unwrap().node;
            volume.link(made, sub, format!("other{file:03}").as_bytes()).unwrap();
        }
        for file in 0..LINKED {
            mkfile(&volume, q, &format!("file{file:03}"));
        }
        let beside = mkdir(&volume, ROOT, "beside").node;
        for file in 0..2 * LINKED {
            mkfile(&volume, beside, &format!("so that all above are in leaves {file:03}"));
        }
        volume.close().unwrap();
        drop(volume);
        let all = leaves(&disk, META.0);
        let is_sub_lost = |leaf: &u64| {
            let device = without(&disk, &[*leaf]);
            repair_of(&disk, &device);
            let volume = open(&disk, &device);
            let is_it = volume.resolve(b"/q").is_ok() && volume.resolve(b"/q/sub").is_err();
            volume.close().unwrap();
            is_it
        };
        let of_sub: Vec<u64> = all.iter().copied().filter(is_sub_lost).collect();
        assert_eq!(of_sub.len(), 1, "{}", all.len());
        for leaf in all.iter().filter(|leaf| !of_sub.contains(leaf)) {
            let device = without(&disk, &[of_sub[0], *leaf]);
            assert_eq!(repair_of(&disk, &device).after.problems, []);
            let volume = open(&disk, &device);
            let Ok(q) = volume.resolve(b"/q") else { continue };
            let before = used(&volume, q.node).used;
            volume.clone_inode(q.node, ROOT, b"copy").unwrap();
            let copy = volume.resolve(b"/copy").unwrap().node;
            assert_eq!(used(&volume, copy).used, before);
            assert_eq!(volume.check(&mut |_, _| ()).unwrap().problems, [], "{links_alone_max}, {leaf}");
            volume.remove_below(q.node, SnapshotsBelow::Go).unwrap();
            volume.remove_below(copy, SnapshotsBelow::Go).unwrap();
            assert_eq!(volume.check(&mut |_, _| ()).unwrap().problems, []);
            for dir in [q.node, copy] {
                assert_eq!((used(&volume, dir).used.bytes, used(&volume, dir).used.objects), (0, 0));
            }
            volume.close().unwrap();
            met += 1;
        }
    }
    assert!(met > 4, "{met}");
}
