//! Requests of a process to a mount about a file or directory as a whole: by ioctl(2), and by setxattr(2) to
//! change something, so that the kernel checks the caller's mount ([`crate::wire::change`]).
//!
//! Names are left to the kernel: to copy, a process makes an empty file or directory under a temporary name,
//! has the server fill it, and renames it to its place; to remove a tree, it has the server empty the
//! directory and then removes it like any other. So permissions hold, and the kernel's cache of names stays
//! right, without more work. Requests are about open files, never paths; a token names the source of a copy.
#![allow(unsafe_code)] // ioctl(2), whose argument only its number describes.

mod properties;
mod quota;
mod recompress;
mod restore;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use betree_platform::Platform;
use betrfs::{Held, SNAPSHOTS_NAME, SnapshotsBelow};
use rustix::fs::{Access, AtFlags, IFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Setter, ioctl};
use rustix::process::Uid;

use crate::control::{Line, Unheard, become_user};
use crate::mount_info::{MountEntry, mount_id};
use crate::mounts_below::has_mounts_below;
use crate::wire::change::{CHANGE, change_bytes};
use crate::wire::ioctl::{
    EMPTY, EMPTY_WITH_SNAPSHOTS, FILL, FOREIGN, HELD, HeldBytes, PERMIT, PathBytes, SOURCE, UNFINISHED,
    USAGE, WRITTEN_BACK, held_of,
};

pub use properties::{properties, set_properties};
pub use quota::{Quotas, clear_quota, quota, quota_token};
pub use recompress::{checkpoint, recompress, recompress_permit};
pub use restore::{Restoration, RestoreError};

/// Time between two questions whether data written to mappings has arrived.
const WRITE_BACK_POLL: Duration = Duration::from_millis(1);

/// Makes sure that the server of the mount of `path` answers, and that this thread may go there: a mount for
/// its owner alone refuses even root, so this thread then becomes the owner. Does nothing if the path is on
/// no BetrFS mount.
///
/// # Errors
/// [`Unheard`], after [`ANSWER_TIME_MAX`](crate::ANSWER_TIME_MAX) at the latest.
pub fn approach(path: &Path) -> Result<(), Unheard> {
    let path = std::path::absolute(path)?;
    let above =
        MountEntry::all()?.into_iter().filter(|mount| mount.is_betrfs() && path.starts_with(&mount.path));
    // By the name alone: following the path could already wait for a server that does not answer.
    let by_name = above.max_by_key(|mount| mount.path.as_os_str().len());
    let by_link = || {
        let place = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        MountEntry::of(place).ok().filter(MountEntry::is_betrfs)
    };
    let Some(mount) = by_name.or_else(by_link) else { return Ok(()) };
    match Line::open(&mount).and_then(Line::ping) {
        // A refusal shows when the server is asked to do something.
        Ok(()) | Err(Unheard::Refused | Unheard::Elsewhere) => {}
        Err(unheard) => return Err(unheard),
    }
    if !mount.is_for_all() {
        become_user(mount.owner()).map_err(io::Error::from)?;
    }
    Ok(())
}

/// Makes `target`, which must not exist, a copy of the file or directory `source` on the same mount, with all
/// writes to it that have returned, and those to its mappings. The copy appears whole or not at all.
///
/// Other users may be able to change names in the target's directory: each name is used in one open
/// directory, and the file behind it is checked before it is taken for the one made here.
///
/// # Errors
/// The operating system's; `ENOTTY` if `source` is on no BetrFS mount, `ELOOP` if it is a symbolic link,
/// `ENODEV` if it is no file or directory, `EXDEV` if `target` is not on the same mount, `EPERM` if the
/// directory of `target` is immutable or append-only: a finished copy cannot be renamed there.
pub fn clone(source: &Path, target: &Path, platform: &dyn Platform) -> io::Result<()> {
    let from = open_plain(source, OFlags::NOFOLLOW)?;
    let is_dir = from.metadata()?.is_dir();
    let token = wait_written_back(&from)?;
    let (parent, name) = open_parent(target)?;
    if rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST.into());
    }
    if MountEntry::of(&parent)?.device != MountEntry::of(&from)?.device {
        return Err(Errno::XDEV.into());
    }
    if keeps_names(parent.as_fd()) {
        return Err(Errno::PERM.into());
    }
    let copy = Unfinished::make(&parent, platform, is_dir)?;
    let filled = change(&copy.open, FILL, &token.to_le_bytes());
    match filled.and_then(|()| copy.rename(name)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The first failure is the one to report.
            let _ = copy.discard();
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::STALE | Errno::NOTTY) => Err(Errno::XDEV.into()),
                _ => Err(error),
            }
        }
    }
}

/// A copy being made, under a hidden name.
struct Unfinished<'a> {
    parent: &'a File,
    name: String,
    open: File,
    is_dir: bool,
}

impl<'a> Unfinished<'a> {
    /// Makes it, empty.
    fn make(parent: &'a File, platform: &dyn Platform, is_dir: bool) -> io::Result<Unfinished<'a>> {
        let name = format!("{UNFINISHED}{:016x}", platform.random_u64());
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = if is_dir {
            rustix::fs::mkdirat(parent, &name, Mode::RWXU)?;
            rustix::fs::openat(parent, &name, flags | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        } else {
            let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            rustix::fs::openat(parent, &name, flags, Mode::RUSR | Mode::WUSR)
        };
        let replaced = || io::Error::other("somebody else changes names in the directory of the copy");
        let open = match open {
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => return Err(replaced()),
            open => File::from(open?),
        };
        // Another directory in its place must not be filled.
        let (above, made) = (parent.metadata()?, open.metadata()?);
        let is_ours = made.uid() == rustix::process::geteuid().as_raw() && made.mode() & 0o077 == 0;
        if !is_ours || made.dev() != above.dev() || (is_dir && !is_empty(&open)?) {
            return Err(replaced());
        }
        Ok(Unfinished { parent, name, open, is_dir })
    }

    /// Renames it to `name`, which must not exist.
    fn rename(&self, name: &OsStr) -> io::Result<()> {
        self.must_be_at(OsStr::new(&self.name))?;
        let no_replace = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(self.parent, &self.name, self.parent, name, no_replace)?;
        self.must_be_at(name)
    }

    /// Removes it with its contents.
    fn discard(&self) -> io::Result<()> {
        if self.is_dir {
            change(&self.open, EMPTY, &[])?;
        }
        self.must_be_at(OsStr::new(&self.name))?;
        let flags = if self.is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(rustix::fs::unlinkat(self.parent, &self.name, flags)?)
    }

    fn must_be_at(&self, name: &OsStr) -> io::Result<()> {
        let (made, found) = (
            rustix::fs::fstat(&self.open)?,
            rustix::fs::statat(self.parent, name, AtFlags::SYMLINK_NOFOLLOW)?,
        );
        match (made.st_dev, made.st_ino) == (found.st_dev, found.st_ino) {
            true => Ok(()),
            false => Err(io::Error::other("somebody else changes names in the directory of the copy")),
        }
    }
}

/// Whether an open directory is empty.
fn is_empty(dir: &File) -> io::Result<bool> {
    for entry in rustix::fs::Dir::read_from(dir)? {
        if ![&b"."[..], b".."].contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the flags of a directory keep its names from being removed, as far as the caller may read them.
fn keeps_names(dir: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::openat(dir, ".", flags, Mode::empty());
    let flags = open.and_then(rustix::fs::ioctl_getflags);
    flags.is_ok_and(|flags| flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND))
}

/// Opens the parent directory of a path; returns it and the path's last name.
fn open_parent(path: &Path) -> io::Result<(File, &OsStr)> {
    // `file_name` drops a slash at the end, which would follow a symbolic link.
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((File::from(rustix::fs::open(parent, flags, Mode::empty())?), name))
}

/// Opens a file or directory on a BetrFS mount for an ioctl. Devices and pipes are not opened: that could
/// block or have effects.
fn open_plain(path: &Path, flags: OFlags) -> io::Result<File> {
    let found = File::from(rustix::fs::open(path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    let kind = found.metadata()?.file_type();
    if !MountEntry::of(&found)?.is_betrfs() {
        return Err(Errno::NOTTY.into());
    }
    if kind.is_symlink() {
        return Err(Errno::LOOP.into());
    }
    if !kind.is_file() && !kind.is_dir() {
        return Err(Errno::NODEV.into());
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Opens the directory that holds the snapshots of `dir`. No name on the way is followed twice.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn open_snapshots(dir: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags | OFlags::PATH, Mode::empty())?;
    if !MountEntry::of(&dir)?.is_betrfs() {
        return Err(Errno::NOTTY.into());
    }
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW;
    Ok(File::from(rustix::fs::openat(&dir, SNAPSHOTS_NAME, flags, Mode::empty())?))
}

/// Has the kernel write back what processes have written to mappings of files in a directory.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn write_back(dir: &Path) -> io::Result<()> {
    wait_written_back(&open_plain(dir, OFlags::DIRECTORY)?)?;
    Ok(())
}

/// Makes durable all writes to a mount that have returned, and those to mappings of files in this directory.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn sync(dir: &Path) -> io::Result<()> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    wait_written_back(&open)?;
    open.sync_all()
}

/// Changes something of an open file or directory. The kernel checks that the mount it was opened on is one
/// for writing.
fn change(open: &File, cmd: u32, argument: &[u8]) -> io::Result<()> {
    // Both flags make no sense for an attribute.
    let flags = XattrFlags::CREATE | XattrFlags::REPLACE;
    match rustix::fs::fsetxattr(open, OsStr::from_bytes(CHANGE), &change_bytes(cmd, argument), flags) {
        Err(Errno::INVAL) => Err(io::Error::other(
            "the server of the mount is of an older version: unmount the volume, and mount it with this one",
        )),
        // As for the ioctls of other file systems.
        Err(Errno::OPNOTSUPP) => Err(Errno::NOTTY.into()),
        changed => Ok(changed?),
    }
}

/// Lets requests with a token change an open file or directory.
fn permit(open: &File, token: u64) -> io::Result<()> {
    change(open, PERMIT, &token.to_le_bytes())
}

/// The system's number of an error.
fn errno_of(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Registers a source and returns its token, once data written to mappings of its files has arrived.
fn wait_written_back(source: &File) -> Result<u64, Errno> {
    // SAFETY: the ioctl writes a u64, and the buffer is one.
    let token = unsafe { ioctl(source, Getter::<SOURCE, u64>::new()) }?;
    wait_told(source, token)?;
    Ok(token)
}

/// Waits until the kernel has followed the notices about a source.
fn wait_told(source: &File, token: u64) -> Result<(), Errno> {
    loop {
        // SAFETY: the ioctl reads a u64, and the argument is one.
        match unsafe { ioctl(source, Setter::<WRITTEN_BACK, u64>::new(token)) } {
            Err(Errno::AGAIN) => thread::sleep(WRITE_BACK_POLL),
            told => return told,
        }
    }
}

/// Opens a file and registers it, once data written to its mappings has arrived; returns it with the token by
/// which its server maps it, as long as it is open ([`Line::map`](crate::Line::map)).
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `EISDIR` for a directory, `EPERM` for
/// users who may not.
pub fn map_token(path: &Path) -> io::Result<(File, u64)> {
    let open = open_plain(path, OFlags::empty())?;
    if open.metadata()?.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let token = wait_written_back(&open)?;
    Ok((open, token))
}

/// The stored bytes of a file or directory with everything below it, and the bytes that its removal would
/// free.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn usage(path: &Path) -> io::Result<(u64, u64)> {
    let open = open_plain(path, OFlags::empty())?;
    // SAFETY: the ioctl writes two u64, and the buffer is two.
    let [stored, freed] = unsafe { ioctl(&open, Getter::<USAGE, [u64; 2]>::new()) }?;
    Ok((stored, freed))
}

/// The path below a file or directory of the first object that keeps the caller from cloning, removing or
/// taking a snapshot of it on a mount that lets users do that: empty for the object itself.
///
/// # Errors
/// The operating system's: `EPERM` where users may not, `ENODATA` where nothing keeps the caller from it.
pub fn foreign(path: &Path) -> io::Result<Vec<u8>> {
    let open = open_plain(path, OFlags::NOFOLLOW)?;
    // SAFETY: the ioctl writes a `PathBytes`, and the buffer is one.
    let bytes: PathBytes = unsafe { ioctl(&open, Getter::<FOREIGN, PathBytes>::new()) }?;
    Ok(bytes.into_iter().take_while(|byte| *byte != 0).collect())
}

/// Why a tree was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveTreeError {
    /// Something is mounted on it or below it.
    #[error("something is mounted on it or below it")]
    MountedBelow,
    /// Snapshots of it or of directories below it exist and were to be kept.
    #[error("{} snapshots hold it", .0.count)]
    Held(Held),
    /// Any other cause: `ENOTTY` if it is on no BetrFS mount, `EPERM` if it is another user's in a sticky
    /// directory, or it or its parent is immutable or append-only, `EINVAL` if the path does not end with its
    /// name.
    #[error(transparent)]
    Os(#[from] io::Error),
}

impl From<Errno> for RemoveTreeError {
    fn from(errno: Errno) -> RemoveTreeError {
        RemoveTreeError::Os(errno.into())
    }
}

/// Removes a directory with everything below it, whose flags are not checked. A crash leaves all of it, an
/// empty directory, or nothing.
///
/// # Errors
/// `ENOTEMPTY` if something was created in it meanwhile: then everything that was there before is removed,
/// and the kernel remembers none of it. After any other error nothing was removed, or the directory itself is
/// left empty.
pub fn remove_tree(dir: &Path, snapshots: SnapshotsBelow) -> Result<(), RemoveTreeError> {
    let (parent, name) = open_parent(dir)?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW;
    let open = File::from(rustix::fs::openat(&parent, name, flags, Mode::empty())?);
    // A directory that cannot be removed must not be emptied, and a mount below would be left without a path.
    if mount_id(&parent)? != mount_id(&open)? || has_mounts_below(&open)? {
        return Err(RemoveTreeError::MountedBelow);
    }
    let (above, found) = (parent.metadata()?, open.metadata()?);
    if !may_remove(above.mode(), [above.uid(), found.uid()], rustix::process::geteuid()) {
        return Err(Errno::PERM.into());
    }
    rustix::fs::accessat(&parent, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
    if keeps_names(parent.as_fd()) {
        return Err(Errno::PERM.into());
    }
    let emptying = match snapshots {
        SnapshotsBelow::Hold => EMPTY,
        SnapshotsBelow::Go => EMPTY_WITH_SNAPSHOTS,
    };
    match change(&open, emptying, &[]) {
        Err(error) if errno_of(&error) == Some(Errno::BUSY) => {
            return Err(RemoveTreeError::Held(held(&open)?));
        }
        emptied => emptied?,
    }
    drop(open);
    let removed = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
    if removed.is_err()
        && let Ok(open) = rustix::fs::openat(&parent, name, flags, Mode::empty())
    {
        // The kernel has dropped the removed names after that. The first failure is the one to report.
        let _ = wait_written_back(&File::from(open));
    }
    Ok(removed?)
}

/// The snapshots that hold an open directory.
fn held(dir: &File) -> io::Result<Held> {
    // SAFETY: the ioctl writes a `HeldBytes`, and the buffer is one.
    let bytes: HeldBytes = unsafe { ioctl(dir, Getter::<HELD, HeldBytes>::new()) }?;
    Ok(held_of(&bytes).ok_or(Errno::IO)?)
}

/// Whether the sticky bit in a directory's mode lets a user remove an entry. `owners` are those of the
/// directory and of the entry.
fn may_remove(mode: u32, owners: [u32; 2], user: Uid) -> bool {
    let is_sticky = Mode::from_raw_mode(mode).contains(Mode::SVTX);
    !is_sticky || user.is_root() || owners.contains(&user.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_sticky_directory_only_owners_and_root_remove() {
        let user = Uid::from_raw(5);
        assert!(may_remove(0o040_777, [7, 7], user));
        assert!(!may_remove(0o041_777, [7, 7], user));
        assert!(may_remove(0o041_777, [5, 7], user));
        assert!(may_remove(0o041_777, [7, 5], user));
        assert!(may_remove(0o041_777, [7, 7], Uid::ROOT));
    }
}
