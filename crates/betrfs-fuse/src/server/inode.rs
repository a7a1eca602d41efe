//! Requests about one object's attributes, and about the volume's room.

use betrfs::{Attr, FileType, InodeId, SetAttr, StatFs};

use super::{Answer, IntoAnswer, Server};

/// The set-user-id and the set-group-id bit.
const SET_ID: u16 = 0o6000;

impl Server {
    /// GETATTR
    pub fn getattr(&self, node: InodeId) -> Answer<Attr> {
        self.volume.getattr(node).answer()
    }

    /// SETATTR
    pub fn setattr(&self, node: InodeId, set: &SetAttr) -> Answer<Attr> {
        self.volume.setattr(node, set).answer()
    }

    /// Takes the set-id bits from a file whose contents are about to change, unless they may stay; whether
    /// there were any. The kernel has to be told before the contents change: it would run them with the bits
    /// that it knows.
    pub fn kill_set_id(&self, node: InodeId, may_stay: impl FnOnce() -> bool) -> Answer<bool> {
        let before = self.getattr(node)?;
        if before.file_type != FileType::Regular || before.perm & SET_ID == 0 || may_stay() {
            return Ok(false);
        }
        let after = self.setattr(node, &SetAttr { kill_set_id: true, ..SetAttr::default() })?;
        Ok(after.perm != before.perm)
    }

    /// READLINK
    pub fn readlink(&self, node: InodeId) -> Answer<Vec<u8>> {
        self.volume.readlink(node).answer()
    }

    /// SYNCFS
    pub fn syncfs(&self) -> Answer<()> {
        self.volume.sync().answer()
    }

    /// STATFS
    pub fn statfs(&self) -> Answer<StatFs> {
        self.volume.statfs().answer()
    }
}
