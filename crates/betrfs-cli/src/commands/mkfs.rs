//! `betrfs mkfs`: makes a volume.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree_sys::Device;
use betrfs::{FormatOptions, NodeId, OpenOptions, SetAttr, Volume};
use betrfs_host::{Existing, FileDevice, OpenError, StdHome};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::size;

/// How much of what is there already is looked at: every common file system and partition table
/// has left a mark by then.
const HEAD_BYTES: u64 = 128 << 10;
/// The first bytes of a volume.
const MAGIC: &[u8] = b"BetrFS";

/// Make a volume
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  betrfs mkfs data.betrfs --size 8G    a volume in a file, which grows as it fills
  betrfs mkfs /dev/sdb1                a volume that takes a whole block device
Then: betrfs mount data.betrfs /mnt")]
pub struct Arguments {
    /// The file to make, or the block device to use
    volume: PathBuf,
    /// The volume's size, as in 256M or 8G; needed for a new file
    #[arg(long, value_parser = size::parse_positive)]
    size: Option<u64>,
    /// Overwrite what is there: all of it is lost
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

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let size_bytes = make(&arguments.volume, arguments.size, arguments.force)?;
    match arguments.format {
        Format::Text => {
            print(format_args!("{}: a volume of {}", arguments.volume.display(), size::show(size_bytes)))?;
        }
        Format::Json => print_json(&Made { volume: arguments.volume.to_string_lossy(), size_bytes })?,
    }
    Ok(())
}

/// Makes a volume; its size.
pub fn make(path: &Path, size: Option<u64>, force: bool) -> Result<u64, Failure> {
    let shown = path.display();
    let mut is_new = false;
    let device = match path.metadata() {
        Ok(found) if found.file_type().is_block_device() => {
            if size.is_some() {
                let sentence = format!("{shown} is a block device and is used whole: leave --size out");
                return Err(Failure::new(sentence));
            }
            refuse_to_overwrite(path, force)?;
            FileDevice::open(path)?
        }
        Ok(found) if found.is_file() => {
            refuse_to_overwrite(path, force)?;
            match size {
                Some(size) => FileDevice::create(path, size, Existing::Overwrite)?,
                None => FileDevice::open(path)?,
            }
        }
        // The device says what is wrong with anything else.
        Ok(_) => FileDevice::open(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let size = size.ok_or_else(|| {
                Failure::new(format!("{shown} does not exist: say how large to make it, as in --size 8G"))
            })?;
            is_new = true;
            FileDevice::create(path, size, Existing::Refuse).inspect_err(|error| {
                if matches!(error, OpenError::Io { .. }) {
                    unmake(path);
                }
            })?
        }
        Err(error) => return Err(Failure::new(format!("cannot examine {shown}: {error}"))),
    };
    let size_bytes = device.len();
    format(Arc::new(device)).map_err(|error| {
        if is_new {
            unmake(path);
        }
        Failure::new(format!("cannot make a volume of {} in {shown}: {error}", size::show(size_bytes)))
    })?;
    Ok(size_bytes)
}

/// Removes the file that was made for a volume: without one in it, it would be in the way of the next try.
fn unmake(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Makes the volume; its root belongs to whoever makes it.
fn format(device: Arc<FileDevice>) -> betrfs::Result<()> {
    let home = Arc::new(StdHome::new());
    Volume::format(device.clone(), &FormatOptions::default(), &*home)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (uid, gid) == (0, 0) {
        return Ok(());
    }
    let volume = Volume::open(device, OpenOptions::new(home))?;
    let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    volume.setattr(NodeId::ROOT, &owner)?;
    volume.close()
}

fn refuse_to_overwrite(path: &Path, force: bool) -> Outcome {
    if force {
        return Ok(());
    }
    let shown = path.display();
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(|error| Failure::new(format!("cannot look into {shown}: {error}")))?;
    let what = if head.starts_with(MAGIC) {
        "is a BetrFS volume already"
    } else if head.iter().any(|byte| *byte != 0) {
        "is not empty"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!("{shown} {what}: choose another, or give --force to lose all that is in it")))
}
