//! Requests about inode flags (chattr(1), lsattr(1)).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betrfs::{FileType, FlagSetter, InodeFlags, InodeId};

use super::{Answer, IntoAnswer, Server};

impl Server {
    /// IOCTL: the flags of a file or directory, and its project.
    pub fn inode_flags(&self, node: InodeId) -> Answer<(InodeFlags, u32)> {
        Ok((self.volume.inode_flags(node).answer()?, self.volume.project(node).answer()?))
    }

    /// IOCTL: the generation of the object's number.
    pub fn generation(&self, node: InodeId) -> Answer<u32> {
        self.volume.generation(node).answer()
    }

    /// IOCTL: sets flags, and the project if one is given. Returns a value to be set when all dirty pages of
    /// the file have been written back, if it may have some that the new flags refuse.
    pub fn set_inode_flags(
        &self,
        node: InodeId,
        flags: InodeFlags,
        project: Option<u32>,
        setter: FlagSetter,
    ) -> Answer<Option<Arc<AtomicBool>>> {
        self.may_change()?;
        let is_file = self.volume.getattr(node).answer()?.file_type == FileType::Regular;
        let added = flags.without(self.volume.inode_flags(node).answer()?);
        let protects = added.has(InodeFlags::IMMUTABLE) || added.has(InodeFlags::APPEND);
        let may_be_late = is_file && protects && self.mappings.may_hide_data(node);
        let written_back = may_be_late.then(|| self.belated_pages.begin(node));
        let set = self.volume.set_flags_and_project(node, flags, project, setter).answer();
        if let (Err(_), Some(written_back)) = (set, &written_back) {
            written_back.store(true, Ordering::Release);
        }
        set.map(|()| written_back)
    }

    /// Whether a file is append-only.
    pub fn is_append_only(&self, node: InodeId) -> bool {
        self.volume.inode_flags(node).is_ok_and(|flags| flags.has(InodeFlags::APPEND))
    }
}
