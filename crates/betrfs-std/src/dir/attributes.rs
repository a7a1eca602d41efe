//! Attributes by path.

use std::path::Path;
use std::time::SystemTime;

use betrfs::{SetAttr, StatFs, TimeSet};

use super::Dir;
use crate::error::{Context, Kinded, Result};
use crate::metadata::{Metadata, nanoseconds};
use crate::opened::Found;
use crate::permission::{keeps_set_group_id, may_give, owns, settable};

impl Dir {
    /// The attributes of what a path leads to.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.find(path, true).map(|found| Metadata::new(found.attr)).of("examine", path)
    }

    /// The same without following a symbolic link at the end.
    ///
    /// # Errors
    /// As [`metadata`](Dir::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let path = path.as_ref();
        self.find(path, false).map(|found| Metadata::new(found.attr)).of("examine", path)
    }

    /// Whether a path leads to something.
    ///
    /// # Errors
    /// That cannot be told, for instance because of permissions.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        match self.find(path, true) {
            Err(kind) if kind.is_missing() => Ok(false),
            found => found.map(|_| true).of("examine", path),
        }
    }

    /// Sets the permissions with the set-id and sticky bits (07777).
    ///
    /// # Errors
    /// `EPERM` unless the caller owns it or is root.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let set = || self.set_perm(&self.find(path, true)?, mode);
        set().of("set the permissions of", path)
    }

    pub(crate) fn set_perm(&self, found: &Found, mode: u32) -> Kinded<()> {
        owns(self.caller(), &found.attr)?;
        let perm = settable(self.caller(), &found.attr, (mode & 0o7777) as u16);
        self.set(found, &SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    fn set(&self, found: &Found, set: &SetAttr) -> Kinded<()> {
        self.opened().refuse_read_only()?;
        self.opened().volume()?.setattr(found.id(), set)?;
        Ok(())
    }

    /// Changes owner and group; what is `None` stays.
    ///
    /// # Errors
    /// `EPERM`: root alone changes an owner, and an owner the group to one of its own.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let path = path.as_ref();
        let set = || self.give(&self.find(path, true)?, uid, gid);
        set().of("change the owner of", path)
    }

    /// The same without following a symbolic link at the end.
    ///
    /// # Errors
    /// As [`chown`](Dir::chown).
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let path = path.as_ref();
        let set = || self.give(&self.find(path, false)?, uid, gid);
        set().of("change the owner of", path)
    }

    fn give(&self, found: &Found, uid: Option<u32>, gid: Option<u32>) -> Kinded<()> {
        may_give(self.caller(), &found.attr, uid, gid)?;
        let outside_group = !keeps_set_group_id(self.caller(), &found.attr);
        self.set(found, &SetAttr { uid, gid, outside_group, ..SetAttr::default() })
    }

    /// Sets the times of the last access and of the last change of the contents; what is `None` stays.
    ///
    /// # Errors
    /// `EPERM` unless the caller owns it or is root.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let path = path.as_ref();
        let set = || self.set_times_of(&self.find(path, true)?, accessed, modified);
        set().of("set the times of", path)
    }

    pub(crate) fn set_times_of(
        &self,
        found: &Found,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Kinded<()> {
        owns(self.caller(), &found.attr)?;
        let time = |time: SystemTime| TimeSet::At(nanoseconds(time));
        let (atime_ns, mtime_ns) = (accessed.map(time), modified.map(time));
        self.set(found, &SetAttr { atime_ns, mtime_ns, ..SetAttr::default() })
    }

    /// The room in the directory: that of the volume or, if it is less, of the nearest quota above.
    ///
    /// # Errors
    /// The volume's.
    pub fn statfs(&self) -> Result<StatFs> {
        let room = self.opened().volume().and_then(|volume| volume.statfs_at(self.id()));
        room.of("examine the volume of", self.given_path())
    }
}
