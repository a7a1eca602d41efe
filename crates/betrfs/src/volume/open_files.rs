//! The open files below a directory.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::Result;
use crate::names::{InNamespace, Inode, Place};
use crate::op::{Op, OpKind};
use crate::schema::{LINKS, damaged, key};
use crate::types::{FileType, InodeId};
use crate::volume::Volume;

impl Volume {
    /// The open files that a copy of an object would hold if it were made now; where a part of the list of
    /// linked files is damaged, open linked files outside of it too.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// let file = volume.create(dir, b"file", &new_file)?.node;
    /// volume.open_inode(file)?;
    /// assert_eq!(volume.open_files_in(dir)?, [file]);
    /// volume.release_node(file);
    /// assert!(volume.open_files_in(dir)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`](crate::Error::Stale).
    pub fn open_files_in(&self, source: InodeId) -> Result<Vec<InodeId>> {
        let op = self.query(OpKind::Internal);
        let (mut open, path) = {
            let shared = self.namespace.shared();
            let source = self.inode(source)?;
            if !source.state.read().record.is_dir() {
                return Ok(if is_open_file(&source) { Vec::from([source.id]) } else { Vec::new() });
            }
            let open = self.open_below(&shared, &op, &source, false, usize::MAX);
            (open, op.dir_path(&source).ok())
        };
        if let Some(path) = path {
            // They may be many, and nobody waits for them.
            let mut links = op.scan(LINKS, key::subtree(&path.bytes));
            let mut passed = Vec::new();
            loop {
                let next = links.next_past(&mut |unreadable| passed.extend(unreadable.errors));
                if let Some(error) = passed.iter().find(|error| !error.is_damage()) {
                    return Err(error.clone().into());
                }
                let Some((at, oid)) = next else { break };
                let oid =
                    oid.try_into().map(u64::from_be_bytes).map_err(|_| damaged(at, "it is no object id"))?;
                open.extend(self.table.object(oid).filter(is_open_file));
            }
            if !passed.is_empty() {
                // Each linked file may have a name there.
                let is_linked = |inode: &Arc<Inode>| matches!(inode.place(), Place::Object { .. });
                open.extend(self.table.all().into_iter().filter(is_linked).filter(is_open_file));
            }
        }
        let mut open: Vec<InodeId> = open.iter().map(|inode| inode.id).collect();
        open.sort_unstable();
        open.dedup();
        Ok(open)
    }

    /// The open files whose only name is below a directory, or in a snapshot of that directory or of one
    /// below it; this many at most.
    pub(super) fn open_below(
        &self,
        _: &impl InNamespace,
        op: &Op<'_>,
        dir: &Arc<Inode>,
        in_snapshots: bool,
        most: usize,
    ) -> Vec<Arc<Inode>> {
        let (mut open, mut dirs) = (Vec::new(), Vec::from([dir.clone()]));
        while let Some(dir) = dirs.pop() {
            for inode in dir.noted().into_iter().filter_map(|node| self.table.get(node)) {
                if open.len() >= most {
                    return open;
                }
                op.visit(1);
                let place = inode.place();
                let is_here = place.parent().is_some_and(|parent| Arc::ptr_eq(parent, &dir));
                if !is_here || place.is_cut_off() || matches!(place, Place::Snapshots { .. }) && !in_snapshots
                {
                    continue;
                }
                if is_open_file(&inode) {
                    open.push(inode);
                } else if inode.has_notes() {
                    dirs.push(inode);
                }
            }
        }
        open
    }

    /// Removes the notes below a directory that no longer lead to an open file, so that
    /// [`open_below`](Volume::open_below) finds few of them. The caller holds no lock.
    pub(super) fn strike_closed(&self, dir: InodeId) {
        let Some(dir) = self.table.get(dir) else { return };
        let noted = dir.noted();
        let mut way = Vec::from([(dir, noted)]);
        while let Some((dir, noted)) = way.last_mut() {
            match noted.pop() {
                Some(node) => {
                    let Some(inode) = self.table.get(node) else { continue };
                    if inode.has_notes() {
                        let noted = inode.noted();
                        way.push((inode, noted));
                    } else {
                        inode.leave_if_closed(dir);
                    }
                }
                None => {
                    let Some((inode, _)) = way.pop() else { return };
                    if let Some((above, _)) = way.last() {
                        inode.leave_if_closed(above);
                    }
                }
            }
        }
    }
}

fn is_open_file(inode: &Arc<Inode>) -> bool {
    inode.is_open() && inode.state.read().record.file_type == FileType::Regular
}
