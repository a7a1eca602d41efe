//! Requests about extended attributes.

use betrfs::{InodeId, XattrMode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};

/// Attributes that are for the superuser alone.
const TRUSTED: &[u8] = b"trusted.";

/// POSIX ACLs are refused: nothing evaluates them, so setting one would promise protection that is not there.
fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

impl Server {
    /// GETXATTR, whatever the caller's buffer.
    pub fn getxattr(&self, node: InodeId, name: &[u8]) -> Answer<Vec<u8>> {
        if is_acl(name) {
            return Err(Errno::OPNOTSUPP);
        }
        self.volume.get_xattr(node, name).answer()
    }

    /// SETXATTR
    pub fn setxattr(&self, node: InodeId, name: &[u8], value: &[u8], flags: XattrFlags) -> Answer<()> {
        if is_acl(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let mode = match (flags.contains(XattrFlags::CREATE), flags.contains(XattrFlags::REPLACE)) {
            (false, false) => XattrMode::Any,
            (true, false) => XattrMode::Create,
            (false, true) => XattrMode::Replace,
            (true, true) => return Err(Errno::INVAL),
        };
        self.volume.set_xattr(node, name, value, mode).answer()
    }

    /// LISTXATTR: the names, each ended by a zero byte. File systems, not the kernel, must hide `trusted.`
    /// names from callers who may not read them.
    pub fn listxattr(&self, node: InodeId, caller: Caller<'_>) -> Answer<Vec<u8>> {
        let mut list = Vec::new();
        let mut sees_trusted = None;
        let mut is_seen = |name: &Vec<u8>| {
            !name.starts_with(TRUSTED) || *sees_trusted.get_or_insert_with(|| caller.sees_trusted())
        };
        for name in self.volume.list_xattrs(node).answer()?.into_iter().filter(|name| is_seen(name)) {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// REMOVEXATTR
    pub fn removexattr(&self, node: InodeId, name: &[u8]) -> Answer<()> {
        if is_acl(name) {
            return Err(Errno::OPNOTSUPP);
        }
        self.volume.remove_xattr(node, name).answer()
    }
}
