//! A name in an open directory. Other users may be able to change the names on a path at any moment, so a
//! command follows a path once, up to the directory, and then works in that directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use betree_platform::Platform;
use betree_std::StdPlatform;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// See the module.
pub struct Place {
    dir: OwnedFd,
    name: OsString,
}

impl Place {
    /// The last name of a path, in the directory to which the rest of the path leads now.
    ///
    /// # Errors
    /// The system's own; `EINVAL` if the path does not end with a name.
    pub fn of(path: &Path) -> io::Result<Place> {
        // `file_name` drops a slash at the end, which would follow a symbolic link.
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Place { dir, name })
    }

    /// A name in a directory.
    ///
    /// # Errors
    /// The system's own.
    pub fn within(dir: BorrowedFd<'_>, name: impl AsRef<OsStr>) -> io::Result<Place> {
        Ok(Place { dir: dir.try_clone_to_owned()?, name: name.as_ref().to_owned() })
    }

    /// Makes a file, which nothing may have this name for, for reading and writing.
    ///
    /// # Errors
    /// The system's own.
    pub fn make(&self, mode: Mode) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.dir, &self.name, flags, mode)?.into())
    }

    /// What has the name, a symbolic link too, without an effect on it.
    ///
    /// # Errors
    /// The system's own.
    pub fn find(&self) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.dir, &self.name, flags, Mode::empty())?.into())
    }

    /// Opens the directory that has the name.
    ///
    /// # Errors
    /// The system's own; `ENOTDIR` or `ELOOP` for a symbolic link.
    pub fn open_dir(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.dir, &self.name, flags, Mode::empty())?)
    }

    /// Opens the directory that has the name, and makes it if nothing has.
    ///
    /// # Errors
    /// As [`open_dir`](Place::open_dir).
    pub fn open_or_make_dir(&self) -> io::Result<OwnedFd> {
        match mkdirat(&self.dir, &self.name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_dir(),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the name to a new file with these contents, whatever had it before: readers see either, whole.
    ///
    /// # Errors
    /// The system's own; what had the name before has it still.
    pub fn write_whole(&self, contents: &[u8]) -> io::Result<()> {
        let mut hidden = OsString::from(".");
        hidden.push(&self.name);
        hidden.push(format!(".{:016x}", StdPlatform::new().random_u64()));
        let hidden = Place::within(self.dir.as_fd(), hidden)?;
        let mut file = hidden.make(Mode::from_raw_mode(0o666))?;
        let written = file
            .write_all(contents)
            .and_then(|()| Ok(renameat(&hidden.dir, &hidden.name, &self.dir, &self.name)?));
        if written.is_err() {
            hidden.remove(&file);
        }
        written
    }

    /// Removes the name of a file that was made here, if it has that still. A failure is logged alone:
    /// callers have one to report already.
    pub fn remove(&self, made: &File) {
        let removed = || {
            let (made, found) = (fstat(made)?, statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?);
            match (made.st_dev, made.st_ino) == (found.st_dev, found.st_ino) {
                true => unlinkat(&self.dir, &self.name, AtFlags::empty()),
                false => Err(Errno::STALE),
            }
        };
        if let Err(errno) = removed() {
            tracing::debug!("cannot remove {}: {errno}", self.name.display());
        }
    }
}

/// A path that leads to an open file or symbolic link itself, whatever its names.
pub fn itself(open: impl AsFd) -> String {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_in_the_place_of_a_name_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), b"kept").unwrap();
        symlink(at("dir"), at("to-dir")).unwrap();
        symlink(at("file"), at("to-file")).unwrap();
        symlink(at("none"), at("to-none")).unwrap();
        for name in ["to-dir", "to-dir/"] {
            assert!(Place::of(&at(name)).unwrap().open_or_make_dir().is_err(), "{name}");
        }
        assert!(Place::of(&at("to-none")).unwrap().make(Mode::RUSR).is_err());
        assert!(!at("none").exists());
        Place::of(&at("to-file")).unwrap().write_whole(b"new").unwrap();
        assert_eq!(
            (fs::read(at("file")).unwrap(), fs::read(at("to-file")).unwrap()),
            (b"kept".into(), b"new".into())
        );
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 5, "nothing hidden is left");
        assert!(Place::of(Path::new("/")).is_err() && Place::of(Path::new("..")).is_err());
    }

    #[test]
    fn only_the_file_that_was_made_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("made");
        let place = Place::of(&path).unwrap();
        let made = place.make(Mode::RUSR).unwrap();
        fs::rename(&path, temp.path().join("moved")).unwrap();
        fs::write(&path, b"another's").unwrap();
        place.remove(&made);
        assert_eq!(fs::read(&path).unwrap(), b"another's");
    }
}
