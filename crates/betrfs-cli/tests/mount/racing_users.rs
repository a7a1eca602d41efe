//! Races with another user who changes names in a directory while root's command works in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use betree_platform::Platform;

use crate::mounted::Mounted;

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
        let swapping = scope.spawn(|| {
            let mut swapped = 0;
            while !done.load(Ordering::Relaxed) {
                if fs::rename(&hidden, &away).is_ok() && symlink(&victim, &hidden).is_ok() {
                    swapped += 1;
                    thread::sleep(std::time::Duration::from_millis(1));
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
        done.store(true, Ordering::Relaxed);
        (swapping.join().unwrap(), cloned)
    });
    assert!(swapped > 0, "{cloned} cloned, none swapped");
}
