//! The place of the sockets of root's servers: a directory that root alone may enter. Other users can make
//! abstract sockets with names like a server's in any number, and silent connections to it; here they cannot.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::sockets::{Address, connect};

/// The directory.
const DIR: &str = "/run/betrfs";
/// The beginning of the name of a socket that does not listen yet.
const UNREADY: &str = ".";

/// A socket in the directory, removed with this value.
pub(super) struct PrivateSocket {
    dir: OwnedFd,
    name: String,
}

impl PrivateSocket {
    /// Listens under a name; `None` for users other than root.
    ///
    /// # Errors
    /// The operating system's: the directory cannot be made, or is not root's alone.
    pub fn listen(name: &str) -> io::Result<Option<(PrivateSocket, UnixListener)>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let dir = open_dir(true)?;
        remove_dead(&dir);
        // A socket that is bound and does not listen looks like one whose server has died.
        let mut socket = PrivateSocket { dir, name: format!("{UNREADY}{name}") };
        let listener = UnixListener::bind(below(&socket.dir, socket.name.as_ref()))?;
        rustix::fs::renameat(&socket.dir, &socket.name, &socket.dir, name)?;
        socket.name = name.to_owned();
        Ok(Some((socket, listener)))
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        if let Err(errno) = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty()) {
            tracing::debug!("cannot remove {DIR}/{}: {errno}", self.name);
        }
    }
}

/// The paths of the sockets whose names begin so; none for users other than root.
pub(super) fn sockets(begin: &str) -> Vec<PathBuf> {
    let Ok(dir) = open_dir(false) else { return Vec::new() };
    let of_mount = |name: &OsString| name.as_bytes().starts_with(begin.as_bytes());
    names(&dir).filter(of_mount).map(|name| Path::new(DIR).join(name)).collect()
}

/// Opens the directory.
fn open_dir(makes: bool) -> io::Result<OwnedFd> {
    if makes {
        match rustix::fs::mkdir(DIR, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(DIR, flags, Mode::empty())?);
    let found = dir.metadata()?;
    if found.uid() != 0 || found.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{DIR} is not root's alone (`chmod 700 {DIR}`)")));
    }
    Ok(dir.into())
}

fn below(dir: &OwnedFd, name: &std::ffi::OsStr) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name)
}

fn names(dir: &OwnedFd) -> impl Iterator<Item = OsString> {
    let entries = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    entries.into_iter().flatten().flatten().map(|entry| entry.file_name())
}

/// Removes the sockets of servers that were killed.
fn remove_dead(dir: &OwnedFd) {
    for name in names(dir).filter(|name| !name.as_bytes().starts_with(UNREADY.as_bytes())) {
        let address = Address::Private(below(dir, &name));
        // Does not wait for a server that is stopped.
        if connect(&address).is_err_and(|errno| errno == Errno::CONNREFUSED) {
            // Another server may be doing the same.
            let _ = rustix::fs::unlinkat(dir, &name, AtFlags::empty());
        }
    }
}
