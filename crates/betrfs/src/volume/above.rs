//! The way up from a directory, and the inodes that the caller holds.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::names::Place;
use crate::op::OpKind;
use crate::types::{Entry, InodeId, SNAPSHOTS_NAME};
use crate::volume::Volume;

impl Volume {
    /// Looks up the directory above a directory, which is `..` in it; above the root is the root itself.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotFound`] if the directory was removed.
    pub fn parent(&self, dir: InodeId) -> Result<Entry> {
        let _op = self.query_for_objects(OpKind::Lookup);
        let shared = self.namespace.shared();
        let inode = self.inode(dir)?;
        inode.state.read().dir()?;
        if self.is_removed(&shared, &inode) {
            return Err(Error::NotFound);
        }
        Ok(inode.place().parent().unwrap_or(&self.root).looked_up(&self.allocations))
    }

    /// The path of a directory from the root, as [`resolve`](Volume::resolve) takes it: `/` is the root's.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotFound`] if the directory was removed.
    pub fn path(&self, dir: InodeId) -> Result<Vec<u8>> {
        let shared = self.namespace.shared();
        let inode = self.inode(dir)?;
        inode.state.read().dir()?;
        if self.is_removed(&shared, &inode) {
            return Err(Error::NotFound);
        }
        let mut names: Vec<Arc<[u8]>> = Vec::new();
        let mut place = inode.place();
        loop {
            place = match place {
                Place::Named { parent, name, .. } => {
                    names.push(name);
                    parent.place()
                }
                Place::Snapshots { of } => {
                    names.push(Arc::from(SNAPSHOTS_NAME));
                    of.place()
                }
                Place::Root => break,
                Place::Object { .. } | Place::Orphan { .. } | Place::Gone => return Err(Error::NotFound),
            };
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }

    /// The number of inodes that the caller holds: looked up and not forgotten, or open. The call looks at
    /// each inode in memory: it is for tests and for the search of what is held too long.
    pub fn inodes_held(&self) -> usize {
        self.table.all().iter().filter(|inode| !inode.is_idle()).count()
    }
}
