//! Signals: SIGTERM, SIGINT and SIGHUP unmount.

use std::io;
use std::thread;

use betrfs_fuse::mount_point::{MountPointError, OwnMount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Unmounts on a signal; the server then ends by itself. A mount in use is detached, and lasts until its
/// users are done. Calls `end_freeze` before: the unmount would wait for the end of a freeze.
pub fn unmount_on_request(mount: OwnMount, end_freeze: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    // The thread ends with the process.
    thread::Builder::new().name("betrfs-signals".into()).spawn(move || {
        for signal in signals.forever() {
            let shown = mount.path().display();
            tracing::info!("unmounting {shown} on signal {signal}");
            end_freeze();
            let undone = match mount.unmount() {
                Err(MountPointError::Busy { .. }) => {
                    tracing::warn!("{shown} is in use: the server ends with its last user");
                    mount.detach()
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
