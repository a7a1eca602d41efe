//! What a file or a directory takes on the volume.

use alloc::collections::BTreeMap;

use betree::{Cut, DictId, Usage};

use crate::error::Result;
use crate::op::OpKind;
use crate::schema::{DATA, LINKS, META, damaged, key};
use crate::types::InodeId;
use crate::volume::Volume;

impl Volume {
    /// What an object takes, with all that is below it, as it is stored, and what of that its removal
    /// would free: what clones, snapshots and names outside do not share. What is in memory or in the log is
    /// brought to its place before, by a checkpoint.
    ///
    /// # Errors
    /// The engine's.
    pub fn usage(&self, node: InodeId) -> Result<Usage> {
        // Where that fails, what is in its place is told.
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
