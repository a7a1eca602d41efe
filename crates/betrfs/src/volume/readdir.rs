//! Listings.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Cursor, Cut};

use crate::error::Result;
use crate::node::{COOKIE_FIRST, DirPath, Inode, Name, State};
use crate::schema::{META, Stored, key};
use crate::types::{DirEntry, Entry, NodeId};
use crate::volume::Volume;
use crate::volume::lookup::entry_of;
use crate::volume::op::{Op, OpKind};

/// A directory of up to so many entries comes into memory with its inodes when it is listed plus.
const INODES_AT_ONCE: u64 = 4096;

impl Volume {
    /// Lists a directory from behind a cookie; 0, 1 and 2 are its start. `.` and `..` are not
    /// listed. With `plus`, entries come with their objects, except names of linked files that are
    /// not in memory. `each` gives `false` for an entry that it does not take any more; it must not
    /// call the volume.
    ///
    /// # Errors
    /// [`Error::NotADirectory`](crate::Error::NotADirectory).
    pub fn readdir(
        &self,
        dir: NodeId,
        cookie: u64,
        plus: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let op = self.query(OpKind::Readdir);
        let _shared = self.namespace.read();
        self.give_up_names();
        let dir = self.inode(dir)?;
        let mut state = dir.state.write();
        state.dir()?;
        if dir.is_unlinked() {
            return Ok(());
        }
        // Names that come while a listing goes on are left for the next one: else who renames each
        // entry that he reads would never come to the end.
        let mut is_renewed = cookie < COOKIE_FIRST;
        if !state.is_complete() {
            is_renewed = true;
            let inodes = plus && state.record.entries <= INODES_AT_ONCE;
            self.scan(&op, &dir, &mut state, inodes)?;
        }
        if is_renewed {
            state.dir_mut()?.number();
        }
        let path = dir.dir_path()?;
        let mut records = Records { op: &op, path: &path, cursor: None };
        let mut at = cookie;
        while let Some((cookie, name, known)) = state.dir()?.after(at) {
            let entry = match plus {
                true => self.entry_in_listing(&mut records, &dir, &mut state, &name, &known)?,
                false => None,
            };
            let listed = DirEntry { ino: known.ino, cookie, file_type: known.file_type, name: &name, entry };
            if !each(&listed) {
                if let Some(inode) = entry.and_then(|entry| self.table.get(entry.node)) {
                    inode.lookups.fetch_sub(1, Relaxed);
                    self.table.queue(&inode);
                }
                return Ok(());
            }
            at = cookie;
        }
        Ok(())
    }

    /// The object of a listed name, counted as looked up.
    fn entry_in_listing(
        &self,
        records: &mut Records<'_>,
        dir: &Arc<Inode>,
        state: &mut State,
        name: &Arc<[u8]>,
        known: &Name,
    ) -> Result<Option<Entry>> {
        if let Some(inode) = self.in_memory(known) {
            return Ok(Some(entry_of(&inode)));
        }
        if known.oid.is_some() {
            return Ok(None);
        }
        let Some(Stored::Inode(record)) = records.get(name)? else { return Ok(None) };
        let (inode, known) = self.adopt(dir, records.path, name, record);
        self.learn(dir, state, name, known)?;
        Ok(Some(entry_of(&inode)))
    }
}

/// Records of a directory by name: names that follow each other are one range query.
struct Records<'a> {
    op: &'a Op<'a>,
    path: &'a DirPath,
    cursor: Option<Cursor<'a>>,
}

impl Records<'_> {
    fn get(&mut self, name: &[u8]) -> Result<Option<Stored>> {
        let wanted = key::entry(&self.path.bytes, name);
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(self.op.scan(META, key::entries(&self.path.bytes))),
        };
        if let Some((at, bytes)) = cursor.next()?
            && at == wanted
        {
            return Ok(Some(Stored::decode(at, bytes)?));
        }
        cursor.seek(&Cut::before(wanted.clone()));
        match cursor.next()? {
            Some((at, bytes)) if at == wanted => Ok(Some(Stored::decode(at, bytes)?)),
            _ => Ok(None),
        }
    }
}
