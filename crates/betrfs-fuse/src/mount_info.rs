//! The kernel's list of mounts, read without asking their servers, which may be stopped or refuse even root.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};

/// File system types of these mounts in `mount` and /proc/mounts: with a block device, and without.
pub const FS_TYPES: [&str; 2] = [FS_TYPE_BLOCK, FS_TYPE];
pub(crate) const FS_TYPE_BLOCK: &str = "fuseblk.betrfs";
pub(crate) const FS_TYPE: &str = "fuse.betrfs";

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's id in this mount namespace.
    pub id: u64,
    /// The id of the mount that it is mounted on.
    pub parent_id: u64,
    /// The mounted file system's device number, major and minor.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub path: PathBuf,
    /// The options of this mount, followed by those of the file system.
    pub options: Vec<String>,
    /// The file system's type.
    pub fs_type: String,
    /// The device, or the name that the file system gave.
    pub source: PathBuf,
}

impl MountEntry {
    /// The mount that an open file or path is on.
    ///
    /// # Errors
    /// The operating system's: /proc is not there.
    pub fn of(file: impl AsFd) -> io::Result<MountEntry> {
        let id = mount_id(file)?;
        MountEntry::all()?
            .into_iter()
            .find(|entry| entry.id == id)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The mount whose root is at a path; `None` if the path is no root of a mount. Asks no server.
    ///
    /// # Errors
    /// The operating system's: the path cannot be followed.
    pub fn at(path: &Path) -> io::Result<Option<MountEntry>> {
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        // With an empty mask even another user's mount answers.
        let found = rustix::fs::statx(&place, c"", flags, StatxFlags::empty())?;
        if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
            if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
                // Its mount may be out of sight: that of a directory below the root that chroot(2) chose.
                return Ok(None);
            }
            return MountEntry::of(&place).map(Some);
        }
        // Before Linux 5.8.
        let entry = MountEntry::of(&place)?;
        let path = fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
        Ok(Some(entry).filter(|entry| entry.path == path))
    }

    /// All visible mounts of this mount namespace.
    ///
    /// # Errors
    /// The operating system's: /proc is not there.
    pub fn all() -> io::Result<Vec<MountEntry>> {
        let told = fs::read("/proc/self/mountinfo")?;
        Ok(told.split(|byte| *byte == b'\n').filter_map(parse).collect())
    }

    /// Whether it is a mount of a BetrFS volume.
    pub fn is_betrfs(&self) -> bool {
        FS_TYPES.contains(&self.fs_type.as_str())
    }

    /// Whether changes are refused on this mount, or on all of the file system.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }

    /// The user and the group that made it.
    pub fn owner(&self) -> (u32, u32) {
        let number = |name: &str| {
            let mut values = self.options.iter().filter_map(|option| option.strip_prefix(name)?.parse().ok());
            values.next().unwrap_or(0)
        };
        (number("user_id="), number("group_id="))
    }

    /// Whether users other than its owner may enter it, root included.
    pub fn is_for_all(&self) -> bool {
        self.options.iter().any(|option| option == "allow_other")
    }

    /// Whether its device is a loop device on a file that the kernel frees with the mount.
    pub fn stands_for_file(&self) -> bool {
        let name = self.source.strip_prefix("/dev").ok().filter(|name| is_loop(name));
        let told =
            name.and_then(|name| fs::read(Path::new("/sys/block").join(name).join("loop/autoclear")).ok());
        self.fs_type == FS_TYPE_BLOCK && told.is_some_and(|told| told.starts_with(b"1"))
    }

    /// The volume's file or block device: of a loop device that the kernel frees with the mount, its file.
    pub fn volume(&self) -> PathBuf {
        let file = self.backing_file().filter(|_| self.stands_for_file());
        file.unwrap_or_else(|| self.source.clone())
    }

    /// Whether it is a mount of this file or block device; a file is the same as a loop device that shows the
    /// whole of it.
    pub fn is_of(&self, volume: &Path) -> bool {
        let names = |path: &Path| [Some(path.to_owned()), whole_file_of(path)].into_iter().flatten();
        names(&self.source).any(|name| names(volume).any(|other| other == name))
    }

    /// The file of its loop device.
    fn backing_file(&self) -> Option<PathBuf> {
        Some(PathBuf::from(OsString::from_vec(told_of_loop(&self.source, "backing_file")?)))
    }
}

/// The file of which a loop device shows the whole.
fn whole_file_of(device: &Path) -> Option<PathBuf> {
    let is_zero = |name: &str| told_of_loop(device, name).is_some_and(|told| told == b"0");
    let file = told_of_loop(device, "backing_file")?;
    (is_zero("offset") && is_zero("sizelimit")).then(|| PathBuf::from(OsString::from_vec(file)))
}

/// What the kernel tells of a loop device.
fn told_of_loop(device: &Path, what: &str) -> Option<Vec<u8>> {
    let name = device.strip_prefix("/dev").ok().filter(|name| is_loop(name))?;
    let mut told = fs::read(Path::new("/sys/block").join(name).join("loop").join(what)).ok()?;
    told.pop_if(|last| *last == b'\n');
    Some(told)
}

fn is_loop(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(b"loop")
}

/// The id of the mount that an open file is on: a file system may be mounted several times, in parts too.
pub fn mount_id(file: impl AsFd) -> io::Result<u64> {
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()))?;
    let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
    let id = text()?.parse().ok()?;
    let (parent_id, device, _root) = (text()?.parse().ok()?, text()?, text()?);
    let (major, minor) = device.split_once(':')?;
    let path = unescaped(fields.next()?);
    let options = fields.next()?;
    // Optional fields follow, up to a hyphen.
    fields.find(|field| *field == b"-")?;
    let (fs_type, source, of_all) = (fields.next()?, fields.next()?, fields.next()?);
    let list = [options, of_all].into_iter().flat_map(|options| options.split(|byte| *byte == b','));
    Some(MountEntry {
        id,
        parent_id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        path,
        options: list.map(|option| String::from_utf8_lossy(option).into_owned()).collect(),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
        source: unescaped(source),
    })
}

/// Decodes a path of the kernel, in which some bytes are a backslash and three octal digits.
pub fn unescaped(told: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(told.len());
    let mut rest = told;
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| *byte == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_parsed() {
        let line = b"36 35 0:57 / /mnt/a\\040b\\134 rw,nosuid shared:1 master:2 - fuse.betrfs /v\\011 \
            ro,user_id=5,group_id=6,default_permissions";
        let entry = parse(line).unwrap();
        assert_eq!((entry.id, entry.parent_id, entry.device), (36, 35, (0, 57)));
        assert_eq!(
            (entry.path.as_path(), entry.source.as_path()),
            (Path::new("/mnt/a b\\"), Path::new("/v\t"))
        );
        assert!(entry.is_betrfs() && entry.is_read_only() && !entry.is_for_all());
        assert_eq!(entry.owner(), (5, 6));
        assert!(entry.is_of(Path::new("/v\t")) && !entry.is_of(Path::new("/v")));
        for line in [&b""[..], b"36 35", b"36 35 0:57 / /mnt rw shared:1", b"x 35 0:57 / /mnt rw - t s rw"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn the_mount_of_an_open_file_is_found() {
        let (root, proc) = (File::open("/").unwrap(), File::open("/proc").unwrap());
        assert_eq!(mount_id(&root).unwrap(), mount_id(File::open("/").unwrap()).unwrap());
        assert_ne!(mount_id(&root).unwrap(), mount_id(&proc).unwrap());
        assert_eq!(MountEntry::of(&proc).unwrap().fs_type, "proc");
        assert_eq!(MountEntry::at(Path::new("/proc")).unwrap().unwrap().path, Path::new("/proc"));
        assert_eq!(MountEntry::at(Path::new("/proc/self")).unwrap(), None);
    }
}
