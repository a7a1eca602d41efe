//! What a terminal shows of an unmount and of a replay that take long.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::bed::Bed;
use crate::mounted::{betrfs, ok, wait_for_end};
use crate::recorded_disk::Manner;

/// Runs a command with standard error at a terminal; returns what that shows.
fn at_a_terminal(arguments: &[&OsStr]) -> String {
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
    let mut child = command.env("TERM", "xterm").spawn().unwrap();
    // It has the terminal's end too.
    drop(command);
    let shown = all_of(master);
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
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
