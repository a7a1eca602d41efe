//! The file of the list: it is a new one.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use betrfs::{FileType, InodeId};

use super::{Sample, betrfs, new};

/// A volume of one file.
fn sample() -> Sample {
    let sample = Sample::new("64M");
    let volume = sample.open();
    volume.create_with(InodeId::ROOT, b"file", &new(FileType::Regular, 0o600), b"text").unwrap();
    volume.close().unwrap();
    sample
}

#[test]
fn a_list_is_not_written_over_the_volume_or_any_other_file() {
    let sample = sample();
    let at = |name: &str| sample.temp.path().join(name);
    fs::hard_link(&sample.path, at("hard")).unwrap();
    symlink("volume", at("soft")).unwrap();
    symlink("no such file", at("dangling")).unwrap();
    fs::write(at("letter"), "of somebody").unwrap();
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&sample.path).output().unwrap();
    assert!(attached.status.success(), "only root may attach loop devices");
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    let before = sample.bytes();
    let mut said = Vec::new();
    let names = ["volume", "hard", "soft", "dangling", "letter"].map(|name| at(name).display().to_string());
    for list in names.iter().chain([&device]) {
        let [volume, copy] = [&sample.path, &sample.copy()].map(|path| path.to_str().unwrap().to_owned());
        let output = betrfs(&["rescue", &volume, &copy, "--list", list]);
        said.push((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()));
        let is_whole = sample.bytes() == before;
        said.push((
            Some(1),
            format!("{list} exists already: whole {is_whole}, copied {}", sample.copy().exists()),
        ));
        fs::write(&sample.path, &before).unwrap();
        drop(fs::remove_dir_all(sample.copy()));
    }
    assert!(Command::new("losetup").args(["-d", &device]).status().unwrap().success());
    for (code, said) in &said {
        assert!(*code == Some(1) && said.contains("exists already"), "{code:?}: {said}");
        assert!(!said.contains("whole false") && !said.contains("copied true"), "{said}");
    }
    assert_eq!(fs::read_to_string(at("letter")).unwrap(), "of somebody");
    assert!(fs::metadata(at("no such file")).is_err());
}

#[test]
fn a_rescue_that_copies_nothing_leaves_no_list() {
    let sample = sample();
    let list = sample.temp.path().join("list");
    let [volume, copy, shown] =
        [&sample.path, &sample.copy(), &list].map(|path| path.to_str().unwrap().to_owned());
    fs::create_dir(&copy).unwrap();
    fs::write(sample.copy().join("mine"), b"").unwrap();
    assert_eq!(betrfs(&["rescue", &volume, &copy, "--list", &shown]).status.code(), Some(1));
    assert!(!list.exists(), "a second try would find it there");
    fs::remove_file(sample.copy().join("mine")).unwrap();
    let output = betrfs(&["rescue", &volume, &copy, "--list", &shown]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(&list).unwrap(), b"");
    // What keeps nothing is no file that could be lost.
    fs::remove_dir_all(&copy).unwrap();
    assert!(betrfs(&["rescue", &volume, &copy, "--list", "/dev/null"]).status.success());
}
