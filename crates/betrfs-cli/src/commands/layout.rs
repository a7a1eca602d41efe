//! What lies where on a volume: by the server of its mount, or on the closed volume, which is only read.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use betrfs::{OpenMode, Volume};
use betrfs_fuse::{CheckError, Layout, Line, MountEntry};

use crate::commands::check::failed;
use crate::commands::stats;
use crate::failure::Failure;
use crate::opening;

/// Asks the server of a mount, in at most `cells_max` cells.
pub fn of_mount(mount: &MountEntry, cells_max: u32) -> Result<Layout, Failure> {
    let dir = &mount.path;
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    line.layout(mount, cells_max).map_err(|error| match error {
        CheckError::Unheard(why) => stats::unheard(dir, &why),
        why => Failure::new(format!("{}: {why}", dir.display())),
    })
}

/// Looks at an open volume, in at most `cells_max` cells.
pub fn of_volume(volume: &Volume, cells_max: u32) -> betrfs::Result<Layout> {
    Layout::of(volume, cells_max, &mut || ControlFlow::Continue(()))
}

/// Opens a volume that is mounted nowhere for `look`. Nothing is written: its log is replayed in memory.
pub fn with_closed<T>(volume: &Path, look: impl FnOnce(&Volume) -> betrfs::Result<T>) -> Result<T, Failure> {
    let failed = |error: betrfs::Error| failed(&volume.display().to_string(), &error);
    let device = Arc::new(betrfs_fuse::open_device_for_reading(volume)?);
    let mut options = opening::options();
    options.mode = OpenMode::ReadOnly;
    let opened = Volume::open(device, options).map_err(failed)?;
    let seen = look(&opened).map_err(failed)?;
    opened.close().map_err(failed)?;
    Ok(seen)
}
