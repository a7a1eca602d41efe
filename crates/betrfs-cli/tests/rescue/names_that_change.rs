//! A target whose name another user can change: nothing outside of it is made or changed.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use betrfs::{FileType, InodeId, SetAttr};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{Sample, betrfs, new};

const USER: u32 = 65_534;

/// A volume in which all belongs to a user, with an object of each kind.
fn sample() -> Sample {
    let sample = Sample::new("64M");
    let volume = sample.open();
    let dir = volume.create(InodeId::ROOT, b"cron.d", &new(FileType::Directory, 0o750)).unwrap().node;
    let file = volume.create_with(dir, b"file", &new(FileType::Regular, 0o600), b"text").unwrap().node;
    let fifo = volume.create(dir, b"fifo", &new(FileType::Fifo, 0o640)).unwrap().node;
    let link = volume.symlink(dir, b"link", b"/no/such/place", 0, 0).unwrap().node;
    let owner = SetAttr { uid: Some(USER), gid: Some(USER), ..SetAttr::default() };
    for node in [InodeId::ROOT, dir, file, fifo, link] {
        volume.setattr(node, &owner).unwrap();
    }
    volume.close().unwrap();
    sample
}

/// Owner and mode of a directory, and the number of names in it.
fn state(dir: &Path) -> (u32, u32, usize) {
    let found = fs::symlink_metadata(dir).unwrap();
    (found.uid(), found.mode() & 0o7777, fs::read_dir(dir).unwrap().count())
}

fn rescue(sample: &Sample, out: &Path) -> (Option<i32>, String) {
    let output = betrfs(&["rescue", sample.path.to_str().unwrap(), out.to_str().unwrap()]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_link_in_the_place_of_the_target_is_not_followed() {
    let sample = sample();
    let at = |name: &str| sample.temp.path().join(name);
    fs::create_dir(at("victim")).unwrap();
    symlink("victim", at("link")).unwrap();
    let before = state(&at("victim"));
    for name in ["link", "link/"] {
        let (code, said) = rescue(&sample, &at(name));
        assert!(code == Some(1) && said.contains("symbolic link"), "{code:?} {said}");
        assert_eq!(state(&at("victim")), before, "{name}");
    }
}

#[test]
fn what_changes_places_with_the_target_is_not_filled() {
    const TRIES: usize = 12;
    let sample = sample();
    let at = |name: &str| sample.temp.path().join(name);
    let (out, link) = (at("user/out"), at("user/link"));
    fs::create_dir_all(at("victim")).unwrap();
    fs::create_dir_all(&out).unwrap();
    symlink(at("victim"), &link).unwrap();
    let before = state(&at("victim"));
    let (is_over, exchanged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let codes = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &out, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                exchanged.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut codes = Vec::new();
        for _ in 0..TRIES {
            codes.push(rescue(&sample, &out).0);
            // One of the two is the directory, whichever that is now.
            for name in [&out, &link] {
                drop(fs::remove_dir_all(name.join("cron.d")));
            }
            if state(&at("victim")) != before {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        codes
    });
    assert_eq!(state(&at("victim")), before, "{codes:?}");
    assert!(exchanged.load(Ordering::Relaxed) > 0);
}

/// Until it is filled, the target belongs to root alone; then to the owner that the volume has for it.
#[test]
fn the_target_gets_the_owner_of_the_volumes_root_or_keeps_its_own() {
    let sample = sample();
    let out = sample.temp.path().join("out");
    fs::create_dir(&out).unwrap();
    chown(&out, Some(7), Some(8)).unwrap();
    fs::write(out.join("mine"), b"").unwrap();
    let before = state(&out);
    let (code, said) = rescue(&sample, &out);
    assert!(code == Some(1) && said.contains("not empty"), "{said}");
    assert_eq!(state(&out), before);
    fs::remove_file(out.join("mine")).unwrap();
    assert_eq!(rescue(&sample, &out).0, Some(0));
    assert_eq!(state(&out), (USER, 0o755, 1));
    assert_eq!(state(&out.join("cron.d")), (USER, 0o750, 3));
    for (name, mode) in [("file", 0o600), ("fifo", 0o640), ("link", 0o777)] {
        let found = fs::symlink_metadata(out.join("cron.d").join(name)).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (USER, USER, mode), "{name}");
    }
}
