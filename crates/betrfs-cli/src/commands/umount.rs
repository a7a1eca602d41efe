//! `betrfs umount`: unmounts a volume and waits until it is closed.

use std::io;
use std::path::PathBuf;

use betrfs_fuse::{FarewellReader, Status, mount_point};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::path::absolute;

/// Unmount a volume; returns when it is closed and clean
#[derive(clap::Args)]
#[command(after_help = "\
Plain umount(8) works too, but returns before the volume is written out; the next mount or check then
says that it is in use.

Example:
  betrfs umount /mnt")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let dir = absolute(&arguments.dir)?;
    let shown = dir.display();
    if let Err(error) = Status::ask(&dir)
        && error.kind() == io::ErrorKind::NotConnected
    {
        mount_point::detach(&dir)?;
        return Err(Failure::new(format!(
            "the server of {shown} had died, so that the volume was not closed; the directory is free now, \
             and the next mount or check of the volume recovers it"
        )));
    }
    let identity = stats::ask(&dir)?.identity;
    let volume = identity.volume.display();
    let farewell = FarewellReader::connect(&identity.farewell);
    let server = Pid::from_raw(identity.pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    mount_point::unmount(&dir)?;
    let closed = match farewell {
        Ok(farewell) => farewell.wait(),
        Err(error) => Err(format!("its server cannot be heard: {error}")),
    };
    closed.map_err(|why| {
        Failure::new(format!(
            "{shown} is unmounted, but {volume} was not closed cleanly: {why}; run `betrfs check`"
        ))
    })?;
    // With the server's end its lock on the volume is gone.
    if let Ok(server) = server {
        while rustix::event::poll(&mut [PollFd::new(&server, PollFlags::IN)], None) == Err(Errno::INTR) {}
    }
    Ok(())
}
