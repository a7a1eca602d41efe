//! A rescue that the user ends says so, and the next one replaces what it has left.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use betrfs::{FileType, InodeId};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process};

use super::{Sample, betrfs, new, noise};

const FILES: usize = 24;
const FILE_BYTES: usize = 4 << 20;

fn sample() -> Sample {
    let sample = Sample::new("256M");
    let volume = sample.open();
    for number in 0..FILES {
        let name = format!("file{number:02}");
        let file = volume.create(InodeId::ROOT, name.as_bytes(), &new(FileType::Regular, 0o600)).unwrap();
        volume.write(file.node, 0, &noise(number as u64, FILE_BYTES)).unwrap();
    }
    volume.close().unwrap();
    sample
}

fn is_whole(copy: &Path) -> bool {
    let same = |number| {
        let bytes = fs::read(copy.join(format!("file{number:02}")));
        bytes.is_ok_and(|bytes| bytes == noise(number as u64, FILE_BYTES))
    };
    fs::read_dir(copy).unwrap().count() == FILES && (0..FILES).all(same)
}

/// Starts a rescue into an empty directory, and interrupts it when it has made its first file.
fn interrupt(volume: &str, copy: &str, list: &str) -> (Option<i32>, String) {
    fs::create_dir(copy).unwrap();
    let watch = inotify::init(CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, copy, WatchFlags::CREATE).unwrap();
    let mut rescue = Command::new(env!("CARGO_BIN_EXE_betrfs"));
    rescue.args(["rescue", volume, copy, "--list", list]).stdin(Stdio::null());
    let child: Child = rescue.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut room);
    while !events.next().unwrap().file_name().is_some_and(|name| name.to_bytes().starts_with(b"file")) {}
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_interrupted_rescue_says_how_to_go_on_and_is_replaced_by_the_next() {
    let sample = sample();
    let list = sample.temp.path().join("list");
    let [volume, copy, list] =
        [&sample.path, &sample.copy(), &list].map(|path| path.to_str().unwrap().to_owned());
    let (code, said) = interrupt(&volume, &copy, &list);
    assert_eq!(code, Some(1), "{said}");
    for words in [&copy, "it was interrupted", "there so far", "the same command starts again"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!is_whole(&sample.copy()), "it had ended before");
    assert!(!Path::new(&list).exists(), "the next try would find it there");

    // It is the copy of another volume.
    let other = sample.temp.path().join("other").display().to_string();
    fs::copy(&volume, &other).unwrap();
    let refused = betrfs(&["rescue", &other, &copy]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(1));

    let again = betrfs(&["rescue", &volume, &copy, "--list", &list]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && said.contains("an unfinished copy of this volume"), "{said}");
    assert!(is_whole(&sample.copy()));
    assert_eq!(fs::read(&list).unwrap(), b"");

    let refused = betrfs(&["rescue", &volume, &copy]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"), "{refused:?}");
    assert!(is_whole(&sample.copy()), "a finished copy is kept");
}
