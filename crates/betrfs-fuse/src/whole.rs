//! What a process asks of a mount that concerns a directory as a whole, by ioctl(2).
//!
//! The kernel does what concerns names: for a copy, a process makes an empty file or directory under a
//! name of its own choice, has it filled by the server, and renames it to where it is to be; a
//! directory that goes is emptied by the server and then removed as any other. So permissions, and
//! what the kernel knows of names, are right by themselves. All that is meant are open files, never
//! paths, and what leads from one request to the other is a token.
#![allow(unsafe_code)] // ioctl(2), whose argument only its number describes.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use betree_sys::Home;
use betrfs::{Held, SnapshotsBelow};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Setter, ioctl, opcode};
use rustix::process::Uid;

/// Asked of an open file or directory: a token that stands for it as a source.
pub const SOURCE: u32 = opcode::read::<u64>(b'B', 1);
/// Asked of the source, with the token: `EAGAIN` while what was written to mappings of files in it, before
/// it was taken on, is on its way.
pub const SETTLED: u32 = opcode::write::<u64>(b'B', 4);
/// Asked of an empty file or directory, with the token: it becomes a copy of the source.
pub const FILL: u32 = opcode::write::<u64>(b'B', 2);

/// Asked of a directory: all that is below it is removed.
pub const EMPTY: u32 = opcode::none(b'B', 3);

/// Asked of a directory: all that is below it is removed, with all snapshots of it and of what is below.
pub const EMPTY_WITH_SNAPSHOTS: u32 = opcode::none(b'B', 6);

/// What [`HELD`] is answered with: a count, and paths of which each is ended by a zero byte, as far as there is room.
type HeldBytes = [u8; 4096];
/// Asked of a directory: the snapshots that hold it.
pub const HELD: u32 = opcode::read::<HeldBytes>(b'B', 7);

/// Asked of a file or directory: its stored bytes, and those that its removal would free.
pub const USAGE: u32 = opcode::read::<[u64; 2]>(b'B', 5);

/// How long to wait for what was written to mappings before asking again.
const WRITE_BACK_POLL: Duration = Duration::from_millis(1);

/// What the name of a copy begins with while it is being made.
pub const UNFINISHED: &str = ".betrfs-clone-";

/// Makes `target`, which must not exist, a copy of the file or directory `source` on the same mount,
/// with all writes to it that have returned, those to its mappings too. It is there whole or not.
///
/// # Errors
/// The operating system's; `ENOTTY` where `source` is on no BetrFS mount, `EXDEV` where `target` is
/// not on the same.
pub fn clone(source: &Path, target: &Path, home: &dyn Home) -> io::Result<()> {
    // A named pipe is not waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let from = OpenOptions::new().read(true).custom_flags(flags).open(source)?;
    let is_dir = from.metadata()?.is_dir();
    let token = settle(&from)?;
    if fs::symlink_metadata(target).is_ok() {
        return Err(Errno::EXIST.into());
    }
    let name = format!("{UNFINISHED}{:016x}", home.random_u64());
    let unfinished = target.parent().map_or_else(|| PathBuf::from(&name), |dir| dir.join(&name));
    let to = make_empty(&unfinished, is_dir)?;
    // SAFETY: the number says that a u64 is read, and one is given.
    let filled = unsafe { ioctl(&to, Setter::<FILL, u64>::new(token)) };
    drop(to);
    let no_replace = RenameFlags::NOREPLACE;
    let renamed = filled.and_then(|()| rustix::fs::renameat_with(CWD, &unfinished, CWD, target, no_replace));
    renamed.map_err(|errno| {
        // Whatever it holds by now; the failure to tell of is the first.
        let _ = if is_dir { fs::remove_dir_all(&unfinished) } else { fs::remove_file(&unfinished) };
        match errno {
            Errno::STALE | Errno::NOTTY => Errno::XDEV.into(),
            errno => errno.into(),
        }
    })
}

/// Brings to the mount what processes have written to mappings of files in a directory.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn write_back(dir: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY.bits() as i32;
    settle(&OpenOptions::new().read(true).custom_flags(flags).open(dir)?)?;
    Ok(())
}

/// Makes durable all of a mount for which writes have returned, with what processes have written to mappings of files
/// in this directory.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn sync(dir: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY.bits() as i32;
    let open = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
    settle(&open)?;
    open.sync_all()
}

/// The token of a source, once what was written to mappings of files in it has come.
fn settle(source: &File) -> Result<u64, Errno> {
    // SAFETY: the number says that a u64 is written, and to a u64 it is.
    let token = unsafe { ioctl(source, Getter::<SOURCE, u64>::new()) }?;
    loop {
        // SAFETY: the number says that a u64 is read, and one is given.
        match unsafe { ioctl(source, Setter::<SETTLED, u64>::new(token)) } {
            Err(Errno::AGAIN) => thread::sleep(WRITE_BACK_POLL),
            settled => return settled.map(|()| token),
        }
    }
}

/// The stored bytes of a file or directory with all that is below it, and those that its removal would
/// free.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn usage(path: &Path) -> io::Result<(u64, u64)> {
    let open = File::open(path)?;
    // SAFETY: the number says that two u64 are written, and to two it is.
    let [stored, freed] = unsafe { ioctl(&open, Getter::<USAGE, [u64; 2]>::new()) }?;
    Ok((stored, freed))
}

/// Why a directory was not removed with all that is below it.
#[derive(Debug, thiserror::Error)]
pub enum RemoveTreeError {
    /// Something is mounted on it or below it.
    #[error("something is mounted on it or below it")]
    MountedBelow,
    /// Snapshots of it, or of directories below it, which were not to go along.
    #[error("{} snapshots hold it", .0.count)]
    Held(Held),
    /// Any other cause: `ENOTTY` where it is on no BetrFS mount, `EPERM` where it is another's in a sticky
    /// directory, `EINVAL` where the path does not end with its name.
    #[error(transparent)]
    Os(#[from] io::Error),
}

impl From<Errno> for RemoveTreeError {
    fn from(errno: Errno) -> RemoveTreeError {
        RemoveTreeError::Os(errno.into())
    }
}

/// Removes a directory with all that is below it. A crash leaves all of it, an empty directory, or
/// nothing.
///
/// # Errors
/// Nothing was removed then.
pub fn remove_tree(dir: &Path, snapshots: SnapshotsBelow) -> Result<(), RemoveTreeError> {
    // Without a slash at the end, by which a symbolic link would be followed.
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Err(Errno::INVAL.into()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = File::from(rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty())?);
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW;
    let open = File::from(rustix::fs::openat(&parent, name, flags, Mode::empty())?);
    // What could not be removed afterwards is not emptied, and a mount below would be left without a path.
    if mount_id(&parent)? != mount_id(&open)? || has_mounts_below(&open)? {
        return Err(RemoveTreeError::MountedBelow);
    }
    let (above, found) = (parent.metadata()?, open.metadata()?);
    if !may_remove(above.mode(), [above.uid(), found.uid()], rustix::process::geteuid()) {
        return Err(Errno::PERM.into());
    }
    rustix::fs::accessat(&parent, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
    // SAFETY: the numbers say that there is no argument.
    let emptied = match snapshots {
        SnapshotsBelow::Hold => unsafe { ioctl(&open, NoArg::<EMPTY>::new()) },
        SnapshotsBelow::Go => unsafe { ioctl(&open, NoArg::<EMPTY_WITH_SNAPSHOTS>::new()) },
    };
    match emptied {
        Err(Errno::BUSY) => return Err(RemoveTreeError::Held(held(&open)?)),
        emptied => emptied?,
    }
    drop(open);
    Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
}

/// The snapshots that hold an open directory.
fn held(dir: &File) -> io::Result<Held> {
    // SAFETY: the number says that so many bytes are written, and to so many it is.
    let bytes: HeldBytes = unsafe { ioctl(dir, Getter::<HELD, HeldBytes>::new()) }?;
    let (count, paths) = bytes.split_first_chunk().ok_or(Errno::IO)?;
    let paths = paths.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(Held { count: u32::from_le_bytes(*count) as usize, paths: paths.map(<[u8]>::to_vec).collect() })
}

/// What [`HELD`] is answered with.
pub fn held_bytes(held: &Held) -> HeldBytes {
    let mut bytes = [0; size_of::<HeldBytes>()];
    let mut told = u32::try_from(held.count).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    for path in &held.paths {
        if told.len() + path.len() < bytes.len() {
            told.extend_from_slice(path);
            told.push(0);
        }
    }
    bytes.iter_mut().zip(told).for_each(|(to, byte)| *to = byte);
    bytes
}

/// Which mount an open file is on: one file system may be mounted several times, parts of it on others.
fn mount_id(file: &File) -> io::Result<u64> {
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Whether something is mounted below a directory, as this process sees it.
fn has_mounts_below(dir: &File) -> io::Result<bool> {
    let path = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
    let told = fs::read("/proc/self/mountinfo")?;
    let mount_points =
        told.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    Ok(mount_points.map(unescaped).any(|mount_point| mount_point != path && mount_point.starts_with(&path)))
}

/// A path in which the kernel wrote some bytes as a backslash and three octal digits.
fn unescaped(told: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(told.len());
    let mut rest = told;
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| *byte == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    PathBuf::from(OsString::from_vec(path))
}

/// Whether a user may remove an entry of a directory of this mode as far as the sticky bit goes; the
/// owners are those of the directory and of the entry.
fn may_remove(mode: u32, owners: [u32; 2], user: Uid) -> bool {
    let is_sticky = Mode::from_raw_mode(mode).contains(Mode::SVTX);
    !is_sticky || user.is_root() || owners.contains(&user.as_raw())
}

fn make_empty(path: &Path, is_dir: bool) -> io::Result<File> {
    if is_dir {
        fs::DirBuilder::new().mode(0o700).create(path)?;
        return File::open(path);
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
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

    #[test]
    fn an_open_file_tells_its_mount() {
        let (root, proc) = (File::open("/").unwrap(), File::open("/proc").unwrap());
        assert_eq!(mount_id(&root).unwrap(), mount_id(&File::open("/").unwrap()).unwrap());
        assert_ne!(mount_id(&root).unwrap(), mount_id(&proc).unwrap());
    }
}
