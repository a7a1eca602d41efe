//! Races with another user who changes names in a directory while root's command works in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use betree_platform::Platform;
use betrfs::SnapshotsBelow;
use betrfs_fuse::MountEntry;
use rustix::fs::{CWD, RenameFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::mounted::{Mounted, SetOnDrop, betrfs, ok, told};

/// A platform whose random numbers the other user knows.
struct Guessed;

impl Platform for Guessed {
    fn now_ns(&self) -> i64 {
        0
    }

    fn random_u64(&self) -> u64 {
        7
    }
}

#[test]
fn a_clone_fills_its_own_file_and_none_in_its_place() {
    const TRIES: usize = 300;
    let mounted = Mounted::new();
    let (source, victim, theirs) = (mounted.path("source"), mounted.path("victim"), mounted.path("theirs"));
    for dir in [&source, &victim, &theirs] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(source.join("payload"), b"x").unwrap();
    let hidden = theirs.join(format!(".betrfs-clone-{:016x}", Guessed.random_u64()));
    let away = mounted.path("away");
    let done = AtomicBool::new(false);
    let (swapped, cloned) = thread::scope(|scope| {
        let over = SetOnDrop(&done);
        let swapping = scope.spawn(|| {
            let mut swapped = 0;
            while !done.load(Ordering::Relaxed) {
                if fs::rename(&hidden, &away).is_ok() && symlink(&victim, &hidden).is_ok() {
                    swapped += 1;
                    thread::sleep(Duration::from_millis(1));
                    let _ = fs::remove_file(&hidden);
                }
                let _ = fs::remove_dir_all(&away);
            }
            swapped
        });
        let mut cloned = 0;
        for number in 0..TRIES {
            let copy = theirs.join(number.to_string());
            if betrfs_fuse::clone(&source, &copy, &Guessed).is_ok() {
                assert!(copy.symlink_metadata().unwrap().is_dir());
                assert_eq!(fs::read(copy.join("payload")).unwrap(), b"x");
                cloned += 1;
            }
            assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "it filled another directory");
        }
        drop(over);
        (swapping.join().unwrap(), cloned)
    });
    assert!(swapped > 0, "{cloned} cloned, none swapped");
}

#[test]
fn what_create_mounts_is_the_file_that_it_made() {
    let mounted = Mounted::new();
    fs::write(mounted.path("theirs"), b"x").unwrap();
    mounted.umount();
    for more in [&["--foreground"][..], &[]] {
        let made = mounted.volume.with_file_name("made");
        let mut mount = betrfs();
        mount.arg("mount").arg(&made).arg(&mounted.dir).args(["--create", "64M"]).args(more);
        let mut mount = mount.spawn().unwrap();
        let start = Instant::now();
        while !made.metadata().is_ok_and(|found| found.len() > 0) {
            assert!(start.elapsed() < Duration::from_secs(30) && mount.try_wait().unwrap().is_none());
        }
        // Their volume comes into its place.
        fs::rename(&mounted.volume, &made).unwrap();
        while !MountEntry::at(&mounted.dir).unwrap().is_some_and(|mount| mount.is_betrfs()) {
            assert!(start.elapsed() < Duration::from_secs(30), "{more:?}: it mounts nothing");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), 0, "{more:?}: another volume is mounted");
        mounted.umount();
        assert!(mount.wait().unwrap().success());
        fs::rename(&made, &mounted.volume).unwrap();
    }
}

/// Two names that another thread exchanges again and again during `work`.
fn while_exchanged<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> T {
    let (done, exchanged) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        // Also when `work` panics: the scope waits for its threads.
        let _over = SetOnDrop(&done);
        let exchanging = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                exchanged.fetch_add(1, Ordering::Relaxed);
            }
        });
        while exchanged.load(Ordering::Relaxed) == 0 {
            assert!(!exchanging.is_finished(), "they are not exchanged");
            thread::yield_now();
        }
        work()
    })
}

/// The directories above two mounts change places.
#[test]
fn umount_unmounts_the_mount_whose_server_it_asked_and_no_other() {
    const TRIES: usize = 40;
    let first = Mounted::unmounted();
    let second = Mounted::unmounted();
    let (one, other) = (first.dir.join("one"), first.dir.join("other"));
    for dir in [&one, &other] {
        fs::create_dir_all(dir.join("mnt")).unwrap();
    }
    let of = |volume: &Path| {
        let mounts = MountEntry::all().unwrap();
        mounts.into_iter().find(|mount| mount.is_betrfs() && mount.is_of(volume))
    };
    let mut unmounted = 0;
    for _ in 0..TRIES {
        for (mounted, dir) in [(&first, &one), (&second, &other)] {
            if of(&mounted.volume).is_none() {
                let free = if MountEntry::at(&dir.join("mnt")).unwrap().is_some_and(|mount| mount.is_betrfs())
                {
                    [&one, &other].into_iter().find(|free| *free != dir).unwrap()
                } else {
                    dir
                };
                ok(&betrfs().arg("mount").arg(&mounted.volume).arg(free.join("mnt")).output().unwrap());
            }
        }
        let output = while_exchanged(&one, &other, || {
            let mut umount = Command::new("timeout");
            umount.args(["20", env!("CARGO_BIN_EXE_betrfs"), "umount"]).arg(one.join("mnt"));
            umount.output().unwrap()
        });
        let left = [&first, &second].map(|mounted| of(&mounted.volume).is_some());
        if output.status.success() {
            assert!(left == [true, false] || left == [false, true], "{left:?}");
            unmounted += 1;
        } else {
            assert_eq!(output.status.code(), Some(1), "{}", told(&output));
            assert_eq!(left, [true, true], "{}", told(&output));
        }
    }
    for dir in [&one, &other] {
        let _ = rustix::mount::unmount(dir.join("mnt"), UnmountFlags::DETACH);
    }
    assert!(unmounted > 0);
}

/// A name above the directory changes, so that its path is no longer that of the mount below.
#[test]
fn rm_tree_keeps_a_directory_with_a_mount_below_whatever_happens_above() {
    const TRIES: usize = 500;
    let mounted = Mounted::new();
    let (one, other) = (mounted.path("one"), mounted.path("other"));
    let place = one.join("tree/deep/mnt");
    fs::create_dir_all(&place).unwrap();
    fs::create_dir_all(other.join("tree")).unwrap();
    rustix::mount::mount("none", &place, "tmpfs", MountFlags::empty(), None).unwrap();
    let refused = while_exchanged(&one, &other, || {
        let mut refused = 0;
        for _ in 0..TRIES {
            let _ = fs::create_dir(one.join("tree"));
            let outcome = betrfs_fuse::remove_tree(&one.join("tree"), SnapshotsBelow::Hold);
            refused += usize::from(matches!(outcome, Err(betrfs_fuse::RemoveTreeError::MountedBelow)));
            let holds = |dir: &Path| dir.join("tree/deep/mnt").is_dir();
            // Asked until both answers are of one moment at least.
            assert!((0..100).any(|_| holds(&one) || holds(&other)), "it emptied the directory");
        }
        refused
    });
    let there = [&one, &other].into_iter().find(|dir| dir.join("tree/deep").is_dir()).unwrap();
    rustix::mount::unmount(there.join("tree/deep/mnt"), UnmountFlags::empty()).unwrap();
    assert!(refused > 0);
}
