//! Bringing a directory back to one of its snapshots, at a cost independent of its size.
//!
//! One batch makes the present contents a new snapshot, removes them, and puts a copy of the old snapshot in
//! their place. If many names lead to files with several, the first becomes a snapshot afterwards
//! (`kept.rs`), and the copy is made ahead (`detached.rs`). The directory stays the object that it is, with
//! its other snapshots. Everything below it is a copy: what was there before is removed for all who hold it,
//! and open files live on without a name.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::Batch;

use crate::error::{Error, Result};
use crate::names::{InNamespace, Inode};
use crate::op::{Op, OpKind};
use crate::planted::{self, Bug};
use crate::rules::{check_name, refuse_if_protected, unprotect};
use crate::schema::{Amount, DATA, Flags, META, key};
use crate::types::{Finished, InodeId, Restored};
use crate::volume::Volume;
use crate::volume::charge::spoil;
use crate::volume::clone::{Ahead, Copy, use_of_copy};
use crate::volume::detached::CopyWanted;
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
    /// the snapshot; the present state becomes the snapshot `keep_as`. After a crash and the next opening for
    /// changes both are the case, or nothing has happened. The directory keeps its inode number, its time of
    /// birth and its snapshots, and is neither immutable nor append-only. Everything below it has new inode
    /// numbers.
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
    /// [`Error::NameTooLong`] also if a key below the snapshot, or below the one that keeps the present
    /// state, might become too long. Nothing has changed then.
    pub fn restore_snapshot(&self, node: InodeId, name: &[u8], keep_as: &[u8]) -> Result<Restored> {
        self.find_kept_dirs()?;
        let source = {
            let op = self.query_for_objects(OpKind::Lookup);
            op.without_waiting(|| {
                let shared = self.namespace.shared();
                Ok(self.restoration(&shared, &op, node, name, keep_as)?.source.id)
            })?
        };
        let mut restored = self.measured(|measuring| {
            let dir = self.inode(node)?;
            let wanted =
                CopyWanted { flags: Flags::default(), target: None, counts_in: Some(&dir), by: None };
            self.with_copy(source, wanted, measuring, |ahead| {
                self.restore(node, name, keep_as, ahead, measuring)
            })
        })?;
        let mut finished = Finished::default();
        {
            let _making = self.unfinished.making.lock();
            self.make_kept(&mut finished);
        }
        restored.changed.extend(finished.changed);
        restored.made.extend(finished.snapshots);
        Ok(restored)
    }

    fn restore(
        &self,
        node: InodeId,
        name: &[u8],
        keep_as: &[u8],
        ahead: Ahead<'_>,
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
            let mut emptied = Emptied::entries_of(&dir, &path).in_quotas(counted.quotas());
            // It spoils what was measured; and the copies would be made again after each turn of others.
            self.few_open_files(&exclusive, &op, &emptied, now_ns)?;
            let more = match counted.quota() {
                Some(_) => {
                    let copied = match ahead {
                        // Without the directory itself, which counts on.
                        Ahead::Made(copy) => copy.more.ok_or(Error::Uncounted)? - Amount::of(&copy.record),
                        _ => measuring.content(&op, &source)?.copied,
                    };
                    let removed = measuring.content(&op, &dir)?.removed;
                    emptied = emptied.measured(measuring);
                    copied - removed
                }
                None => Amount::default(),
            };
            spoil(&op, &counted);
            let own = key::own(&path);
            let mut batch = Batch::new();

            let mut kept_record = self.copied_record(&dir, Ahead::Never, ino, now_ns);
            let used = use_of_copy(&op, &dir, &kept_record)?;
            let (mut kept, mut kept_links) = (None, Vec::new());
            if self.has_many_links(&op, &path)? {
                kept = Some(self.begin_kept(&op, &mut batch, &dir, (&kept_record, used), keep_as)?);
            } else {
                let keep = Copy {
                    to_key: &key::entry(&above, keep_as),
                    to_path: &key::child_path(&above, keep_as),
                    flags: Flags::READ_ONLY,
                    used,
                    ahead: Ahead::Never,
                };
                kept_links = self.add_copy(&exclusive, &op, &mut batch, &dir, &keep, &mut kept_record)?;
            }

            let old = dir.state.read().record.clone();
            let mut record = self.copied_record(&source, ahead, old.id, now_ns);
            unprotect(&mut record);
            // It is the object that it was, for handles of it too.
            (record.nlink, record.crtime_ns) = (old.nlink, old.crtime_ns);
            record.change_rare(|rare| rare.generation = old.rare().generation);
            if !record.set_quota(old.quota()) {
                self.discard(&op, &kept_links);
                return Err(Error::RangeTooSmall);
            }
            if !planted::is(Bug::SnapshotsOfRestoredNotCounted) {
                record.snapshots = old.snapshots.saturating_add(u32::from(kept.is_none()));
            }
            let prepared =
                self.take_contents(&exclusive, &op, &mut batch, &emptied, now_ns).and_then(|removal| {
                    if old.flags.has(Flags::LARGE_XATTRS) {
                        let (lo, hi) = key::xattrs(&own);
                        batch.delete_range(DATA, &lo, &hi);
                    }
                    let back =
                        Copy { to_key: &own, to_path: &path, flags: Flags::default(), used: None, ahead };
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
            let mut made = Vec::new();
            match kept {
                Some(kept) => self.note_kept(&exclusive, kept),
                None => {
                    self.insert_snapshot(&op, &snapshots, keep_as, kept_record)?;
                    made.push((snapshots.id, Arc::from(keep_as)));
                }
            }
            let names = cut_off.iter().flat_map(|(_, names)| names.known_objects()).collect();
            let changed = self.removed(exclusive, removal, cut_off.into_iter().collect(), now_ns);
            Ok(Restored { snapshots: snapshots.id, made, names, changed })
        })
    }

    /// Whether [`restore_snapshot`](Volume::restore_snapshot) would succeed, as far as that can be told
    /// beforehand.
    ///
    /// # Errors
    /// Those of `restore_snapshot` but for the length of keys below the snapshot.
    pub fn may_restore_snapshot(&self, node: InodeId, name: &[u8], keep_as: &[u8]) -> Result<()> {
        self.find_kept_dirs()?;
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
        if find(keep_as)?.is_some() || self.is_kept_name(&dir, keep_as) {
            return Err(Error::Exists);
        }
        refuse_if_protected(&dir.state.read().record)?;
        let is_below = |(_, at): &(_, Vec<u8>)| *at != path;
        if op.has_any(META, key::snapshots_below(&path))? || self.kept_within(op, &path).iter().any(is_below)
        {
            return Err(Error::HeldBySnapshots);
        }
        Ok(Restoration { dir, snapshots, source, path, above })
    }
}
