//! `betrfs umount`: unmounts a volume and waits until it is closed, if that was its last mount.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use betrfs_fuse::mount_point::{FoundMount, MountPointError};
use betrfs_fuse::{ANSWER_TIME_MAX, Farewell, Line, MountEntry, NotFrozen, NotUnmounted, Unheard};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use crate::bar::LateBar;
use crate::commands::stats;
use crate::failure::{Failure, Outcome, warn};
use crate::path::absolute;

/// How long to wait for the end of a server that has reported the close of its volume.
const END_TIME_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// How long a volume that is on no directory here may seem to be mounted before it counts as mounted in
/// another mount name space: others, as sync(1), may hold a file system for a moment.
const HELD_TIME_MAX: Duration = Duration::from_secs(1);
/// Interval between two checks whether a mount is detached.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Unmount a volume; returns when it is closed and clean
#[derive(clap::Args)]
#[command(after_help = "\
A volume that is mounted on other directories too, by `mount --bind` or in another mount name space, stays mounted on \
those: a warning says so, and the last unmount closes it. With --lazy the mount is detached at once, even if it is in use or its server does not answer; the volume is \
closed when nothing uses it any more. On a terminal it shows what is left to write if that takes more than two seconds. A frozen volume thaws first. Only root and the user who mounted the volume may unmount it, and anybody if it was mounted with `users`.

Examples:
  betrfs umount /mnt
  betrfs umount --lazy /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// Detach it at once, and do not wait
    #[arg(short, long)]
    lazy: bool,
    /// A flag of umount(8) for its helpers, without an effect here
    #[arg(short = 'f', hide = true)]
    force: bool,
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[arg(short = 'r', hide = true)]
    read_only: bool,
    #[arg(short = 'N', hide = true)]
    name_space: Option<OsString>,
    #[arg(short = 't', hide = true)]
    fs_type: Option<OsString>,
    /// Detach only the mount with this number, whose name is in the directory that is open as standard input:
    /// in a process that may have to wait for the server
    #[arg(long, hide = true, value_name = "NUMBER", conflicts_with = "lazy")]
    detach: Option<u64>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(number) = arguments.detach {
        let parent = std::io::stdin().as_fd().try_clone_to_owned()?;
        return match FoundMount::numbered(number, parent)? {
            Some(found) => Ok(found.detach()?),
            None => Ok(()),
        };
    }
    let dir = absolute(&arguments.dir)?;
    let found = stats::found_at(&dir)?;
    if arguments.lazy {
        return detach(&found);
    }
    let mount = found.entry();
    let line = match Line::open(mount) {
        Ok(line) => line,
        Err(Unheard::Dead) => {
            found.detach()?;
            return Err(Failure::new(format!(
                "the server of {} had died, so that the volume was not closed; the directory is free now, \
                 and the next mount or check of the volume recovers it",
                dir.display()
            )));
        }
        Err(why) => return Err(stats::unheard(&dir, &why)),
    };
    // A connection carries one request.
    let line = if others(mount)?.is_empty() {
        thaw(&dir, mount, line)?;
        Line::open(mount).map_err(|why| stats::unheard(&dir, &why))?
    } else {
        line
    };
    let server =
        line.server().and_then(|pid: Pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    let farewell = line.farewell(mount).map_err(|why| stats::unheard(&dir, &why))?;
    let shown = show_close(mount);
    // A loop device goes with the mount.
    let volume = mount.volume();
    unmount(&found)?;
    if let Some(elsewhere) = still_mounted(&farewell, mount)? {
        warn(&format!("{} is unmounted; its volume stays mounted {elsewhere}", dir.display()));
        return Ok(());
    }
    farewell.wait().map_err(|why| {
        let (shown, volume) = (dir.display(), volume.display());
        Failure::new(format!(
            "{shown} is unmounted, but {volume} was not closed cleanly: {why}; run `betrfs check`"
        ))
    })?;
    if let Some(server) = server {
        // The volume is closed: the wait for the server's end is bounded.
        let ended = rustix::event::poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&END_TIME_MAX));
        // With the server its words end.
        if let (Ok(1..), Some(shown)) = (ended, shown) {
            let _ = shown.join();
        }
    }
    Ok(())
}

/// Unmounts it; has its server do that where this user may not, and the mount is one that any user may
/// unmount.
fn unmount(found: &FoundMount) -> Outcome {
    let refused = match found.unmount() {
        Err(refused @ (MountPointError::Fusermount { .. } | MountPointError::NoFusermount { .. })) => refused,
        unmounted => return Ok(unmounted?),
    };
    let mount = found.entry();
    match Line::open(mount).map_err(NotUnmounted::from).and_then(|line| line.unmount(mount)) {
        Ok(()) => Ok(()),
        Err(NotUnmounted::Failed(why)) => Err(Failure::new(why)),
        // It lets only root and its own user.
        Err(NotUnmounted::Unheard(_)) => Err(refused.into()),
    }
}

/// The other directories of this mount name space that the same volume is mounted on.
fn others(mount: &MountEntry) -> io::Result<Vec<PathBuf>> {
    let all = MountEntry::all()?.into_iter();
    Ok(all.filter(|it| it.device == mount.device && it.id != mount.id).map(|it| it.path).collect())
}

/// Where a volume is still mounted after an unmount of one of its mounts; `None` if that was the last one.
fn still_mounted(farewell: &Farewell, mount: &MountEntry) -> io::Result<Option<String>> {
    let start = Instant::now();
    while farewell.is_mounted() {
        if let Some(other) = others(mount)?.first() {
            return Ok(Some(format!("on {}", other.display())));
        }
        if start.elapsed() > HELD_TIME_MAX {
            return Ok(Some("in another mount name space".to_owned()));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

/// Ends a freeze: the unmount would wait for its end.
fn thaw(dir: &Path, mount: &MountEntry, line: Line) -> Outcome {
    match line.thaw(mount, None) {
        Ok(()) => warn(&format!("{} was frozen, and thaws for the unmount", dir.display())),
        Err(NotFrozen::Unheard(why)) => return Err(stats::unheard(dir, &why)),
        // It is not frozen, or its server knows no freeze.
        Err(NotFrozen::Failed(_)) => {}
    }
    Ok(())
}

/// Shows on a terminal, in a thread of its own, how far the close is: umount(2) may return only after it.
fn show_close(mount: &MountEntry) -> Option<JoinHandle<()>> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    // What cannot be shown hinders nothing.
    let line = Line::open(mount).ok()?;
    let mount = mount.clone();
    let show = move || {
        let mut bar = LateBar::new(
            "writing [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        );
        let _ = line.hear_close(&mount, &mut |done, all| bar.tell(done, all));
    };
    thread::Builder::new().spawn(show).ok()
}

/// Detaches a mount in a process of its own: if nothing uses the mount, the kernel may keep that process
/// waiting until the server has closed the volume.
fn detach(found: &FoundMount) -> Outcome {
    let mount = found.entry();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("umount").arg(format!("--detach={}", mount.id)).arg("--").arg(&mount.path);
    // It opens the root itself: whoever closes that last may have to wait. And it inherits none of our
    // streams, so that a program that waits for our output does not wait for it.
    let parent = Stdio::from(found.parent()?);
    let mut detaching = command.stdin(parent).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let start = Instant::now();
    while start.elapsed() < ANSWER_TIME_MAX {
        if let Some(status) = detaching.try_wait()? {
            if status.success() {
                return Ok(());
            }
            let mut said = String::new();
            detaching.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said)).transpose()?;
            return Err(Failure::new(said.trim().trim_start_matches("betrfs: ")));
        }
        if !MountEntry::all()?.iter().any(|other| other.id == mount.id) {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    Err(Failure::new(format!("{} is still mounted", mount.path.display())))
}
