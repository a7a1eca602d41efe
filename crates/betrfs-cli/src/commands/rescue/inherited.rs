//! Access control lists that new objects inherit from the directory they are made in. The volume's objects
//! are to have those of the volume and no others.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use betrfs::AclKind;
use rustix::fs::{Mode, fchmod, fgetxattr, fremovexattr, fstat, lgetxattr, lremovexattr};
use rustix::io::Errno;

/// A list that an object has, and why it keeps it.
pub type Kept = (AclKind, Errno);

/// Takes its lists from an open file or directory. Returns those that stay.
pub fn remove(open: BorrowedFd<'_>) -> Vec<Kept> {
    let mut unused = [0u8; 0];
    remove_each(
        |name| fgetxattr(open, name, &mut unused),
        |name| {
            // With a list, what the mode says of the group is the most that the list gives to anybody.
            // Without it that would be the group's. A directory that was there before gets its mode at the
            // end.
            let mode = Mode::from_raw_mode(fstat(open)?.st_mode);
            if name == OsStr::from_bytes(AclKind::Access.name()) && mode.intersects(Mode::RWXG | Mode::RWXO) {
                fchmod(open, mode & Mode::RWXU)?;
            }
            fremovexattr(open, name)
        },
    )
}

/// The same for something that cannot be opened, by its name in a directory.
pub fn remove_named(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<Kept> {
    let path = path_of(dir, name);
    let path = OsStr::from_bytes(&path);
    let mut unused = [0u8; 0];
    remove_each(|name| lgetxattr(path, name, &mut unused), |name| lremovexattr(path, name))
}

/// A path through /proc to an object, for calls that take only paths. It leads to the object itself.
pub fn path_of(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

fn remove_each(
    mut has: impl FnMut(&OsStr) -> Result<usize, Errno>,
    mut remove: impl FnMut(&OsStr) -> Result<(), Errno>,
) -> Vec<Kept> {
    let mut kept = Vec::new();
    for kind in [AclKind::Access, AclKind::Default] {
        let name = OsStr::from_bytes(kind.name());
        let removed = match has(name) {
            Ok(_) | Err(Errno::RANGE) => remove(name),
            // The target has none, or knows none.
            Err(_) => Ok(()),
        };
        if let Err(errno) = removed {
            kept.push((kind, errno));
        }
    }
    kept
}

/// The sentence for a list that stays.
pub fn why(errno: Errno) -> String {
    format!("the copy keeps a list that it inherited in the target: {}", io::Error::from(errno))
}
