//! What lies where on a volume: by the server of its mount, or on the closed volume, which is only read.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use betree_std::StdPlatform;
use betrfs::{OpenMode, OpenOptions, Volume};
use betrfs_fuse::{CheckError, Layout, Line, MountEntry};

use crate::commands::check::failed;
use crate::commands::stats;
use crate::failure::Failure;

/// Asks the server of a mount, in at most `cells_max` cells.
pub fn of_mount(mount: &MountEntry, cells_max: u32) -> Result<Layout, Failure> {
    let dir = &mount.path;
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    line.layout(mount, cells_max).map_err(|error| match error {
        CheckError::Unheard(why) => stats::unheard(dir, &why),
        CheckError::Failed(why) => Failure::new(format!("{}: {why}", dir.display())),
    })
}

/// Looks at a volume that is mounted nowhere, in at most `cells_max` cells. Its log is replayed in memory.
pub fn of_closed(volume: &Path, cells_max: u32) -> Result<Layout, Failure> {
    let failed = |error: betrfs::Error| failed(&volume.display().to_string(), &error);
    let device = Arc::new(betrfs_fuse::open_device_for_reading(volume)?);
    let options = OpenOptions { mode: OpenMode::ReadOnly, ..OpenOptions::new(Arc::new(StdPlatform::new())) };
    let opened = Volume::open(device, options).map_err(failed)?;
    let layout = Layout::of(&opened, cells_max, &mut || ControlFlow::Continue(())).map_err(failed)?;
    opened.close().map_err(failed)?;
    Ok(layout)
}
