//! Listings of directories.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use betree::{Cursor, Cut};

use crate::error::Result;
use crate::names::{COOKIE_FIRST, DirPath, Inode, ListingEpochs, Name, State};
use crate::op::{Op, OpKind};
use crate::schema::{META, Stored, key};
use crate::types::{Access, DirEntry, Entry, InodeId, NAMES_AT_ONCE, Objects};
use crate::volume::Volume;

impl Volume {
    /// Lists a directory from behind a cookie; 0, 1 and 2 are its start. `.` and `..` are not listed. `each`
    /// returns `false` for an entry that it does not take, which ends the call; it must not call the volume.
    /// The cookies of a listing are exact until a call finds no more entries; after a pause of more than ten
    /// minutes entries may be listed again.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{InodeId, Objects};
    ///
    /// volume.create(InodeId::ROOT, b"a", &new_file)?;
    /// volume.create(InodeId::ROOT, b"b", &new_dir)?;
    ///
    /// // Two calls: the first takes one entry, the second the rest.
    /// let (mut names, mut cookie) = (Vec::new(), 0);
    /// for most in [1, 100] {
    ///     let mut room = most;
    ///     volume.readdir(InodeId::ROOT, cookie, Objects::None, &mut |entry| {
    ///         if room == 0 {
    ///             return false;
    ///         }
    ///         room -= 1;
    ///         cookie = entry.cookie;
    ///         names.push(entry.name.to_vec());
    ///         true
    ///     })?;
    /// }
    /// assert_eq!(names, [b"a", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`](crate::Error::NotADirectory). Where a repair has noted that names may be
    /// lost, the call that lists the last of the others ends with that error, and so does any behind it.
    pub fn readdir(
        &self,
        dir: InodeId,
        cookie: u64,
        objects: Objects,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let op = self.query_for_objects(OpKind::Readdir);
        self.give_up_names();
        let dir = self.inode(dir)?;
        let now_ns = self.platform.now_ns();
        let (is_renewed, entries, mut lost) = {
            let shared = self.namespace.shared();
            let mut state = dir.state.write();
            state.dir()?;
            if self.is_removed(&shared, &dir) {
                return Ok(());
            }
            if self.access_policy.listings_count() {
                self.was_accessed(&dir, &state, Access::Counts);
            }
            // Names added during a listing are left for the next one; otherwise a caller that renames each
            // entry it reads would never reach the end. One that counted as given up may have lost names that
            // have come back since, without their cookies.
            let is_complete = state.is_complete();
            let names = state.dir_mut()?;
            let lost = names.losses(dir.turn()).cloned().filter(|_| !is_complete);
            let are_all_known = is_complete || lost.is_some();
            let is_renewed = cookie < COOKIE_FIRST || !are_all_known || !names.is_being_listed(now_ns);
            if is_renewed {
                names.begin_listing();
            }
            names.go_on_listing(now_ns);
            (is_renewed, state.record.entries, lost)
        };
        if is_renewed {
            let objects = if entries <= NAMES_AT_ONCE as u64 { objects } else { Objects::None };
            match self.read_names(&op, &dir, objects) {
                Ok(error) => lost = error,
                Err(error) => {
                    self.end_listing(&dir, now_ns);
                    return Err(error);
                }
            }
            self.number_names(&dir);
        }
        let mut at = cookie;
        loop {
            let listed = op.without_waiting(|| {
                let begun = at;
                match self.list_some(&op, &dir, &mut at, objects, each) {
                    // What was listed stays so. The next attempt begins with the name that is not in memory.
                    Err(error) if error.is_not_in_memory() && at != begun => Ok(Listed::Some),
                    listed => listed,
                }
            });
            match listed {
                Ok(Listed::Some) => {}
                Ok(Listed::End) => {
                    if at == cookie {
                        self.end_listing(&dir, now_ns);
                    }
                    return lost.map_or(Ok(()), Err);
                }
                listed => return listed.map(drop),
            }
        }
    }

    /// Lists some names from behind a cookie, and moves that.
    fn list_some(
        &self,
        op: &Op<'_>,
        dir: &Arc<Inode>,
        at: &mut u64,
        objects: Objects,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<Listed> {
        let shared = self.namespace.shared();
        let mut state = dir.state.write();
        if self.is_removed(&shared, dir) {
            return Ok(Listed::Taken);
        }
        let path = dir.dir_path()?;
        let epoch = self.epochs.begin();
        let mut records = Records { op, dir, path: &path, cursor: None, epochs: &self.epochs, epoch };
        for _ in 0..NAMES_AT_ONCE {
            let Some((cookie, name, known)) = state.dir()?.after(*at) else { return Ok(Listed::End) };
            let entry = match objects.include(known.file_type) {
                true => self.entry_in_listing(&mut records, &mut state, &name, &known)?,
                false => None,
            };
            let listed = DirEntry { ino: known.ino, cookie, file_type: known.file_type, name: &name, entry };
            if !each(&listed) {
                if let Some(inode) = entry.and_then(|entry| self.table.get(entry.node)) {
                    inode.lookups.fetch_sub(1, Relaxed);
                    self.table.queue(&inode);
                }
                return Ok(Listed::Taken);
            }
            *at = cookie;
        }
        Ok(Listed::Some)
    }

    /// The object of a listed name, counted as looked up.
    fn entry_in_listing(
        &self,
        records: &mut Records<'_>,
        state: &mut State,
        name: &Arc<[u8]>,
        known: &Name,
    ) -> Result<Option<Entry>> {
        if let Some(inode) = self.in_memory(known, records.dir, name).filter(|inode| !inode.is_lost) {
            return Ok(Some(inode.looked_up(&self.allocations)));
        }
        if known.oid.is_some() {
            return Ok(None);
        }
        let Some(Stored::Inode(record)) = records.get(name)? else { return Ok(None) };
        let (inode, known) = self.adopt(records.op, records.dir, records.path, name, record);
        self.insert_name(records.dir, state, name, known)?;
        Ok(Some(inode.looked_up(&self.allocations)))
    }
}

/// How far a listing has come.
enum Listed {
    /// There may be more.
    Some,
    /// There are no more names.
    End,
    /// The caller takes no more, or the directory is gone.
    Taken,
}

/// Number of records that are fetched together.
const RECORDS_FETCHED: usize = 256;

/// Records of a directory by name. Names in a row take one range query.
struct Records<'a> {
    op: &'a Op<'a>,
    dir: &'a Arc<Inode>,
    path: &'a DirPath,
    cursor: Option<Cursor<'a>>,
    epochs: &'a ListingEpochs,
    /// The epoch of the cursor's records.
    epoch: u64,
}

impl Records<'_> {
    /// The record of a name whose inode is not in memory.
    fn get(&mut self, name: &[u8]) -> Result<Option<Stored>> {
        let wanted = key::entry(&self.path.bytes, name);
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(self.op.scan(META, key::entries(&self.path.bytes))),
        };
        let rest = (Cut::before(wanted.clone()), key::entries(&self.path.bytes).1);
        self.op.will_want(META, rest, RECORDS_FETCHED);
        if self.dir.last_change.is_since(self.epoch) {
            self.epoch = self.epochs.begin();
        } else if let Some((at, bytes)) = cursor.next()?
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
