//! The mark of a copy that is not finished: a file in the directory of files with several names. It names the
//! volume and the target, so that no copied file passes for it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::target::LINKED;

const MARK: &str = "unfinished";

/// What the mark of a copy of a volume to this directory says.
fn text(root: BorrowedFd<'_>, volume: &Path) -> io::Result<Vec<u8>> {
    let found = fstat(root)?;
    let volume = fs::canonicalize(volume)?;
    let place = format!("{}:{} ", found.st_dev, found.st_ino);
    Ok([place.as_bytes(), volume.as_os_str().as_bytes(), b"\n"].concat())
}

/// Marks a copy that begins.
pub fn mark(root: BorrowedFd<'_>, linked: BorrowedFd<'_>, volume: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(linked, MARK, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(&text(root, volume)?)
}

/// Removes the mark of a copy that is finished.
pub fn unmark(linked: BorrowedFd<'_>) -> Result<(), Errno> {
    match unlinkat(linked, MARK, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        unlinked => unlinked,
    }
}

/// The directory with the mark of an unfinished copy of this volume, which this user has made.
pub fn marked(root: BorrowedFd<'_>, volume: &Path) -> io::Result<Option<PathBuf>> {
    let wanted = text(root, volume)?;
    for entry in fs::read_dir(format!("/proc/self/fd/{}", root.as_raw_fd()))? {
        let entry = entry?;
        if !entry.file_name().as_bytes().starts_with(LINKED.as_bytes()) || !entry.file_type()?.is_dir() {
            continue;
        }
        let place = Path::new(&entry.file_name()).join(MARK);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(mark) = openat(root, &place, flags, Mode::empty()) else { continue };
        // Another user's mark must not have this one remove what is in the directory.
        if fstat(&mark)?.st_uid != rustix::process::geteuid().as_raw() {
            continue;
        }
        let mut found = Vec::new();
        File::from(mark).take(wanted.len() as u64 + 1).read_to_end(&mut found)?;
        if found == wanted {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Removes an unfinished copy of this volume from the directory; returns whether there was one.
///
/// # Errors
/// The operating system's.
pub fn clear(root: BorrowedFd<'_>, volume: &Path, tell: &dyn Fn()) -> io::Result<bool> {
    let Some(marked) = marked(root, volume)? else { return Ok(false) };
    tell();
    for entry in fs::read_dir(format!("/proc/self/fd/{}", root.as_raw_fd()))? {
        let entry = entry?;
        match entry.path() {
            path if path == marked => {}
            path if entry.file_type()?.is_dir() => fs::remove_dir_all(path)?,
            path => fs::remove_file(path)?,
        }
    }
    // Last: until then it stays an unfinished copy.
    fs::remove_dir_all(marked)?;
    Ok(true)
}
