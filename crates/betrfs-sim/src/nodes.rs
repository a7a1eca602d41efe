//! From paths to inodes of the volume, as a caller of the library finds them.

use std::collections::BTreeMap;

use betrfs::{Error, InodeId, Result, Volume};

use crate::at::{At, Base, SlotId};

/// An open volume with the inodes that the history holds.
pub struct Nodes {
    /// The volume.
    pub volume: Volume,
    /// What is held.
    pub held: BTreeMap<SlotId, InodeId>,
}

impl Nodes {
    /// A volume of which nothing is held yet.
    pub fn of(volume: Volume) -> Nodes {
        Nodes { volume, held: BTreeMap::new() }
    }

    /// Looks a path up. The look-up counts, and is to be forgotten.
    ///
    /// # Errors
    /// The library's.
    pub fn look_up(&self, at: &At) -> Result<InodeId> {
        let mut node = match at.base {
            Base::Root => {
                let path = at.names.join(&b'/');
                return Ok(self.volume.resolve(&path)?.node);
            }
            Base::Slot(slot) => *self.held.get(&slot).ok_or(Error::Stale)?,
        };
        for (number, name) in at.names.iter().enumerate() {
            let next = self.volume.lookup(node, name);
            if number > 0 {
                self.volume.forget(node, 1);
            }
            node = next?.node;
        }
        Ok(node)
    }

    /// Runs `run` with the inode of a path.
    ///
    /// # Errors
    /// Those of the look-up, and of `run`.
    pub fn with<T>(&self, at: &At, run: impl FnOnce(InodeId) -> Result<T>) -> Result<T> {
        let node = self.look_up(at)?;
        let result = run(node);
        // A held object is not looked up again.
        if at.base == Base::Root || !at.names.is_empty() {
            self.volume.forget(node, 1);
        }
        result
    }

    /// Runs `run` with the directory and the name at the end of a path.
    ///
    /// # Errors
    /// Those of the look-up, and of `run`.
    pub fn with_name<T>(&self, at: &At, run: impl FnOnce(InodeId, &[u8]) -> Result<T>) -> Result<T> {
        let (above, name) = at.split().ok_or(Error::NotFound)?;
        self.with(&above, |dir| run(dir, name))
    }
}
