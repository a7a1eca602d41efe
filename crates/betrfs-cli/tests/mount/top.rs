//! `betrfs top`: one interval as text, and at a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;

use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::schemas::valid;

const FIRST_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

/// Writes files until a command has ended, so that some of them come between its two questions.
fn write_until_it_ends(mounted: &Mounted, top: &mut Child) {
    let limit = Instant::now() + Duration::from_secs(60);
    for n in 0.. {
        fs::write(mounted.path(format!("file{n}")), [7; 4096]).unwrap();
        if top.try_wait().unwrap().is_some() {
            return;
        }
        assert!(Instant::now() < limit, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn top_prints_one_interval_where_there_is_no_terminal() {
    let mounted = Mounted::new();
    let mut command = betrfs();
    command.arg("top").arg(&mounted.dir).args(["--interval", "3"]).stdout(Stdio::piped());
    let mut top = command.spawn().unwrap();
    write_until_it_ends(&mounted, &mut top);
    let output = top.wait_with_output().unwrap();
    ok(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text:?}");
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with(&format!("{} on {}, up ", mounted.volume.display(), mounted.dir.display())),
        "{text}"
    );
    let line = |begin: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(begin));
        found.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap_or_default()
    };
    // The rate, p50 and p99 with their units, and errors.
    let write = line("write ");
    assert_eq!(write.len(), 7, "{text}");
    assert!(write[1].parse::<f64>().unwrap() > 0.0 && write[6] == "0.0", "{text}");
    let all: f64 = line("all ")[1].parse().unwrap();
    assert!(all >= write[1].parse().unwrap(), "{text}");
    for begin in [
        "state  writable",
        "files   ",
        "tree    ",
        "device  ",
        "write amplification ",
        "cache   ",
        "log     ",
        "room    ",
    ] {
        assert!(!line(begin).is_empty(), "no `{begin}` in\n{text}");
    }
    assert!(!text.contains("amplification - now"), "{text}");
}

#[test]
fn top_prints_one_measurement_as_a_document() {
    let mounted = Mounted::new();
    let mut command = betrfs();
    command.arg("top").arg(&mounted.dir).args(["--once", "--interval", "3", "--format", "json"]);
    let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
    write_until_it_ends(&mounted, &mut top);
    let output = top.wait_with_output().unwrap();
    ok(&output);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid("top", &told);
    assert_eq!(told["volume"].as_str(), mounted.volume.to_str());
    assert_eq!(told["dir"].as_str(), mounted.dir.to_str());
    assert_eq!(told["state"]["is"], "writable");
    let number = |pointer: &str| told.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
    assert!(number("/seconds") >= 3.0, "{told}");
    let write = number("/requests/write/per_second");
    assert!(write > 0.0 && number("/requests_per_second") >= write, "{told}");
    let (p50, p99) = (number("/requests/write/p50_ns"), number("/requests/write/p99_ns"));
    assert!(p50 > 0.0 && p99 >= p50 && number("/requests/write/errors_per_second") == 0.0, "{told}");
    // Each wrote 4 KiB; of one that is under way only a part may be counted.
    let bytes = number("/files/write_bytes_per_second");
    assert!((bytes - write * 4096.0).abs() < 2.0 * 4096.0, "{told}");
    assert!(told["write_amplification"]["now"].is_number() && number("/room/total_bytes") > 0.0, "{told}");
}

#[test]
fn top_at_a_terminal_shows_frames_until_q_and_leaves_it_as_it_was() {
    let mounted = Mounted::new();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ioctl_tiocgptpeer(&master, flags).unwrap();
    let before = tcgetattr(&terminal).unwrap();
    let mut command = betrfs();
    command.arg("top").arg(&mounted.dir).args(["--interval", "0.2"]);
    command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap());
    let mut top = command.spawn().unwrap();
    drop(command);
    let master = File::from(master);
    let mut shown = String::new();
    let mut read_until = |end: &dyn Fn(&str) -> bool| {
        while !end(&shown) {
            let mut piece = [0; 4096];
            let count = (&master).read(&mut piece).unwrap();
            assert!(count > 0, "{shown:?}");
            shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        shown.clone()
    };
    let modes = || tcgetattr(&terminal).unwrap().local_modes;
    let told = read_until(&|shown| shown.matches("write amplification").count() >= 2);
    assert!(told.starts_with("\x1b[?1049h\x1b[?25l") && !told.contains(FIRST_SCREEN), "{told:?}");
    assert!(!modes().intersects(LocalModes::ICANON | LocalModes::ECHO), "{:?}", modes());
    // Any other key only makes it ask at once.
    (&master).write_all(b" ").unwrap();
    read_until(&|shown| shown.matches("write amplification").count() >= 3);
    (&master).write_all(b"q").unwrap();
    assert!(top.wait().unwrap().success());
    let told = read_until(&|shown| shown.contains(FIRST_SCREEN));
    assert!(told.ends_with(FIRST_SCREEN), "{told:?}");
    assert_eq!(modes(), before.local_modes);
}

#[test]
fn top_refuses_what_is_no_mount_and_no_interval() {
    let dir = tempfile::tempdir().unwrap();
    let top = |more: &[&str]| betrfs().arg("top").arg(dir.path()).args(more).output().unwrap();
    refused(&top(&["--once"]), &["no BetrFS volume is mounted on"]);
    ended_with(&top(&["--interval", "0"]), 2, &["0.1 to 3600"]);
    ended_with(&top(&["--format", "json"]), 2, &["give --once with --format json"]);
}
