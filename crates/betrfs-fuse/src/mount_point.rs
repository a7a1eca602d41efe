//! The mount point: checks of the directory, mount(2), umount(2).

mod error;
mod found;
mod helper;
mod own_mount;
mod users;

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use betree_std::FileDevice;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
pub use rustix::mount::MountFlags;

pub use error::MountPointError;
use error::failed;
pub use found::FoundMount;
pub use own_mount::OwnMount;

use crate::control::Unheard;
use crate::loop_device::LoopDevice;
use crate::mount_info::{FS_TYPE, FS_TYPE_BLOCK, MountEntry};
use crate::status::Status;

/// Block size of a mount of a block device.
const BLOCK_BYTES: u32 = 4096;

const DEV_FUSE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";

/// The state of a directory before it is mounted on.
#[derive(Debug)]
pub enum Found {
    /// Ready to be mounted on, empty or not.
    Directory,
    /// The mount of a server that has died, to be [detached](FoundMount::detach).
    DeadMount(FoundMount),
}

/// Checks a directory before it is mounted on. Waits for a server for a bounded time only.
///
/// # Errors
/// [`MountPointError`], with what to do about it.
pub fn examine(path: &Path) -> Result<Found, MountPointError> {
    while let Some(mount) = mount_at(path)? {
        let id = mount.id;
        let found = FoundMount::of(mount).map_err(|e| failed("examine the mount point", path, e))?;
        match judge(path, found.entry(), Status::ask(found.entry())) {
            Ok(()) => return Ok(Found::DeadMount(found)),
            // It may be one that went while it was asked: its server was about to unmount it.
            Err(error) if mount_at(path)?.is_some_and(|mount| mount.id == id) => return Err(error),
            Err(_) => {}
        }
    }
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
            Err(MountPointError::NotADirectory { path: path.to_owned() })
        }
        Ok(_) => Ok(Found::Directory),
        Err(errno) => Err(failed("examine the mount point", path, errno.into())),
    }
}

/// The BetrFS mount at a path, if there is one.
fn mount_at(path: &Path) -> Result<Option<MountEntry>, MountPointError> {
    let found =
        MountEntry::at(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => MountPointError::Missing { path: path.to_owned() },
            Some(Errno::NOTDIR) => MountPointError::NotADirectory { path: path.to_owned() },
            _ => failed("examine the mount point", path, error),
        })?;
    Ok(found.filter(MountEntry::is_betrfs))
}

/// Judges a mount by the answer to a question for its status. Only a server known to be dead makes it one to
/// replace.
fn judge(path: &Path, mount: &MountEntry, answer: Result<Status, Unheard>) -> Result<(), MountPointError> {
    let volume = match answer {
        Err(Unheard::Dead) => return Ok(()),
        Ok(status) => status.identity.volume,
        Err(_) => mount.volume(),
    };
    Err(MountPointError::Mounted { path: path.to_owned(), volume })
}

/// Mounts; returns the server's end of the connection, and the mount. For root it is a mount of a block
/// device if possible: of the volume's own, or of a loop device on its file.
///
/// # Errors
/// [`MountPointError`], with what to do about it.
pub fn mount(
    device: &FileDevice,
    path: &Path,
    flags: MountFlags,
) -> Result<(OwnedFd, OwnMount), MountPointError> {
    let spare = own_mount::spare_files().map_err(|e| failed("mount on", path, e))?;
    let (connection, is_block) = if rustix::process::geteuid().is_root() {
        match mount_block(device, path, flags) {
            Ok(connection) => (connection, true),
            Err(why) => {
                tracing::info!("the mount has no block device, so sync(2) does not reach it: {why}");
                (mount_as_root(device.path(), path, FS_TYPE, "", flags)?, false)
            }
        }
    } else {
        (helper::mount(device.path(), path, flags)?, false)
    };
    let mount = OwnMount::at(path, &connection, is_block, spare)?;
    match mount.found() {
        Ok(_) => Ok((connection, mount)),
        Err(error) => {
            // Closed first, as nobody answers. The first failure is the one to report.
            drop(connection);
            let _ = mount.detach();
            Err(error)
        }
    }
}

/// Mounts the volume's block device, or a loop device that goes with the mount: on its file, or on its block
/// device while that is claimed by a dead mount in use, whose connection the kernel would give a new mount.
fn mount_block(device: &FileDevice, path: &Path, flags: MountFlags) -> Result<OwnedFd, MountPointError> {
    let options = format!(",blksize={BLOCK_BYTES}");
    let refused = |source| failed("have a loop device for the mount on", path, source);
    if device.is_block_device() && device.let_mount() {
        return mount_as_root(device.path(), path, FS_TYPE_BLOCK, &options, flags);
    }
    let descriptor = device.descriptor().map_err(refused)?;
    let stand_in = LoopDevice::attach(descriptor.as_fd(), BLOCK_BYTES).map_err(refused)?;
    mount_as_root(stand_in.path(), path, FS_TYPE_BLOCK, &options, flags)
}

fn mount_as_root(
    source: &Path,
    path: &Path,
    fs_type: &str,
    options: &str,
    flags: MountFlags,
) -> Result<OwnedFd, MountPointError> {
    let device = rustix::fs::open(DEV_FUSE, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty())
        .map_err(|errno| MountPointError::NoFuse { source: errno.into() })?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other{options}",
        device.as_raw_fd()
    );
    let refused = |source| failed("mount on", path, source);
    let data = CString::new(data).map_err(|e| refused(e.into()))?;
    // A descriptor, because other users may change the names on the path at any moment.
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(path, place, Mode::empty()).map_err(|e| refused(e.into()))?;
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    let mounted = rustix::mount::mount(source, itself.as_str(), fs_type, flags, data.as_c_str());
    mounted.map_err(|e| refused(e.into()))?;
    Ok(device)
}

/// What a program has printed.
fn printed(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn unfit_mount_points_are_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(examine(dir.path()), Ok(Found::Directory)));
        let missing = dir.path().join("no/such");
        let told = examine(&missing).unwrap_err().to_string();
        assert!(told.contains(&format!("mkdir -p {}", missing.display())), "{told}");
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(examine(&file), Err(MountPointError::NotADirectory { .. })));
        assert!(matches!(examine(&file.join("x")), Err(MountPointError::NotADirectory { .. })));
    }

    #[test]
    fn a_mount_that_may_be_live_is_not_replaced() {
        let mount = MountEntry::at(Path::new("/proc")).unwrap().unwrap();
        let judged = |answer| judge(Path::new("/mnt"), &mount, Err(answer));
        judged(Unheard::Dead).unwrap();
        let errno = || io::Error::from(Errno::IO);
        for unheard in
            [Unheard::Silent { server: None }, Unheard::Refused, Unheard::Elsewhere, Unheard::Io(errno())]
        {
            assert!(matches!(judged(unheard), Err(MountPointError::Mounted { .. })));
        }
    }
}
