//! Requests about one object's attributes, and about the volume's space.

use betrfs::{Attr, FileType, Finished, InodeId, SetAttr, StatFs};

use super::{Answer, Caller, IntoAnswer, Server};

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

impl Server {
    /// GETATTR
    pub fn getattr(&self, node: InodeId) -> Answer<Attr> {
        self.volume.getattr(node).answer()
    }

    /// SETATTR
    pub fn setattr(&self, node: InodeId, set: &SetAttr) -> Answer<Attr> {
        self.volume.setattr(node, set).answer()
    }

    /// Clears the set-id bits of a file whose contents `caller` is about to change, unless they may stay;
    /// returns whether any was cleared. The kernel must be told before the contents change: else it would run
    /// the new contents with the old bits.
    pub fn kill_set_id(
        &self,
        node: InodeId,
        caller: Caller<'_>,
        may_stay: impl FnOnce() -> bool,
    ) -> Answer<bool> {
        let before = self.getattr(node)?;
        let has = |bits: u16| before.perm & bits == bits;
        if before.file_type != FileType::Regular || !has(SET_USER_ID) && !has(SET_GROUP_ID) || may_stay() {
            return Ok(false);
        }
        let outside_group = caller.is_outside_group(&before);
        // No bit would be cleared, so nothing may change: the kernel is not notified, and would keep the old
        // ctime.
        if !has(SET_USER_ID) && !has(SET_GROUP_ID | GROUP_EXECUTE) && !outside_group {
            return Ok(false);
        }
        self.setattr(node, &SetAttr { kill_set_id: true, outside_group, ..SetAttr::default() })?;
        Ok(true)
    }

    /// READLINK
    pub fn readlink(&self, node: InodeId) -> Answer<Vec<u8>> {
        self.volume.readlink(node).answer()
    }

    /// SYNCFS; also finishes what was put off. Returns what has changed by that.
    pub fn syncfs(&self) -> Answer<Finished> {
        self.volume.sync().answer()?;
        Ok(self.volume.finish_removals())
    }

    /// STATFS: of a directory in a quota, as the kernel names the object that was asked about.
    pub fn statfs(&self, node: InodeId) -> Answer<StatFs> {
        self.volume.statfs_at(node).answer()
    }
}
