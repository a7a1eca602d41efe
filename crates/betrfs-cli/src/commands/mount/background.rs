//! The server in the background: a second process of this program, in a session of its own.
//!
//! A process with threads cannot be forked safely, so the program is started anew. It announces on its
//! standard output, a pipe, whether the start succeeded, and then closes the pipe. If the starter asks for
//! it, lines before that tell how far the replay of the volume's log is.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use betree::ReplayProgress;
use betree_std::{ALLOCATOR, FileDevice};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Arguments;
use crate::failure::{Failure, Kind, Outcome};
use crate::output;
use crate::path::absolute;
use crate::place::{Place, itself};
use crate::replay;

/// The announcement when the mount answers. Else it is the kind of the failure and its sentence.
const READY: &str = "ready\n";
/// The first word of a line about the replay; the bytes that are done, and all of them, follow.
const REPLAYED: &str = "replayed ";
/// The time between two such lines. A starter that is stopped reads none: the pipe holds those of some
/// minutes.
const REPLAYED_EVERY: Duration = Duration::from_millis(200);

/// Makes sure that this process, the server itself, has the allocator's settings in its environment. The
/// allocator reads them once, at the start, so this replaces the process if they are missing.
pub fn set_allocator() -> Outcome {
    if ALLOCATOR.iter().all(|(name, _)| std::env::var_os(name).is_some()) {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        // The program's name may stand for a command.
        command.arg0(name);
    }
    Err(command.args(arguments).envs(ALLOCATOR).exec().into())
}

/// Starts a server and waits until its mount answers. It mounts the open `volume`, or what is at the path.
pub fn start(arguments: &Arguments, path: &Path, volume: Option<Arc<FileDevice>>, verbose: u8) -> Outcome {
    let log = match &arguments.log {
        Some(log) => open_log(log, path)
            .map(Stdio::from)
            .map_err(|why| Failure::new(format!("cannot write the log {}: {why}", log.display())))?,
        None => Stdio::null(),
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.envs(ALLOCATOR);
    command.arg("mount").arg("--server");
    command.args(arguments.log.is_none().then_some("--to-syslog"));
    command.args(arguments.accept_log_loss.then_some("--accept-log-loss"));
    command.args(arguments.cache_size.map(|bytes| format!("--cache-size={bytes}")));
    command.args(arguments.metrics.map(|address| format!("--metrics={address}")));
    command.arg("-s").arg("-o").arg(&arguments.all_options()?.text);
    command.args(std::iter::repeat_n("--verbose", usize::from(verbose)));
    command.args(volume.is_some().then_some("--volume-is-open"));
    command.args(io::stderr().is_terminal().then_some("--replay-progress"));
    let input = match &volume {
        Some(volume) => {
            let descriptor = volume.descriptor()?;
            // The server locks it.
            volume.release();
            Stdio::from(descriptor)
        }
        None => Stdio::null(),
    };
    command.arg("--").arg(absolute(path)?).arg(absolute(&arguments.dir)?);
    if let Err(error) = betrfs_fuse::hand_down_standard_descriptors_only() {
        tracing::debug!("the server inherits this process's descriptors: {error}");
    }
    let mut server = command.stdin(input).stdout(Stdio::piped()).stderr(log).spawn()?;
    let interrupted = interrupt_with_us(&server)?;
    let said = server.stdout.take().map(hear).transpose()?.unwrap_or_default();
    if said == READY {
        return Ok(());
    }
    let status = server.wait()?;
    if interrupted.load(Ordering::Acquire) {
        return Err(Failure::of(Kind::Interrupted, "interrupted, and nothing is mounted"));
    }
    let kind_and_why = said.split_once(' ').and_then(|(kind, why)| {
        let kind = Kind::ALL.get(kind.parse::<usize>().ok()?)?;
        Some((*kind, why))
    });
    match kind_and_why {
        Some((kind, why)) => Err(Failure::of(kind, why)),
        None => Err(Failure::new(format!(
            "the server ended before the mount answered ({status}); --log FILE keeps what it says"
        ))),
    }
}

/// Shows how far the replay is, and returns what the server announces then.
fn hear(pipe: ChildStdout) -> io::Result<String> {
    let (mut pipe, mut bar, mut said) = (BufReader::new(pipe), replay::bar(), String::new());
    loop {
        pipe.read_line(&mut said)?;
        let Some((done, all)) = replayed(&said) else { break };
        bar.tell(done, all);
        said.clear();
    }
    drop(bar);
    pipe.read_to_string(&mut said)?;
    Ok(said)
}

/// What a line tells of the replay; `None` for another line.
fn replayed(line: &str) -> Option<(u64, u64)> {
    let (done, all) = line.strip_prefix(REPLAYED)?.trim_end().split_once(' ')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// The volume that the starter opened, and handed over as standard input.
pub fn volume(arguments: &Arguments) -> Result<Arc<FileDevice>, Failure> {
    let descriptor = rustix::stdio::stdin().try_clone_to_owned()?;
    // Nothing but the device keeps it open.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Arc::new(FileDevice::open_again(descriptor, &absolute(&arguments.volume)?)?))
}

/// Ends the starting server when a signal asks this process to end. The flag returned is set by the signal.
fn interrupt_with_us(server: &Child) -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (noted, server) = (Arc::clone(&interrupted), Pid::from_child(server));
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    // The thread ends with the process, which waits for the server first.
    thread::Builder::new().name("betrfs-signals".into()).spawn(move || {
        for _ in signals.forever() {
            noted.store(true, Ordering::Release);
            if let Err(errno) = rustix::process::kill_process(server, Signal::TERM) {
                tracing::debug!("cannot end the server: {errno}");
            }
        }
    })?;
    Ok(interrupted)
}

/// Opens a log for appending. A new one is for its owner alone, because it names files. Links are refused:
/// where other users may change names, root would write to a file of their choice. Pipes are refused: opening
/// one can block. Block devices and the volume itself are refused: the log would destroy what they hold.
fn open_log(path: &Path, volume: &Path) -> Result<File, String> {
    let told = |error: io::Error| error.to_string();
    let place = Place::of(path).map_err(told)?;
    let found = match place.make(Mode::RUSR | Mode::WUSR) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => place.find(),
        made => made,
    };
    // What has the name is looked at before it is opened: the end of a writer makes the system look at a
    // device again.
    let named = found.map_err(told)?;
    let found = named.metadata().map_err(told)?;
    if found.is_symlink() {
        return Err("it is a symbolic link: name the file itself".to_owned());
    }
    if found.file_type().is_block_device() {
        return Err("it is a block device: choose a file".to_owned());
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let log = OpenOptions::new().append(true).custom_flags(flags).open(itself(&named)).map_err(told)?;
    if output::is_below(&found, volume) {
        return Err("it is the volume itself: choose another file".to_owned());
    }
    if found.is_file() && found.nlink() > 1 {
        return Err("the file has other names: choose another".to_owned());
    }
    rustix::fs::fcntl_setfl(&log, OFlags::APPEND).map_err(|errno| told(errno.into()))?;
    Ok(log)
}

/// The server's end of the pipe. The announcement is made once.
#[derive(Clone)]
pub struct Announcement {
    said: Arc<Mutex<Said>>,
    /// /dev/null, which replaces the pipe. Opened in advance: later a descriptor may be lacking, and the
    /// starter would wait for the pipe's end for ever.
    null: Arc<File>,
}

/// What went through the pipe.
#[derive(Default)]
struct Said {
    /// Whether the announcement was made.
    is_over: bool,
    /// When the replay was told of last.
    replayed_at: Option<Instant>,
}

impl Announcement {
    /// An announcement still to be made.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new() -> io::Result<Announcement> {
        let null = File::options().write(true).open("/dev/null")?;
        Ok(Announcement { said: Arc::default(), null: Arc::new(null) })
    }

    /// Tells the starter how far the replay is, some times a second and at its end.
    pub fn of_replay(&self) -> Arc<ReplayProgress> {
        let announced = self.clone();
        Arc::new(move |done, all| announced.replayed(done, all))
    }

    fn replayed(&self, done: u64, all: u64) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_soon = said.replayed_at.is_some_and(|at| at.elapsed() < REPLAYED_EVERY);
        if said.is_over || is_soon && done < all {
            return;
        }
        said.replayed_at = Some(Instant::now());
        let mut pipe = std::io::stdout();
        if let Err(error) = writeln!(pipe, "{REPLAYED}{done} {all}").and_then(|()| pipe.flush()) {
            tracing::debug!("nobody hears of the replay: {error}");
        }
    }

    /// Announces that the mount answers.
    pub fn ready(&self) {
        self.say(READY);
    }

    /// Announces that the mount failed.
    pub fn failed(&self, why: &Failure) {
        let kind = Kind::ALL.iter().position(|kind| *kind == why.kind()).unwrap_or_default();
        self.say(&format!("{kind} {why}"));
    }

    fn say(&self, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut said.is_over, true) {
            return;
        }
        let mut pipe = std::io::stdout();
        let told = pipe.write_all(what.as_bytes()).and_then(|()| pipe.flush());
        let let_go = rustix::stdio::dup2_stdout(&self.null).map_err(io::Error::from);
        if let Err(error) = told.and(let_go) {
            tracing::warn!("cannot announce the mount: {error}");
        }
    }
}
