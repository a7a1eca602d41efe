//! The directory that a volume is copied to. No name of the volume leads out of it: each step on a path is a
//! directory, never a symbolic link.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use crate::failure::Failure;

/// The directory, in the target, of files with several names before their names come. No object of the volume
/// gets this name.
pub const LINKED: &[u8] = b".betrfs-lost";

/// Number of steps on the way to a directory that stay open.
const OPEN_MAX: usize = 64;

/// See the module.
pub struct Target {
    root: OwnedFd,
    linked: OwnedFd,
    /// The way to the last directory that was used, by names: the first steps and the last one are open.
    way: Vec<(Vec<u8>, Option<OwnedFd>)>,
}

/// Why there is no directory at a path.
pub enum NoDirectory {
    /// The system's reason.
    Io(Errno),
    /// The name is the target's own.
    Own,
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
        mkdirat(&root, OsStr::from_bytes(LINKED), Mode::RWXU).map_err(|errno| failed(errno.into()))?;
        let linked = open_dir(&root, LINKED).map_err(|errno| failed(errno.into()))?;
        Ok(Target { root, linked, way: Vec::new() })
    }

    /// The target itself.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The directory of files with several names.
    pub fn linked(&self) -> BorrowedFd<'_> {
        self.linked.as_fd()
    }

    /// The directory at a path below the target. One that is not there is made for its owner alone, and
    /// passed to `made`.
    pub fn directory(
        &mut self,
        names: &[Vec<u8>],
        made: &mut dyn FnMut(&[Vec<u8>]),
    ) -> Result<BorrowedFd<'_>, NoDirectory> {
        if names.first().is_some_and(|first| first == LINKED) {
            return Err(NoDirectory::Own);
        }
        let same = |((known, _), name): &(&(Vec<u8>, _), &Vec<u8>)| known == *name;
        let mut shared = self.way.iter().zip(names).take_while(same).count();
        if shared < self.way.len() {
            shared = shared.min(OPEN_MAX);
        }
        self.way.truncate(shared);
        for (depth, name) in names.iter().enumerate().skip(shared) {
            let open = match open_dir(self.last(), name) {
                Err(Errno::NOENT) => {
                    mkdirat(self.last(), OsStr::from_bytes(name), Mode::RWXU).map_err(NoDirectory::Io)?;
                    made(names.get(..=depth).unwrap_or(names));
                    open_dir(self.last(), name)
                }
                open => open,
            };
            let open = open.map_err(NoDirectory::Io)?;
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
