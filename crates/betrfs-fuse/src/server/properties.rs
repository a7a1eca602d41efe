//! Requests about properties of directories, and to write data anew as they want it.

use betrfs::{InodeId, Properties, Recompress, Recompressed, SetProperties};
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};

impl Server {
    /// IOCTL: the properties that count for a file or directory.
    pub fn properties(&self, node: InodeId) -> Answer<Properties> {
        self.volume.properties(node).answer()
    }

    /// A change: changes properties of a directory, for its owner and for those who may do as owners may.
    pub fn set_properties(&self, node: InodeId, set: &SetProperties, caller: Caller<'_>) -> Answer<()> {
        let setter = caller.flag_setter(false).ok_or(Errno::PERM)?;
        self.may_change()?;
        self.volume.set_properties(node, set, setter.owner).answer()
    }

    /// IOCTL: writes a part of a file anew, for its owner and for those who may do as owners may, or counts
    /// what would be. The last number is a permit, needed only to write.
    pub fn recompress(
        &self,
        node: InodeId,
        (from, what, permit): (u64, Recompress, u64),
        caller: Caller<'_>,
    ) -> Answer<Recompressed> {
        let setter = caller.flag_setter(false).ok_or(Errno::PERM)?;
        if what != Recompress::Count {
            self.must_be_permitted(node, permit)?;
        }
        self.may_change()?;
        self.volume.recompress(node, from, what, setter.owner).answer()
    }

    /// IOCTL: makes a checkpoint, for the owner of a file or directory: it costs others what a sync does.
    pub fn checkpoint(&self, node: InodeId, caller: Caller<'_>) -> Answer<()> {
        let setter = caller.flag_setter(false).ok_or(Errno::PERM)?;
        self.may_change()?;
        let uid = self.volume.getattr(node).answer()?.uid;
        if setter.owner.is_some_and(|owner| owner != uid) {
            return Err(Errno::PERM);
        }
        self.volume.env().checkpoint().map_err(betrfs::Error::from).answer()
    }
}
