//! `betrfs mkfs`: makes a volume.

pub mod before;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree::NodeCopies;
use betree_platform::Device;
use betree_std::{FileDevice, OpenError, StdPlatform};
use betrfs::{FormatOptions, InodeId, OpenOptions, SetAttr, Uuid, Volume};
use betrfs_fuse::shell_word;
use serde::Serialize;

use crate::commands::{label, uuid};
use crate::failure::{Failure, Outcome, warn};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::path::absolute;
use crate::size;
use crate::tags::Tags;

/// Make a volume
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  betrfs mkfs data.betrfs 8G         a volume in a file, which grows as it fills
  betrfs mkfs data.betrfs 1G --grow-to 100G
                                     one that grows by itself where space gets short
  betrfs mkfs /dev/sdb1 -L photos    a volume on a whole block device, with a label
  betrfs mkfs /dev/sdb1 -n           says what would be made, or why not, and writes nothing
Then: betrfs mount data.betrfs /mnt")]
pub struct Arguments {
    /// The file to make, or the block device to use
    volume: PathBuf,
    /// The volume's size, as in 256M or 8G; needed for a new file
    #[arg(value_name = "SIZE", value_parser = size::parse_positive, conflicts_with = "size")]
    operand: Option<u64>,
    /// The same
    #[arg(long, value_parser = size::parse_positive)]
    size: Option<u64>,
    /// Let a volume in a file grow by itself up to this size, in steps, where space gets short
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    grow_to: Option<u64>,
    /// How many copies there are of interior nodes above the parents of leaves: with 2, a bad block takes
    /// none away, and random changes write some 6 % more
    #[arg(long, value_name = "NUMBER", value_parser = parse_copies, default_value = "1")]
    metadata_copies: NodeCopies,
    /// The volume's label: at most 255 bytes of text
    #[arg(short = 'L', long, default_value = "", hide_default_value = true, value_parser = label::parse)]
    label: String,
    /// The volume's UUID; `random` by default
    #[arg(short = 'U', long, value_parser = uuid::parse)]
    uuid: Option<Uuid>,
    /// Overwrite existing data, all of which is lost
    #[arg(short, long)]
    force: bool,
    /// Write nothing: only say what would be made
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "format")]
    quiet: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    volume: Name,
    size_bytes: u64,
    /// Null for a volume that does not grow by itself.
    grow_to_bytes: Option<u64>,
    metadata_copies: u32,
    node_bytes: u32,
    log_bytes: u64,
    label: &'a str,
    /// Null where none was made.
    uuid: Option<String>,
}

/// What becomes of existing data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Kept,
    Overwritten,
}

/// Parses a number of copies of metadata.
pub fn parse_copies(number: &str) -> Result<NodeCopies, String> {
    let copies = number.parse().ok().and_then(NodeCopies::of_count);
    copies.ok_or_else(|| "there can be 1 or 2 copies".into())
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { volume, label, uuid, .. } = arguments;
    let (grow_to_bytes, node_copies) = (arguments.grow_to, arguments.metadata_copies);
    let options = FormatOptions {
        label: label.clone(),
        uuid: *uuid,
        grow_to_bytes,
        node_copies,
        ..FormatOptions::default()
    };
    let size = arguments.operand.or(arguments.size);
    let existing = if arguments.force { Existing::Overwritten } else { Existing::Kept };
    let (size_bytes, made) = if arguments.dry_run {
        (would_make(volume, size, existing, &options)?, None)
    } else {
        let device = make(volume, size, existing, &options)?;
        (device.len(), Some(Tags::of_device(device)?))
    };
    let geometry = Volume::check_format(size_bytes, &options)
        .map_err(|error| unmade(&volume.display().to_string(), size_bytes, &error))?;
    let shown = volume.to_string_lossy();
    match arguments.format {
        Format::Text if arguments.quiet => Ok(()),
        Format::Text if arguments.dry_run => print(format_args!(
            "{shown}: would be a volume of {}, with nodes of {} and a log of {}",
            size::show(size_bytes),
            size::show(geometry.node_bytes.into()),
            size::show(geometry.log_bytes)
        )),
        Format::Text => {
            let grows = grow_to_bytes.map(|bytes| format!(", which grows to {}", size::show(bytes)));
            let size = size::show(size_bytes);
            print(format_args!("{shown}: a volume of {size}{}", grows.unwrap_or_default()))
        }
        Format::Json => print_json(&Made {
            volume: Name::new("volume", volume),
            size_bytes,
            grow_to_bytes,
            metadata_copies: node_copies.count(),
            node_bytes: geometry.node_bytes,
            log_bytes: geometry.log_bytes,
            label,
            uuid: made.map(|tags| tags.uuid.to_string()),
        }),
    }
}

/// Opens what is at the path, if that is fit for a volume of this size; `None` if nothing is there.
fn open(path: &Path, size: Option<u64>, existing: Existing) -> Result<Option<FileDevice>, Failure> {
    let shown = path.display();
    let device = match betrfs_fuse::open_device(path) {
        Ok(device) => device,
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            refuse_new_device(path)?;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    if existing == Existing::Kept
        && let Some(what) = before::of(&device)?
    {
        return Err(Failure::new(format!("{shown} {what}: choose another, or overwrite it with --force")));
    }
    if size.is_some() && device.is_block_device() {
        let sentence = format!("{shown} is a block device and is used whole: leave the size (--size) out");
        return Err(Failure::new(sentence));
    }
    Ok(Some(device))
}

/// The size of the volume that would be made.
fn would_make(
    path: &Path,
    size: Option<u64>,
    existing: Existing,
    options: &FormatOptions,
) -> Result<u64, Failure> {
    let device = open(path, size, existing)?;
    let size_bytes = size_of(path, size, device.as_ref())?;
    refuse_growth(path, device.as_ref(), size_bytes, options)?;
    Ok(size_bytes)
}

/// Refuses a size to grow to that is none.
fn refuse_growth(
    path: &Path,
    device: Option<&FileDevice>,
    size_bytes: u64,
    options: &FormatOptions,
) -> Outcome {
    let shown = path.display();
    let Some(grow_to_bytes) = options.grow_to_bytes else { return Ok(()) };
    if device.is_some_and(FileDevice::is_block_device) {
        return Err(Failure::new(format!(
            "{shown} is a block device, which does not grow by itself: leave --grow-to out, and use `betrfs resize \
             {shown} max` when it has become larger"
        )));
    }
    if grow_to_bytes < size_bytes {
        let (to, from) = (size::show(grow_to_bytes), size::show(size_bytes));
        return Err(Failure::new(format!(
            "{shown} cannot grow from {from} to {to} (--grow-to), which is less"
        )));
    }
    Ok(())
}

/// The size of a volume to be made: the one that was asked for, or that of what is there.
fn size_of(path: &Path, size: Option<u64>, device: Option<&FileDevice>) -> Result<u64, Failure> {
    let there = match device {
        // Not a block: no volume, but something short that is to be overwritten by one.
        Some(device) if device.len() == 0 => "is shorter than a block",
        Some(device) => return Ok(size.unwrap_or_else(|| device.len())),
        None => "does not exist",
    };
    let no_size = || format!("{} {there}: say how large to make it, as in --size 8G", path.display());
    size.ok_or_else(|| Failure::new(no_size()))
}

/// Makes a volume; returns its file or block device, open and locked.
fn make(
    path: &Path,
    size: Option<u64>,
    existing: Existing,
    options: &FormatOptions,
) -> Result<Arc<FileDevice>, Failure> {
    let Some(mut device) = open(path, size, existing)? else {
        let size_bytes = size_of(path, size, None)?;
        refuse_growth(path, None, size_bytes, options)?;
        return make_new(path, size_bytes, options);
    };
    let shown = path.display().to_string();
    // Before anything of what is there is lost.
    let size_bytes = size_of(path, size, Some(&device))?;
    refuse_growth(path, Some(&device), size_bytes, options)?;
    Volume::check_format(size_bytes, options).map_err(|error| unmade(&shown, size_bytes, &error))?;
    warn_if_open_to_others(path);
    match size {
        Some(size) => device.clear(size)?,
        None => before::clear_ends(&device)?,
    }
    let device = Arc::new(device);
    format(Arc::clone(&device), options).map_err(|error| unmade(&shown, device.len(), &error))?;
    Ok(device)
}

/// Makes a volume in a new file, never in one that is there already; returns the file, open and locked.
pub fn make_new(path: &Path, size: u64, options: &FormatOptions) -> Result<Arc<FileDevice>, Failure> {
    refuse_new_device(path)?;
    let device = Arc::new(FileDevice::create(path, size)?);
    format(Arc::clone(&device), options).map_err(|error| {
        // An empty file would be in the way of the next attempt.
        device.unmake();
        unmade(&device.path().display().to_string(), device.len(), &error)
    })?;
    Ok(device)
}

fn unmade(shown: &str, size_bytes: u64, error: &betrfs::Error) -> Failure {
    let size = size::show(size_bytes);
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
        let (shown, word) = (path.display(), shell_word(path));
        warn(&format!(
            "others can read or write {shown}, and so everything in it: `chmod 600 {word}` ends that"
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
