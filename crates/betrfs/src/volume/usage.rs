//! The room that a file or a directory takes on the volume.

use alloc::collections::BTreeMap;

use betree::{Cut, DictId, Usage};

use crate::error::Result;
use crate::op::OpKind;
use crate::schema::{DATA, LINKS, META, damaged, key};
use crate::types::InodeId;
use crate::volume::Volume;
use crate::volume::linked_copies::stored_object;

impl Volume {
    /// The bytes that an object takes as stored, with everything below it, and the bytes that its removal
    /// would free: those not shared with clones, snapshots and names outside; all as of one moment. Nothing
    /// is written, and nobody waits: what is in memory or in the log alone counts as it is there, not
    /// compressed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// volume.create_with(dir, b"file", &new_file, &[7; 100_000])?;
    /// let copy = volume.clone_inode(dir, InodeId::ROOT, b"copy")?.node;
    ///
    /// // The copy shares the file's blocks.
    /// let usage = volume.usage(copy)?;
    /// assert!(usage.exclusive_bytes < usage.stored_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's.
    pub fn usage(&self, node: InodeId) -> Result<Usage> {
        let (record, own, path, view) = {
            let _shared = self.namespace.shared();
            let inode = self.inode(node)?;
            let (own, path) = (inode.own_key()?, inode.dir_path());
            // A change of the record, with all that its batch changes, comes before or after both.
            let state = inode.state.read();
            (state.record.clone(), own, path, self.env.view())
        };
        let op = self.query(OpKind::Internal).reading(&view);
        let mut sum = Usage::default();
        let mut add = |dict: DictId, (lo, hi): (Cut, Cut), is_own: bool| -> Result<()> {
            let usage = view.usage(dict, &lo, &hi)?;
            sum.stored_bytes += usage.stored_bytes;
            sum.exclusive_bytes += if is_own { usage.exclusive_bytes } else { 0 };
            Ok(())
        };
        add(DATA, key::within(key::data(&own)), record.nlink <= 1)?;
        if !record.is_dir() {
            return Ok(sum);
        }
        let below = key::subtree(&path?.bytes);
        for dict in [META, DATA, LINKS] {
            add(dict, below.clone(), true)?;
        }
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        let mut links = op.scan(LINKS, below);
        while let Some((at, oid)) = links.next()? {
            let oid =
                oid.try_into().map(u64::from_be_bytes).map_err(|_| damaged(at, "it is no object id"))?;
            *names.entry(oid).or_default() += 1;
        }
        for (oid, names) in names {
            let is_own = match stored_object(&op, oid) {
                Ok(record) => record.nlink <= names,
                // Nothing tells whether it has other names.
                Err(error) if error.is_loss() => false,
                Err(error) => return Err(error),
            };
            add(DATA, key::within(key::data(&key::object(oid))), is_own)?;
        }
        Ok(sum)
    }
}
