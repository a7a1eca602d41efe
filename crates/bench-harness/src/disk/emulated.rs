//! An emulated disk with its server, a process of its own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use seekdisk::{Client, Counters, READY};

use crate::output::tell;
use crate::teardown::{Teardown, detach};

/// The option by which this program runs itself as the server; its values are the image and the directory.
pub const OPTION: &str = "--emulate";

/// A running emulated disk.
pub(crate) struct EmulatedDisk {
    client: Client,
    server: Child,
    teardown: Teardown,
}

impl EmulatedDisk {
    /// Starts a disk of a size whose image is in a directory.
    pub(crate) fn start(scratch: &Path, size_bytes: u64, teardown: &Teardown) -> Result<EmulatedDisk> {
        let (image, dir) = (scratch.join("emulated.image"), scratch.join("emulated"));
        std::fs::create_dir(&dir)?;
        File::create(&image).and_then(|file| file.set_len(size_bytes))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(OPTION).args([&image, &dir]);
        // Ctrl-C is for this process alone, which then ends the server.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        teardown.will_mount(&dir);
        let mut server = command.spawn().context("cannot start the emulated disk")?;
        teardown.started(Pid::from_child(&server));
        let mut said = String::new();
        if let Some(stdout) = server.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let disk = EmulatedDisk { client: Client::new(&dir), server, teardown: teardown.clone() };
        ensure!(said.trim() == READY, "the emulated disk did not start");
        Ok(disk)
    }

    /// The file that is the disk.
    pub(crate) fn file(&self) -> PathBuf {
        self.client.disk()
    }

    /// The drive's counters.
    pub(crate) fn counters(&self) -> Result<Counters> {
        self.client.counters().context("the emulated disk does not answer")
    }

    /// Starts or ends fast-forward.
    pub(crate) fn set_fast_forward(&self, on: bool) -> Result<()> {
        self.client.set_fast_forward(on).context("the emulated disk does not answer")
    }

    /// Discards the contents.
    pub(crate) fn discard_all(&self, size_bytes: u64) -> Result<()> {
        self.client.discard_all(size_bytes).context("the emulated disk cannot be emptied")
    }
}

impl Drop for EmulatedDisk {
    fn drop(&mut self) {
        // The server ends when its standard input does.
        drop(self.server.stdin.take());
        if let Err(error) = self.server.wait() {
            tell(format_args!("betrfs-bench: the emulated disk does not end: {error}"));
        }
        self.teardown.ended(Pid::from_child(&self.server));
        detach(self.client.dir());
        self.teardown.unmounted(self.client.dir());
    }
}

/// Serves an emulated disk, for a program run with [`OPTION`].
///
/// # Errors
/// Those of [`seekdisk::serve`].
pub fn serve(image: &Path, dir: &Path) -> Result<()> {
    Ok(seekdisk::serve(image, dir, &|warning| tell(format_args!("betrfs-bench: {warning}")))?)
}
