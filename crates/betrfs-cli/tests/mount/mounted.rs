//! A volume on a mount by the real binary. Each test has a process, a mount namespace and temporary files of
//! its own, and an end if it hangs: see setup/run-test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use tempfile::TempDir;

/// The binary under test.
pub fn betrfs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
    command.stdin(Stdio::null());
    command
}

/// Runs the binary with arguments to its end.
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    betrfs().args(arguments).output().unwrap()
}

/// A command's standard error.
pub fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that a command succeeded.
pub fn ok(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, told(output));
}

/// Asserts that a command failed with exit code 1 and a message with each of the words.
pub fn refused(output: &Output, words: &[&str]) {
    ended_with(output, 1, words);
}

/// Asserts that a check could not be made.
pub fn check_failed(output: &Output, words: &[&str]) {
    ended_with(output, 8, words);
}

/// Asserts that a check found damage.
pub fn is_damaged(output: &Output, words: &[&str]) {
    ended_with(output, 4, words);
}

/// Asserts that a command failed with this exit code and a message with each of the words.
pub fn ended_with(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{}", told(output));
    for word in words {
        assert!(told(output).contains(word), "`{word}` is not in: {}", told(output));
    }
    assert!(!told(output).contains("panicked"), "{}", told(output));
}

/// A volume and a directory to mount it on, both gone when it is dropped.
pub struct Mounted {
    pub volume: PathBuf,
    pub dir: PathBuf,
    temp: TempDir,
}

impl Mounted {
    /// A volume of 1 GiB, not mounted yet.
    pub fn unmounted() -> Mounted {
        Mounted::of_size("1G")
    }

    /// A volume of a size, not mounted yet.
    pub fn of_size(size: &str) -> Mounted {
        let temp = tempfile::tempdir().unwrap();
        let (volume, dir) = (temp.path().join("volume"), temp.path().join("mnt"));
        std::fs::create_dir(&dir).unwrap();
        ok(&betrfs().arg("mkfs").arg(&volume).args(["--size", size]).output().unwrap());
        Mounted { volume, dir, temp }
    }

    /// A volume of 1 GiB, mounted.
    pub fn new() -> Mounted {
        let mounted = Mounted::unmounted();
        mounted.mount();
        mounted
    }

    /// Mounts it.
    pub fn mount(&self) {
        ok(&self.try_mount(&[]));
    }

    /// Mounts it with a node cache of this size.
    pub fn mount_with_cache(&self, size: &str) {
        ok(&self.try_mount(&["--cache-size", size]));
    }

    /// Tries to mount it.
    pub fn try_mount(&self, arguments: &[&str]) -> Output {
        let log = self.temp.path().join("log");
        let mut command = betrfs();
        command.arg("mount").arg(&self.volume).arg(&self.dir).arg("--log").arg(log).args(arguments);
        command.output().unwrap()
    }

    /// Unmounts and closes it.
    pub fn umount(&self) {
        let umount = || betrfs().arg("umount").arg(&self.dir).output().unwrap();
        // A child that another thread of the test starts holds its descriptors until it executes.
        let busy = |output: &Output| told(output).contains("in use");
        let tries = std::iter::repeat_with(umount).take(200);
        let mut tries = tries.inspect(|_| thread::sleep(Duration::from_millis(10)));
        // The last refusal, if each try met one.
        ok(&tries.find(|output| !busy(output)).unwrap_or_else(umount));
    }

    /// Unmounts it as umount(8) does.
    pub fn umount_plainly(&self) {
        let unmount = || rustix::mount::unmount(&self.dir, UnmountFlags::NOFOLLOW);
        // As above.
        let tries = std::iter::repeat_with(unmount).take(200);
        let mut tries = tries.inspect(|_| thread::sleep(Duration::from_millis(10)));
        tries.find(|unmounted| *unmounted != Err(Errno::BUSY)).unwrap_or_else(unmount).unwrap();
    }

    /// Unmounts and mounts it.
    pub fn remount(&self) {
        self.umount();
        self.mount();
    }

    /// A path on the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.temp.path().join("log")).unwrap_or_default()
    }

    /// The output of `betrfs stats`.
    pub fn stats(&self) -> serde_json::Value {
        let output = betrfs().arg("stats").arg(&self.dir).args(["--format", "json"]).output().unwrap();
        ok(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The number of kernel requests of each kind during `work`.
    pub fn requests_of(&self, work: impl FnOnce()) -> std::collections::BTreeMap<String, u64> {
        // The first access makes the kernel ask for the root's attributes.
        rustix::fs::stat(&self.dir).unwrap();
        let before = self.stats_after_releases();
        work();
        let after = self.stats_after_releases();
        let names = after["requests"].as_object().unwrap().keys();
        let counts = names.map(|name| (name.clone(), requests_in(&after, name) - requests_in(&before, name)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The output of `betrfs stats` after the RELEASE of each file that this process has closed.
    /// close(2) does not wait for it. Half a second later at most: mappings and other processes hold files.
    pub fn stats_after_releases(&self) -> serde_json::Value {
        let sum = |stats: &serde_json::Value, names: &[&str]| -> u64 {
            names.iter().map(|name| requests_in(stats, name)).sum()
        };
        let is_settled = |stats: &serde_json::Value| {
            let opened = sum(stats, &["open", "opendir", "create", "tmpfile"]);
            opened <= sum(stats, &["release", "releasedir"]) + self.open_files()
        };
        let tries = std::iter::repeat_with(|| self.stats()).take(100);
        let mut tries = tries.inspect(|_| thread::sleep(Duration::from_millis(5)));
        tries.find(is_settled).unwrap_or_else(|| self.stats())
    }

    /// The number of descriptors that this process has on the mount.
    fn open_files(&self) -> u64 {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.starts_with(&self.dir)).count() as u64
    }

    /// The number of queries and scans of the tree during `work`.
    pub fn tree_queries_of(&self, work: impl FnOnce()) -> u64 {
        let total = |stats: &serde_json::Value| -> u64 {
            let kinds = stats["operations"].as_object().unwrap().values();
            kinds.map(|kind| kind["queries"].as_u64().unwrap() + kind["scans"].as_u64().unwrap()).sum()
        };
        let before = total(&self.stats());
        work();
        total(&self.stats()) - before
    }

    /// The server's process.
    pub fn server(&self) -> Pid {
        let pid = self.stats()["pid"].as_i64().unwrap();
        Pid::from_raw(pid as i32).unwrap()
    }

    /// Stops the server, and waits until all of its threads stand still: one after the other heeds a signal.
    pub fn stop_server(&self) -> Stopped {
        let server = self.server();
        rustix::process::kill_process(server, Signal::STOP).unwrap();
        let stopped = Stopped(server);
        let stands_still = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", server.as_raw_nonzero())).unwrap();
            let mut stats = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")));
            // The state follows the name, which stands in parentheses.
            let is_stopped =
                |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
            stats.all(|stat| stat.is_ok_and(is_stopped))
        };
        assert!(soon(stands_still), "the server does not stop");
        stopped
    }

    /// Kills the server, and waits for its end: a signal is sent before it is heeded.
    pub fn kill_server(&self) {
        let server = self.server();
        rustix::process::kill_process(server, Signal::KILL).unwrap();
        wait_for_end(server);
    }

    /// The server's peak resident memory, in KiB.
    pub fn server_memory_kib_max(&self) -> u64 {
        let status = format!("/proc/{}/status", self.server().as_raw_nonzero());
        let status = std::fs::read_to_string(status).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

/// A server that stands still until this is dropped, also where a test fails.
pub struct Stopped(pub Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = rustix::process::kill_process(self.0, Signal::CONT);
    }
}

/// Sets its flag when it is dropped, also where a test fails: other threads end by it, and their scope waits.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The number of kernel requests of a kind in the output of `betrfs stats`.
fn requests_in(stats: &serde_json::Value, name: &str) -> u64 {
    stats["requests"][name]["count"].as_u64().unwrap_or(0)
}

/// Whether a condition comes to hold within 20 seconds: close(2) does not wait for its RELEASE, and a child
/// that another thread starts holds descriptors of this process until it executes.
pub fn soon(holds: impl Fn() -> bool) -> bool {
    let tries = std::iter::repeat_with(holds).take(4000);
    tries
        .inspect(|held| {
            if !held {
                thread::sleep(Duration::from_millis(5))
            }
        })
        .any(|held| held)
}

/// Waits until the kernel's clock for the times of files moves on: what changes afterwards has a later time.
pub fn next_tick() {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        (time.tv_sec, time.tv_nsec)
    };
    let before = now();
    while now() == before {
        thread::yield_now();
    }
}

/// Waits until a child, which goes on, has mounted something on a directory.
pub fn wait_for_mount(dir: &Path, child: &std::process::Child) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let process = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    // A change of the mounts since its last reading is an "exception" of this file.
    let mut mounts = std::fs::File::open("/proc/self/mountinfo").unwrap();
    loop {
        let mut text = String::new();
        std::io::Seek::rewind(&mut mounts).unwrap();
        std::io::Read::read_to_string(&mut mounts, &mut text).unwrap();
        if text.contains(&format!(" {} ", dir.display())) {
            return;
        }
        let mut changes = [PollFd::new(&mounts, PollFlags::PRI), PollFd::new(&process, PollFlags::IN)];
        poll(&mut changes, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap();
        assert!(changes[1].revents().is_empty(), "it ended");
        assert!(!changes[0].revents().is_empty(), "it mounts nothing on {}", dir.display());
    }
}

/// Waits for the end of a process that is not this one's child.
pub fn wait_for_end(pid: Pid) {
    if let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        let mut ended = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ended, Some(&limit)), Ok(1), "the server lives on");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
        detach(&self.dir);
    }
}

fn detach(dir: &Path) {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    // Fails if nothing is mounted, which is no error.
    let _ = rustix::mount::unmount(dir, flags);
}
