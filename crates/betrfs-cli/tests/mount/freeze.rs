//! `betrfs freeze` and `thaw`: the volume's file stands still while it is copied, reads go on, and changes
//! wait.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::mapping::Mapping;
use crate::mounted::{Mounted, SetOnDrop, betrfs, ended_with, ok, refused, told, wait_for_end};
use crate::schemas::valid;

const WRITERS: usize = 8;
const WAITING: usize = 64;

/// Until the thaw, however long a busy machine takes: the tests thaw also where they fail.
const FOR_LONG: &[&str] = &["--for", "0"];

const TRANSPORTS: [&str; 2] = ["device", "io_uring"];

/// A volume of 64 MiB, mounted with this transport.
fn mounted_by(transport: &str) -> Mounted {
    let mounted = Mounted::of_size("64M");
    mount_by(&mounted, transport);
    mounted
}

fn mount_by(mounted: &Mounted, transport: &str) {
    let mut command = betrfs();
    command.env("BETRFS_TRANSPORT", transport).arg("mount").arg(&mounted.volume).arg(&mounted.dir);
    ok(&command.arg("--log").arg(mounted.volume.with_file_name("log")).output().unwrap());
}

fn freeze(mounted: &Mounted, arguments: &[&str]) -> Output {
    betrfs().arg("freeze").arg(&mounted.dir).args(arguments).output().unwrap()
}

fn thaw(mounted: &Mounted) -> Output {
    betrfs().arg("thaw").arg(&mounted.dir).output().unwrap()
}

/// The state of the mount, and the number of changes that wait.
fn state(mounted: &Mounted) -> (String, u64) {
    let state = mounted.stats()["state"].clone();
    let why = state["why"].as_str().unwrap_or_default();
    let waiting = why.split("; ").nth(1).and_then(|words| words.split(' ').next()?.parse().ok());
    (state["is"].as_str().unwrap().to_owned(), waiting.unwrap_or(0))
}

fn wait_until(is_so: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < limit, "it never comes");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Thaws where a test fails, so that the failure is told: its scope waits for those who wait for the thaw.
struct ThawAtEnd<'m>(&'m Mounted);

impl Drop for ThawAtEnd<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // It may be thawed already.
            let _ = betrfs().arg("thaw").arg(&self.0.dir).output();
        }
    }
}

/// What `betrfs info` says of a closed volume.
fn closed_state(volume: &Path) -> Value {
    let output = betrfs().arg("info").arg(volume).args(["--format", "json"]).output().unwrap();
    ok(&output);
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    info["state"].clone()
}

fn copy_of(mounted: &Mounted, name: &str) -> PathBuf {
    let copy = mounted.volume.with_file_name(name);
    fs::copy(&mounted.volume, &copy).unwrap();
    copy
}

/// Mounts a copy for reading.
fn mounted_copy(copy: &Path) -> Mounted {
    let mut mounted = Mounted::of_size("64M");
    mounted.volume = copy.to_owned();
    ok(&mounted.try_mount(&["-o", "ro"]));
    mounted
}

/// The numbers in a file that was only appended to.
fn numbers(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    bytes.chunks(8).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect()
}

#[test]
fn copies_of_a_frozen_volume_are_equal_open_clean_and_have_all_that_was_written_before() {
    for transport in TRANSPORTS {
        let mounted = mounted_by(transport);
        // The kernel locks a directory in which a name is made or removed.
        for dir in ["d", "made", "removed"] {
            fs::create_dir(mounted.path(dir)).unwrap();
        }
        let late: Vec<_> = (0..WAITING).map(|late| mounted.path(format!("late{late}"))).collect();
        late.iter().for_each(|path| drop(File::create(path).unwrap()));
        for file in 0..20u64 {
            fs::write(mounted.path(format!("d/{file}")), seeded::bytes(file, 0, 20_000)).unwrap();
        }
        // Children of this process close its files before they execute, and a close waits for changes by a
        // mapping: only the mapping keeps the file open.
        let mapping_of = |name: &str, bytes| {
            Mapping::of(&File::options().read(true).write(true).open(mounted.path(name)).unwrap(), bytes)
        };
        let mut mapping = mapping_of("d/0", 4096);
        mapping[..6].copy_from_slice(b"mapped");
        let file = File::open(mounted.path("d/0")).unwrap();
        let is_over = AtomicBool::new(false);
        let written: [AtomicU64; WRITERS] = Default::default();
        let made = AtomicU64::new(0);
        let goes_on = || !is_over.load(Ordering::Relaxed);
        let goes_on = &goes_on;
        let write_late = |path: &Path| File::options().write(true).open(path)?.write_all(b"late");
        thread::scope(|scope| {
            let (_over, _thawed) = (SetOnDrop(&is_over), ThawAtEnd(&mounted));
            for (writer, written) in written.iter().enumerate() {
                let path = mounted.path(format!("writer{writer}"));
                scope.spawn(move || {
                    let mut file = File::options().append(true).create(true).open(path).unwrap();
                    for number in (1u64..).take_while(|_| goes_on()) {
                        file.write_all(&number.to_le_bytes()).unwrap();
                        written.store(number, Ordering::Release);
                        if writer == 0 {
                            file.sync_data().unwrap();
                        }
                    }
                });
            }
            scope.spawn(|| {
                for number in (1u64..).take_while(|_| goes_on()) {
                    fs::write(mounted.path(format!("made/{number}")), number.to_le_bytes()).unwrap();
                    made.store(number, Ordering::Release);
                }
            });
            scope.spawn(|| {
                for number in (1u64..).take_while(|_| goes_on()) {
                    fs::write(mounted.path("removed/file"), number.to_le_bytes()).unwrap();
                    fs::remove_file(mounted.path("removed/file")).unwrap();
                }
            });
            scope.spawn(|| {
                let mut mapping = mapping_of("d/1", 16 << 10);
                for number in (0u8..=u8::MAX).cycle().take_while(|_| goes_on()) {
                    mapping.fill(number);
                    mapping.sync().unwrap();
                }
            });
            wait_until(|| written.iter().all(|written| written.load(Ordering::Acquire) > 5));
            wait_until(|| made.load(Ordering::Acquire) > 5);
            let acknowledged = written.each_ref().map(|written| written.load(Ordering::Acquire));
            let made_before = made.load(Ordering::Acquire);
            ok(&freeze(&mounted, FOR_LONG));

            let late_writers: Vec<_> =
                late.iter().map(|path| scope.spawn(move || write_late(path).unwrap())).collect();
            // With the writers the maker, the remover and the one with a mapping.
            wait_until(|| state(&mounted).1 >= (WAITING + WRITERS + 3) as u64);
            let first = copy_of(&mounted, "first");
            // Reads go on: of what is in the kernel's pages and of what is not.
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            for file in 2..20u64 {
                assert!(
                    fs::read(mounted.path(format!("d/{file}"))).unwrap() == seeded::bytes(file, 0, 20_000)
                );
            }
            assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 20);
            assert!(mounted.path("d/7").metadata().unwrap().is_file() && !mounted.path("d/none").exists());
            assert!(fs::read_dir(&mounted.dir).unwrap().count() >= WAITING);
            thread::sleep(Duration::from_millis(200));
            let second = copy_of(&mounted, "second");
            assert!(
                fs::read(&first).unwrap() == fs::read(&second).unwrap(),
                "{transport}: the copies differ"
            );
            assert!(late_writers.iter().all(|writer| !writer.is_finished()), "{transport}");
            ok(&thaw(&mounted));
            late_writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert_eq!(state(&mounted).0, "writable");
            let goal = made.load(Ordering::Acquire) + 5;
            wait_until(|| made.load(Ordering::Acquire) > goal);
            is_over.store(true, Ordering::Relaxed);

            assert_eq!(closed_state(&first), "closed", "{transport}");
            ok(&betrfs().arg("check").arg(&first).output().unwrap());
            let copy = mounted_copy(&first);
            assert_eq!(&fs::read(copy.path("d/0")).unwrap()[..6], b"mapped");
            for (writer, before) in acknowledged.into_iter().enumerate() {
                let numbers = numbers(&copy.path(format!("writer{writer}")));
                assert!(
                    numbers.len() as u64 >= before && numbers.iter().copied().eq(1..=numbers.len() as u64)
                );
            }
            for number in 1..=made_before {
                assert_eq!(numbers(&copy.path(format!("made/{number}"))), [number]);
            }
            assert!((0..WAITING).all(|late| fs::read(copy.path(format!("late{late}"))).unwrap().is_empty()));
            copy.umount();
            for path in &late {
                assert_eq!(fs::read(path).unwrap(), b"late");
            }
        });
        // Each write once, and in its order.
        for (writer, written) in written.iter().enumerate() {
            let all = written.load(Ordering::Acquire);
            assert!(numbers(&mounted.path(format!("writer{writer}"))).into_iter().eq(1..=all), "{transport}");
        }
        drop((mapping, file));
        mounted.umount();
        ok(&betrfs().arg("check").arg(&mounted.volume).output().unwrap());
    }
}

/// More changes than the server has threads, at once, so that some find none free.
#[test]
fn many_changes_at_once_hold_no_read_up() {
    const MANY: usize = 300;
    for transport in TRANSPORTS {
        let mounted = mounted_by(transport);
        fs::write(mounted.path("file"), b"text").unwrap();
        let paths: Vec<_> = (0..MANY).map(|number| mounted.path(format!("f{number}"))).collect();
        let files: Vec<_> = paths.iter().map(|path| File::create(path).unwrap()).collect();
        ok(&freeze(&mounted, FOR_LONG));
        thread::scope(|scope| {
            let _thawed = ThawAtEnd(&mounted);
            let writers: Vec<_> =
                files.iter().map(|mut file| scope.spawn(move || file.write_all(b"late").unwrap())).collect();
            for number in 0..100 {
                assert!(!mounted.path(format!("none{number}")).exists());
            }
            wait_until(|| state(&mounted).1 == MANY as u64);
            assert_eq!(fs::read(mounted.path("file")).unwrap(), b"text");
            assert_eq!(fs::read_dir(&mounted.dir).unwrap().count(), MANY + 1, "{transport}");
            assert!(!mounted.path("none").exists());
            assert!(writers.iter().all(|writer| !writer.is_finished()));
            ok(&thaw(&mounted));
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
        drop(files);
        paths.iter().for_each(|path| assert_eq!(fs::read(path).unwrap(), b"late"));
        // A second time, with the threads that are there.
        ok(&freeze(&mounted, FOR_LONG));
        thread::scope(|scope| {
            let _thawed = ThawAtEnd(&mounted);
            let remover = scope.spawn(|| fs::remove_file(mounted.path("file")).unwrap());
            wait_until(|| state(&mounted).1 == 1);
            assert!(!remover.is_finished());
            ok(&thaw(&mounted));
        });
        assert!(!mounted.path("file").exists());
        mounted.umount();
    }
}

#[test]
fn a_freeze_ends_with_its_time_and_is_told_meanwhile() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    refused(&thaw(&mounted), &["not frozen"]);
    // Longer than all that is asked meanwhile takes.
    let output = freeze(&mounted, &["--for", "60"]);
    ok(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("frozen until `betrfs thaw`, or 60 s from now"));
    let shown = mounted.stats();
    valid("stats", &shown);
    assert_eq!(shown["state"]["is"], "frozen");
    for (command, place) in [("info", "/state"), ("list", "/mounts")] {
        let mut asked = betrfs();
        asked.arg(command).args(["--format", "json"]);
        if command == "info" {
            asked.arg(&mounted.dir);
        }
        let output = asked.output().unwrap();
        let document = serde_json::from_slice(&output.stdout).unwrap();
        valid(command, &document);
        assert!(document.pointer(place).unwrap().to_string().contains("frozen"), "{document}");
    }
    refused(&freeze(&mounted, &[]), &["frozen already", "EBUSY"]);
    ok(&thaw(&mounted));
    ok(&freeze(&mounted, &["--for", "2"]));
    // Until the time is over.
    fs::write(mounted.path("late"), b"late").unwrap();
    assert_eq!(state(&mounted).0, "writable");
    // Changes go on a moment before nothing is left of the freeze, which is told then.
    wait_until(|| mounted.log().contains("thawed, as the time of the freeze is over"));
    refused(&thaw(&mounted), &["not frozen"]);
    mounted.umount();
}

/// The kernel has the directory locked for the change that waits, so that nothing can be looked up in it.
#[test]
fn info_shows_a_frozen_directory_in_which_a_change_waits() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    ok(&freeze(&mounted, FOR_LONG));
    thread::scope(|scope| {
        let _thawed = ThawAtEnd(&mounted);
        scope.spawn(|| fs::create_dir(mounted.path("late")).unwrap());
        wait_until(|| state(&mounted).1 == 1);
        let mut info = Command::new("timeout");
        let shown = info.args(["20", env!("CARGO_BIN_EXE_betrfs"), "info"]).arg(&mounted.dir).output();
        ok(&thaw(&mounted));
        let shown = shown.unwrap();
        ok(&shown);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("frozen"));
    });
    mounted.umount();
}

#[test]
fn a_command_runs_while_the_volume_stands_still_and_gives_its_exit_code() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    fs::write(mounted.path("file"), b"text").unwrap();
    let copy = mounted.volume.with_file_name("copy");
    let (volume, copied) = (mounted.volume.to_str().unwrap(), copy.to_str().unwrap());
    ok(&freeze(&mounted, &["--", "cp", "--sparse=always", volume, copied]));
    assert_eq!(state(&mounted).0, "writable");
    assert_eq!(closed_state(&copy), "closed");
    for (script, code) in [("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
        let output = freeze(&mounted, &["--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        assert_eq!(state(&mounted).0, "writable");
    }
    ended_with(&freeze(&mounted, &["--", "/no/such/program"]), 1, &["/no/such/program"]);
    assert_eq!(state(&mounted).0, "writable");
    // The time was over before: the copy may be of several moments.
    ended_with(
        &freeze(&mounted, &["--for", "1", "--", "sleep", "3"]),
        1,
        &["had ended before the command did"],
    );
    // A request to end reaches the command, and the volume thaws.
    let mut command = betrfs();
    let command = command.arg("freeze").arg(&mounted.dir).args(["--", "sleep", "60"]);
    let child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(|| state(&mounted).0 == "frozen");
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(128 + 15));
    assert_eq!(state(&mounted).0, "writable");
    fs::write(mounted.path("file"), b"later").unwrap();
    mounted.umount();
}

#[test]
fn a_server_that_is_killed_while_frozen_leaves_a_closed_volume_and_no_change_that_waited() {
    for transport in TRANSPORTS {
        let mounted = mounted_by(transport);
        fs::write(mounted.path("before"), b"text").unwrap();
        let server = mounted.server();
        ok(&freeze(&mounted, FOR_LONG));
        thread::scope(|scope| {
            let _thawed = ThawAtEnd(&mounted);
            let late = scope.spawn(|| fs::write(mounted.path("late"), b"late"));
            wait_until(|| state(&mounted).1 == 1);
            kill_process(server, Signal::KILL).unwrap();
            wait_for_end(server);
            assert!(late.join().unwrap().is_err(), "{transport}: a change that waited was acknowledged");
        });
        // Its mount is dead, and still there.
        assert_eq!(closed_state(&copy_of(&mounted, "left")), "closed", "{transport}");
        mount_by(&mounted, transport);
        assert_eq!(fs::read(mounted.path("before")).unwrap(), b"text");
        assert!(!mounted.path("late").exists());
        mounted.umount();
    }
}

#[test]
fn an_unmount_and_a_signal_thaw_first() {
    for transport in TRANSPORTS {
        let mounted = mounted_by(transport);
        ok(&freeze(&mounted, FOR_LONG));
        thread::scope(|scope| {
            let _thawed = ThawAtEnd(&mounted);
            let late = scope.spawn(|| fs::write(mounted.path("late"), b"late").unwrap());
            wait_until(|| state(&mounted).1 == 1);
            // It may still be in use for a moment by the change that waited.
            let first = betrfs().arg("umount").arg(&mounted.dir).output().unwrap();
            assert!(told(&first).contains("was frozen"), "{}", told(&first));
            late.join().unwrap();
            if !first.status.success() {
                mounted.umount();
            }
        });
        assert_eq!(closed_state(&mounted.volume), "closed");
        mount_by(&mounted, transport);
        assert_eq!(fs::read(mounted.path("late")).unwrap(), b"late");
        let server = mounted.server();
        ok(&freeze(&mounted, FOR_LONG));
        kill_process(server, Signal::TERM).unwrap();
        wait_for_end(server);
        assert_eq!(closed_state(&mounted.volume), "closed");
        // By umount(2) itself: the answer to DESTROY, or the end of the connection, thaws.
        mount_by(&mounted, transport);
        let server = mounted.server();
        ok(&freeze(&mounted, FOR_LONG));
        mounted.umount_plainly();
        wait_for_end(server);
        assert_eq!(closed_state(&mounted.volume), "closed");
    }
}
