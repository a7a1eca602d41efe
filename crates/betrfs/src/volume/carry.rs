//! Moving an entry from one key to another: everything is read first, then deleted and put in one
//! batch. A directory that is too large for that is refused before anything changes. A file that is
//! too large becomes an object: its blocks are copied to the object's keys in many batches, of which
//! nobody sees anything (a marker has them deleted after a crash), and one last batch moves the name.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Batch, Cut, DictId};

use crate::error::{Error, Result};
use crate::node::{DirPath, Inode, Name, Place};
use crate::schema::block::BLOCK;
use crate::schema::{DATA, Flags, LINKS, META, Marker, Record, Redirect, damaged, key};
use crate::types::FileType;
use crate::volume::Volume;
use crate::volume::op::Op;
use crate::volume::unlink::delete_data;

/// The most that is moved in one batch.
const MOVE_BYTES_MAX: usize = 32 << 20;
/// What a key and its value take besides themselves.
const PAIR_BYTES: usize = 16;
/// Blocks of a large file are copied in batches of about this size.
const COPY_BATCH_BYTES: usize = 1 << 20;

/// A name and where its directory is.
pub(super) struct Spot<'a> {
    pub dir: &'a Arc<Inode>,
    pub path: &'a DirPath,
    pub name: &'a Arc<[u8]>,
}

impl Spot<'_> {
    pub fn key(&self) -> Vec<u8> {
        key::entry(&self.path.bytes, self.name)
    }

    /// The path of a directory of that name.
    pub fn child_path(&self) -> Vec<u8> {
        key::child_path(&self.path.bytes, self.name)
    }
}

/// An unlinked file whose blocks lie below a directory that moves.
struct MovedOrphan {
    inode: Arc<Inode>,
    old_base: Arc<[u8]>,
    marker: u64,
    base: Arc<[u8]>,
}

/// An entry on its way.
pub(super) struct Moving {
    inode: Arc<Inode>,
    /// Its record as it was, if what `data` holds of it is to be deleted at the source.
    leaves: Option<Record>,
    /// Dictionaries in which something was found below it.
    below: Vec<DictId>,
    puts: Vec<(DictId, Vec<u8>, Vec<u8>)>,
    puts_bytes: usize,
    orphans: Vec<MovedOrphan>,
    /// The marker of blocks that were copied ahead: it goes when the name moves.
    copied: Option<u64>,
    /// Its record and place when it has arrived.
    record: Record,
    place: Place,
}

impl Moving {
    fn put(&mut self, dict: DictId, at: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.puts_bytes = self.puts_bytes.saturating_add(PAIR_BYTES + at.len() + value.len());
        if self.puts_bytes > MOVE_BYTES_MAX {
            return Err(Error::CrossDevice);
        }
        self.puts.push((dict, at, value));
        Ok(())
    }

    /// Puts a redirect to the object that it is.
    pub fn put_redirect(&mut self, oid: u64, at: &[u8]) -> Result<()> {
        let redirect = Redirect { oid, ino: self.inode.ino, file_type: self.record.file_type };
        self.put(META, at.to_vec(), redirect.encode())?;
        self.put(LINKS, at.to_vec(), oid.to_be_bytes().to_vec())
    }

    /// Reads the keys in bounds, all of which start with `from`, to be put with `to` in its place.
    fn read(
        &mut self,
        op: &Op<'_>,
        dict: DictId,
        bounds: (Cut, Cut),
        from: &[u8],
        to: &[u8],
    ) -> Result<bool> {
        let mut found = false;
        let mut pairs = op.scan(dict, bounds);
        while let Some((at, value)) = pairs.next()? {
            let rest = at.strip_prefix(from).ok_or_else(|| damaged(at, "it is outside of its range"))?;
            let moved = [to, rest].concat();
            let limit = if dict == DATA { betree::KEY_BYTES_MAX } else { key::OWN_KEY_BYTES_MAX };
            if moved.len() > limit {
                return Err(Error::NameTooLong);
            }
            self.put(dict, moved, value.to_vec())?;
            found = true;
        }
        Ok(found)
    }

    /// Reads what `data` holds of the entry itself.
    fn read_data(&mut self, op: &Op<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        let (size, flags) = (self.record.size, self.record.flags);
        if self.record.file_type == FileType::Regular && size > 0 {
            if size <= BLOCK {
                if let Some(block) = op.get(DATA, &key::block(from, 0))? {
                    self.put(DATA, key::block(to, 0), block)?;
                }
            } else {
                self.read(op, DATA, key::blocks_from(from, 0), from, to)?;
            }
        }
        if flags.has(Flags::LARGE_XATTRS) {
            self.read(op, DATA, key::xattrs(from), from, to)?;
        }
        Ok(())
    }

    /// Reads everything below a directory.
    fn read_below(&mut self, op: &Op<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        for dict in [META, DATA, LINKS] {
            let is_empty = self.record.entries == 0 && (dict != DATA || self.orphans.is_empty());
            if !is_empty && self.read(op, dict, key::subtree(from), from, to)? {
                self.below.push(dict);
            }
        }
        Ok(())
    }

    /// Adds the deletion of what is at the source.
    pub fn delete_source(&self, batch: &mut Batch, from: &Spot<'_>) {
        self.delete_own(batch, &from.key());
        let (lo, hi) = key::subtree(&from.child_path());
        for dict in &self.below {
            batch.delete_range(*dict, &lo, &hi);
        }
    }

    /// Adds the deletion of the entry itself at its old key.
    pub fn delete_own(&self, batch: &mut Batch, at: &[u8]) {
        batch.delete(META, at);
        match &self.leaves {
            None => batch.delete(LINKS, at),
            Some(record) => delete_data(batch, at, record),
        }
    }

    /// Adds what is put at the target.
    pub fn put_target(&self, batch: &mut Batch) {
        for (dict, at, value) in &self.puts {
            batch.put(*dict, at, value);
        }
        if let Some(marker) = self.copied {
            batch.delete(META, &key::marker(marker));
        }
    }

    /// What its new directory knows of it.
    pub fn name(&self) -> Name {
        let oid = match self.place {
            Place::Object { oid } => Some(oid),
            _ => None,
        };
        Name { node: Some(self.inode.id), ino: self.inode.ino, file_type: self.record.file_type, oid }
    }
}

impl Volume {
    /// Reads an entry that is to move to another name. Where the blocks of an unlinked file occupy
    /// the target's keys, a regular file becomes an object. The caller holds the namespace alone.
    pub(super) fn carry(
        &self,
        op: &Op<'_>,
        inode: &Arc<Inode>,
        from: &Spot<'_>,
        to: &Spot<'_>,
        to_is_occupied: bool,
        now_ns: i64,
    ) -> Result<Moving> {
        let (from_key, to_key) = (from.key(), to.key());
        if to_key.len() > key::OWN_KEY_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        let mut moving = self.moving(inode, now_ns);
        if let Place::Object { oid } = moving.place {
            moving.leaves = None;
            moving.put(META, key::object(oid), moving.record.encode())?;
            moving.put_redirect(oid, &to_key)?;
            return Ok(moving);
        }
        let large = self.is_large(&moving.record);
        if (to_is_occupied || large) && moving.record.file_type == FileType::Regular {
            let oid = self.become_object(op, &mut moving, &from_key)?;
            moving.put_redirect(oid, &to_key)?;
            return Ok(moving);
        }
        // Neither its own number nor those below it change.
        moving.record.id = inode.ino.wrapping_sub(to.path.salts);
        if moving.record.is_dir() {
            let salt = moving.record.salt;
            moving.record.salt = salt.wrapping_add(from.path.salts).wrapping_sub(to.path.salts);
        }
        moving.place = Place::Named { parent: to.dir.clone(), name: to.name.clone() };
        moving.put(META, to_key.clone(), moving.record.encode())?;
        moving.read_data(op, &from_key, &to_key)?;
        if moving.record.is_dir() {
            let (from_path, to_path) = (from.child_path(), to.child_path());
            for (old_base, orphan) in self.orphans.below(&from_path) {
                let Place::Orphan { marker, .. } = orphan.place() else { continue };
                let rest = old_base.get(from_path.len()..).unwrap_or(&[]);
                let base: Arc<[u8]> = Arc::from([to_path.as_slice(), rest].concat());
                moving.put(META, key::marker(marker), Marker { base: base.to_vec() }.encode())?;
                moving.orphans.push(MovedOrphan { inode: orphan, old_base, marker, base });
            }
            moving.read_below(op, &from_path, &to_path)?;
        }
        Ok(moving)
    }

    /// Reads the file at `from_key`, to be put under a new object id. The caller puts its redirects.
    pub(super) fn carry_to_object(
        &self,
        op: &Op<'_>,
        inode: &Arc<Inode>,
        from_key: &[u8],
        nlink: u32,
        now_ns: i64,
    ) -> Result<(Moving, u64)> {
        let mut moving = self.moving(inode, now_ns);
        moving.record.nlink = nlink;
        let oid = self.become_object(op, &mut moving, from_key)?;
        Ok((moving, oid))
    }

    fn moving(&self, inode: &Arc<Inode>, now_ns: i64) -> Moving {
        let old = inode.state.read().record.clone();
        let mut record = old.clone();
        record.atime_ns = inode.atime_ns.load(Relaxed);
        record.ctime_ns = now_ns;
        Moving {
            inode: inode.clone(),
            leaves: Some(old),
            below: Vec::new(),
            puts: Vec::new(),
            puts_bytes: 0,
            orphans: Vec::new(),
            copied: None,
            record,
            place: inode.place(),
        }
    }

    fn become_object(&self, op: &Op<'_>, moving: &mut Moving, from_key: &[u8]) -> Result<u64> {
        let oid = self.numbers.oid(op)?;
        let own = key::object(oid);
        moving.record.id = moving.inode.ino;
        moving.place = Place::Object { oid };
        moving.put(META, own.clone(), moving.record.encode())?;
        if self.is_large(&moving.record) {
            self.copy_blocks(op, moving, from_key, &own)?;
        } else {
            moving.read_data(op, from_key, &own)?;
        }
        Ok(oid)
    }

    /// Whether a file may hold more than is moved in one batch.
    fn is_large(&self, record: &Record) -> bool {
        let most = MOVE_BYTES_MAX.min(self.env.batch_bytes_max()) / 2;
        record.file_type == FileType::Regular && record.size > most as u64
    }

    /// Copies the blocks of a large file to the keys of the object that it becomes. What is left
    /// undone by an error or a crash is deleted when the volume is opened next.
    fn copy_blocks(&self, op: &Op<'_>, moving: &mut Moving, from: &[u8], to: &[u8]) -> Result<()> {
        let marker = self.numbers.oid(op)?;
        let mut batch = Batch::new();
        batch.put(META, &key::marker(marker), &Marker { base: to.to_vec() }.encode());
        let mut pairs = op.scan(DATA, key::blocks_from(from, 0));
        while let Some((at, block)) = pairs.next()? {
            let rest = at.strip_prefix(from).ok_or_else(|| damaged(at, "it is outside of its range"))?;
            batch.put(DATA, &[to, rest].concat(), block);
            if batch.bytes() > COPY_BATCH_BYTES.min(self.env.batch_bytes_max() / 2) {
                op.commit(&batch)?;
                batch = Batch::new();
            }
        }
        op.commit(&batch)?;
        moving.copied = Some(marker);
        if moving.record.flags.has(Flags::LARGE_XATTRS) {
            moving.read(op, DATA, key::xattrs(from), from, to)?;
        }
        Ok(())
    }

    /// Commits a move, if it fits into a batch.
    pub(super) fn commit_move(&self, op: &Op<'_>, batch: &Batch) -> Result<()> {
        if batch.bytes() > self.env.batch_bytes_max() {
            return Err(Error::CrossDevice);
        }
        op.commit(batch)
    }

    /// Installs what moved in a committed batch.
    pub(super) fn arrive(&self, moved: impl IntoIterator<Item = Moving>) {
        let mut orphans = Vec::new();
        for moving in moved {
            if let Place::Object { oid } = moving.place {
                self.table.set_object(oid, moving.inode.id);
            }
            moving.inode.salt.store(moving.record.salt, Relaxed);
            moving.inode.state.write().record = moving.record;
            moving.inode.set_place(moving.place);
            orphans.extend(moving.orphans);
        }
        // Two directories may have changed places: all go before any comes.
        for orphan in &orphans {
            self.orphans.remove(&orphan.old_base);
        }
        for MovedOrphan { inode, marker, base, .. } in orphans {
            inode.set_place(Place::Orphan { marker, base: base.clone() });
            self.orphans.insert(base, inode);
        }
    }
}
