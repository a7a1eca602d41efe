//! A mount whose disk does not answer: others go on as far as memory reaches, and nothing is lost.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::bed::Bed;
use crate::mounted::{betrfs, ok, wait_for_end};
use crate::recorded_disk::Manner;

/// The time within which must end what needs no disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which something counts as waiting.
const WAITING: Duration = Duration::from_millis(500);

/// Work on another thread.
struct Work<'a, T> {
    bed: &'a Bed,
    result: Receiver<T>,
    thread: Option<JoinHandle<()>>,
}

impl<T> Drop for Work<'_, T> {
    /// The disk answers before the bed goes: what waits for a disk that has gone keeps this process.
    fn drop(&mut self) {
        if thread::panicking() {
            self.bed.disk.set_manner(Manner::Honest);
        }
        // One that panicked has said so, and sends no result.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn begin<T: Send + 'static>(bed: &Bed, work: impl FnOnce() -> T + Send + 'static) -> Work<'_, T> {
    let (sender, result) = channel();
    let thread = Some(thread::spawn(move || drop(sender.send(work()))));
    Work { bed, result, thread }
}

/// What must end although the disk does not answer.
fn ends<T: Send + 'static>(bed: &Bed, what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let work = begin(bed, work);
    work.result.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: it waits for the disk"))
}

fn write_durably(path: &Path, contents: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(contents).unwrap();
    file.sync_all().unwrap();
}

/// Runs a command, which must succeed although the disk does not answer.
fn command_ends(bed: &Bed, arguments: &[&OsStr]) {
    let mut command = betrfs();
    command.args(arguments);
    let told = format!("{command:?}");
    ok(&ends(bed, &told, move || command.output().unwrap()));
}

fn server(bed: &Bed) -> Pid {
    let output = betrfs().arg("stats").arg(&bed.dir).args(["--format", "json"]).output().unwrap();
    ok(&output);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    Pid::from_raw(stats["pid"].as_i64().unwrap() as i32).unwrap()
}

/// What needs no disk, in a directory that is not there yet: reads, changes of files, commands that tell.
fn use_it(bed: &Bed, durable: &[u8]) {
    let (dir, kept, contents) = (bed.path("dir"), bed.path("kept"), durable.to_vec());
    ends(bed, "a read", move || assert!(fs::read(kept).unwrap() == contents));
    let path = dir.clone();
    ends(bed, "mkdir", move || fs::create_dir(path).unwrap());
    let path = dir.clone();
    ends(bed, "writes of files", move || {
        for number in 0..100 {
            fs::write(path.join(format!("f{number}")), seeded::bytes(number, 0, 3000)).unwrap();
        }
    });
    let path = dir.join("f1");
    ends(bed, "unlink", move || fs::remove_file(path).unwrap());
    let path = dir.clone();
    ends(bed, "a listing", move || assert_eq!(fs::read_dir(path).unwrap().count(), 99));
    let path = dir.join("f3");
    ends(bed, "a read of what is new", move || {
        assert!(fs::read(path).unwrap() == seeded::bytes(3, 0, 3000));
    });
    ends(bed, "statfs", move || assert!(rustix::fs::statvfs(dir).unwrap().f_blocks > 0));
    let dir = bed.dir.as_os_str();
    command_ends(bed, &["list".as_ref()]);
    command_ends(bed, &["stats".as_ref(), dir]);
    command_ends(bed, &["info".as_ref(), dir]);
}

/// What takes the namespace for itself, after [`use_it`].
fn change_names(bed: &Bed) {
    let dir = bed.path("dir");
    let (from, to) = (dir.join("f0"), dir.join("moved"));
    ends(bed, "rename", move || fs::rename(from, to).unwrap());
    let (from, to) = (dir.join("f2"), dir.join("link"));
    ends(bed, "link", move || fs::hard_link(from, to).unwrap());
}

/// Likewise, of whole directories.
fn copy_and_remove(bed: &Bed) {
    let (dir, copy) = (bed.path("dir"), bed.path("copy"));
    command_ends(bed, &["clone".as_ref(), dir.as_os_str(), copy.as_os_str()]);
    command_ends(bed, &["snapshot".as_ref(), "create".as_ref(), dir.as_os_str(), "s".as_ref()]);
    command_ends(bed, &["rm-tree".as_ref(), copy.as_os_str()]);
}

/// Waits until the disk holds a call.
fn wait_until_it_holds(bed: &Bed) {
    let limit = std::time::Instant::now() + PATIENCE;
    while bed.disk.held() == 0 {
        assert!(limit.elapsed().is_zero(), "the disk was not asked");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn while_a_write_or_a_sync_of_the_disk_does_not_return_only_those_wait_that_asked_for_it() {
    let kept = seeded::bytes(1, 0, 200_000);
    for manner in [Manner::HoldsWrites, Manner::HoldsSyncs] {
        let bed = Bed::new();
        write_durably(&bed.path("kept"), &kept);
        bed.disk.set_manner(manner);
        let path = bed.path("waits");
        let waits = begin(&bed, move || write_durably(&path, b"late"));
        wait_until_it_holds(&bed);
        use_it(&bed, &kept);
        change_names(&bed);
        copy_and_remove(&bed);
        assert_eq!(waits.result.recv_timeout(WAITING), Err(RecvTimeoutError::Timeout), "{manner:?}");
        bed.disk.set_manner(Manner::Honest);
        waits.result.recv_timeout(PATIENCE).unwrap();
        assert_eq!(fs::read(bed.path("waits")).unwrap(), b"late");
        ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
        ok(&betrfs().arg("check").arg(bed.disk.file()).output().unwrap());
        bed.mount();
        assert_eq!(fs::read(bed.path("waits")).unwrap(), b"late");
        assert!(fs::read(bed.path("dir/moved")).unwrap() == seeded::bytes(0, 0, 3000), "{manner:?}");
    }
}

#[test]
fn while_a_read_of_the_disk_does_not_return_others_go_on_and_it_ends_with_its_contents() {
    let kept = seeded::bytes(1, 0, 200_000);
    // Larger than what is read ahead, and than a leaf.
    let cold = seeded::bytes(2, 0, 24 << 20);
    let bed = Bed::new();
    write_durably(&bed.path("cold"), &cold);
    ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
    bed.mount();
    write_durably(&bed.path("kept"), &kept);
    // So that what lies below it is in memory.
    assert!(fs::read(bed.path("kept")).unwrap() == kept);
    fs::metadata(bed.path("cold")).unwrap();
    bed.disk.set_manner(Manner::HoldsReads);
    let path = bed.path("cold");
    let waits = begin(&bed, move || fs::read(path).unwrap());
    wait_until_it_holds(&bed);
    use_it(&bed, &kept);
    change_names(&bed);
    // It may have to read, and then waits too; others do not wait for it.
    let mut clone = betrfs();
    clone.arg("clone").arg(bed.path("dir")).arg(bed.path("copy"));
    let cloned = begin(&bed, move || clone.output().unwrap());
    let early = cloned.result.recv_timeout(WAITING).ok();
    // Behind it in the trees.
    let (from, to) = (bed.path("dir/f6"), bed.path("dir/second link"));
    let linked = begin(&bed, move || fs::hard_link(from, to).unwrap());
    let linked_early = linked.result.recv_timeout(WAITING).is_ok();
    let (from, to) = (bed.path("dir/f5"), bed.path("dir/moved too"));
    ends(&bed, "another rename", move || fs::rename(from, to).unwrap());
    assert_eq!(waits.result.recv_timeout(WAITING), Err(RecvTimeoutError::Timeout));
    bed.disk.set_manner(Manner::Honest);
    assert!(waits.result.recv_timeout(PATIENCE).unwrap() == cold);
    assert!(linked_early || linked.result.recv_timeout(PATIENCE).is_ok());
    ok(&early.unwrap_or_else(|| cloned.result.recv_timeout(PATIENCE).unwrap()));
    assert!(fs::read(bed.path("dir/moved too")).unwrap() == seeded::bytes(5, 0, 3000));
    ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
    ok(&betrfs().arg("check").arg(bed.disk.file()).output().unwrap());
}

/// The process stays until the disk has answered, as that of each program whose disk does not.
#[test]
fn a_server_that_is_killed_while_its_disk_does_not_answer_loses_nothing_durable() {
    for manner in [Manner::HoldsWrites, Manner::HoldsSyncs] {
        let bed = Bed::new();
        write_durably(&bed.path("kept"), b"durable");
        let pid = server(&bed);
        bed.disk.set_manner(manner);
        let path = bed.path("waits");
        let waits = begin(&bed, move || File::create(path).and_then(|file| file.sync_all()).is_err());
        wait_until_it_holds(&bed);
        kill_process(pid, Signal::KILL).unwrap();
        bed.disk.set_manner(Manner::Honest);
        wait_for_end(pid);
        assert!(waits.result.recv_timeout(PATIENCE).unwrap(), "{manner:?}: it was said to be durable");
        bed.mount();
        assert_eq!(fs::read(bed.path("kept")).unwrap(), b"durable", "{manner:?}");
        ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
        ok(&betrfs().arg("check").arg(bed.disk.file()).output().unwrap());
    }
}
