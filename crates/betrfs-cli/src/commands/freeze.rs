//! `betrfs freeze`: holds changes of a mounted volume, while its file is copied.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use betrfs_fuse::{BEGIN_TIME_MAX, FreezeError, Line, MountEntry, NotFrozen, Status};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::{stats, sync};
use crate::failure::{Failure, Kind, Outcome};
use crate::format::print;

/// How long to wait until the volume stands still: what is in memory is written before changes are held.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Interval between two looks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Hold all changes of a mounted volume while its file or block device is copied
#[derive(clap::Args)]
#[command(after_help = "\
When it returns, the volume's file or block device is as after an unmount, with all that was written before, to mappings \
too, and nothing writes to it: a copy of it (cp, dd, a snapshot of the storage below) opens without a replay of its log. \
Reads go on. Changes wait until `betrfs thaw`, or until the time is over, and then succeed; so do commands that write \
(`label`, `trim`, `resize`) or want a checkpoint (`df`, `check`, `scrub`, `backup`). Processes whose changes wait cannot be killed meanwhile, and a directory in which one makes or removes a name cannot be \
listed: the kernel has it locked. \
As many as 512 changes wait without holding up reads (fewer, half of the limit of open files of the server, if that is lower); \
reads ahead wait behind 64 writes of pages of mappings. \
With a command it freezes, runs the command, and thaws when that ends; its exit code is that of the command (128 and the \
signal's number if one ended it). It fails if the time was over before: the copy may then be of several moments. \
An unmount thaws first. Only root and the user who mounted the volume may.

Examples:
  betrfs freeze /mnt -- cp --sparse=always /srv/data.betrfs /backup/
  betrfs freeze /mnt --for 10 && lvcreate -s -L 1G -n copy vg/data; betrfs thaw /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// Thaw by itself after so many seconds; 0: only by a thaw
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Run this while the volume stands still
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let dir = &arguments.dir;
    let mount = stats::mount_at(dir)?;
    let status = Status::ask(&mount).map_err(|why| stats::unheard(dir, &why))?;
    if status.state.is == "frozen" {
        // A sync would wait for its end.
        return Err(failed("freeze", dir, &NotFrozen::Failed(FreezeError::Busy.to_string())));
    }
    // What is in mappings comes to the server before.
    sync::run_at(dir)?;
    let time = (arguments.seconds > 0).then(|| Duration::from_secs(arguments.seconds));
    let Some((program, rest)) = arguments.command.split_first() else {
        freeze(dir, &mount, time)?;
        let ends = time.map_or_else(String::new, |time| format!(", or {} s from now", time.as_secs()));
        return print(format_args!("{}: frozen until `betrfs thaw`{ends}", dir.display()));
    };
    let signals = Signals::held()?;
    let number = freeze(dir, &mount, time)?;
    let ended = Command::new(program)
        .args(rest)
        .spawn()
        .and_then(|child| signals.wait(child))
        .map_err(|error| Failure::new(format!("cannot run {}: {error}", program.display())));
    let thawed = thaw(dir, &mount, Some(number));
    let status = ended?;
    thawed.map_err(|failure| {
        Failure::of(
            failure.kind(),
            format!("{failure}: the freeze had ended before the command did ({status}), whose copy may be of several moments"),
        )
    })?;
    match code_of(status) {
        0 => Ok(()),
        code => std::process::exit(code),
    }
}

/// Has the server of a mount freeze its volume; returns the number of the freeze.
fn freeze(dir: &Path, mount: &MountEntry, time: Option<Duration>) -> Result<u64, Failure> {
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    line.freeze(time, WAIT_MAX + BEGIN_TIME_MAX).map_err(|error| failed("freeze", dir, &error))
}

/// Has the server of a mount end a freeze, and waits for its end.
pub fn thaw(dir: &Path, mount: &MountEntry, number: Option<u64>) -> Outcome {
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    line.thaw(mount, number).map_err(|error| failed("thaw", dir, &error))
}

fn failed(doing: &str, dir: &Path, error: &NotFrozen) -> Failure {
    match error {
        NotFrozen::Unheard(why) => stats::unheard(dir, why),
        NotFrozen::Failed(why) => {
            Failure::of(Kind::Other, format!("cannot {doing} {}: {why}", dir.display()))
        }
    }
}

/// A shell's exit code for the end of a process.
fn code_of(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// The signals that would end this process before the thaw.
struct Signals {
    /// Whether the command is to end.
    ended: Arc<AtomicBool>,
}

impl Signals {
    fn held() -> Result<Signals, Failure> {
        // From a terminal, which sends it to the command too.
        signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended))?;
        }
        Ok(Signals { ended })
    }

    /// Waits for the end of the command, and hands a request to end down to it.
    fn wait(&self, mut child: Child) -> std::io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.ended.swap(false, Ordering::AcqRel)
                && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                rustix::process::kill_process(pid, Signal::TERM)?;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
