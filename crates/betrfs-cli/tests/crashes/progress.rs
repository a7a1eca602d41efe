//! What a terminal shows of an unmount that takes long.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::bed::Bed;
use crate::mounted::betrfs;
use crate::recorded_disk::Manner;

/// Runs `betrfs umount` with standard error at a terminal; returns what that shows.
fn umount_at_a_terminal(bed: &Bed) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal.as_fd(), size).unwrap();
    let mut command = betrfs();
    command.arg("umount").arg(&bed.dir).stdout(Stdio::null()).stderr(terminal);
    let mut child = command.env("TERM", "xterm").spawn().unwrap();
    // It has the terminal's end too.
    drop(command);
    let shown = all_of(master);
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
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
