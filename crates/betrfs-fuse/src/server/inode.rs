//! Requests about one object's attributes, and about the volume's room.

use betrfs::{Attr, NodeId, SetAttr, StatFs};

use super::{Answer, Caller, IntoAnswer, Server};

impl Server {
    /// GETATTR
    pub fn getattr(&self, node: NodeId) -> Answer<Attr> {
        self.volume.getattr(node).answer()
    }

    /// SETATTR. A change of length by anyone but the superuser clears set-id bits; what a change of
    /// owner does to them is the library's to know.
    pub fn setattr(&self, node: NodeId, set: SetAttr, caller: Caller) -> Answer<Attr> {
        let kill_set_id = set.size.is_some() && !caller.keeps_set_id();
        self.volume.setattr(node, &SetAttr { kill_set_id, ..set }).answer()
    }

    /// READLINK
    pub fn readlink(&self, node: NodeId) -> Answer<Vec<u8>> {
        self.volume.readlink(node).answer()
    }

    /// STATFS
    pub fn statfs(&self) -> Answer<StatFs> {
        self.volume.statfs().answer()
    }
}
