//! `betrfs info`: the volume that a path is on, and the object at the path; or a volume by its file.

mod volume;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use betrfs_fuse::{ErrorStatus, MountEntry, Status};
use serde::Serialize;

use crate::commands::{metadata_copies, stats};
use crate::errors;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::size;
use crate::tags;

/// Show the volume that a path is on, and what is at the path; or a volume, mounted or not
#[derive(clap::Args)]
#[command(after_help = "\
Only root and the user who mounted a volume may ask about a mount. Of a file or block device that is on no BetrFS mount it \
shows the volume in it; of one that is not mounted, as its superblock has it. Errors are those that were counted since \
the volume was made, or since `betrfs stats --reset-errors`.

Examples:
  betrfs info /mnt/tree
  betrfs info /dev/sdb1")]
pub struct Arguments {
    /// A path on a mount, or a volume's file or block device, UUID=... or LABEL=...
    path: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    volume: Name,
    label: String,
    uuid: String,
    #[serde(flatten)]
    dir: Name,
    pid: i32,
    state: String,
    volume_bytes: u64,
    /// Null for a volume that does not grow by itself.
    grow_to_bytes: Option<u64>,
    /// Null for the mount of a server of an earlier version.
    metadata_copies: Option<u32>,
    errors: ErrorStatus,
    kind: &'static str,
    inode: u64,
    links: u64,
    size_bytes: u64,
    snapshots: Option<usize>,
}

fn kind_of(found: &fs::Metadata) -> &'static str {
    match found {
        _ if found.is_dir() => "directory",
        _ if found.is_file() => "file",
        _ if found.is_symlink() => "symbolic link",
        _ => "special file",
    }
}

/// What is known of a path on a mount; `None` for one that is on no BetrFS mount.
fn info(path: &Path) -> Result<Option<Info>, Failure> {
    let shown = path.display();
    stats::approach(path)?;
    let failed = |error: std::io::Error| Failure::new(format!("cannot examine {shown}: {error}"));
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
    let open =
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let mount = MountEntry::of(&open).map_err(failed)?;
    if !mount.is_betrfs() {
        return Ok(None);
    }
    let found = fs::File::from(open).metadata().map_err(failed)?;
    let status = Status::ask(&mount).map_err(|why| stats::unheard(&mount.path, &why))?;
    // In a frozen directory with a name that waits to be made nothing can be looked up.
    let snapshots = if found.is_dir() && status.state.is != "frozen" { count_snapshots(path) } else { None };
    Ok(Some(Info {
        volume: Name::new("volume", stats::volume_of(&mount, &status)),
        label: status.label,
        uuid: status.uuid,
        dir: Name::new("dir", &mount.path),
        pid: status.identity.pid,
        state: status.state.is,
        volume_bytes: status.room.volume_bytes,
        grow_to_bytes: status.room.grow_to_bytes,
        metadata_copies: status.metadata_copies,
        errors: status.errors,
        kind: kind_of(&found),
        inode: found.ino(),
        links: found.nlink(),
        size_bytes: found.len(),
        snapshots,
    }))
}

/// The snapshots of a directory itself; `None` where they cannot be listed, as inside of a snapshot.
fn count_snapshots(dir: &Path) -> Option<usize> {
    let open = betrfs_fuse::open_snapshots(dir).ok()?;
    let names = rustix::fs::Dir::new(open).ok()?.filter_map(Result::ok);
    Some(names.filter(|entry| ![&b"."[..], b".."].contains(&entry.file_name().to_bytes())).count())
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = tags::resolved(&arguments.path)?;
    let Some(info) = info(&path)? else {
        let shown = path.display();
        return match volume::may_be(&path) {
            true => volume::show(&path, arguments.format),
            false => {
                Err(Failure::new(format!("{shown} is on no BetrFS mount: `betrfs list` lists all mounts")))
            }
        };
    };
    if arguments.format == Format::Json {
        return print_json(&info);
    }
    print(format_args!("volume     {}", info.volume))?;
    print(format_args!("label      {}", info.label))?;
    print(format_args!("uuid       {}", info.uuid))?;
    print(format_args!("mounted on {}, by process {}, {}", info.dir, info.pid, info.state))?;
    let grows = info.grow_to_bytes.map(|bytes| format!(", grows to {}", size::show(bytes)));
    print(format_args!("room       {}{}", size::show(info.volume_bytes), grows.unwrap_or_default()))?;
    print(format_args!("copies     {} of metadata", metadata_copies::shown(info.metadata_copies)))?;
    print(format_args!("errors     {}", errors::sentence(&info.errors)))?;
    print(format_args!("kind       {}, inode {}, {} links", info.kind, info.inode, info.links))?;
    print(format_args!("size       {} ({} bytes)", size::show(info.size_bytes), info.size_bytes))?;
    info.snapshots.map_or(Ok(()), |count| print(format_args!("snapshots  {count}")))
}
