//! An emulated 7200 rpm disk: a file over FUSE whose answers take as long as a disk's.
//!
//! Its server is a process of its own, so that neither its memory nor its work is counted as those of
//! the file system under test.

mod drive;
mod image;
mod model;
mod server;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;
use rustix::process::Pid;

pub use model::Counters;
pub use server::serve;

use crate::output::tell;
use crate::teardown::{Teardown, detach};

/// The file that is the disk.
const DISK: &str = "disk";
/// The file with the drive's counters as JSON.
const STATS: &str = "stats";
/// The file that says whether the drive makes haste: [`HASTE`] or [`NO_HASTE`] is written to it.
const PACE: &str = "pace";
const HASTE: &[u8] = b"1";
const NO_HASTE: &[u8] = b"0";
/// What the server says when the disk is there.
const READY: &str = "ready";

/// A running emulated disk.
pub struct Emulated {
    dir: PathBuf,
    server: Child,
    teardown: Teardown,
}

impl Emulated {
    /// Starts one of a size whose image is in a directory.
    pub fn start(scratch: &Path, size_bytes: u64, teardown: &Teardown) -> Result<Emulated> {
        let (image, dir) = (scratch.join("emulated.image"), scratch.join("emulated"));
        std::fs::create_dir(&dir)?;
        File::create(&image).and_then(|file| file.set_len(size_bytes))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--emulate").args([&image, &dir]);
        // Ctrl-C is for this process alone, which ends the other in its turn.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        teardown.will_mount(&dir);
        let mut server = command.spawn().context("cannot start the emulated disk")?;
        let pid = Pid::from_child(&server);
        teardown.started(pid);
        let mut said = String::new();
        if let Some(stdout) = server.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let emulated = Emulated { dir, server, teardown: teardown.clone() };
        ensure!(said.trim() == READY, "the emulated disk did not start");
        Ok(emulated)
    }

    /// The file that is the disk.
    pub fn disk(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// What the drive did so far.
    pub fn counters(&self) -> Result<Counters> {
        let stats = std::fs::read(self.dir.join(STATS)).context("the emulated disk does not answer")?;
        Ok(serde_json::from_slice(&stats)?)
    }

    /// Has the drive make haste, or no longer, for what is not measured.
    pub fn set_in_haste(&self, in_haste: bool) -> Result<()> {
        let mut pace = File::options().write(true).open(self.dir.join(PACE))?;
        Ok(pace.write_all(if in_haste { HASTE } else { NO_HASTE })?)
    }

    /// Gives back the room of everything that is on the disk.
    pub fn forget(&self, size_bytes: u64) -> Result<()> {
        let disk = File::options().write(true).open(self.disk())?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(disk, punch, 0, size_bytes)?)
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        // It ends when its standard input does.
        drop(self.server.stdin.take());
        if let Err(error) = self.server.wait() {
            tell(format_args!("betrfs-bench: the emulated disk does not end: {error}"));
        }
        self.teardown.ended(Pid::from_child(&self.server));
        detach(&self.dir);
        self.teardown.unmounted(&self.dir);
    }
}
