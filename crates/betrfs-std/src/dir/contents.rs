//! Contents of files by path.

use std::path::Path;

use betrfs::{Error as VolumeError, FileType};

use super::Dir;
use crate::error::{Context, ErrorKind, Kinded, Result};
use crate::file::File;
use crate::open_options::OpenOptions;
use crate::opened::Found;
use crate::permission::{SEARCH, WRITE};
use crate::resolve::{Located, Purpose};

/// The permissions of new files, less the umask.
pub(crate) const FILE_MODE: u32 = 0o666;
/// The most that a new file's contents come with the file itself, in bytes.
const AT_ONCE_BYTES_MAX: usize = 256 << 10;

impl Dir {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file to write it; makes it if it does not exist, and empties it if it does.
    ///
    /// # Errors
    /// `EISDIR`, `EACCES`, `ENOENT` if its directory does not exist.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, `EISDIR`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        self.read_all(path).of("read", path)
    }

    /// The contents of a file as text.
    ///
    /// # Errors
    /// As [`read`](Dir::read); [`ErrorKind::NotText`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let text = || String::from_utf8(self.read_all(path)?).map_err(|_| ErrorKind::NotText);
        text().of("read", path)
    }

    fn read_all(&self, path: &Path) -> Kinded<Vec<u8>> {
        let file = OpenOptions::new().read(true).open_kinded(self, path)?;
        let mut bytes = Vec::new();
        file.append_rest(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Replaces the contents of a file, which is made if it does not exist. A crash may leave a part of them;
    /// of a new file of up to 256 KiB it leaves all or no file.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let fs = betrfs_std::Fs::create(folder.path().join("volume"), 32 << 20)?;
    /// fs.write("greeting", "hello")?;
    /// fs.append("greeting", ", world")?;
    /// assert_eq!(fs.read("/greeting")?, b"hello, world");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EISDIR`, `EACCES`, `ENOSPC`: then the file may be empty, or have a part of the contents.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.write_all(path, contents.as_ref()).of("write", path)
    }

    fn write_all(&self, path: &Path, contents: &[u8]) -> Kinded<()> {
        if contents.len() <= AT_ONCE_BYTES_MAX && self.make_with(path, contents)? {
            return Ok(());
        }
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(true).open_kinded(self, path)?;
        file.write_all_at(0, contents)
    }

    /// Makes a file with its contents in one step, unless something has its name.
    fn make_with(&self, path: &Path, contents: &[u8]) -> Kinded<bool> {
        // What cannot be found is for the opening to tell.
        let Ok(Located::Missing { dir, name }) = self.locate(path, true, Purpose::MakeFile) else {
            return Ok(false);
        };
        self.opened().refuse_read_only()?;
        self.may_use(&dir, WRITE | SEARCH)?;
        let new = self.new_node(FileType::Regular, FILE_MODE);
        match self.opened().volume()?.create_with(dir.id, &name, &new, contents) {
            Ok(entry) => {
                drop(Found::new(self.opened(), entry));
                Ok(true)
            }
            // Where the log is small; or somebody else has made it.
            Err(VolumeError::FileTooLarge | VolumeError::Exists) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes at the end of a file, which is made if it does not exist. Of several writers at a time none
    /// overwrites another.
    ///
    /// # Errors
    /// As [`write`](Dir::write): then a part of the contents may be there.
    pub fn append(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let append = || {
            let file = OpenOptions::new().append(true).create(true).open_kinded(self, path)?;
            file.append_all(contents.as_ref())
        };
        append().of("append to", path)
    }

    /// Copies the contents and the permissions of a file, and returns the number of bytes. What has whole
    /// blocks is shared by both from 1 MiB on, and neither sees the other's changes.
    ///
    /// # Errors
    /// `EINVAL` if the source is no regular file, or both are the same file. After others the target may be
    /// empty or have a part.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.copy_file(from, to).of_two("copy", from, to)
    }

    fn copy_file(&self, from: &Path, to: &Path) -> Kinded<u64> {
        let not_regular = || VolumeError::Invalid("the source is not a regular file").into();
        let source = match OpenOptions::new().read(true).open_kinded(self, from) {
            // As std::fs::copy, which can open directories.
            Err(ErrorKind::Volume(VolumeError::IsADirectory)) => return Err(not_regular()),
            opened => opened?,
        };
        let attr = source.attr()?;
        if attr.file_type != FileType::Regular {
            return Err(not_regular());
        }
        let target = match self.locate(to, true, Purpose::MakeFile)? {
            Located::There { found, .. } if found.id() == source.id() => {
                return Err(VolumeError::Invalid("the source and the target are the same file").into());
            }
            _ => {
                let mut open = OpenOptions::new();
                let open = open.write(true).create(true).truncate(true).mode(u32::from(attr.perm));
                open.open_kinded(self, to)?
            }
        };
        let mut done = 0;
        while done < attr.size {
            let rest = attr.size - done;
            match self.opened().volume()?.copy_range(source.id(), done, target.id(), done, rest)? {
                // The source was cut meanwhile.
                0 => break,
                copied => done += copied,
            }
        }
        self.set_perm(&target.found()?, u32::from(attr.perm))?;
        Ok(done)
    }
}
