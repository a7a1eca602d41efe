//! Access control lists that new objects inherit from the directory they are made in. The volume's objects
//! are to have those of the volume and no others.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use betrfs::AclKind;
use rustix::fs::{Mode, fchmod, fgetxattr, fremovexattr, fstat, getxattr, removexattr};
use rustix::io::Errno;

use crate::place::itself;

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

/// The same for something that is open without an effect on it (`O_PATH`).
pub fn remove_special(open: BorrowedFd<'_>) -> Vec<Kept> {
    let path = itself(open);
    let path = path.as_str();
    let mut unused = [0u8; 0];
    remove_each(|name| getxattr(path, name, &mut unused), |name| removexattr(path, name))
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
