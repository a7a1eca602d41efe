//! `betrfs image`: a picture of what lies where on a volume.

mod picture;

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use betrfs::{InodeId, Objects, Volume};
use betrfs_fuse::{Layout, MountEntry};
use jiff::Timestamp;
use serde::Serialize;

use crate::commands::{change, layout, stats, usage};
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
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
    if !to_output && fs::symlink_metadata(&arguments.picture).is_ok() {
        if !arguments.force {
            return Err(Failure::new(format!("{shown} exists: `--force` replaces it")));
        }
        // One word too few, and the volume itself would be replaced.
        if !is_picture(&arguments.picture).map_err(|error| cannot_write(&error))? {
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
    if to_output {
        return print(svg.trim_end());
    }
    write(&arguments.picture, arguments.force, svg.as_bytes()).map_err(|error| cannot_write(&error))?;
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

/// Writes the picture to a new file, or with `force` over an older one: the file that is emptied is looked at
/// once more, as another may have got its name since.
fn write(path: &Path, force: bool, svg: &[u8]) -> std::io::Result<()> {
    let mut options = fs::File::options();
    let mut file = match options.write(true).create_new(true).open(path) {
        Err(error) if force && error.kind() == ErrorKind::AlreadyExists => {
            let file = fs::File::options().read(true).write(true).open(path)?;
            if !file.metadata()?.is_file() || !begins_as_picture(&file)? {
                return Err(ErrorKind::AlreadyExists.into());
            }
            file.set_len(0)?;
            file
        }
        made => made?,
    };
    file.write_all(svg)
}

/// Whether a file begins as pictures of this command do, or is empty.
fn is_picture(path: &Path) -> std::io::Result<bool> {
    if !fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    begins_as_picture(&fs::File::open(path)?)
}

fn begins_as_picture(file: &fs::File) -> std::io::Result<bool> {
    let mut begin = vec![0; PICTURE_BEGIN.len()];
    let mut len = 0;
    while let Some(rest) = begin.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len == 0 || begin == PICTURE_BEGIN.as_bytes())
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
