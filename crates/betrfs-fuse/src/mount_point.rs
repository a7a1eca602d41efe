//! The mount point: checks of the directory, mount(2), umount(2).

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use betree_std::FileDevice;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
pub use rustix::mount::MountFlags;
use rustix::mount::UnmountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::control::Unheard;
use crate::loop_device::LoopDevice;
use crate::mount_info::{FS_TYPE, FS_TYPE_BLOCK, MountEntry};
use crate::status::Status;

/// Block size of a mount of a block device.
const BLOCK_BYTES: u32 = 4096;

const DEV_FUSE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";
/// Of util-linux.
const UMOUNT: &str = "umount";

/// Why mounting on a directory, or unmounting, failed.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    /// The mount point does not exist.
    #[error("the mount point {0} does not exist: make it with `mkdir -p {0}`", .path.display())]
    Missing {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("the mount point {} is not a directory", .path.display())]
    NotADirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// A volume with a live server is mounted there.
    #[error("{} is a mount of {} already: unmount that first with `betrfs umount {0}`", .path.display(), .volume.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
        /// The volume mounted there.
        volume: PathBuf,
    },
    /// The kernel offers no FUSE.
    #[error("cannot open /dev/fuse: {source}{}", dev_fuse_advice(source))]
    NoFuse {
        /// The operating system's error.
        source: io::Error,
    },
    /// Users other than root need it to mount.
    #[error(
        "cannot run {FUSERMOUNT}, which users other than root need to mount and unmount: {source}; install the package fuse3, or do it as root"
    )]
    NoFusermount {
        /// The operating system's error.
        source: io::Error,
    },
    /// The helper refused.
    #[error("{FUSERMOUNT} refused {}: {why}", .path.display())]
    Fusermount {
        /// The mount point.
        path: PathBuf,
        /// Its message.
        why: String,
    },
    /// The mount is gone, or another covers it.
    #[error("the volume is no longer what is mounted on {}: it is closed when nothing uses it", .path.display())]
    Elsewhere {
        /// The mount point.
        path: PathBuf,
    },
    /// Processes use the mount.
    #[error("{0} is in use: end what has files open or its working directory there (`fuser -vm {0}` lists it), then try again", .path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// The action that failed.
        doing: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

fn dev_fuse_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; load the kernel's module with `modprobe fuse`, or, in a container, pass the device in (`--device /dev/fuse`)"
        }
        io::ErrorKind::PermissionDenied => "; do it as root, or get the right to open it",
        _ => "",
    }
}

/// The state of a directory before it is mounted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Ready to be mounted on, empty or not.
    Directory,
    /// The mount of a server that has died; [`detach`] removes it.
    DeadMount,
}

/// Checks a directory before it is mounted on. Waits for a server for a bounded time only.
///
/// # Errors
/// [`MountPointError`], with what to do about it.
pub fn examine(path: &Path) -> Result<Found, MountPointError> {
    let found = match MountEntry::at(path) {
        Ok(found) => found,
        Err(error) => {
            return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NOENT) => MountPointError::Missing { path: path.to_owned() },
                Some(Errno::NOTDIR) => MountPointError::NotADirectory { path: path.to_owned() },
                _ => failed("examine the mount point", path, error),
            });
        }
    };
    if let Some(mount) = found.filter(MountEntry::is_betrfs) {
        return judge(path, &mount, Status::ask(&mount));
    }
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
            Err(MountPointError::NotADirectory { path: path.to_owned() })
        }
        Ok(_) => Ok(Found::Directory),
        Err(errno) => Err(failed("examine the mount point", path, errno.into())),
    }
}

/// Judges a mount by the answer to a question for its status. Only a server known to be dead makes it one to
/// replace.
fn judge(path: &Path, mount: &MountEntry, answer: Result<Status, Unheard>) -> Result<Found, MountPointError> {
    let volume = match answer {
        Err(Unheard::Dead) => return Ok(Found::DeadMount),
        Ok(status) => status.identity.volume,
        Err(_) => mount.source.clone(),
    };
    Err(MountPointError::Mounted { path: path.to_owned(), volume })
}

/// A mount that was made here, identified by its device number: another may be at its path later.
#[derive(Clone, Debug)]
pub struct OwnMount {
    path: PathBuf,
    device: (u32, u32),
    is_block: bool,
}

impl OwnMount {
    fn at(path: &Path, is_block: bool) -> Result<OwnMount, MountPointError> {
        let device = device_number(path).map_err(|e| failed("examine the mount on", path, e.into()))?;
        Ok(OwnMount { path: path.to_owned(), device, is_block })
    }

    /// Its mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a mount of a block device: umount(2) then returns when the volume is closed, and
    /// syncfs(2) reaches the server if the kernel supports that (Linux 6.18).
    pub fn is_block(&self) -> bool {
        self.is_block
    }

    /// Sets the kernel's read-ahead, 128 KiB by default.
    ///
    /// # Errors
    /// The operating system's.
    pub fn set_read_ahead(&self, kib: u32) -> io::Result<()> {
        let (major, minor) = self.device;
        // The name without a suffix is the block device's own.
        let end = if self.is_block { "-fuseblk" } else { "" };
        std::fs::write(format!("/sys/class/bdi/{major}:{minor}{end}/read_ahead_kb"), kib.to_string())
    }

    /// The mounted file system's device number, major and minor.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// As [`unmount`], if it is still there.
    ///
    /// # Errors
    /// [`MountPointError::Elsewhere`] if it is not; else as [`unmount`].
    pub fn unmount(&self) -> Result<(), MountPointError> {
        self.must_be_there()?;
        self.undo_apart(&[], unmount)
    }

    /// As [`detach`], if it is still there.
    ///
    /// # Errors
    /// [`MountPointError::Elsewhere`] if it is not; else as [`detach`].
    pub fn detach(&self) -> Result<(), MountPointError> {
        self.must_be_there()?;
        self.undo_apart(&["--lazy"], detach)
    }

    /// Unmounts from the server's own process: a mount of a block device by the program umount. There the
    /// kernel waits for the server's answer, whatever signal comes; a server that waited itself and was
    /// killed would keep its own connection open, and so wait for ever.
    fn undo_apart(
        &self,
        how: &[&str],
        by_itself: fn(&Path) -> Result<(), MountPointError>,
    ) -> Result<(), MountPointError> {
        if !self.is_block {
            return by_itself(&self.path);
        }
        let mut command = Command::new(UMOUNT);
        command.args(["--internal-only", "--no-canonicalize"]).args(how).arg("--").arg(&self.path);
        match command.env("LC_ALL", "C").stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => match printed(&output.stderr) {
                why if why.contains("busy") => Err(MountPointError::Busy { path: self.path.clone() }),
                why => Err(failed("unmount", &self.path, io::Error::other(why))),
            },
            Err(error) => {
                // The program is missing, or no process can be started.
                tracing::info!("{UMOUNT} cannot be run: {error}");
                by_itself(&self.path)
            }
        }
    }

    /// Aborts its connection, so that waiting processes get an error. Ends this process if that fails.
    pub fn abort(&self) {
        // A mount in use (EBUSY) is aborted all the same.
        let forced = rustix::mount::unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
        let (major, minor) = self.device;
        let number = u64::from(major) << 20 | u64::from(minor);
        let by_number = || std::fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
        if !matches!(forced, Ok(()) | Err(Errno::BUSY)) && by_number().is_err() {
            tracing::error!("the mount cannot be aborted otherwise: the server ends");
            std::process::abort();
        }
    }

    /// Checks the device number, which no other mount has while this server lives.
    fn must_be_there(&self) -> Result<(), MountPointError> {
        match device_number(&self.path) {
            Ok(device) if device == self.device => Ok(()),
            _ => Err(MountPointError::Elsewhere { path: self.path.clone() }),
        }
    }
}

/// The device number of the file system at a path; asks no server.
fn device_number(path: &Path) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    // With an empty mask even another user's mount answers.
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
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
    let (connection, is_block) = if rustix::process::geteuid().is_root() {
        match mount_block(device, path, flags) {
            Ok(connection) => (connection, true),
            Err(why) => {
                tracing::info!("the mount has no block device, so sync(2) does not reach it: {why}");
                (mount_as_root(device.path(), path, FS_TYPE, "", flags)?, false)
            }
        }
    } else {
        (mount_by_helper(device.path(), path, flags)?, false)
    };
    let is_ours = || MountEntry::at(path).is_ok_and(|mount| mount.is_some_and(|mount| mount.is_betrfs()));
    let mounted = OwnMount::at(path, is_block).and_then(|mount| match is_ours() {
        true => Ok(mount),
        false => Err(MountPointError::Elsewhere { path: path.to_owned() }),
    });
    match mounted {
        Ok(mount) => Ok((connection, mount)),
        Err(error) => {
            // Closed first, as nobody answers. The first failure is the one to report.
            drop(connection);
            let _ = detach(path);
            Err(error)
        }
    }
}

/// Mounts the volume's block device, or a loop device on its file that goes with the mount.
fn mount_block(device: &FileDevice, path: &Path, flags: MountFlags) -> Result<OwnedFd, MountPointError> {
    let options = format!(",blksize={BLOCK_BYTES}");
    let refused = |source| failed("have a loop device for the mount on", path, source);
    if device.is_block_device() {
        device.let_mount();
        return mount_as_root(device.path(), path, FS_TYPE_BLOCK, &options, flags);
    }
    let descriptor = device.descriptor().map_err(refused)?;
    let stand_in = LoopDevice::attach(descriptor.as_fd(), BLOCK_BYTES).map_err(refused)?;
    mount_as_root(stand_in.path(), path, FS_TYPE_BLOCK, &options, flags)
}

/// Changes a mount's flags.
///
/// # Errors
/// [`MountPointError`]; a mount with files open for writing cannot be made read-only.
pub fn remount(path: &Path, flags: MountFlags) -> Result<(), MountPointError> {
    let refused = |errno: Errno| match errno {
        Errno::BUSY => MountPointError::Busy { path: path.to_owned() },
        errno => failed("remount", path, errno.into()),
    };
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(refused)?;
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::mount::mount_remount(itself, flags, c"").map_err(refused)
}

/// Unmounts; does not wait for processes that use the mount.
///
/// # Errors
/// [`MountPointError`]: `Busy` if processes use it.
pub fn unmount(path: &Path) -> Result<(), MountPointError> {
    undo(path, UnmountFlags::NOFOLLOW, &["-u"])
}

/// Detaches a mount even if it is in use or its server is dead; processes that use it go on.
///
/// # Errors
/// [`MountPointError`], with what to do about it.
pub fn detach(path: &Path) -> Result<(), MountPointError> {
    undo(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-u", "-z"])
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> MountPointError {
    MountPointError::Io { doing, path: path.to_owned(), source }
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

/// Mounts by fusermount3, which is set-uid root; it sends the descriptor back over the socket that is its
/// standard input.
fn mount_by_helper(source: &Path, path: &Path, flags: MountFlags) -> Result<OwnedFd, MountPointError> {
    // The helper opens it with its own rights, but its message is useless if it is missing.
    std::fs::metadata(DEV_FUSE).map_err(|source| MountPointError::NoFuse { source })?;
    let refused = |source| failed("mount on", path, source);
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| refused(e.into()))?;
    let child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(helper_options(source, flags))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| MountPointError::NoFusermount { source })?;
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(|source| MountPointError::NoFusermount { source })?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(refused(error)),
        Ok(_) => Err(MountPointError::Fusermount { path: path.to_owned(), why: printed(&output.stderr) }),
    }
}

fn helper_options(source: &Path, flags: MountFlags) -> OsString {
    let mut options = b"subtype=betrfs,default_permissions,fsname=".to_vec();
    for byte in source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
    // The helper itself sets nosuid and nodev.
    let names = [
        (MountFlags::RDONLY, ",ro"),
        (MountFlags::NOEXEC, ",noexec"),
        (MountFlags::NOATIME, ",noatime"),
        (MountFlags::SYNCHRONOUS, ",sync"),
        (MountFlags::DIRSYNC, ",dirsync"),
    ];
    for (_, name) in names.iter().filter(|(flag, _)| flags.contains(*flag)) {
        options.extend_from_slice(name.as_bytes());
    }
    std::os::unix::ffi::OsStringExt::from_vec(options)
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

fn undo(path: &Path, flags: UnmountFlags, helper: &[&str]) -> Result<(), MountPointError> {
    let busy = || MountPointError::Busy { path: path.to_owned() };
    match rustix::mount::unmount(path, flags) {
        Ok(()) => return Ok(()),
        Err(Errno::BUSY) => return Err(busy()),
        // Users other than root need the helper.
        Err(Errno::PERM) => {}
        Err(errno) => return Err(failed("unmount", path, errno.into())),
    }
    let output = Command::new(FUSERMOUNT)
        .args(helper)
        .arg("--")
        .arg(path)
        .output()
        .map_err(|source| MountPointError::NoFusermount { source })?;
    let why = printed(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if why.contains("busy") => Err(busy()),
        false => Err(MountPointError::Fusermount { path: path.to_owned(), why }),
    }
}

fn printed(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfit_mount_points_are_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(examine(dir.path()).unwrap(), Found::Directory);
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
        assert_eq!(judged(Unheard::Dead).unwrap(), Found::DeadMount);
        let errno = || io::Error::from(Errno::IO);
        for unheard in
            [Unheard::Silent { server: None }, Unheard::Refused, Unheard::Elsewhere, Unheard::Io(errno())]
        {
            assert!(matches!(judged(unheard), Err(MountPointError::Mounted { .. })));
        }
    }

    #[test]
    fn a_comma_in_the_volume_path_does_not_end_the_option() {
        let options = helper_options(Path::new("/a,b\\c"), MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(options, "subtype=betrfs,default_permissions,fsname=/a\\,b\\\\c,ro,noatime");
    }

    #[test]
    fn sync_and_dirsync_reach_the_helper() {
        let options = helper_options(Path::new("/v"), MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC);
        assert_eq!(options, "subtype=betrfs,default_permissions,fsname=/v,sync,dirsync");
    }

    #[test]
    fn another_mount_at_the_same_path_is_not_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnMount::at(dir.path(), false).unwrap();
        // It is there, and is no mount.
        assert!(!matches!(own.unmount(), Ok(()) | Err(MountPointError::Elsewhere { .. })));
        let other = OwnMount { device: (own.device.0, own.device.1 + 1), ..own };
        assert!(matches!(other.unmount(), Err(MountPointError::Elsewhere { .. })));
        assert!(matches!(other.detach(), Err(MountPointError::Elsewhere { .. })));
        dir.close().unwrap();
        assert!(matches!(other.unmount(), Err(MountPointError::Elsewhere { .. })));
    }

    #[test]
    fn unmounting_a_plain_directory_fails() {
        let dir = tempfile::tempdir().unwrap();
        assert!(unmount(dir.path()).is_err());
        assert!(detach(dir.path()).is_err());
    }
}
