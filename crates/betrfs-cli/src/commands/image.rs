//! `betrfs image`: a picture of what lies where on a volume.

mod picture;

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betrfs::{InodeId, Objects, Volume};
use betrfs_fuse::{Layout, MountEntry};
use jiff::Timestamp;
use rustix::fs::Mode;
use serde::Serialize;

use crate::commands::{change, layout, stats, usage};
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::place::{Place, itself};
use crate::tags;
use picture::{CELLS_MAX, Directory, PICTURE_BEGIN, Picture};

/// How many directories are told below the picture.
const DIRECTORIES_MAX: usize = 24;

/// Draw what lies where on a volume: log, nodes by height, second copies, free space, as an SVG
#[derive(clap::Args)]
#[command(after_help = "\
The volume is cut into at most 3072 cells, row by row from its first byte to its last. The colour of a cell is that of \
what takes most of it, paler where much of it is free. The legend has the bytes of each kind, which add up to the size \
of the volume; those of `betrfs df` are the same sums. Below stand the directories of the root, the first 24 by name, \
with what is stored below each, and the part that clones or snapshots have too. A volume that is mounted nowhere is only \
read. Only root and the user who mounted the volume may ask for a mounted one.

Examples:
  betrfs image /mnt layout.svg
  betrfs image data.betrfs layout.svg --force
  betrfs image data.betrfs - | rsvg-convert > layout.png")]
pub struct Arguments {
    /// The directory on which the volume is mounted, the volume's file or block device, UUID=... or LABEL=...
    volume: PathBuf,
    /// The file to write, or `-` for standard output
    picture: PathBuf,
    /// Replace the file if it exists and is a picture
    #[arg(short, long)]
    force: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Drawn {
    #[serde(flatten)]
    picture: Name,
    cells: usize,
    cell_bytes: u64,
    volume_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let volume = tags::resolved(&arguments.volume)?;
    let to_output = arguments.picture.as_os_str() == "-";
    if to_output && arguments.format != Format::Text {
        return Err(Failure::of(Kind::Usage, "standard output can have the picture or the result, not both"));
    }
    let shown = arguments.picture.display().to_string();
    let cannot_write = |error: &std::io::Error| Failure::new(format!("cannot write {shown}: {error}"));
    let place = (!to_output).then(|| Place::of(&arguments.picture));
    if let Some(Ok(found)) = place.as_ref().and_then(|place| Some(place.as_ref().ok()?.find())) {
        if !arguments.force {
            return Err(Failure::new(format!("{shown} exists: `--force` replaces it")));
        }
        // One word too few, and the volume itself would be replaced.
        if !is_picture(&found).map_err(|error| cannot_write(&error))? {
            return Err(Failure::new(format!("{shown} exists and is no picture: nothing was written")));
        }
    }
    let (layout, directories) = match change::mount_of(&volume) {
        Some(mount) => of_mount(&mount)?,
        None if volume.is_dir() => return Err(stats::not_mounted(&volume)),
        None => layout::with_closed(&volume, |opened| {
            Ok((layout::of_volume(opened, CELLS_MAX)?, directories_of(opened)?))
        })?,
    };
    let picture =
        Picture { volume: &volume, at: Timestamp::now(), layout: &layout, directories: &directories };
    let svg = picture.svg();
    let Some(place) = place else { return print(svg.trim_end()) };
    let written = place.and_then(|place| write(&place, arguments.force, svg.as_bytes()));
    written.map_err(|error| cannot_write(&error))?;
    let volume_bytes = layout.sums().values().sum();
    let (cells, cell_bytes) = (layout.cells.len(), layout.cell_bytes);
    match arguments.format {
        Format::Text => print(format_args!("{shown}: {cells} cells of {cell_bytes} bytes")),
        Format::Json => {
            let picture = Name::new("picture", &arguments.picture);
            print_json(&Drawn { picture, cells, cell_bytes, volume_bytes })
        }
    }
}

/// Writes the picture to a new file, or with `force` in the place of an older one, which is looked at once
/// more: another may have got its name since.
fn write(place: &Place, force: bool, svg: &[u8]) -> std::io::Result<()> {
    match place.make(Mode::from_raw_mode(0o666)) {
        Err(error) if force && error.kind() == ErrorKind::AlreadyExists => {
            if !is_picture(&place.find()?)? {
                return Err(ErrorKind::AlreadyExists.into());
            }
            place.write_whole(svg)
        }
        made => made?.write_all(svg),
    }
}

/// Whether a file begins as pictures of this command do, or is empty. It is open without an effect on it.
fn is_picture(found: &fs::File) -> std::io::Result<bool> {
    if !found.metadata()?.is_file() {
        return Ok(false);
    }
    let mut begin = Vec::new();
    fs::File::open(itself(found))?.take(PICTURE_BEGIN.len() as u64).read_to_end(&mut begin)?;
    Ok(begin.is_empty() || begin == PICTURE_BEGIN.as_bytes())
}

/// What a mount's server tells, with the directories of the mount's root.
fn of_mount(mount: &MountEntry) -> Result<(Layout, Vec<Directory>), Failure> {
    stats::approach(&mount.path)?;
    let layout = layout::of_mount(mount, CELLS_MAX)?;
    let cannot_list =
        |error: std::io::Error| Failure::new(format!("cannot list {}: {error}", mount.path.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(&mount.path).map_err(cannot_list)? {
        let entry = entry.map_err(cannot_list)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let mut directories = Vec::new();
    for name in names.into_iter().take(DIRECTORIES_MAX) {
        match usage::usage_of(&mount.path.join(&name)) {
            Ok(usage) => directories.push(Directory::new(&name, usage.stored_bytes, usage.shared_bytes)),
            // Removed meanwhile.
            Err(_) if !mount.path.join(&name).is_dir() => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok((layout, directories))
}

/// The directories of the root of a closed volume.
fn directories_of(volume: &Volume) -> betrfs::Result<Vec<Directory>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    volume.readdir(InodeId::ROOT, 0, Objects::None, &mut |entry| {
        if entry.file_type == betrfs::FileType::Directory && ![&b"."[..], b".."].contains(&entry.name) {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    names.sort();
    names.truncate(DIRECTORIES_MAX);
    let directory = |name: &Vec<u8>| {
        let node = volume.lookup(InodeId::ROOT, name)?.node;
        let usage = volume.usage(node)?;
        let shared_bytes = usage.stored_bytes.saturating_sub(usage.exclusive_bytes);
        Ok(Directory::new(OsStr::from_bytes(name), usage.stored_bytes, shared_bytes))
    };
    names.iter().map(directory).collect()
}
