//! Whether something is mounted below an open directory, whatever happens to the names above it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::mount_info::{MountEntry, mount_id};

/// Tries to find a mount at the place that the kernel names; names on the way may change meanwhile.
const TRIES: usize = 3;

/// Whether something is mounted below a directory, as this process sees it. The answer is `true` too for a
/// mount on the same mount whose place cannot be seen: names change too fast, or another mount hides it.
///
/// The kernel names the places of mounts by paths, which are true for a moment. So the place is opened, and
/// its parents are followed up: they come by the directory or they do not. That holds against everybody who
/// can rename what is above the directory. Who can rename what is in it can also move a mount there later.
///
/// # Errors
/// The operating system's.
pub fn has_mounts_below(dir: impl AsFd) -> io::Result<bool> {
    let dir = Place::of(dir)?;
    let on_the_same = |mounts: &[MountEntry]| -> Vec<u64> {
        mounts.iter().filter(|mount| mount.parent_id == dir.mount_id).map(|mount| mount.id).collect()
    };
    // Those on other mounts are below only if a mount that they stand on is.
    for id in on_the_same(&MountEntry::all()?) {
        if is_below(id, &dir)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An open directory's identity.
#[derive(PartialEq, Eq)]
struct Place {
    mount_id: u64,
    inode: u64,
}

impl Place {
    fn of(dir: impl AsFd) -> io::Result<Place> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&dir, c"", flags, StatxFlags::INO)?;
        Ok(Place { mount_id: mount_id(dir)?, inode: found.stx_ino })
    }
}

fn is_below(id: u64, dir: &Place) -> io::Result<bool> {
    for _ in 0..TRIES {
        let mounts = MountEntry::all()?;
        // Unmounted by now.
        let Some(mount) = mounts.iter().find(|mount| mount.id == id) else { return Ok(false) };
        if let Some(above) = open_above(mount, &mounts)? {
            return comes_by(above, dir);
        }
    }
    Ok(true)
}

/// Opens the directory that holds a mount's mount point; `None` if the mount is not found there.
fn open_above(mount: &MountEntry, mounts: &[MountEntry]) -> io::Result<Option<OwnedFd>> {
    let (Some(above), Some(name)) = (mount.path.parent(), mount.path.file_name()) else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = match rustix::fs::open(above, flags | OFlags::DIRECTORY, Mode::empty()) {
        Ok(above) => above,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let Ok(root) = rustix::fs::openat(&above, Path::new(name), flags, Mode::empty()) else { return Ok(None) };
    // Others may be mounted over it.
    let of = |id: u64| mounts.iter().find(|mount| mount.id == id);
    let below = std::iter::successors(of(mount_id(root)?), |mount| of(mount.parent_id));
    let is_there = below.take(mounts.len()).any(|below| below.id == mount.id);
    Ok((is_there && mount_id(&above)? == mount.parent_id).then_some(above))
}

/// Whether a directory is another or below it.
fn comes_by(from: OwnedFd, dir: &Place) -> io::Result<bool> {
    let (mut open, mut last) = (from, None);
    loop {
        let place = Place::of(&open)?;
        if place == *dir {
            return Ok(true);
        }
        // The mount's root, or that of all, has been passed.
        if place.mount_id != dir.mount_id || last.as_ref() == Some(&place) {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open = rustix::fs::openat(&open, "..", flags, Mode::empty())?;
        last = Some(place);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn mounts_are_seen_from_what_is_above_and_not_from_beside() {
        let open = |path: &str| File::open(path).unwrap();
        assert!(has_mounts_below(open("/")).unwrap());
        // A mount itself is not below its own root.
        assert!(!has_mounts_below(open("/proc/self")).unwrap());
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_mounts_below(File::open(dir.path()).unwrap()).unwrap());
    }
}
