//! A mount found at a path, held by descriptors, because names on the path may change at any moment.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::error::failed;
use super::{MountPointError, helper};
use crate::mount_info::{MountEntry, mount_id};

/// A mount found at a path, which was followed once: all calls are about this mount, or fail.
///
/// An open root would keep the mount in use. So the directory above is open, and the mount point's name in it
/// is checked before each use. Where a directory is a mount point, nobody can rename it (`EBUSY`).
#[derive(Debug)]
pub struct FoundMount {
    entry: MountEntry,
    parent: OwnedFd,
    name: OsString,
}

impl FoundMount {
    /// The mount whose root is at a path; `None` if the path is no root of a mount. Asks no server.
    ///
    /// # Errors
    /// The operating system's: the path cannot be followed; `EINVAL` if it is the root of all.
    pub fn at(path: &Path) -> io::Result<Option<FoundMount>> {
        MountEntry::at(path)?.map(FoundMount::of).transpose()
    }

    pub(super) fn of(entry: MountEntry) -> io::Result<FoundMount> {
        let (Some(parent), Some(name)) = (entry.path.parent(), entry.path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (parent, name) = (rustix::fs::open(parent, flags, Mode::empty())?, name.to_owned());
        Ok(FoundMount { entry, parent, name })
    }

    /// The mount with a number, on a name in the directory that is open; `None` if it is no longer mounted.
    ///
    /// # Errors
    /// The operating system's; `EINVAL` if it is the root of all.
    pub fn numbered(id: u64, parent: OwnedFd) -> io::Result<Option<FoundMount>> {
        let Some(entry) = MountEntry::all()?.into_iter().find(|entry| entry.id == id) else {
            return Ok(None);
        };
        let name = entry.path.file_name().ok_or(Errno::INVAL)?.to_owned();
        Ok(Some(FoundMount { entry, parent, name }))
    }

    /// The directory that its name is in, for [`numbered`](FoundMount::numbered) in another process.
    ///
    /// # Errors
    /// The operating system's: no more open files.
    pub fn parent(&self) -> io::Result<OwnedFd> {
        self.parent.try_clone()
    }

    /// Its line of the kernel's list.
    pub fn entry(&self) -> &MountEntry {
        &self.entry
    }

    /// Its root, which keeps the mount in use while it is open.
    ///
    /// # Errors
    /// [`MountPointError::Elsewhere`] if another mount or none is there by now.
    pub fn root(&self) -> Result<OwnedFd, MountPointError> {
        // Of a bind mount of a file, the root is a file. A symbolic link is opened itself, and is on no mount
        // that was found here.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let elsewhere = || MountPointError::Elsewhere { path: self.entry.path.clone() };
        let unseen = |error| failed("examine the mount on", &self.entry.path, error);
        let root = match rustix::fs::openat(&self.parent, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(elsewhere()),
            root => root.map_err(|errno| unseen(errno.into()))?,
        };
        if mount_id(&root).map_err(unseen)? == self.entry.id { Ok(root) } else { Err(elsewhere()) }
    }

    /// Unmounts it; does not wait for processes that use it.
    ///
    /// # Errors
    /// [`MountPointError`]: `Busy` if processes use it, `MountedOn` if something is mounted on it,
    /// `Elsewhere` if it is no longer there.
    pub fn unmount(&self) -> Result<(), MountPointError> {
        self.must_be_there()?;
        let unmounted = rustix::mount::unmount(below(&self.parent, &self.name), UnmountFlags::NOFOLLOW);
        match undone(unmounted, &self.entry.path, &["-u"]) {
            Err(MountPointError::Busy { path }) => {
                Err(self.used_by_mounts().unwrap_or(MountPointError::Busy { path }))
            }
            undone => undone,
        }
    }

    /// The error that names a mount on this one, if there is any.
    fn used_by_mounts(&self) -> Option<MountPointError> {
        let mounts = MountEntry::all().ok()?;
        // The last one is nothing else's place, as a rule.
        let mounted = mounts.into_iter().rfind(|other| other.parent_id == self.entry.id)?.path;
        Some(MountPointError::MountedOn { path: self.entry.path.clone(), mounted })
    }

    /// Detaches it even if it is in use or its server is dead; processes that use it go on.
    ///
    /// # Errors
    /// [`MountPointError`]: `Elsewhere` if it is no longer there.
    pub fn detach(&self) -> Result<(), MountPointError> {
        let detached = rustix::mount::unmount(itself(&self.root()?), UnmountFlags::DETACH);
        undone(detached, &self.entry.path, &["-u", "-z"])
    }

    /// Changes its flags.
    ///
    /// # Errors
    /// [`MountPointError`]; a mount with files open for writing cannot be made read-only.
    pub fn remount(&self, flags: MountFlags) -> Result<(), MountPointError> {
        let path = &self.entry.path;
        rustix::mount::mount_remount(itself(&self.root()?), flags, c"").map_err(|errno| match errno {
            Errno::BUSY => MountPointError::Busy { path: path.clone() },
            errno => failed("remount", path, errno.into()),
        })
    }

    /// Aborts its connection, so that waiting processes get an error. It stays mounted: its root is open.
    pub(super) fn abort(&self) -> Result<(), MountPointError> {
        match rustix::mount::unmount(itself(&self.root()?), UnmountFlags::FORCE) {
            Ok(()) | Err(Errno::BUSY) => Ok(()),
            Err(errno) => Err(failed("abort", &self.entry.path, errno.into())),
        }
    }

    /// For a program that inherits the first as its standard input, the second is the mount point's path.
    pub(super) fn for_program(&self) -> Result<(OwnedFd, PathBuf), MountPointError> {
        self.must_be_there()?;
        let parent = self.parent.try_clone().map_err(|e| failed("unmount", &self.entry.path, e))?;
        Ok((parent, Path::new("/proc/self/fd/0").join(&self.name)))
    }

    fn must_be_there(&self) -> Result<(), MountPointError> {
        self.root().map(drop)
    }
}

/// A path that leads to an open file, whatever its names.
fn itself(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn below(dir: &OwnedFd, name: &OsString) -> PathBuf {
    Path::new(&itself(dir)).join(name)
}

fn undone(by_kernel: Result<(), Errno>, path: &Path, by_helper: &[&str]) -> Result<(), MountPointError> {
    match by_kernel {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountPointError::Busy { path: path.to_owned() }),
        // Users other than root need the helper, which unmounts nothing but their own mounts.
        Err(Errno::PERM) => helper::unmount(path, by_helper),
        Err(errno) => Err(failed("unmount", path, errno.into())),
    }
}

/// The device number of the file system whose server has this connection; `None` on kernels that do not tell.
pub(super) fn device_of(connection: &OwnedFd) -> Option<(u32, u32)> {
    use std::io::Read;
    let mut told = String::new();
    File::open(format!("/proc/self/fdinfo/{}", connection.as_raw_fd()))
        .ok()?
        .read_to_string(&mut told)
        .ok()?;
    let number = told.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok());
    number.map(|number: u32| (number >> 20, number & 0xf_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_directory_and_the_root_of_all_are_no_mounts_to_undo() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FoundMount::at(dir.path()).unwrap().is_none());
        assert!(FoundMount::at(Path::new("/")).is_err());
    }

    /// As if the mount had gone, or its name led to another by now.
    #[test]
    fn nothing_is_done_to_another_mount_at_the_same_name() {
        let mut found = FoundMount::at(Path::new("/proc")).unwrap().unwrap();
        found.root().unwrap();
        found.entry.id += 1;
        for refused in [found.unmount(), found.detach(), found.remount(MountFlags::empty()), found.abort()] {
            assert!(matches!(refused, Err(MountPointError::Elsewhere { .. })), "{refused:?}");
        }
        assert!(found.for_program().is_err());
    }
}
