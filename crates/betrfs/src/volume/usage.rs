//! The room that a file or a directory takes on the volume.

use alloc::collections::BTreeMap;

use betree::{Cut, DictId, Usage};

use crate::error::Result;
use crate::op::OpKind;
use crate::schema::{DATA, LINKS, META, damaged, key};
use crate::types::InodeId;
use crate::volume::Volume;

impl Volume {
    /// The bytes that an object takes as stored, with everything below it, and the bytes that its removal
    /// would free: those not shared with clones, snapshots and names outside. Runs a checkpoint first, so
    /// that changes in memory and in the log are counted too.
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
        // If the checkpoint fails, the bytes already in place are counted.
        let _ = self.env.checkpoint();
        let op = self.query(OpKind::Internal);
        let _shared = self.namespace.shared();
        let inode = self.inode(node)?;
        let record = inode.state.read().record.clone();
        let mut sum = Usage::default();
        let mut add = |dict: DictId, (lo, hi): (Cut, Cut), is_own: bool| -> Result<()> {
            let usage = self.env.usage(dict, &lo, &hi)?;
            sum.stored_bytes += usage.stored_bytes;
            sum.exclusive_bytes += if is_own { usage.exclusive_bytes } else { 0 };
            Ok(())
        };
        add(DATA, key::within(key::data(&inode.own_key()?)), record.nlink <= 1)?;
        if !record.is_dir() {
            return Ok(sum);
        }
        let below = key::subtree(&inode.dir_path()?.bytes);
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
            let is_own = self.object_record(&op, oid)?.nlink <= names;
            add(DATA, key::within(key::data(&key::object(oid))), is_own)?;
        }
        Ok(sum)
    }
}
