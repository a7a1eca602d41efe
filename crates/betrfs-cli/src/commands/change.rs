//! Changes of a volume itself: by the server of its mount, or on the closed volume.

use std::path::Path;
use std::sync::Arc;

use betree::Env;
use betrfs::Volume;
use betrfs_fuse::{CheckError, Line, MountEntry, Order};

use crate::commands::stats;
use crate::failure::Failure;
use crate::opening;

/// The mount of a volume, found by the directory, the file or the block device.
pub fn mount_of(volume: &Path) -> Option<MountEntry> {
    // Asks no server; the path of a volume's file is no root of a mount.
    if let Some(mount) = MountEntry::at(volume).ok().flatten().filter(MountEntry::is_betrfs) {
        return Some(mount);
    }
    let itself = volume.canonicalize().unwrap_or_else(|_| volume.to_owned());
    let all = MountEntry::all().unwrap_or_default();
    all.into_iter().find(|mount| mount.is_betrfs() && mount.is_of(&itself))
}

/// Has the server of a mount carry out an order; returns the answer's number. On a mount for reading nothing
/// is changed.
pub fn by_server(mount: &MountEntry, order: &Order) -> Result<u64, Failure> {
    by_server_telling(mount, order, &mut |_, _| ())
}

/// As [`by_server`]; calls `progress` with how much is done, and of how much, while that takes long.
pub fn by_server_telling(
    mount: &MountEntry,
    order: &Order,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Failure> {
    let dir = &mount.path;
    // A remount, which makes it one for changes, has orders of its own.
    if mount.is_read_only() && !matches!(order, Order::Settings(_)) {
        let words = "is read-only: it was opened for reading, or remounted so";
        return Err(Failure::new(format!("{} {words}", dir.display())));
    }
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    line.order(mount, order, progress).map_err(|error| match error {
        CheckError::Unheard(why) => stats::unheard(dir, &why),
        why => Failure::new(format!("{}: {why}", dir.display())),
    })
}

/// Carries out a change on a volume that is mounted nowhere, and closes it.
pub fn closed<T>(volume: &Path, change: impl FnOnce(&Env) -> betree::Result<T>) -> Result<T, Failure> {
    let failed = |error: betrfs::Error| Failure::new(format!("{}: {error}", volume.display()));
    let device = Arc::new(betrfs_fuse::open_device(volume)?);
    let opened = Volume::open(device, opening::options()).map_err(failed)?;
    let done = change(opened.env()).map_err(|error| failed(error.into()))?;
    opened.close().map_err(failed)?;
    Ok(done)
}
