//! Requests about one object's attributes, and about the volume's room.

use betrfs::{Attr, NodeId, SetAttr, StatFs};

use super::{Answer, IntoAnswer, Server};

impl Server {
    /// GETATTR
    pub fn getattr(&self, node: NodeId) -> Answer<Attr> {
        self.volume.getattr(node).answer()
    }

    /// SETATTR
    pub fn setattr(&self, node: NodeId, set: &SetAttr) -> Answer<Attr> {
        self.volume.setattr(node, set).answer()
    }

    /// READLINK
    pub fn readlink(&self, node: NodeId) -> Answer<Vec<u8>> {
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
