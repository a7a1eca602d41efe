//! What a terminal shows of work that takes long.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use betree_platform::Device;
use betree_sim::SimDisk;
use betree_store::Store;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::bed::Bed;
use crate::mounted::{betrfs, ok, soon, wait_for_end};
use crate::recorded_disk::{Manner, RecordedDisk};

/// Runs a command with standard error at a terminal; returns what that shows.
fn at_a_terminal(arguments: &[&OsStr]) -> String {
    let (master, mut child) = begun_at_a_terminal(arguments);
    let shown = all_of(master);
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
}

/// Begins to; returns the terminal's other end, and the command's process.
fn begun_at_a_terminal(arguments: &[&OsStr]) -> (OwnedFd, Child) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal.as_fd(), size).unwrap();
    let mut command = betrfs();
    command.args(arguments).stdout(Stdio::null()).stderr(terminal);
    // The command has the terminal's end too, until it is dropped.
    let child = command.env("TERM", "xterm").spawn().unwrap();
    (master, child)
}

fn umount_at_a_terminal(bed: &Bed) -> String {
    at_a_terminal(&["umount".as_ref(), bed.dir.as_os_str()])
}

/// What is written to a terminal until nobody has it open.
fn all_of(master: OwnedFd) -> String {
    let mut master = fs::File::from(master);
    let mut all = Vec::new();
    let mut part = [0; 4096];
    // The last one to close it is an error of the read.
    while let Ok(len @ 1..) = master.read(&mut part) {
        all.extend_from_slice(&part[..len]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn an_unmount_that_takes_long_shows_how_far_it_is_on_a_terminal() {
    let bed = Bed::new();
    fs::write(bed.path("file"), seeded::bytes(1, 0, 16 << 20)).unwrap();
    bed.disk.set_manner(Manner::WritesSlowly);
    let shown = umount_at_a_terminal(&bed);
    // With the rate.
    assert!(shown.contains("writing [") && shown.contains(" MiB/") && shown.contains("iB/s "), "{shown:?}");
    bed.disk.set_manner(Manner::Honest);

    // What is done at once shows nothing.
    bed.mount();
    assert_eq!(umount_at_a_terminal(&bed), "");
    bed.mount();
    assert!(fs::read(bed.path("file")).unwrap() == seeded::bytes(1, 0, 16 << 20));
}

/// A command that opens the volume itself, and a mount, whose server tells the command that waits for it.
#[test]
fn a_replay_that_takes_long_shows_how_far_it_is_on_a_terminal() {
    const FILES: u64 = 10;
    let bed = Bed::new();
    let contents = |number: u64| seeded::bytes(number, 0, 1 << 20);
    for number in 0..FILES {
        let path = bed.path(&number.to_string());
        fs::write(&path, contents(number)).unwrap();
        // Each into the log.
        File::open(path).unwrap().sync_all().unwrap();
    }
    let stats = betrfs().arg("stats").arg(&bed.dir).args(["--format", "json"]).output().unwrap();
    ok(&stats);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    let server = Pid::from_raw(stats["pid"].as_i64().unwrap() as i32).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    wait_for_end(server);
    // Superblocks and what the log has; a replay also looks behind that.
    bed.disk.set_manner(Manner::ReadsSlowlyBefore(FILES << 20));
    let (volume, dir) = (bed.disk.file(), bed.dir.as_os_str());
    for arguments in [["check", "--format=json"].map(OsStr::new), ["mount".as_ref(), dir]] {
        let shown = at_a_terminal(&[arguments[0], volume.as_os_str(), arguments[1]]);
        let told = "replaying the log [";
        assert!(shown.contains(told) && shown.contains(" MiB/10.") && shown.contains("iB/s "), "{shown:?}");
    }
    bed.disk.set_manner(Manner::Honest);
    for number in 0..FILES {
        assert!(fs::read(bed.path(&number.to_string())).unwrap() == contents(number), "{number}");
    }
}

/// What is in the first half of the disk is read slowly, each MiB of it.
const SLOW: Manner = Manner::ReadsSlowlyBefore(256 << 20);

#[test]
fn a_trim_that_takes_long_shows_how_far_it_is_on_a_terminal() {
    let bed = Bed::new();
    fs::write(bed.path("file"), b"kept").unwrap();
    bed.disk.set_manner(Manner::DiscardsSlowly);
    let shown = at_a_terminal(&["trim".as_ref(), bed.dir.as_os_str()]);
    bed.disk.set_manner(Manner::Honest);
    assert!(shown.contains("discarding [") && shown.contains("iB/s "), "{shown:?}");
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"kept");
}

#[test]
fn a_rescue_that_takes_long_shows_how_far_it_is_on_a_terminal() {
    let bed = Bed::new();
    fs::write(bed.path("file"), seeded::bytes(1, 0, 24 << 20)).unwrap();
    umount_at_a_terminal(&bed);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("rescued");
    bed.disk.set_manner(SLOW);
    let shown = at_a_terminal(&["rescue".as_ref(), bed.disk.file().as_os_str(), to.as_os_str()]);
    bed.disk.set_manner(Manner::Honest);
    assert!(shown.contains("copying: 2 objects, ") && shown.contains("iB/s"), "{shown:?}");
    assert!(fs::read(to.join("file")).unwrap() == seeded::bytes(1, 0, 24 << 20));
}

/// A terminal shows it, and who ends the command ends it in the server too.
#[test]
fn a_count_for_a_quota_shows_how_far_it_is_and_ends_with_its_command() {
    const LINKS: u64 = 12_000;
    let bed = Bed::new();
    let dir = bed.path("dir");
    fs::create_dir(&dir).unwrap();
    // Their targets are in the records that are counted, and compress little.
    for number in 0..LINKS {
        let target: String =
            seeded::bytes(number, 0, 4000).iter().map(|byte| char::from(b'0' + byte % 64)).collect();
        std::os::unix::fs::symlink(target, dir.join(number.to_string())).unwrap();
    }
    umount_at_a_terminal(&bed);
    bed.mount();
    let quota = |verb: &str, more: &[&str]| {
        let output = betrfs().args(["quota", verb]).arg(&dir).args(more).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let set = ["quota".as_ref(), "set".as_ref(), dir.as_os_str(), "1G".as_ref()];
    bed.disk.set_manner(SLOW);
    let (master, mut child) = begun_at_a_terminal(&set);
    let mut master = fs::File::from(master);
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("counting what is there: ") {
        let mut part = [0; 4096];
        let len = master.read(&mut part).unwrap();
        shown.extend_from_slice(&part[..len]);
    }
    // It stands still until its client is gone, and meets that before it is done.
    bed.disk.set_manner(Manner::HoldsReads);
    // Who starts the tests in the background may have their processes ignore SIGINT.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    bed.disk.set_manner(SLOW);
    assert!(soon(|| bed.log().contains("betrfs-quota ended before")), "it goes on without its client");
    bed.disk.set_manner(Manner::Honest);
    assert!(!quota("get", &[]).0, "it was set");
    assert!(quota("set", &["2G"]).0);
    let (is_set, told) = quota("get", &[]);
    assert!(is_set && told.contains("2.0 GiB") && told.contains(&LINKS.to_string()), "{told}");
}

#[test]
fn a_check_of_a_store_that_takes_long_shows_how_far_it_is_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (file, held) = (folder.path().join("store"), folder.path().join("held"));
    let store = Store::open(&file).unwrap();
    let pages = store.dict("main").unwrap();
    (0..6000u32).for_each(|page| pages.put(page.to_be_bytes(), seeded::bytes(page.into(), 0, 4000)).unwrap());
    store.close().unwrap();
    let disk = on_a_disk(&File::open(&file).unwrap());
    fs::create_dir(&held).unwrap();
    let disk = RecordedDisk::serve(disk, &held);
    disk.set_manner(Manner::ReadsSlowlyBefore(u64::MAX));
    let shown = at_a_terminal(&["kv".as_ref(), disk.file().as_os_str(), "check".as_ref()]);
    assert!(shown.contains("checking [") && shown.contains("/s "), "{shown:?}");
}

/// A disk with the contents of a file, most of which is a hole.
fn on_a_disk(file: &File) -> SimDisk {
    let disk = SimDisk::new(file.metadata().unwrap().len());
    let mut at = 0;
    while let Ok(from) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, SeekFrom::Hole(from)).unwrap();
        let mut part = vec![0; (at - from) as usize];
        file.read_exact_at(&mut part, from).unwrap();
        disk.write_at(from, &part).unwrap();
    }
    disk.sync().unwrap();
    disk
}
