//! A killed run, and the cleaning up by the next one.
#![allow(clippy::unwrap_used)] // Also in helpers outside of `#[test]` functions.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit of a run, which may have to wait for another run's figure on this machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// The file that runs lock while they measure.
const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";

/// A run on ext4 on an emulated disk. Its `betrfs` is a program that fails.
fn run_in(dir: &Path) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_betrfs-bench"));
    run.args(["create", "--scale", "tiny", "--rounds", "1", "--disk", "hdd", "--peers", "ext4"]);
    run.args(["--betrfs", "/bin/false", "--dir"]).arg(dir);
    run
}

/// The record of the run in a directory, if it is there and whole.
fn record_of_run_in(dir: &Path) -> Option<Value> {
    let records = std::fs::read_dir("/run/betrfs-bench").ok()?;
    let whole = |path: PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok();
    let mut records = records.filter_map(|record| whole(record.ok()?.path()));
    records.find(|record| record["scratch"].as_str().is_some_and(|held| Path::new(held).starts_with(dir)))
}

fn mounts_below(dir: &Path) -> usize {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let is_below =
        |line: &&str| line.split(' ').nth(1).is_some_and(|mount| Path::new(mount).starts_with(dir));
    mounts.lines().filter(is_below).count()
}

fn file_of_loop_device(device: &str) -> Option<PathBuf> {
    let name = Path::new(device).file_name().unwrap().to_str().unwrap();
    let file = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(file.trim()))
}

/// The state and the parent of each process or thread listed in a directory of `/proc`.
fn states(dir: &Path) -> Vec<(char, u32)> {
    let stats = std::fs::read_dir(dir).unwrap();
    // Processes that have ended meanwhile cannot be read.
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("stat")).ok());
    let state = |stat: String| {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
    };
    stats.filter_map(state).collect()
}

/// Whether a stopped run has come to a halt while it works on ext4 itself: it has one child, the emulated
/// disk. Another child, just forked, would still hold its record, or might unmount ext4.
fn is_halted_at_work(run: &Child, dir: &Path) -> bool {
    let start = Instant::now();
    let tasks = PathBuf::from(format!("/proc/{}/task", run.id()));
    // A thread that waits for a child to start stops only after that; an ended thread never stops.
    while !states(&tasks).iter().all(|(state, _)| matches!(state, 'T' | 'Z')) {
        assert!(start.elapsed() < PATIENCE, "the run does not stop");
        thread::sleep(Duration::from_millis(1));
    }
    let children = states(Path::new("/proc")).iter().filter(|(_, parent)| *parent == run.id()).count();
    children == 1 && mounts_below(dir) == 2
}

/// A run that is killed where a test fails: a stopped one would hold its locks, for which others wait.
struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_next_run_undoes_what_a_killed_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut killed = KilledAtEnd(run_in(dir.path()).stdout(Stdio::null()).spawn().unwrap());
    let start = Instant::now();
    let held = loop {
        let run = &mut killed.0;
        assert_eq!(run.try_wait().unwrap(), None, "the run ended before it was killed");
        if mounts_below(dir.path()) == 2 {
            kill_process(Pid::from_child(run), Signal::STOP).unwrap();
            if is_halted_at_work(run, dir.path())
                && let Some(held) = record_of_run_in(dir.path())
            {
                break held;
            }
            kill_process(Pid::from_child(run), Signal::CONT).unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "the run does not come to mount anything");
        thread::sleep(Duration::from_millis(1));
    };
    drop(killed);
    let device = held["loop_devices"][0].as_str().unwrap();
    assert!(file_of_loop_device(device).is_some(), "nothing was left to undo");
    assert!(mounts_below(dir.path()) > 0, "nothing was left to undo");

    let next = run_in(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(said.contains("undoing what a run left"), "{said}");
    assert!(said.contains("create on ext4, round 1"), "it did not come to measure: {said}");
    assert_eq!(mounts_below(dir.path()), 0);
    assert_eq!(file_of_loop_device(device), None);
    assert!(record_of_run_in(dir.path()).is_none());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    // No other run sets it meanwhile.
    let alone = File::open(DIRTY_BYTES).unwrap();
    alone.lock().unwrap();
    if let [path, value] = held["memory_limit"]["sysctl"].as_array().map_or(&[][..], Vec::as_slice) {
        assert_eq!(std::fs::read_to_string(path.as_str().unwrap()).unwrap(), value.as_str().unwrap());
    }
    for group in held["memory_limit"]["groups"].as_array().into_iter().flatten() {
        assert!(!Path::new(group["dir"].as_str().unwrap()).exists());
    }
}
