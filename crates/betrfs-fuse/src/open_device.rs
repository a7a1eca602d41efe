//! Opening a volume's file or block device, which a server may be about to close, or a dead mount may claim.

use std::path::Path;
use std::time::Duration;

use betree_std::{FileDevice, Holder, OpenError};

use crate::control::Unheard;
use crate::mount_info::MountEntry;
use crate::status::Status;

/// How long to wait for a server that is still closing a volume after its unmount.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(10);

/// Opens a volume's file or block device. A volume in use and mounted nowhere is usually being closed or
/// checked: this waits for that, ten seconds at most.
///
/// # Errors
/// As [`FileDevice::open`].
pub fn open_device(path: &Path) -> Result<FileDevice, OpenError> {
    let opened = FileDevice::open_waiting(path, CLOSING_TIME_MAX, || !is_mounted(path));
    opened.map_err(|error| with_mount(error, path))
}

/// As [`open_device`], for reading: it may be read-only, and others may read it too.
///
/// # Errors
/// As [`FileDevice::open_for_reading`]; [`OpenError::InUse`] for the loop device of a mount with a server.
pub fn open_device_for_reading(path: &Path) -> Result<FileDevice, OpenError> {
    if is_of_live_mount(path) {
        return Err(with_mount(OpenError::in_use(path), path));
    }
    let opened = FileDevice::open_for_reading_waiting(path, CLOSING_TIME_MAX, || !is_mounted(path));
    opened.map_err(|error| with_mount(error, path))
}

/// As [`open_device`], to replace a dead mount: if that is one of this volume, its claim on the block device
/// is no hindrance. The dead mount stays until the volume is open, so that programs meet no bare directory.
///
/// # Errors
/// As [`FileDevice::open`].
pub fn open_device_replacing(path: &Path, dead: &MountEntry) -> Result<FileDevice, OpenError> {
    if is_mount_of(dead, path) {
        FileDevice::open_replacing_waiting(path, CLOSING_TIME_MAX)
    } else {
        open_device(path)
    }
}

/// Whether it is the loop device by which a file is mounted: the lock of the mount's server is on the file.
fn is_of_live_mount(path: &Path) -> bool {
    let itself = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let all = MountEntry::all().unwrap_or_default();
    let mut stand_ins = all.iter().filter(|mount| mount.source == itself && mount.stands_for_file());
    stand_ins.any(|mount| !matches!(Status::ask(mount), Err(Unheard::Dead)))
}

/// Whether a volume's file or block device is mounted.
fn is_mounted(path: &Path) -> bool {
    mount_of(path).is_some()
}

/// A mount of a volume's file or block device.
fn mount_of(path: &Path) -> Option<MountEntry> {
    MountEntry::all().unwrap_or_default().into_iter().find(|mount| is_mount_of(mount, path))
}

/// The error with the directory on which the volume is mounted.
fn with_mount(error: OpenError, path: &Path) -> OpenError {
    match error {
        OpenError::InUse { path: shown, holder, mounted_on: None } => {
            let mount = mount_of(path);
            // The server of a mount by a loop device has locked the file.
            let holder = holder.or_else(|| Holder::of(&mount.as_ref()?.volume()));
            OpenError::InUse { path: shown, holder, mounted_on: mount.map(|mount| mount.path) }
        }
        error => error,
    }
}

/// Whether a mount is one of a volume's file or block device.
fn is_mount_of(mount: &MountEntry, path: &Path) -> bool {
    mount.is_of(&path.canonicalize().unwrap_or_else(|_| path.to_owned()))
}
