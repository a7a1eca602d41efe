//! Opening a volume's file or block device, which a server may be about to close, or a dead mount may claim.

use std::path::Path;
use std::time::Duration;

use betree_std::{FileDevice, OpenError};

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
    FileDevice::open_waiting(path, CLOSING_TIME_MAX, || !is_mounted(path))
}

/// As [`open_device`], for reading: it may be read-only, and others may read it too.
///
/// # Errors
/// As [`FileDevice::open_for_reading`]; [`OpenError::InUse`] for the loop device of a mount with a server.
pub fn open_device_for_reading(path: &Path) -> Result<FileDevice, OpenError> {
    if is_of_live_mount(path) {
        return Err(OpenError::InUse { path: path.to_owned() });
    }
    FileDevice::open_for_reading_waiting(path, CLOSING_TIME_MAX, || !is_mounted(path))
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
    MountEntry::all().unwrap_or_default().iter().any(|mount| is_mount_of(mount, path))
}

/// Whether a mount is one of a volume's file or block device.
fn is_mount_of(mount: &MountEntry, path: &Path) -> bool {
    mount.is_of(&path.canonicalize().unwrap_or_else(|_| path.to_owned()))
}
