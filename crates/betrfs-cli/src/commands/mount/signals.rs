//! SIGTERM, SIGINT and SIGHUP unmount.

use std::io;
use std::path::PathBuf;
use std::thread;

use betrfs_fuse::mount_point::{self, MountPointError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Unmounts when a signal asks for it; the server then ends by itself. What uses the mount keeps it
/// until it is done, out of sight.
pub fn unmount_on_request(mount_point: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    // It ends with the process.
    thread::Builder::new().name("betrfs-signals".into()).spawn(move || {
        for signal in signals.forever() {
            tracing::info!("unmounting {} on signal {signal}", mount_point.display());
            let undone = match mount_point::unmount(&mount_point) {
                Err(MountPointError::Busy { .. }) => {
                    tracing::warn!("{} is in use: it ends when that ends", mount_point.display());
                    mount_point::detach(&mount_point)
                }
                other => other,
            };
            if let Err(error) = undone {
                tracing::error!("{error}");
            }
        }
    })?;
    Ok(())
}
