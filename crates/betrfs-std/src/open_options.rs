//! How a file is opened.

use std::path::Path;

use betrfs::{Error as VolumeError, FileType, SetAttr, Writing};

use crate::dir::{Dir, FILE_MODE};
use crate::error::{Context, ErrorKind, Kinded, Result};
use crate::file::{Access, File};
use crate::opened::Found;
use crate::permission::{READ, SEARCH, WRITE, may, set_by_writer};
use crate::resolve::{Located, Purpose};

/// How often a path is walked again when others remove what it led to before it is open.
const TRIES: usize = 100;

/// How a file is opened, as `std::fs::OpenOptions` has it.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
///
/// use betrfs_std::OpenOptions;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let fs = betrfs_std::Fs::create(folder.path().join("volume"), 32 << 20)?;
///
/// let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&fs, "notes")?;
/// file.write_all(b"first\nsecond\n")?;
/// file.seek(SeekFrom::Start(6))?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "second\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    no_follow: bool,
    mode: Option<u32>,
}

impl OpenOptions {
    /// None of them.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Whether it is to be read.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.read = read;
        self
    }

    /// Whether it is to be written.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// Whether every write goes to its end.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.append = append;
        self
    }

    /// Whether it is emptied.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Whether it is made if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.create = create;
        self
    }

    /// Whether it is made, and must not exist before.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Whether a symbolic link at the end of the path is refused (`ELOOP`), as by `O_NOFOLLOW`.
    pub fn no_follow(&mut self, no_follow: bool) -> &mut OpenOptions {
        self.no_follow = no_follow;
        self
    }

    /// The permissions of a file that is made, before the umask; 0666 unless it is set.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = Some(mode);
        self
    }

    /// Opens the file at a path from a directory: a [`Dir`], or an [`Fs`](crate::Fs) for its root.
    ///
    /// # Errors
    /// Those of open(2); `EISDIR` for a directory, also if it is only to be read: see
    /// [`Dir::open_dir`]; `EINVAL` for options that contradict each other.
    pub fn open(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        self.open_kinded(dir, path).of("open", path)
    }

    pub(crate) fn open_kinded(&self, dir: &Dir, path: &Path) -> Kinded<File> {
        self.check()?;
        for _ in 0..TRIES {
            match self.try_open(dir, path) {
                Err(ErrorKind::Volume(VolumeError::Stale)) => {}
                opened => return opened,
            }
        }
        Err(VolumeError::NotFound.into())
    }

    fn check(&self) -> Kinded<()> {
        let writes = self.write || self.append;
        if !self.read && !writes {
            return Err(VolumeError::Invalid("a file is opened to be read or to be written").into());
        }
        if !writes && (self.truncate || self.create || self.create_new) {
            return Err(VolumeError::Invalid("what is only read is neither made nor emptied").into());
        }
        if self.append && self.truncate && !self.create_new {
            return Err(VolumeError::Invalid("what is appended to is not emptied").into());
        }
        Ok(())
    }

    fn try_open(&self, dir: &Dir, path: &Path) -> Kinded<File> {
        let creates = self.create || self.create_new;
        let purpose = if creates { Purpose::MakeFile } else { Purpose::Use };
        match dir.locate(path, !self.no_follow && !self.create_new, purpose)? {
            Located::There { .. } if self.create_new => Err(VolumeError::Exists.into()),
            Located::There { found, .. } => self.open_found(dir, path, found),
            Located::Missing { dir: above, name } if creates => {
                dir.opened().refuse_read_only()?;
                dir.may_use(&above, WRITE | SEARCH)?;
                let new = dir.new_node(FileType::Regular, self.mode.unwrap_or(FILE_MODE));
                match dir.opened().volume()?.create(above.id, &name, &new) {
                    Ok(entry) => self.opened(dir, path, Found::new(dir.opened(), entry)),
                    // Somebody else has made it: then it is opened.
                    Err(VolumeError::Exists) if !self.create_new => Err(VolumeError::Stale.into()),
                    Err(error) => Err(error.into()),
                }
            }
            Located::Missing { .. } => Err(VolumeError::NotFound.into()),
        }
    }

    /// Opens what was there.
    fn open_found(&self, dir: &Dir, path: &Path, found: Found) -> Kinded<File> {
        let writes = self.write || self.append;
        match found.attr.file_type {
            FileType::Regular => {}
            FileType::Directory if writes => return Err(VolumeError::IsADirectory.into()),
            FileType::Directory => {}
            FileType::Symlink => return Err(ErrorKind::TooManyLinks),
            // Pipes and devices are the kernel's.
            _ => return Err(VolumeError::NotSupported.into()),
        }
        let wanted = if self.read { READ } else { 0 } | if writes { WRITE } else { 0 };
        may(dir.caller(), &dir.judged_found(&found)?, wanted)?;
        if found.attr.file_type == FileType::Directory {
            // What a handle of a directory is for, a `Dir` does.
            return Err(VolumeError::IsADirectory.into());
        }
        if writes {
            dir.opened().refuse_read_only()?;
            let writing = if self.append { Writing::AtEnd } else { Writing::Anywhere };
            dir.opened().volume()?.check_writable(found.id(), writing)?;
        }
        let file = self.opened(dir, path, found.clone())?;
        if self.truncate {
            let set = SetAttr { size: Some(0), ..set_by_writer(dir.caller(), &found.attr) };
            dir.opened().volume()?.setattr(found.id(), &set)?;
        }
        Ok(file)
    }

    fn opened(&self, dir: &Dir, path: &Path, found: Found) -> Kinded<File> {
        let access = Access { reads: self.read, writes: self.write || self.append, appends: self.append };
        File::new(dir, path, found, access)
    }
}
