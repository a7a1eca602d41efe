//! Entries that are made, renamed and removed.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betrfs::{Error as VolumeError, FileType, InodeId, NewNode, RenameFlags};

use super::Dir;
use crate::error::{Context, ErrorKind, Kinded, Result};
use crate::opened::{Found, Node};
use crate::permission::{SEARCH, WRITE, may_link, may_move, may_remove};
use crate::resolve::{Last, Located, Parent, Purpose, check_path};

const EXCHANGE: RenameFlags = RenameFlags { exchange: true, no_replace: false, whiteout: false };
const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false, whiteout: false };

impl Dir {
    /// What the caller makes with these permissions.
    pub(crate) fn new_node(&self, file_type: FileType, mode: u32) -> NewNode {
        let caller = self.caller();
        let perm = (mode & 0o7777) as u16;
        NewNode { file_type, perm, uid: caller.uid, gid: caller.gid, rdev: 0, umask: caller.umask }
    }

    /// Makes an empty directory, with the permissions 0777 less the umask.
    ///
    /// # Errors
    /// `EEXIST`; `ENOENT` if the directory in which it is to be does not exist.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.make_dir(path).of("make directory", path)
    }

    fn make_dir(&self, path: &Path) -> Kinded<()> {
        let (dir, name) = self.new_entry(path, true)?;
        let new = self.new_node(FileType::Directory, 0o777);
        let entry = self.opened().volume()?.create(dir.id, &name, &new)?;
        drop(Found::new(self.opened(), entry));
        Ok(())
    }

    /// Makes a directory and those above it, as far as they do not exist.
    ///
    /// # Errors
    /// `ENOTDIR` or `EEXIST` if something on the way is no directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.make_dirs(path).of("make directories", path)
    }

    fn make_dirs(&self, path: &Path) -> Kinded<()> {
        // From below, as most of them exist as a rule.
        let mut missing = Vec::new();
        for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            match self.make_dir_if_absent(above) {
                Err(kind) if kind.is_missing() => missing.push(above),
                made => {
                    made?;
                    break;
                }
            }
        }
        missing.into_iter().rev().try_for_each(|dir| self.make_dir_if_absent(dir))
    }

    fn make_dir_if_absent(&self, path: &Path) -> Kinded<()> {
        match self.make_dir(path) {
            Err(kind) if !kind.is_missing() && self.find(path, true).is_ok_and(|found| found.is_dir()) => {
                Ok(())
            }
            made => made,
        }
    }

    /// Removes a name of what is no directory. A file that is open lives until it is closed.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.unlink(path).of("remove", path)
    }

    fn unlink(&self, path: &Path) -> Kinded<()> {
        self.opened().refuse_read_only()?;
        let Parent { dir, last, slash } = self.parent(path)?;
        let Last::Name(name) = last else { return Err(VolumeError::IsADirectory.into()) };
        if slash {
            let is_dir = self.child(&dir, &name)?.is_dir();
            return Err(if is_dir { VolumeError::IsADirectory } else { VolumeError::NotADirectory }.into());
        }
        self.may_take(&dir, &name)?;
        Ok(self.opened().volume()?.unlink(dir.id, &name)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`; `EBUSY` if it has snapshots; `ENOENT`; `ENOTDIR`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.rmdir(path).of("remove directory", path)
    }

    fn rmdir(&self, path: &Path) -> Kinded<()> {
        self.opened().refuse_read_only()?;
        let Parent { dir, last, .. } = self.parent(path)?;
        let name = removable(last)?;
        self.may_take(&dir, &name)?;
        self.opened().volume()?.rmdir(dir.id, &name)?;
        Ok(())
    }

    /// Refuses to take an entry from a directory that the caller may not take from it.
    pub(super) fn may_take(&self, dir: &Node, name: &[u8]) -> Kinded<()> {
        if self.caller().is_root() {
            return Ok(());
        }
        may_remove(self.caller(), &self.judged(dir)?, &self.child(dir, name)?.attr)
    }

    /// Renames an entry, and replaces what has the new name, at a cost that does not depend on what it holds.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.move_entry(from, to, RenameFlags::default()).of_two("rename", from, to)
    }

    /// As [`rename`](Dir::rename), but replaces nothing.
    ///
    /// # Errors
    /// `EEXIST` if there is an entry of the new name.
    pub fn rename_no_replace(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        self.move_entry(from, to, NO_REPLACE).of_two("rename", from, to)
    }

    /// Exchanges two entries in one step.
    ///
    /// # Errors
    /// `ENOENT` if one of them does not exist; `EINVAL` if one is below the other.
    pub fn rename_exchange(&self, one: impl AsRef<Path>, other: impl AsRef<Path>) -> Result<()> {
        let (one, other) = (one.as_ref(), other.as_ref());
        self.move_entry(one, other, EXCHANGE).of_two("exchange", one, other)
    }

    fn move_entry(&self, from: &Path, to: &Path, flags: RenameFlags) -> Kinded<()> {
        self.opened().refuse_read_only()?;
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        let Last::Name(name) = from.last else { return Err(VolumeError::Busy.into()) };
        let Last::Name(new_name) = to.last else {
            let error = if flags.no_replace { VolumeError::Exists } else { VolumeError::Busy };
            return Err(error.into());
        };
        if from.slash || to.slash || !self.caller().is_root() {
            let source = self.child(&from.dir, &name)?;
            let target = match self.child(&to.dir, &new_name) {
                Err(kind) if kind.is_missing() => None,
                target => Some(target?),
            };
            match target {
                Some(_) if flags.no_replace => return Err(VolumeError::Exists.into()),
                None if flags.exchange => return Err(VolumeError::NotFound.into()),
                _ => {}
            }
            if !source.is_dir() && (from.slash || to.slash && !flags.exchange)
                || flags.exchange && to.slash && target.as_ref().is_some_and(|target| !target.is_dir())
            {
                return Err(VolumeError::NotADirectory.into());
            }
            if target.as_ref().is_some_and(|target| target.id() == source.id()) {
                return Ok(());
            }
            if let Err(refused) = self.may_rename(&from.dir, &source, &to.dir, target.as_ref(), flags) {
                // What cannot be for anybody comes first, as in rename(2).
                if self.is_on_way_up(&source, &to.dir)? {
                    return Err(VolumeError::Invalid("a directory cannot be moved below itself").into());
                }
                if let Some(target) = target
                    && self.is_on_way_up(&target, &from.dir)?
                {
                    let (invalid, full) =
                        (VolumeError::Invalid("one is below the other"), VolumeError::NotEmpty);
                    return Err(if flags.exchange { invalid } else { full }.into());
                }
                return Err(refused);
            }
        }
        match self.opened().volume()?.rename(from.dir.id, &name, to.dir.id, &new_name, flags) {
            // That there is nothing to rename comes first, as in rename(2).
            Err(error @ VolumeError::NameTooLong) => {
                self.child(&from.dir, &name)?;
                Err(error.into())
            }
            renamed => Ok(renamed?),
        }
    }

    /// Whether something is a directory or one of those above it.
    fn is_on_way_up(&self, found: &Found, dir: &Arc<Node>) -> Kinded<bool> {
        let mut here = Arc::clone(dir);
        while here.id != found.id() {
            if here.id == InodeId::ROOT {
                return Ok(false);
            }
            here = Found::new(self.opened(), self.opened().volume()?.parent(here.id)?).node;
        }
        Ok(true)
    }

    fn may_rename(
        &self,
        from: &Node,
        source: &Found,
        to: &Node,
        target: Option<&Found>,
        flags: RenameFlags,
    ) -> Kinded<()> {
        let caller = self.caller();
        may_remove(caller, &self.judged(from)?, &source.attr)?;
        match target {
            Some(target) => may_remove(caller, &self.judged(to)?, &target.attr)?,
            None => self.may_use(to, WRITE | SEARCH)?,
        }
        if let Some(target) = target.filter(|target| !flags.exchange && target.is_dir() != source.is_dir()) {
            let is_dir = target.is_dir();
            return Err(if is_dir { VolumeError::IsADirectory } else { VolumeError::NotADirectory }.into());
        }
        if from.id != to.id {
            may_move(caller, &self.judged_found(source)?)?;
            if let Some(target) = target.filter(|_| flags.exchange) {
                may_move(caller, &self.judged_found(target)?)?;
            }
        }
        Ok(())
    }

    /// Gives a file one more name. A symbolic link is not followed: it gets the name itself.
    ///
    /// # Errors
    /// `EPERM` for a directory; `EEXIST`; `EMLINK`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let linked = || {
            let source = self.find(original, false)?;
            let (dir, name) = self.absent_entry(link, false)?;
            may_link(self.caller(), &self.judged_found(&source)?)?;
            self.may_use(&dir, WRITE | SEARCH)?;
            if source.is_dir() {
                // What the name comes to goes before, as in link(2).
                return Err(match self.child(&dir, &name) {
                    Ok(_) => VolumeError::Exists.into(),
                    Err(kind) if kind.is_missing() => ErrorKind::NotPermitted,
                    Err(kind) => kind,
                });
            }
            let entry = self.opened().volume()?.link(source.id(), dir.id, &name)?;
            drop(Found::new(self.opened(), entry));
            Ok(())
        };
        linked().of_two("link", original, link)
    }

    /// Makes a symbolic link to `original`, which need not exist.
    ///
    /// # Errors
    /// `EEXIST`; `ENAMETOOLONG` over 4095 bytes; `ENOENT` if `original` is empty.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let made = || {
            let target = original.as_os_str().as_bytes();
            check_path(target)?;
            let (dir, name) = self.new_entry(link, false)?;
            let (uid, gid) = (self.caller().uid, self.caller().gid);
            let entry = self.opened().volume()?.symlink(dir.id, &name, target, uid, gid)?;
            drop(Found::new(self.opened(), entry));
            Ok(())
        };
        let done: Kinded<()> = made();
        done.of_two("make symbolic link", original, link)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let target = || Ok(self.opened().volume()?.readlink(self.find(path, false)?.id())?);
        let target: Kinded<Vec<u8>> = target();
        target.map(|target| PathBuf::from(OsString::from_vec(target))).of("read symbolic link", path)
    }

    /// The path from the root of the volume to what a path leads to, without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.path_of(path).of("canonicalize", path)
    }

    fn path_of(&self, path: &Path) -> Kinded<PathBuf> {
        let volume = self.opened().volume()?;
        let bytes = match self.locate(path, true, Purpose::Use)? {
            Located::Missing { .. } => return Err(VolumeError::NotFound.into()),
            Located::There { found, .. } if found.is_dir() => volume.path(found.id())?,
            Located::There { at: Some((dir, name)), .. } => {
                let mut bytes = volume.path(dir.id)?;
                if !bytes.ends_with(b"/") {
                    bytes.push(b'/');
                }
                bytes.extend_from_slice(&name);
                bytes
            }
            Located::There { .. } => return Err(VolumeError::NotADirectory.into()),
        };
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    /// The path of this directory from the root of the volume, as it is now.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed.
    pub fn path(&self) -> Result<PathBuf> {
        let path = self.opened().volume().and_then(|volume| volume.path(self.id()));
        path.map(|path| PathBuf::from(OsString::from_vec(path))).of("tell the path of", self.given_path())
    }
}

/// The name at the end of a path to a directory that is to be removed.
pub(super) fn removable(last: Last) -> Kinded<Vec<u8>> {
    match last {
        Last::Name(name) => Ok(name),
        Last::Here => Err(VolumeError::Invalid("the path ends in .").into()),
        Last::Above => Err(VolumeError::NotEmpty.into()),
        Last::Root => Err(VolumeError::Busy.into()),
    }
}
