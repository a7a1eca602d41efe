//! `betrfs mkfs`: makes a volume.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree_platform::Device;
use betree_std::{FileDevice, OpenError, StdPlatform};
use betrfs::{FormatOptions, Identity, InodeId, OpenOptions, SetAttr, Uuid, Volume};
use serde::Serialize;

use crate::failure::{Failure, Outcome, warn};
use crate::format::{Format, print, print_json};
use crate::path::absolute;
use crate::size;

/// Bytes examined for existing data: every common file system and partition table has a mark within them.
const HEAD_BYTES: usize = 128 << 10;
/// The first bytes of a volume.
const MAGIC: &[u8] = b"BetrFS";

/// Make a volume
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  betrfs mkfs data.betrfs --size 8G    a volume in a file, which grows as it fills
  betrfs mkfs /dev/sdb1 -L photos      a volume on a whole block device, with a label
Then: betrfs mount data.betrfs /mnt")]
pub struct Arguments {
    /// The file to make, or the block device to use
    volume: PathBuf,
    /// The volume's size, as in 256M or 8G; needed for a new file
    #[arg(long, value_parser = size::parse_positive)]
    size: Option<u64>,
    /// The volume's label: at most 255 bytes of text
    #[arg(short = 'L', long, default_value = "", hide_default_value = true, value_parser = parse_label)]
    label: String,
    /// The volume's UUID; random by default
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Overwrite existing data, all of which is lost
    #[arg(long)]
    force: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Made<'a> {
    volume: Cow<'a, str>,
    size_bytes: u64,
}

fn parse_label(label: &str) -> Result<String, String> {
    Identity::check_label(label).map(|()| label.to_owned()).map_err(|error| error.to_string())
}

fn parse_uuid(uuid: &str) -> Result<Uuid, String> {
    uuid.parse().map_err(|error: betrfs::UuidError| error.to_string())
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { label, uuid, .. } = arguments;
    let options = FormatOptions { label: label.clone(), uuid: *uuid, ..FormatOptions::default() };
    let size_bytes = make(&arguments.volume, arguments.size, arguments.force, &options)?;
    match arguments.format {
        Format::Text => {
            print(format_args!("{}: a volume of {}", arguments.volume.display(), size::show(size_bytes)))?;
        }
        Format::Json => print_json(&Made { volume: arguments.volume.to_string_lossy(), size_bytes })?,
    }
    Ok(())
}

/// Makes a volume; returns its size in bytes.
pub fn make(path: &Path, size: Option<u64>, force: bool, options: &FormatOptions) -> Result<u64, Failure> {
    let shown = path.display();
    let device = match betrfs_fuse::open_device(path) {
        Ok(mut device) => {
            refuse_to_overwrite(&device, force)?;
            warn_if_open_to_others(path);
            match size {
                Some(_) if device.is_block_device() => {
                    let sentence = format!("{shown} is a block device and is used whole: leave --size out");
                    return Err(Failure::new(sentence));
                }
                Some(size) => device.clear(size)?,
                None => {}
            }
            device
        }
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            refuse_new_device(path)?;
            let size = size.ok_or_else(|| {
                Failure::new(format!("{shown} does not exist: say how large to make it, as in --size 8G"))
            })?;
            return Ok(make_new(path, size, options)?.len());
        }
        Err(error) => return Err(error.into()),
    };
    let device = Arc::new(device);
    let size_bytes = device.len();
    format(Arc::clone(&device), options).map_err(|error| unmade(&device, &error))?;
    Ok(size_bytes)
}

/// Makes a volume in a new file, never in one that is there already; returns the file, open and locked.
pub fn make_new(path: &Path, size: u64, options: &FormatOptions) -> Result<Arc<FileDevice>, Failure> {
    refuse_new_device(path)?;
    let device = Arc::new(FileDevice::create(path, size)?);
    format(Arc::clone(&device), options).map_err(|error| {
        // An empty file would be in the way of the next attempt.
        device.unmake();
        unmade(&device, &error)
    })?;
    Ok(device)
}

fn unmade(device: &FileDevice, error: &betrfs::Error) -> Failure {
    let (size, shown) = (size::show(device.len()), device.path().display());
    Failure::new(format!("cannot make a volume of {size} in {shown}: {error}"))
}

fn refuse_new_device(path: &Path) -> Outcome {
    match is_among_devices(path) {
        true => {
            let shown = path.display();
            Err(Failure::new(format!("there is no device {shown}: `lsblk -p` lists the devices")))
        }
        false => Ok(()),
    }
}

/// Whether a path is among the system's devices: a file there would be in memory, under the name of a disk.
fn is_among_devices(path: &Path) -> bool {
    absolute(path).is_ok_and(|path| path.starts_with("/dev") && !path.starts_with("/dev/shm"))
}

/// Warns if other users can read or write a volume's file: they could then read all files of all users in it.
/// For a block device the permissions are the system's.
pub fn warn_if_open_to_others(path: &Path) {
    let is_open = |found: fs::Metadata| found.is_file() && found.mode() & 0o066 != 0;
    if path.metadata().is_ok_and(is_open) {
        let shown = path.display();
        warn(&format!(
            "others can read or write {shown}, and so everything in it: `chmod 600 {shown}` ends that"
        ));
    }
}

/// Makes the volume; its root belongs to the calling user.
fn format(device: Arc<FileDevice>, options: &FormatOptions) -> betrfs::Result<()> {
    let platform = Arc::new(StdPlatform::new());
    Volume::format(device.clone(), options, &*platform)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (uid, gid) == (0, 0) {
        return Ok(());
    }
    let volume = Volume::open(device, OpenOptions::new(platform))?;
    let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    volume.setattr(InodeId::ROOT, &owner)?;
    volume.close()
}

fn refuse_to_overwrite(device: &FileDevice, force: bool) -> Outcome {
    if force {
        return Ok(());
    }
    let shown = device.path().display();
    let head =
        device.head(HEAD_BYTES).map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
    let what = if head.starts_with(MAGIC) {
        "is a BetrFS volume already"
    } else if head.iter().any(|byte| *byte != 0) {
        "is not empty"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("{shown} {what}: choose another, or overwrite it with --force")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may have come there since somebody looked.
    #[test]
    fn a_new_volume_is_made_in_no_file_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, link) = (dir.path().join("empty"), dir.path().join("link"));
        fs::write(&empty, b"").unwrap();
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        for path in [&empty, &link] {
            assert!(make_new(path, 64 << 20, &FormatOptions::default()).is_err());
        }
        assert_eq!(fs::metadata(&empty).unwrap().len(), 0);
    }
}
