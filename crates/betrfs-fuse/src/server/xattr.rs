//! Requests about extended attributes.

use betrfs::{Acl, AclKind, InodeId, SetGroupId, XattrMode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{Acls, Answer, Caller, IntoAnswer, Server};

/// Attributes that are for the superuser alone.
const TRUSTED: &[u8] = b"trusted.";

impl Server {
    /// GETXATTR, whatever the caller's buffer.
    pub fn getxattr(&self, node: InodeId, name: &[u8]) -> Answer<Vec<u8>> {
        self.acl_kind(name)?;
        self.volume.get_xattr(node, name).answer()
    }

    /// SETXATTR. The bit `set_group_id` is about is that of an object which gets an access control list.
    pub fn setxattr(
        &self,
        node: InodeId,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
        set_group_id: impl FnOnce() -> SetGroupId,
    ) -> Answer<()> {
        let mode = match (flags.contains(XattrFlags::CREATE), flags.contains(XattrFlags::REPLACE)) {
            (false, false) => XattrMode::Any,
            (true, false) => XattrMode::Create,
            (false, true) => XattrMode::Replace,
            (true, true) => return Err(Errno::INVAL),
        };
        if let Some(kind) = self.acl_kind(name)? {
            let acl = Acl::parse(value).answer()?;
            return self.volume.set_acl(node, kind, &acl, mode, set_group_id()).answer();
        }
        self.volume.set_xattr(node, name, value, mode).answer()
    }

    /// The access control list that an attribute is. Where nobody is judged by lists they are refused: to set
    /// one would promise protection that is not there.
    fn acl_kind(&self, name: &[u8]) -> Answer<Option<AclKind>> {
        match (AclKind::of_name(name), self.acls) {
            (Some(_), Acls::Ignored) => Err(Errno::OPNOTSUPP),
            (kind, _) => Ok(kind),
        }
    }

    /// LISTXATTR: the names, each ended by a zero byte. File systems, not the kernel, must hide `trusted.`
    /// names from callers who may not read them.
    pub fn listxattr(&self, node: InodeId, caller: Caller<'_>) -> Answer<Vec<u8>> {
        let mut list = Vec::new();
        let mut sees_trusted = None;
        let mut is_seen = |name: &Vec<u8>| {
            let is_open = !name.starts_with(TRUSTED);
            self.acl_kind(name).is_ok()
                && (is_open || *sees_trusted.get_or_insert_with(|| caller.sees_trusted()))
        };
        for name in self.volume.list_xattrs(node).answer()?.into_iter().filter(|name| is_seen(name)) {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// REMOVEXATTR
    pub fn removexattr(&self, node: InodeId, name: &[u8]) -> Answer<()> {
        self.acl_kind(name)?;
        self.volume.remove_xattr(node, name).answer()
    }
}
