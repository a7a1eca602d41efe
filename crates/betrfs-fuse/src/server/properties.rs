//! Requests about properties of directories.

use betrfs::{InodeId, Properties, SetProperties};
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};

impl Server {
    /// IOCTL: the properties that count for a file or directory.
    pub fn properties(&self, node: InodeId) -> Answer<Properties> {
        self.volume.properties(node).answer()
    }

    /// IOCTL: changes properties of a directory, for its owner and for those who may do as owners may.
    pub fn set_properties(&self, node: InodeId, set: &SetProperties, caller: Caller<'_>) -> Answer<()> {
        let setter = caller.flag_setter(false).ok_or(Errno::PERM)?;
        self.may_change()?;
        self.volume.set_properties(node, set, setter.owner).answer()
    }
}
