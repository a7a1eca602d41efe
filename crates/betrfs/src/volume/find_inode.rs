//! Finding an object by its inode number, for handles of files.
//!
//! Whoever keeps an inode number needs no leave for it: the kernel makes handles for NFS and
//! name_to_handle_at(2) by itself. To note for each number where its object is would cost every look-up,
//! creation and rename a message, and what a clone or the removal of a tree does to all numbers below has no
//! message at all. So nothing is noted: an object that is not in memory is searched for among all names, in a
//! view, while everyone else goes on. That takes time in proportion to the volume; but one such search leaves
//! a map in memory that spares the next ones the same (`number_map.rs`).

mod number_map;
mod search;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::Cut;

use crate::error::{Error, Result};
use crate::names::Inode;
use crate::op::{Op, OpKind};
use crate::schema::{LINKS, NUMBERS_MAX, key};
use crate::types::{Entry, InodeId, SNAPSHOTS_NAME};
use crate::volume::Volume;
pub(super) use number_map::NumberMap;
use search::{Found, Search};

/// Number of searches for one object, which may move meanwhile.
const SEARCHES_MAX: usize = 3;

/// Number of names that a search looks at beside one for each object ever made: a graph of clones of clones
/// may have names without end.
const NAMES_BESIDE: u64 = 4 << 20;

impl Volume {
    /// Looks an object up by its identity alone, as it was returned earlier, perhaps in an earlier use of the
    /// volume. Of a file with several names any may be renamed or removed meanwhile. The caller compares
    /// [`Entry::generation`]. Counts one lookup.
    ///
    /// An object in memory is found at once. Any other one takes one range query and a query for each
    /// directory above it, and, if the volume has not been searched since it was opened or the object has
    /// been moved since, a pass over all names. Others can use the volume meanwhile, but a second search
    /// waits for the first. `.betrfs-snapshots` is found only while it is in memory.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (device, platform) = doc::device();
    /// use betrfs::{Error, FormatOptions, InodeId, OpenOptions, RenameFlags, Volume};
    /// # use betrfs::{FileType, NewNode};
    /// # Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// # let new_file =
    /// #     NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };
    /// # let volume = Volume::open(device.clone(), OpenOptions::new(platform.clone()))?;
    ///
    /// let file = volume.create(InodeId::ROOT, b"file", &new_file)?;
    /// volume.rename(InodeId::ROOT, b"file", InodeId::ROOT, b"other", RenameFlags::default())?;
    /// volume.close()?;
    ///
    /// let volume = Volume::open(device, OpenOptions::new(platform))?;
    /// let found = volume.find_inode(file.node)?;
    /// assert_eq!((found.node, found.generation), (file.node, file.generation));
    /// volume.unlink(InodeId::ROOT, b"other")?;
    /// assert_eq!(volume.find_inode(file.node), Err(Error::Stale));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`] if there is no such object, or it has no name any more; [`Error::SearchGivenUp`] if
    /// there are too many names; [`Error::Busy`] if directories above it move, or space gets short, during
    /// each search; the error of a part of the volume that cannot be read, if the object was not found
    /// elsewhere.
    pub fn find_inode(&self, node: InodeId) -> Result<Entry> {
        let op = self.query_for_objects(OpKind::FindInode);
        if let Some(entry) = self.find_in_memory(node)? {
            return Ok(entry);
        }
        let mut map = self.number_map.lock();
        for _ in 0..SEARCHES_MAX {
            // It may have come meanwhile, or may have been in memory when it moved.
            if let Some(entry) = self.find_in_memory(node)? {
                return Ok(entry);
            }
            let view = self.env.view();
            let search = Search { op: &op, view: &view, number: node.0 };
            for stretch in map.stretches_of(node.0) {
                // Whatever cannot be read here, the search of all names meets too.
                if let Ok(Some(found)) = search.look_in(&stretch)
                    && let Some(entry) = self.go_to(&op, node, &found)?
                {
                    return Ok(entry);
                }
            }
            if map.is_absent(node.0) {
                return Err(Error::Stale);
            }
            let names_max = self.numbers.ids_end().saturating_add(NAMES_BESIDE);
            let salts = self.root.dir_path()?.salts;
            match search.look_everywhere(salts, names_max, &mut map) {
                Ok(Some(found)) => {
                    if let Some(entry) = self.go_to(&op, node, &found)? {
                        return Ok(entry);
                    }
                }
                Ok(None) => {
                    // Neither of these numbers is given to an object any more.
                    if node.0 < self.ids_at_opening || node.0 > NUMBERS_MAX {
                        map.note_absent(node.0);
                    }
                    return self.find_in_memory(node)?.ok_or(Error::Stale);
                }
                Err(Error::StateGivenUp) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Busy)
    }

    /// The own key of a name of a file with several: a search through the list of such names.
    fn a_name_of(&self, op: &Op<'_>, wanted: u64) -> Result<Option<Vec<u8>>> {
        let view = self.env.view();
        let mut links = op.scan_of(&view, LINKS, (Cut::LOW, Cut::HIGH));
        while let Some((at, oid)) = links.next()? {
            if *oid == wanted.to_be_bytes() {
                return Ok(Some(at.to_vec()));
            }
        }
        Ok(None)
    }

    fn find_in_memory(&self, node: InodeId) -> Result<Option<Entry>> {
        let shared = self.namespace.shared();
        match self.table.get(node) {
            Some(inode) if self.is_removed(&shared, &inode) => Err(Error::Stale),
            Some(inode) => {
                inode.refuse_lost()?;
                Ok(Some(inode.looked_up(&self.allocations)))
            }
            None => Ok(None),
        }
    }

    /// The object of this identity where a view had it, if it is still there.
    fn go_to(&self, op: &Op<'_>, node: InodeId, found: &Found) -> Result<Option<Entry>> {
        // A file with several names is loaded by one of them, which leads to its quota.
        let own = match found {
            Found::Object(oid) if self.quotas.are_in_use() => self.a_name_of(op, *oid)?,
            Found::Object(_) => None,
            Found::Named(own) => Some(own.clone()),
        };
        self.give_up_names();
        op.without_waiting(|| self.go_to_place(op, node, own.as_deref(), found))
    }

    /// The object of this identity where a view had it: by its name, or by its object id.
    fn go_to_place(
        &self,
        op: &Op<'_>,
        node: InodeId,
        own: Option<&[u8]>,
        found: &Found,
    ) -> Result<Option<Entry>> {
        let shared = self.namespace.shared();
        let inode: Arc<Inode> = match (own, found) {
            (Some(own), _) => {
                let mut inode = self.root.clone();
                for name in key::components(own).into_iter().flatten() {
                    let name = if name.is_empty() { SNAPSHOTS_NAME } else { name };
                    inode = match self.child(&shared, op, &inode, name) {
                        Ok(inode) => inode,
                        Err(Error::NotFound | Error::NotADirectory) => return Ok(None),
                        Err(error) => return Err(error),
                    };
                }
                inode
            }
            (None, &Found::Object(oid)) if !self.quotas.are_in_use() => {
                match self.load_object(op, oid, None)? {
                    Some(inode) => inode,
                    None => return Ok(None),
                }
            }
            (None, _) => return Ok(None),
        };
        inode.refuse_lost()?;
        Ok((inode.id == node).then(|| inode.looked_up(&self.allocations)))
    }
}

#[cfg(test)]
mod tests;
