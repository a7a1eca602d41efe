//! Directories as handles, and all operations by paths.

mod attributes;
mod contents;
mod entries;
mod trees;
mod xattrs;

pub(crate) use contents::FILE_MODE;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use betrfs::{Error as VolumeError, InodeId};

use crate::caller::Caller;
use crate::error::{Context, ErrorKind, Kinded, Result};
use crate::listing::ReadDir;
use crate::opened::{Found, Node, Opened};
use crate::permission::{Judged, READ, SEARCH, WRITE, may};
use crate::resolve::{Last, Located, Parent, Purpose, Walker};
use crate::walk::Walk;

/// A directory that is held, from which paths lead on: `letters/to-ada` to what is below it, `/etc/hosts` to
/// what is below the volume's root. It stays the same directory when it is renamed.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let fs = betrfs_std::Fs::create(folder.path().join("volume"), 32 << 20)?;
/// fs.create_dir("drafts")?;
/// let dir = fs.open_dir("drafts")?;
/// fs.rename("drafts", "letters")?;
/// dir.write("to-ada", "Dear Ada,\n")?;
/// assert_eq!(fs.read_to_string("letters/to-ada")?, "Dear Ada,\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dir(Arc<Handle>);

struct Handle {
    opened: Arc<Opened>,
    caller: Arc<Caller>,
    node: Arc<Node>,
    /// As the caller gave it.
    path: Box<Path>,
}

impl Dir {
    pub(crate) fn root(opened: &Arc<Opened>, caller: Caller) -> Kinded<Dir> {
        let root = Found::new(opened, opened.volume()?.resolve(b"/")?);
        let (opened, caller, path) = (Arc::clone(opened), Arc::new(caller), Path::new("/").into());
        Ok(Dir(Arc::new(Handle { opened, caller, node: root.node, path })))
    }

    /// The same directory for another caller.
    pub(crate) fn acting_as(&self, caller: Caller) -> Dir {
        let Handle { opened, node, path, .. } = &*self.0;
        let (opened, node, path) = (Arc::clone(opened), Arc::clone(node), path.clone());
        Dir(Arc::new(Handle { opened, caller: Arc::new(caller), node, path }))
    }

    pub(crate) fn opened(&self) -> &Arc<Opened> {
        &self.0.opened
    }

    pub(crate) fn caller(&self) -> &Arc<Caller> {
        &self.0.caller
    }

    pub(crate) fn id(&self) -> InodeId {
        self.0.node.id
    }

    /// The path that it was opened by.
    pub(crate) fn given_path(&self) -> &Path {
        &self.0.path
    }

    fn walker(&self) -> Walker<'_> {
        Walker { opened: &self.0.opened, caller: &self.0.caller, start: &self.0.node }
    }

    /// The object that a path leads to.
    pub(crate) fn find(&self, path: &Path, follow: bool) -> Kinded<Found> {
        self.walker().find(path.as_os_str().as_bytes(), follow)
    }

    /// What a path leads to, or where it would be.
    pub(crate) fn locate(&self, path: &Path, follow: bool, purpose: Purpose) -> Kinded<Located> {
        self.walker().locate(path.as_os_str().as_bytes(), follow, purpose)
    }

    /// All but the last component of a path.
    pub(crate) fn parent(&self, path: &Path) -> Kinded<Parent> {
        self.walker().parent(path.as_os_str().as_bytes())
    }

    fn child(&self, dir: &Node, name: &[u8]) -> Kinded<Found> {
        self.walker().child(dir, name)
    }

    /// The entry of a name in this directory itself.
    pub(crate) fn entry(&self, name: &[u8]) -> Kinded<Found> {
        self.may_use(&self.0.node, SEARCH)?;
        self.child(&self.0.node, name)
    }

    /// What decides whether the caller may use an inode.
    fn judged(&self, node: &Node) -> Kinded<Judged> {
        let attr = self.0.opened.volume()?.getattr(node.id)?;
        self.0.opened.judged(&self.0.caller, node.id, attr)
    }

    /// The same for one that was found.
    pub(crate) fn judged_found(&self, found: &Found) -> Kinded<Judged> {
        self.0.opened.judged(&self.0.caller, found.id(), found.attr)
    }

    /// Refuses what the caller may not do with a directory.
    pub(crate) fn may_use(&self, node: &Node, wanted: u16) -> Kinded<()> {
        if self.0.caller.is_root() {
            return Ok(());
        }
        may(&self.0.caller, &self.judged(node)?, wanted)
    }

    /// Refuses what is for root and the user who opened the volume: copies and removals of trees, of which no
    /// single entry is looked at.
    fn must_be_trusted(&self) -> Kinded<()> {
        let caller = &self.0.caller;
        let is_trusted = caller.is_root() || caller.uid == self.0.opened.opener;
        if is_trusted { Ok(()) } else { Err(ErrorKind::NotPermitted) }
    }

    /// The directory and the name of an entry that is to be made.
    fn new_entry(&self, path: &Path, is_dir: bool) -> Kinded<(Arc<Node>, Vec<u8>)> {
        let (dir, name) = self.absent_entry(path, is_dir)?;
        self.may_use(&dir, WRITE | SEARCH)?;
        Ok((dir, name))
    }

    /// The same before the caller's permission is looked at.
    fn absent_entry(&self, path: &Path, is_dir: bool) -> Kinded<(Arc<Node>, Vec<u8>)> {
        self.0.opened.refuse_read_only()?;
        let Parent { dir, last, slash } = self.parent(path)?;
        let Last::Name(name) = last else { return Err(VolumeError::Exists.into()) };
        if slash && !is_dir {
            // What is no directory is made under no such name.
            return Err(self.child(&dir, &name).err().unwrap_or_else(|| VolumeError::Exists.into()));
        }
        if !self.0.caller.is_root() {
            match self.child(&dir, &name) {
                Ok(_) => return Err(VolumeError::Exists.into()),
                Err(kind) if kind.is_missing() => {}
                Err(kind) => return Err(kind),
            }
        }
        Ok((dir, name))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `ENOTDIR` if it is none.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        self.find(path, true).and_then(|found| self.dir_of(found, path)).of("open directory", path)
    }

    /// A handle of a directory that was found.
    pub(crate) fn dir_of(&self, found: Found, path: &Path) -> Kinded<Dir> {
        if !found.is_dir() {
            return Err(VolumeError::NotADirectory.into());
        }
        let (opened, caller) = (Arc::clone(&self.0.opened), Arc::clone(&self.0.caller));
        Ok(Dir(Arc::new(Handle { opened, caller, node: found.node, path: path.into() })))
    }

    /// Lists a directory, in no order that means anything; `.` and `..` are not listed. Entries that come
    /// while the listing goes on may be left out.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`; the iterator's items have those of reading on.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let listing = || {
            let dir = self.dir_of(self.find(path, true)?, path)?;
            dir.listing()
        };
        listing().of("list", path)
    }

    /// Lists this directory.
    pub(crate) fn listing(&self) -> Kinded<ReadDir> {
        self.may_use(&self.0.node, READ)?;
        Ok(ReadDir::new(self.clone()))
    }

    /// Walks through a directory and all that is below it, each directory before its entries. Symbolic links
    /// are listed and not followed.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let fs = betrfs_std::Fs::create(folder.path().join("volume"), 32 << 20)?;
    /// fs.create_dir_all("src/lib")?;
    /// fs.write("src/lib/mod.rs", "")?;
    /// let mut paths = Vec::new();
    /// for entry in fs.walk("src") {
    ///     paths.push(entry?.path().display().to_string());
    /// }
    /// assert_eq!(paths, ["src", "src/lib", "src/lib/mod.rs"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        Walk::new(self.clone(), path.as_ref())
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir").field("path", &self.0.path).finish_non_exhaustive()
    }
}
