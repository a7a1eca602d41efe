//! Bringing a directory back to one of its snapshots, at a cost independent of its size.
//!
//! One batch makes the present contents a new snapshot, removes them, and puts a copy of the old snapshot in
//! their place. The directory stays the object that it is, with its other snapshots. Everything below it is a
//! copy: what was there before is removed for all who hold it, and open files live on without a name.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::{Directory, InNamespace, Inode, Name, Place};
use crate::op::{Op, OpKind};
use crate::planted::{self, Bug};
use crate::rules::{check_name, refuse_if_protected, unprotect, with_snapshot_counted};
use crate::schema::{Amount, DATA, Flags, META, key};
use crate::types::{FileType, InodeId, Restored};
use crate::volume::Volume;
use crate::volume::charge::spoil;
use crate::volume::clone::{Ahead, Copy, use_of_copy};
use crate::volume::measure::Measuring;
use crate::volume::remove_tree::Emptied;

/// The objects of a restoration that nothing forbids.
struct Restoration {
    dir: Arc<Inode>,
    snapshots: Arc<Inode>,
    source: Arc<Inode>,
    /// The directory's path.
    path: Vec<u8>,
    /// The path of its snapshots.
    above: Vec<u8>,
}

impl Volume {
    /// Makes everything in a directory a copy of what is in its snapshot `name`, and its attributes those of
    /// the snapshot; the present state becomes the snapshot `keep_as`. After a crash either is the case, or
    /// nothing has happened. The directory keeps its inode number, its time of birth and its snapshots, and
    /// is neither immutable nor append-only. Everything below it has new inode numbers.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{InodeId, SNAPSHOTS_NAME};
    ///
    /// let dir = volume.create(InodeId::ROOT, b"dir", &new_dir)?.node;
    /// volume.create_with(dir, b"file", &new_file, b"text")?;
    /// volume.create(volume.lookup(dir, SNAPSHOTS_NAME)?.node, b"monday", &new_dir)?;
    /// volume.unlink(dir, b"file")?;
    ///
    /// volume.restore_snapshot(dir, b"monday", b"tuesday")?;
    /// assert_eq!(volume.resolve(b"/dir/file")?.attr.size, 4);
    /// assert!(volume.resolve(b"/dir/.betrfs-snapshots/tuesday/file").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::NotFound`] if there is no such snapshot, or the directory was
    /// removed; [`Error::Exists`] if a snapshot `keep_as` exists; [`Error::Protected`] by the directory's own
    /// flags; [`Error::HeldBySnapshots`] if a directory below it has snapshots, which would lose it;
    /// [`Error::NameTooLong`] also if a key below the snapshot might become too long. Nothing has changed
    /// then.
    pub fn restore_snapshot(&self, node: InodeId, name: &[u8], keep_as: &[u8]) -> Result<Restored> {
        self.measured(|measuring| self.restore(node, name, keep_as, measuring))
    }

    fn restore(
        &self,
        node: InodeId,
        name: &[u8],
        keep_as: &[u8],
        measuring: &Measuring<'_>,
    ) -> Result<Restored> {
        let op = self.update(OpKind::Clone, 0)?;
        op.without_waiting(|| {
            let found = {
                let shared = self.namespace.shared();
                self.restoration(&shared, &op, node, name, keep_as)?
            };
            self.strike_closed(node);
            let exclusive = self.exclusive(&op, &[node, found.snapshots.id, found.source.id], &[]);
            let Restoration { dir, snapshots, source, path, above } =
                self.restoration(&exclusive, &op, node, name, keep_as)?;
            let counted = op.dir_path(&dir)?;
            let (ino, now_ns) = (self.numbers.id(&op)?, self.platform.now_ns());
            let emptied = Emptied::entries_of(&dir, &path).in_quotas(counted.quotas());
            // It spoils what was measured; and the copies would be made again after each turn of others.
            self.few_open_files(&exclusive, &op, &emptied, now_ns)?;
            let more = match counted.quota() {
                Some(_) => measuring.content(&op, &source)?.copied - measuring.content(&op, &dir)?.removed,
                None => Amount::default(),
            };
            spoil(&op, &counted);
            let own = key::own(&path);
            let mut batch = Batch::new();

            let mut kept_record = self.copied_record(&dir, Ahead::Never, ino, now_ns);
            let (kept_key, kept_path) = (key::entry(&above, keep_as), key::child_path(&above, keep_as));
            let used = use_of_copy(&op, &dir, &kept_record)?;
            let keep = Copy {
                to_key: &kept_key,
                to_path: &kept_path,
                flags: Flags::READ_ONLY,
                used,
                ahead: Ahead::Never,
            };
            let kept_links = self.add_copy(&exclusive, &op, &mut batch, &dir, &keep, &mut kept_record)?;

            let old = dir.state.read().record.clone();
            let mut record = self.copied_record(&source, Ahead::Never, old.id, now_ns);
            unprotect(&mut record);
            // It is the object that it was, for handles of it too.
            (record.nlink, record.crtime_ns) = (old.nlink, old.crtime_ns);
            record.change_rare(|rare| rare.generation = old.rare().generation);
            if !record.set_quota(old.quota()) {
                self.discard(&op, &kept_links);
                return Err(Error::RangeTooSmall);
            }
            if !planted::is(Bug::SnapshotsOfRestoredNotCounted) {
                record.snapshots = old.snapshots.saturating_add(1);
            }
            let prepared =
                self.take_contents(&exclusive, &op, &mut batch, &emptied, now_ns).and_then(|removal| {
                    if old.flags.has(Flags::LARGE_XATTRS) {
                        let (lo, hi) = key::xattrs(&own);
                        batch.delete_range(DATA, &lo, &hi);
                    }
                    let back = Copy {
                        to_key: &own,
                        to_path: &path,
                        flags: Flags::default(),
                        used: None,
                        ahead: Ahead::Never,
                    };
                    let links = self.add_copy(&exclusive, &op, &mut batch, &source, &back, &mut record)?;
                    let charged = self.charge(&op, &counted, more, &mut batch);
                    let charge = charged.inspect_err(|_| self.discard(&op, &links))?;
                    op.commit(&batch).inspect_err(|_| self.discard(&op, &links))?;
                    charge.keep();
                    Ok(removal)
                });
            let removal = prepared.inspect_err(|_| self.discard(&op, &kept_links))?;

            dir.set_salt(&exclusive, record.salt);
            dir.set_own_properties(record.properties());
            dir.atime_ns.store(record.atime_ns, Relaxed);
            dir.state.write().record = record.into();
            self.note_foreign(&dir);
            let cut_off = self.cut_off(&exclusive, &dir);
            let keep_as: Arc<[u8]> = Arc::from(keep_as);
            let place = Place::named(&snapshots, keep_as.clone());
            let names = Directory::new(self.names_total.clone());
            let kept = self.keep(&op, Inode::new(ino, place, kept_record, Some(names)));
            {
                let mut state = snapshots.state.write();
                state.record = with_snapshot_counted(&state.record, 1, now_ns).into();
                let known = Name { node: Some(kept.id), ino, file_type: FileType::Directory, oid: None };
                self.insert_name(&snapshots, &mut state, &keep_as, known)?;
            }
            let names = cut_off.iter().flat_map(|(_, names)| names.known_objects()).collect();
            let changed = self.removed(exclusive, removal, cut_off.into_iter().collect(), now_ns);
            Ok(Restored { snapshots: snapshots.id, names, changed })
        })
    }

    /// Whether [`restore_snapshot`](Volume::restore_snapshot) would succeed, as far as that can be told
    /// beforehand.
    ///
    /// # Errors
    /// Those of `restore_snapshot` but for the length of keys below the snapshot.
    pub fn may_restore_snapshot(&self, node: InodeId, name: &[u8], keep_as: &[u8]) -> Result<()> {
        let op = self.query_for_objects(OpKind::Lookup);
        let shared = self.namespace.shared();
        self.restoration(&shared, &op, node, name, keep_as).map(drop)
    }

    fn restoration(
        &self,
        held: &impl InNamespace,
        op: &Op<'_>,
        node: InodeId,
        name: &[u8],
        keep_as: &[u8],
    ) -> Result<Restoration> {
        check_name(name)?;
        check_name(keep_as)?;
        let dir = self.live_dir(held, op, node)?;
        let snapshots = self.snapshots_of(held, op, &dir)?;
        let (path, above) = (op.dir_path(&dir)?.bytes, op.dir_path(&snapshots)?.bytes);
        if key::entry(&above, keep_as).len() > key::OWN_KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let find = |name| self.find(op, &snapshots, &mut snapshots.state.write(), name);
        let source = find(name)?.ok_or(Error::NotFound)?;
        if find(keep_as)?.is_some() {
            return Err(Error::Exists);
        }
        refuse_if_protected(&dir.state.read().record)?;
        if op.has_any(META, key::snapshots_below(&path))? {
            return Err(Error::HeldBySnapshots);
        }
        Ok(Restoration { dir, snapshots, source, path, above })
    }
}
