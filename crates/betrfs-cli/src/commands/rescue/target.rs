//! The directory that a volume is copied to. No name of the volume leads out of it: each step on a path is a
//! directory, never a symbolic link.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat};
use rustix::io::Errno;

use super::inherited::{self, Kept};
use crate::failure::Failure;

/// The directory, in the target, of files with several names before their names come. A volume whose root has
/// that name keeps it: see [`Target::give_way`].
const LINKED: &str = ".betrfs-lost";

/// Number of steps on the way to a directory that stay open.
const OPEN_MAX: usize = 64;

/// What hears of a directory that was made: its names, and access control lists that it inherited and keeps.
pub type Made<'m> = dyn FnMut(&[Vec<u8>], Vec<Kept>) + 'm;

/// See the module.
pub struct Target {
    root: OwnedFd,
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

impl Target {
    /// Opens an empty directory, or makes one.
    pub fn open(path: &Path) -> Result<Target, Failure> {
        let failed = |why: io::Error| Failure::new(format!("cannot use {}: {why}", path.display()));
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(failed)?,
        }
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(Failure::new(format!("{} is not empty: name a new directory", path.display())));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        mkdirat(&root, LINKED, Mode::RWXU).map_err(|errno| failed(errno.into()))?;
        let linked = open_dir(&root, LINKED.as_bytes()).map_err(|errno| failed(errno.into()))?;
        // Lists that stay are no loss here: it is for its owner alone, and what is made in it loses its own.
        drop(inherited::remove(linked.as_fd()));
        Ok(Target { root, linked, linked_name: LINKED.to_owned(), linked_names: 1, way: Vec::new() })
    }

    /// The target itself.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The directory of files with several names.
    pub fn linked(&self) -> BorrowedFd<'_> {
        self.linked.as_fd()
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
