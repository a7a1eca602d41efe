//! What is done to a whole directory at once, at a cost that does not depend on what it holds. All of it is
//! for root and the user who opened the volume: no single entry's permissions are looked at.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use betrfs::{Error as VolumeError, FileType, Objects, SNAPSHOTS_NAME, SnapshotsBelow, Usage, Writing};

use super::Dir;
use super::entries::removable;
use crate::error::{Context, Kinded, Result};
use crate::opened::Found;
use crate::resolve::Parent;

impl Dir {
    /// Makes `to` a copy of a file, or of a directory with all that is below it, as it is now. Both can be
    /// changed afterwards, and neither sees the other's changes. A symbolic link is copied itself. Owners,
    /// permissions and times of changes are those of the source.
    ///
    /// # Errors
    /// `EEXIST` if there is an entry at `to`; `EPERM`.
    pub fn clone_tree(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let clone = || {
            self.must_be_trusted()?;
            let source = self.find(from, false)?;
            let (dir, name) = self.new_entry(to, source.is_dir())?;
            let entry = self.opened().volume()?.clone_inode(source.id(), dir.id, &name)?;
            drop(Found::new(self.opened(), entry));
            Ok(())
        };
        let done: Kinded<()> = clone();
        done.of_two("clone", from, to)
    }

    /// Removes a directory with all that is below it. A crash leaves all of it, an empty directory, or
    /// nothing. Files that are open live until they are closed. A symbolic link is removed itself.
    ///
    /// # Errors
    /// `ENOTDIR`; `EBUSY` if it, or a directory below it, has snapshots; `EPERM`.
    pub fn rm_tree(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.remove_tree(path).of("remove tree", path)
    }

    fn remove_tree(&self, path: &Path) -> Kinded<()> {
        self.must_be_trusted()?;
        self.opened().refuse_read_only()?;
        let Parent { dir, last, .. } = self.parent(path)?;
        let name = removable(last)?;
        let found = self.child(&dir, &name)?;
        let volume = self.opened().volume()?;
        match found.attr.file_type {
            FileType::Directory => {
                self.may_take(&dir, &name)?;
                // An emptied directory that cannot be removed would stay behind.
                volume.check_writable(dir.id, Writing::Anywhere)?;
                volume.remove_below(found.id(), SnapshotsBelow::Hold)?;
                volume.rmdir(dir.id, &name)?;
                Ok(())
            }
            FileType::Symlink => {
                self.may_take(&dir, &name)?;
                Ok(volume.unlink(dir.id, &name)?)
            }
            _ => Err(VolumeError::NotADirectory.into()),
        }
    }

    /// [`rm_tree`](Dir::rm_tree) by the name of `std::fs`.
    ///
    /// # Errors
    /// As there.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.rm_tree(path)
    }

    /// Makes a snapshot of a directory: a copy that cannot be changed, at `.betrfs-snapshots/NAME` in it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let fs = betrfs_std::Fs::create(folder.path().join("volume"), 32 << 20)?;
    /// fs.create_dir("project")?;
    /// fs.write("project/plan", "first")?;
    /// fs.snapshot("project", "monday")?;
    /// fs.write("project/plan", "second")?;
    /// assert_eq!(fs.read_to_string("project/.betrfs-snapshots/monday/plan")?, "first");
    /// assert_eq!(fs.snapshots("project")?, ["monday"]);
    /// fs.remove_snapshot("project", "monday")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EEXIST`; `EPERM`; `ENOTDIR`.
    pub fn snapshot(&self, dir: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let (dir, name) = (dir.as_ref(), name.as_ref());
        let make = || {
            self.opened().refuse_read_only()?;
            let snapshots = self.snapshots_of(dir)?;
            let new = self.new_node(FileType::Directory, 0o777);
            let entry = self.opened().volume()?.create(snapshots.id(), name.as_bytes(), &new)?;
            drop(Found::new(self.opened(), entry));
            Ok(())
        };
        let done: Kinded<()> = make();
        done.of_two("make snapshot", dir, Path::new(name))
    }

    /// The names of a directory's snapshots.
    ///
    /// # Errors
    /// `EPERM`; `ENOTDIR`.
    pub fn snapshots(&self, dir: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let dir = dir.as_ref();
        let list = || {
            let (snapshots, mut names) = (self.snapshots_of(dir)?, Vec::new());
            self.opened().volume()?.readdir(snapshots.id(), 0, Objects::None, &mut |entry| {
                names.push(OsString::from_vec(entry.name.to_vec()));
                true
            })?;
            names.sort_unstable();
            Ok(names)
        };
        let names: Kinded<Vec<OsString>> = list();
        names.of("list the snapshots of", dir)
    }

    /// Removes a snapshot of a directory.
    ///
    /// # Errors
    /// `ENOENT` if there is none of that name; `EPERM`.
    pub fn remove_snapshot(&self, dir: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let (dir, name) = (dir.as_ref(), name.as_ref());
        let remove = || {
            self.opened().refuse_read_only()?;
            let snapshots = self.snapshots_of(dir)?;
            self.opened().volume()?.rmdir(snapshots.id(), name.as_bytes())?;
            Ok(())
        };
        let done: Kinded<()> = remove();
        done.of_two("remove snapshot", dir, Path::new(name))
    }

    /// The entry under which a directory's snapshots are found.
    fn snapshots_of(&self, dir: &Path) -> Kinded<Found> {
        self.must_be_trusted()?;
        let dir = self.find(dir, true)?;
        self.child(&dir.node, SNAPSHOTS_NAME)
    }

    /// The bytes that a file, or a directory with all that is below it, takes on the volume as it is stored,
    /// and those of them that its removal would free, as of one moment. What is in memory alone counts as it
    /// is there, not compressed.
    ///
    /// # Errors
    /// `EPERM`; the volume's.
    pub fn usage(&self, path: impl AsRef<Path>) -> Result<Usage> {
        let path = path.as_ref();
        let usage = || {
            self.must_be_trusted()?;
            Ok(self.opened().volume()?.usage(self.find(path, true)?.id())?)
        };
        let usage: Kinded<Usage> = usage();
        usage.of("tell the usage of", path)
    }
}
