//! Extended attributes by path; symbolic links are followed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use betrfs::{Acl, AclKind, SetGroupId, XattrMode};

use super::Dir;
use crate::error::{Context, Kinded, Result};
use crate::permission::{XattrAccess, keeps_set_group_id, may_use_xattr};

impl Dir {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none; `EOPNOTSUPP` outside of `user.`, `trusted.`, `security.` and the names of
    /// access control lists ([`AclKind::name`]).
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref().as_bytes());
        let get = || {
            let found = self.find(path, true)?;
            may_use_xattr(self.caller(), &self.judged_found(&found)?, name, XattrAccess::Get)?;
            Ok(self.opened().volume()?.get_xattr(found.id(), name)?)
        };
        let value: Kinded<Vec<u8>> = get();
        value.of("get an extended attribute of", path)
    }

    /// Sets an extended attribute. An access control list of an object sets its permissions too.
    ///
    /// # Errors
    /// `EEXIST` and `ENODATA` by the mode; `ERANGE` over 255 bytes of name or 64 KiB of value; `ENOSPC` over
    /// 64 KiB of all names or 256 KiB of all values; `EPERM` by the namespace; `EINVAL` for what is no access
    /// control list, under the name of one.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref().as_bytes());
        let set = || {
            self.opened().refuse_read_only()?;
            let found = self.find(path, true)?;
            may_use_xattr(self.caller(), &self.judged_found(&found)?, name, XattrAccess::Change)?;
            let volume = self.opened().volume()?;
            let Some(kind) = AclKind::of_name(name) else {
                return Ok(volume.set_xattr(found.id(), name, value.as_ref(), mode)?);
            };
            let keeps = keeps_set_group_id(self.caller(), &found.attr);
            let set_group_id = if keeps { SetGroupId::Kept } else { SetGroupId::Cleared };
            Ok(volume.set_acl(found.id(), kind, &Acl::parse(value.as_ref())?, mode, set_group_id)?)
        };
        let done: Kinded<()> = set();
        done.of("set an extended attribute of", path)
    }

    /// The names of all extended attributes, those of `trusted.` for root alone.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        let list = || Ok(self.opened().volume()?.list_xattrs(self.find(path, true)?.id())?);
        let mut names: Vec<Vec<u8>> = Kinded::<_>::of(list(), "list the extended attributes of", path)?;
        names.retain(|name| self.caller().is_root() || !name.starts_with(b"trusted."));
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none; `EPERM` by the namespace.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref().as_bytes());
        let remove = || {
            self.opened().refuse_read_only()?;
            let found = self.find(path, true)?;
            may_use_xattr(self.caller(), &self.judged_found(&found)?, name, XattrAccess::Change)?;
            Ok(self.opened().volume()?.remove_xattr(found.id(), name)?)
        };
        let done: Kinded<()> = remove();
        done.of("remove an extended attribute of", path)
    }
}
