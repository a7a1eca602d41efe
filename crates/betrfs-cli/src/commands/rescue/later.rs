//! Owners, permissions and times of directories, which are set last: what is made in a directory changes its
//! times, may need a permission that it is to lose, and must not be changed by its owner meanwhile. They wait
//! in a file without a name, and are read back from its end: a directory comes after all that is below it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use betrfs::rescue::Attributes;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, futimens, openat, unlinkat};
use rustix::io::Errno;

use super::copy::{mode_of, times};
use super::target::Target;

/// The name of the file for the moment of its making.
const NAME: &str = "directories";
/// Bytes of the fixed part of an entry, which follows its names: permissions, user, group, two times, the
/// names' length.
const FIXED_BYTES: usize = 2 + 4 + 4 + 8 + 8 + 4;

/// What is set of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The names on the way to it; none for the target itself.
    pub names: Vec<Vec<u8>>,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub atime_ns: i64,
    pub mtime_ns: i64,
}

impl Entry {
    /// Sets it of an open directory, to which nothing is added from then on.
    ///
    /// # Errors
    /// The system's own.
    pub fn set(&self, open: BorrowedFd<'_>, sets_owners: bool) -> Result<(), Errno> {
        futimens(open, &times(self.atime_ns, self.mtime_ns))?;
        if sets_owners {
            fchown(open, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        }
        // After it, which may clear set-id bits.
        fchmod(open, mode_of(self.perm))
    }
}

/// See the module.
pub struct Later {
    file: BufWriter<File>,
    len: u64,
}

impl Later {
    /// An empty file in the target.
    pub fn new(target: &Target) -> io::Result<Later> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(target.linked(), NAME, flags, Mode::RUSR | Mode::WUSR)?;
        unlinkat(target.linked(), NAME, AtFlags::empty())?;
        Ok(Later::over(File::from(file)))
    }

    fn over(file: File) -> Later {
        Later { file: BufWriter::new(file), len: 0 }
    }

    /// Adds a directory.
    pub fn push(&mut self, names: &[Vec<u8>], attributes: &Attributes) -> io::Result<()> {
        let joined = names.join(&0);
        let len = u32::try_from(joined.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
        self.file.write_all(&joined)?;
        self.file.write_all(&attributes.perm.to_le_bytes())?;
        self.file.write_all(&attributes.uid.to_le_bytes())?;
        self.file.write_all(&attributes.gid.to_le_bytes())?;
        self.file.write_all(&attributes.atime_ns.to_le_bytes())?;
        self.file.write_all(&attributes.mtime_ns.to_le_bytes())?;
        self.file.write_all(&len.to_le_bytes())?;
        self.len += joined.len() as u64 + FIXED_BYTES as u64;
        Ok(())
    }

    /// Takes the last directory back.
    pub fn pop(&mut self) -> io::Result<Option<Entry>> {
        self.file.flush()?;
        let Some(at) = self.len.checked_sub(FIXED_BYTES as u64) else { return Ok(None) };
        let mut fixed = [0; FIXED_BYTES];
        self.file.get_ref().read_exact_at(&mut fixed, at)?;
        let torn = || io::Error::from(io::ErrorKind::InvalidData);
        let (perm, rest) = fixed.split_first_chunk::<2>().ok_or_else(torn)?;
        let (uid, rest) = rest.split_first_chunk::<4>().ok_or_else(torn)?;
        let (gid, rest) = rest.split_first_chunk::<4>().ok_or_else(torn)?;
        let (atime, rest) = rest.split_first_chunk::<8>().ok_or_else(torn)?;
        let (mtime, rest) = rest.split_first_chunk::<8>().ok_or_else(torn)?;
        let len = u32::from_le_bytes(*rest.first_chunk().ok_or_else(torn)?);
        self.len = at.checked_sub(u64::from(len)).ok_or_else(torn)?;
        let mut joined = vec![0; len as usize];
        self.file.get_ref().read_exact_at(&mut joined, self.len)?;
        let names = if joined.is_empty() {
            Vec::new()
        } else {
            joined.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
        };
        Ok(Some(Entry {
            names,
            perm: u16::from_le_bytes(*perm),
            uid: u32::from_le_bytes(*uid),
            gid: u32::from_le_bytes(*gid),
            atime_ns: i64::from_le_bytes(*atime),
            mtime_ns: i64::from_le_bytes(*mtime),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_back_from_the_last_to_the_first() {
        let mut later = Later::over(tempfile::tempfile().unwrap());
        let all: Vec<Vec<Vec<u8>>> = vec![vec![], vec![b"a".to_vec()], vec![b"a".to_vec(), vec![0xff; 255]]];
        for (number, names) in (0i64..).zip(&all) {
            let attributes = Attributes {
                perm: 0o755 + number as u16,
                uid: u32::MAX - number as u32,
                gid: number as u32,
                rdev: 0,
                size: 0,
                atime_ns: -number,
                mtime_ns: number << 40,
                flags: betrfs::InodeFlags::NONE,
                target: Vec::new(),
            };
            later.push(names, &attributes).unwrap();
        }
        for (number, names) in (0i64..).zip(all).collect::<Vec<_>>().into_iter().rev() {
            let expected = Entry {
                names,
                perm: 0o755 + number as u16,
                uid: u32::MAX - number as u32,
                gid: number as u32,
                atime_ns: -number,
                mtime_ns: number << 40,
            };
            assert_eq!(later.pop().unwrap(), Some(expected));
        }
        assert_eq!(later.pop().unwrap(), None);
    }
}
