//! `betrfs backup`: copies a mounted volume while it is used.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree_platform::{Device, DeviceError};
use betree_std::FileDevice;
use betrfs_fuse::{BackupError, BackupPart, Line};
use indicatif::ProgressBar;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::bar;
use crate::commands::stats;
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::size;

/// Copy a mounted volume to a new file while it is used
#[derive(clap::Args)]
#[command(after_help = "\
The copy is a volume as of one moment, shortly after the command begins: every change that was made before is in \
it, and none that is made later. It is as large as the volume, sparse, takes as much room as the volume's \
contents, and shares the data of clones and snapshots as the volume does. Meanwhile others go on, and the room of \
what they delete comes back at the end; where that room is needed, the backup ends with an error. The copy has \
the label and the UUID of the volume. Only root and the user who mounted the volume may copy it. A volume that is \
not mounted, or mounted with -o ro, is copied by `cp --sparse=always`.

Example:
  betrfs backup /mnt /backups/monday.betrfs")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// The file to make, which must not exist
    file: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The result.
#[derive(Clone, Copy, Default, Serialize)]
struct Copied {
    volume_bytes: u64,
    copied_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { dir, file, format } = arguments;
    let mount = stats::mount_at(dir)?;
    let line = Line::open(&mount).map_err(|why| stats::unheard(dir, &why))?;
    let failed =
        |why: String| Failure::new(format!("cannot copy {} to {}: {why}", dir.display(), file.display()));
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted))?;
    }
    let bar = bar::styled(
        ProgressBar::new(0),
        "copying [{wide_bar}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
    );
    let mut copy =
        Copy { is_interrupted, path: file, bar, device: None, copied: Copied::default(), failure: None };
    let done = line.backup(&mount, &mut |part| copy.take(part));
    copy.bar.finish_and_clear();
    let failure = match (done, copy.failure.take()) {
        (Ok(()), None) => copy.finish().err(),
        (_, Some(failure)) => Some(failure),
        (Err(BackupError::Unheard(why)), None) => Some(stats::unheard(dir, &why)),
        (Err(error), None) => Some(failed(error.to_string())),
    };
    if let Some(failure) = failure {
        // Half a copy is of no use.
        copy.device.iter().for_each(FileDevice::unmake);
        return Err(failure);
    }
    match format {
        Format::Json => print_json(&copy.copied),
        Format::Text => {
            let (all, copied) = (size::show(copy.copied.volume_bytes), size::show(copy.copied.copied_bytes));
            print(format_args!(
                "{}: a copy of {} of {all}, {copied} of it written",
                file.display(),
                dir.display()
            ))
        }
    }
}

/// The file that is made.
struct Copy<'a> {
    is_interrupted: Arc<AtomicBool>,
    path: &'a Path,
    bar: ProgressBar,
    device: Option<FileDevice>,
    copied: Copied,
    failure: Option<Failure>,
}

impl Copy<'_> {
    fn take(&mut self, part: BackupPart<'_>) -> ControlFlow<()> {
        match self.put(part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn put(&mut self, part: BackupPart<'_>) -> Outcome {
        if self.is_interrupted.load(Ordering::Relaxed) {
            return Err(Failure::of(Kind::Interrupted, "interrupted: no copy was made"));
        }
        match (part, &self.device) {
            (BackupPart::Size { volume_bytes, all_bytes }, None) => {
                self.device = Some(FileDevice::create(self.path, volume_bytes)?);
                self.copied.volume_bytes = volume_bytes;
                self.bar.set_length(all_bytes);
            }
            (BackupPart::Piece { offset, bytes }, Some(device)) => {
                device.write_at(offset, bytes).map_err(|error| self.failed(&error))?;
                self.copied.copied_bytes += bytes.len() as u64;
                self.bar.set_position(self.copied.copied_bytes);
            }
            _ => return Err(self.unwritten("the server does not tell the size first")),
        }
        Ok(())
    }

    /// Makes it durable.
    fn finish(&self) -> Outcome {
        let Some(device) = &self.device else { return Err(self.unwritten("the server has told nothing")) };
        device.sync().map_err(|error| self.failed(&error))
    }

    /// In the system's words.
    fn failed(&self, error: &DeviceError) -> Failure {
        self.unwritten(&io::Error::from_raw_os_error(error.errno).to_string())
    }

    fn unwritten(&self, why: &str) -> Failure {
        Failure::new(format!("cannot write {}: {why}", self.path.display()))
    }
}
