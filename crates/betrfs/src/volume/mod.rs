//! The operations.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::Env;
use betree_sys::{Device, Home};

use crate::error::{Error, Result};
use crate::types::*;

/// Kinds of operations, by which [`Counters`] are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpKind {
    /// [`Volume::lookup`]
    Lookup,
    /// [`Volume::setattr`]
    SetAttr,
    /// [`Volume::create`], [`Volume::symlink`]
    Create,
    /// [`Volume::link`]
    Link,
    /// [`Volume::unlink`]
    Unlink,
    /// [`Volume::rmdir`]
    Rmdir,
    /// [`Volume::rename`]
    Rename,
    /// [`Volume::read`]
    Read,
    /// [`Volume::write`], [`Volume::copy_range`]
    Write,
    /// [`Volume::readdir`]
    Readdir,
    /// Extended attributes.
    Xattr,
    /// [`Volume::fallocate`], [`Volume::seek`]
    Fallocate,
    /// Opening the volume, reserving numbers, deleting unlinked files.
    Internal,
}

/// What one kind of operation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// Calls.
    pub calls: u64,
    /// Point queries to the tree.
    pub queries: u64,
    /// Range queries to the tree.
    pub scans: u64,
    /// Batches committed.
    pub commits: u64,
}

/// What the file system has cost since it was opened, by kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: [OpCount; 13],
}

impl Counters {
    /// The counts of one kind.
    pub fn of(&self, kind: OpKind) -> OpCount {
        self.counts.get(kind as usize).copied().unwrap_or_default()
    }
}

/// An open volume.
pub struct Volume {
    env: Arc<Env>,
}

#[allow(unused_variables, clippy::too_many_arguments, missing_docs, clippy::missing_errors_doc)]
impl Volume {
    pub fn format(device: &dyn Device, options: &FormatOptions, home: &dyn Home) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Volume> {
        Err(Error::NotSupported)
    }
    pub fn env(&self) -> &Arc<Env> {
        &self.env
    }
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        Err(Error::NotSupported)
    }
    pub fn resolve(&self, path: &[u8]) -> Result<Entry> {
        Err(Error::NotSupported)
    }
    pub fn forget(&self, node: NodeId, lookups: u64) {}
    pub fn getattr(&self, node: NodeId) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    pub fn setattr(&self, node: NodeId, set: &SetAttr) -> Result<Attr> {
        Err(Error::NotSupported)
    }
    pub fn create(&self, parent: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        Err(Error::NotSupported)
    }
    pub fn symlink(&self, parent: NodeId, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Entry> {
        Err(Error::NotSupported)
    }
    pub fn readlink(&self, node: NodeId) -> Result<Vec<u8>> {
        Err(Error::NotSupported)
    }
    pub fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Result<Entry> {
        Err(Error::NotSupported)
    }
    pub fn unlink(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn rmdir(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn rename(
        &self,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn open_node(&self, node: NodeId) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn release_node(&self, node: NodeId) {}
    pub fn read(&self, node: NodeId, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8], kill_set_id: bool) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn copy_range(
        &self,
        from: NodeId,
        from_offset: u64,
        to: NodeId,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        Err(Error::NotSupported)
    }
    pub fn readdir(
        &self,
        dir: NodeId,
        cookie: u64,
        plus: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn fsync(&self, node: NodeId) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn sync(&self) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn statfs(&self) -> Result<StatFs> {
        Err(Error::NotSupported)
    }
    pub fn get_xattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        Err(Error::NotSupported)
    }
    pub fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn list_xattrs(&self, node: NodeId) -> Result<Vec<Vec<u8>>> {
        Err(Error::NotSupported)
    }
    pub fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn fallocate(&self, node: NodeId, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn seek(&self, node: NodeId, offset: u64, what: SeekWhat) -> Result<u64> {
        Err(Error::NotSupported)
    }
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
    pub fn check(&self, problem: &mut dyn FnMut(String), progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Err(Error::NotSupported)
    }
    pub fn close(&self) -> Result<()> {
        Err(Error::NotSupported)
    }
}
