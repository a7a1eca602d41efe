//! What is known of a volume by its file or block device.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use betrfs_fuse::{ErrorStatus, Status};
use serde::Serialize;

use crate::commands::{change, metadata_copies, stats};
use crate::errors;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::size;
use crate::tags::Tags;

#[derive(Serialize)]
struct VolumeInfo {
    #[serde(flatten)]
    volume: Name,
    label: String,
    uuid: String,
    /// Where it is mounted, if it is.
    #[serde(flatten)]
    dir: Name,
    /// That of its mount; else `closed`, or `not-closed`: then a mount replays its log.
    state: String,
    volume_bytes: u64,
    /// Null for a volume that does not grow by itself.
    grow_to_bytes: Option<u64>,
    /// Null for the mount of a server of an earlier version.
    metadata_copies: Option<u32>,
    errors: ErrorStatus,
}

/// Whether a path leads to something that may hold a volume.
pub fn may_be(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
}

/// What the server of its mount says or, if nobody has mounted it, its superblock.
fn volume_info(path: &Path) -> Result<VolumeInfo, Failure> {
    let volume = Name::new("volume", path);
    if let Some(mount) = change::mount_of(path) {
        let status = Status::ask(&mount).map_err(|why| stats::unheard(&mount.path, &why))?;
        return Ok(VolumeInfo {
            volume,
            label: status.label,
            uuid: status.uuid,
            dir: Name::new("dir", &mount.path),
            state: status.state.is,
            volume_bytes: status.room.volume_bytes,
            grow_to_bytes: status.room.grow_to_bytes,
            metadata_copies: status.metadata_copies,
            errors: status.errors,
        });
    }
    let tags = Tags::read(path)?;
    Ok(VolumeInfo {
        volume,
        label: tags.label,
        uuid: tags.uuid.to_string(),
        dir: Name::or_null("dir", None::<OsString>),
        state: if tags.closed { "closed" } else { "not-closed" }.to_owned(),
        volume_bytes: tags.volume_bytes,
        grow_to_bytes: tags.grow_to_bytes,
        metadata_copies: Some(tags.metadata_copies),
        errors: tags.errors.into(),
    })
}

/// Prints it.
pub fn show(path: &Path, format: Format) -> Outcome {
    let info = volume_info(path)?;
    if format == Format::Json {
        return print_json(&info);
    }
    print(format_args!("volume     {}", info.volume))?;
    print(format_args!("label      {}", info.label))?;
    print(format_args!("uuid       {}", info.uuid))?;
    match info.dir.shown() {
        Some(dir) => print(format_args!("mounted on {dir}, {}", info.state))?,
        None => print(format_args!("state      {}", info.state))?,
    }
    let grows = info.grow_to_bytes.map(|bytes| format!(", grows to {}", size::show(bytes)));
    print(format_args!("room       {}{}", size::show(info.volume_bytes), grows.unwrap_or_default()))?;
    print(format_args!("copies     {} of metadata", metadata_copies::shown(info.metadata_copies)))?;
    print(format_args!("errors     {}", errors::sentence(&info.errors)))
}
