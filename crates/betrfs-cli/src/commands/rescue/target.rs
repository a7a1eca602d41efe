//! The directory that a volume is copied to. No name of the volume leads out of it: each step on a path is a
//! directory, never a symbolic link. Nor does another user: the path of the target is followed once, and
//! while root copies, the target is root's alone, so that no other user can change what is in it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat, openat, renameat, statat,
};
use rustix::io::Errno;

use super::inherited::{self, Kept};
use super::unfinished;
use crate::failure::{Failure, warn};
use crate::place::Place;

/// The directory, in the target, of files with several names before their names come. A volume whose root has
/// that name keeps it: see [`Target::give_way`].
pub const LINKED: &str = ".betrfs-lost";

/// Number of steps on the way to a directory that stay open.
const OPEN_MAX: usize = 64;

/// What hears of a directory that was made: its names, and access control lists that it inherited and keeps.
pub type Made<'m> = dyn FnMut(&[Vec<u8>], Vec<Kept>) + 'm;

/// See the module.
pub struct Target {
    root: OwnedFd,
    /// Owner and permissions of the target before it became root's alone: it gets them back unless the volume
    /// has others for it.
    before: Stat,
    is_settled: bool,
    linked: OwnedFd,
    /// The name of `linked` in the root.
    linked_name: String,
    /// How many names of `linked` were tried.
    linked_names: u64,
    /// The way to the last directory that was used, by names: the first steps and the last one are open.
    way: Vec<(Vec<u8>, Option<OwnedFd>)>,
}

fn open_dir(at: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, OsStr::from_bytes(name), flags, Mode::empty())
}

/// Opens the directory at a path, or makes it.
fn root_at(path: &Path) -> io::Result<OwnedFd> {
    match path.file_name() {
        Some(_) => Place::of(path)?.open_or_make_dir(),
        // As `.`, which is no symbolic link.
        None => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        }
    }
}

fn is_empty(dir: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(dir)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes a directory root's alone if root copies. Where a file system has no owners, or keeps root from
/// setting them, it stays as it is: what is made in it is still used by descriptors alone.
fn take(root: &OwnedFd) {
    if rustix::process::geteuid().is_root() {
        let taken = fchown(root, Some(Uid::ROOT), None).and_then(|()| fchmod(root, Mode::RWXU));
        if let Err(errno) = taken {
            tracing::info!("other users may change the target while it is filled: {errno}");
        }
    }
}

/// Undoes [`take`].
fn give_back(root: &OwnedFd, before: &Stat) {
    if rustix::process::geteuid().is_root() {
        let owner = (Some(Uid::from_raw(before.st_uid)), Some(Gid::from_raw(before.st_gid)));
        let given = fchown(root, owner.0, owner.1)
            .and_then(|()| fchmod(root, Mode::from_raw_mode(before.st_mode & 0o7777)));
        if let Err(errno) = given {
            tracing::info!("the target keeps the owner that it had while it was filled: {errno}");
        }
    }
}

/// Makes the directory of files with several names, and marks the copy of a volume as unfinished.
fn make_linked(root: &OwnedFd, volume: &Path) -> io::Result<OwnedFd> {
    mkdirat(root, LINKED, Mode::RWXU)?;
    let linked = open_dir(root, LINKED.as_bytes())?;
    unfinished::mark(root.as_fd(), linked.as_fd(), volume)?;
    // Lists that stay are no loss here: it is for its owner alone, and what is made in it loses its own.
    drop(inherited::remove(linked.as_fd()));
    Ok(linked)
}

impl Target {
    /// Opens an empty directory for a copy of a volume, or makes one. An unfinished copy of the same volume
    /// is removed from it first. The path is followed once, and its last name is not a symbolic link.
    pub fn open(path: &Path, volume: &Path) -> Result<Target, Failure> {
        let failed = |why: io::Error| {
            let why = match why.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NOTDIR | Errno::LOOP) => {
                    "it is not a directory, or a symbolic link to one".to_owned()
                }
                _ => why.to_string(),
            };
            Failure::new(format!("cannot use {}: {why}", path.display()))
        };
        let root = root_at(path).map_err(failed)?;
        let not_empty = || Failure::new(format!("{} is not empty: name a new directory", path.display()));
        // A directory named by mistake is left as it is.
        let may_be_filled = || -> io::Result<bool> {
            Ok(is_empty(&root)? || unfinished::marked(root.as_fd(), volume)?.is_some())
        };
        if !may_be_filled().map_err(failed)? {
            return Err(not_empty());
        }
        let before = fstat(&root).map_err(|errno| failed(errno.into()))?;
        take(&root);
        let shown = path.display();
        let tell = || warn(&format!("{shown} has an unfinished copy of this volume, which is replaced"));
        let clear = || -> io::Result<bool> {
            Ok(is_empty(&root)? || unfinished::clear(root.as_fd(), volume, &tell)?)
        };
        let filled = match clear() {
            Ok(true) => make_linked(&root, volume).map_err(failed),
            // Another user was faster.
            Ok(false) => Err(not_empty()),
            Err(error) => Err(failed(error)),
        };
        match filled {
            Ok(linked) => Ok(Target {
                root,
                before,
                is_settled: false,
                linked,
                linked_name: LINKED.to_owned(),
                linked_names: 1,
                way: Vec::new(),
            }),
            Err(failure) => {
                give_back(&root, &before);
                Err(failure)
            }
        }
    }

    /// Leaves the target itself as it is now, and not as it was.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }

    /// The target itself.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The directory of files with several names.
    pub fn linked(&self) -> BorrowedFd<'_> {
        self.linked.as_fd()
    }

    /// Notes that the copy is finished: the next one refuses the directory.
    pub fn unmark(&self) -> Result<(), Errno> {
        unfinished::unmark(self.linked.as_fd())
    }

    /// The name of that directory in the target.
    pub fn linked_name(&self) -> &str {
        &self.linked_name
    }

    /// Gives that directory another name if an object of the volume is to get its name, as the volume that an
    /// earlier rescue was copied to has it.
    pub fn give_way(&mut self, first: &[u8]) -> Result<(), Errno> {
        if first != self.linked_name.as_bytes() {
            return Ok(());
        }
        loop {
            let name = format!("{LINKED}.{}", self.linked_names);
            self.linked_names += 1;
            match statat(&self.root, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => {}
                Err(Errno::NOENT) => {
                    renameat(&self.root, &self.linked_name, &self.root, &name)?;
                    self.linked_name = name;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The directory at a path below the target. One that is not there is made for its owner alone, and
    /// passed to `made`.
    pub fn directory(&mut self, names: &[Vec<u8>], made: &mut Made<'_>) -> Result<BorrowedFd<'_>, Errno> {
        let same = |((known, _), name): &(&(Vec<u8>, _), &Vec<u8>)| known == *name;
        let mut shared = self.way.iter().zip(names).take_while(same).count();
        if shared < self.way.len() {
            shared = shared.min(OPEN_MAX);
        }
        self.way.truncate(shared);
        for (depth, name) in names.iter().enumerate().skip(shared) {
            let open = match open_dir(self.last(), name) {
                Err(Errno::NOENT) => {
                    mkdirat(self.last(), OsStr::from_bytes(name), Mode::RWXU)?;
                    let open = open_dir(self.last(), name);
                    let kept = open.as_ref().map(|open| inherited::remove(open.as_fd())).unwrap_or_default();
                    made(names.get(..=depth).unwrap_or(names), kept);
                    open
                }
                open => open,
            };
            let open = open?;
            if let Some((_, last)) = self.way.last_mut().filter(|_| depth > OPEN_MAX) {
                *last = None;
            }
            self.way.push((name.clone(), Some(open)));
        }
        Ok(self.last())
    }

    /// The last directory on the way.
    fn last(&self) -> BorrowedFd<'_> {
        self.way.last().and_then(|(_, open)| open.as_ref()).map_or(self.root.as_fd(), |open| open.as_fd())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_settled {
            give_back(&self.root, &self.before);
        }
    }
}
