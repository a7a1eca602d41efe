//! Trees that belong to one user as a whole, who may then be allowed to treat them as one.
//!
//! **The rule.** Everything in the tree belongs to the user, and nothing in it is what a user cannot make: no
//! device, no set-group-id program of a group that is not the user's, no attribute `trusted.` or `security.`,
//! no object that is immutable or append-only. Then the user could have read all of it (by chmod), copied all
//! with `cp -a`, and removed all with `rm -r`. So a clone keeps nothing that the user could not have kept,
//! whatever others delete later, and a removal takes nothing that the user could not have removed.
//!
//! Whether a tree is of that kind is looked up record by record, in a view and without a lock: a cost of the
//! caller's alone. What others do meanwhile is told by [`ForeignEvents`]: each operation that may bring
//! something into a tree that its owner could not make leaves a note there, after its batch and before it
//! gives the namespace back. Whoever then holds the namespace alone looks at the notes since the view.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::Mutex;

use crate::error::{Error, Result};
use crate::names::{Exclusive, Inode, Place};
use crate::op::{Op, OpKind};
use crate::rules::is_foreign;
use crate::schema::{META, Stored, damaged, key};
use crate::types::{InodeId, Owned, User};
use crate::volume::Volume;
use crate::volume::linked_copies::stored_object;

/// Number of notes kept. Who needs an older one looks everything up anew.
const NOTES_MAX: usize = 256;
/// Number of steps up that may be taken for notes while all others wait.
const STEPS_MAX: usize = 4096;

/// Where something came that an owner could not make.
#[derive(Clone, Copy, Debug)]
pub(super) enum Foreign {
    /// To this object, or below it.
    At(InodeId),
    /// To a file with several names, whose directories are not known.
    Anywhere,
}

/// Notes of what came where, in order.
#[derive(Default)]
pub(super) struct ForeignEvents(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    /// Number of notes ever made.
    made: u64,
    last: VecDeque<Foreign>,
}

impl ForeignEvents {
    fn add(&self, event: Foreign) {
        let mut notes = self.0.lock();
        notes.made += 1;
        notes.last.push_back(event);
        if notes.last.len() > NOTES_MAX {
            notes.last.pop_front();
        }
    }

    fn made(&self) -> u64 {
        self.0.lock().made
    }

    /// The notes since there were `made`; `None` if some are no longer kept.
    fn since(&self, made: u64) -> Option<Vec<Foreign>> {
        let notes = self.0.lock();
        let more = usize::try_from(notes.made.saturating_sub(made)).ok()?;
        let first = notes.last.len().checked_sub(more)?;
        Some(notes.last.range(first..).copied().collect())
    }
}

impl Volume {
    /// Checks that a file or a directory with everything below it belongs to a user, and that the user could
    /// have made all of it.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, new_dir) = doc::volume()?;
    /// use betrfs::{Error, InodeId, NewNode, User};
    ///
    /// let ada = User { uid: 1000, groups: vec![1000] };
    /// let dir = volume.create(InodeId::ROOT, b"dir", &NewNode { uid: 1000, ..new_dir })?.node;
    /// let copy = volume.create(InodeId::ROOT, b"copy", &NewNode { uid: 1000, ..new_dir })?.node;
    /// volume.clone_onto_as(&volume.owned_by(dir, &ada)?, copy)?;
    ///
    /// volume.create(dir, b"file", &NewNode { uid: 1001, ..new_file })?;
    /// assert_eq!(volume.owned_by(dir, &ada), Err(Error::NotPermitted));
    /// assert_eq!(volume.foreign_in(dir, &ada)?.as_deref(), Some(b"file".as_slice()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is not so; [`Error::NotFound`] if the object was removed;
    /// [`Error::StateGivenUp`] if the space that the view of it held was needed.
    pub fn owned_by(&self, node: InodeId, user: &User) -> Result<Owned> {
        let (owned, foreign) = self.look_through(node, user)?;
        if foreign.is_some() { Err(Error::NotPermitted) } else { Ok(owned) }
    }

    /// The path, relative to the object, of the first object found for which [`owned_by`](Volume::owned_by)
    /// refuses it; it is empty for the object itself.
    ///
    /// # Errors
    /// Those of `owned_by` but for [`Error::NotPermitted`].
    pub fn foreign_in(&self, node: InodeId, user: &User) -> Result<Option<Vec<u8>>> {
        Ok(self.look_through(node, user)?.1)
    }

    fn look_through(&self, node: InodeId, user: &User) -> Result<(Owned, Option<Vec<u8>>)> {
        let op = self.query_for_objects(OpKind::Lookup);
        let (owned, view, path) = {
            let shared = self.namespace.shared();
            let inode = self.inode(node)?;
            if self.is_removed(&shared, &inode) {
                return Err(Error::NotFound);
            }
            // In this order: a note that is older than the view is looked at in vain, and none is missed.
            let owned = Owned { node, uid: user.uid, notes: self.foreign.made() };
            let record = inode.state.read().record.clone();
            if is_foreign(&record, user) {
                return Ok((owned, Some(Vec::new())));
            }
            if !record.is_dir() {
                return Ok((owned, None));
            }
            (owned, self.env.view(), op.dir_path(&inode)?.bytes)
        };
        let op = op.reading(&view);
        let foreign = first_foreign(&op, &path, user)?;
        Ok((owned, foreign))
    }

    /// Checks that nothing has come into a tree, since it was looked through, that its owner could not make.
    ///
    /// # Errors
    /// [`Error::Busy`] if something has, or may have.
    pub(super) fn still_owned(
        &self,
        _: &Exclusive<'_>,
        op: &Op<'_>,
        tree: &Arc<Inode>,
        owned: &Owned,
    ) -> Result<()> {
        if tree.id != owned.node {
            return Err(Error::Busy);
        }
        let mut steps = STEPS_MAX;
        for event in self.foreign.since(owned.notes).ok_or(Error::Busy)? {
            let Foreign::At(node) = event else { return Err(Error::Busy) };
            // It has left memory: then nobody knows where it was.
            let mut here = self.table.get(node).ok_or(Error::Busy)?;
            loop {
                steps = steps.checked_sub(1).ok_or(Error::Busy)?;
                op.visit(1);
                if Arc::ptr_eq(&here, tree) {
                    return Err(Error::Busy);
                }
                let Some(above) = here.place().parent().cloned() else { break };
                here = above;
            }
        }
        Ok(())
    }

    /// Notes that an object has become, or may have become, one that the owner of a directory above it could
    /// not make. The caller has committed that, and holds the namespace.
    pub(super) fn note_foreign(&self, inode: &Inode) {
        self.foreign.add(match inode.place() {
            Place::Object { .. } => Foreign::Anywhere,
            _ => Foreign::At(inode.id),
        });
    }
}

/// The path below a directory of the first object that is foreign to a user.
fn first_foreign(op: &Op<'_>, path: &[u8], user: &User) -> Result<Option<Vec<u8>>> {
    let mut entries = op.scan(META, key::subtree(path));
    while let Some((at, bytes)) = entries.next()? {
        let record = match Stored::decode(at, bytes)? {
            Stored::Inode(record) => record,
            Stored::Redirect(redirect) => stored_object(op, redirect.oid)?,
        };
        if is_foreign(&record, user) {
            let (above, name) = key::split_entry(at).ok_or_else(|| damaged(at, "it is no name"))?;
            let below = above.get(path.len()..).unwrap_or_default();
            let components = below.split(|byte| *byte == 0).skip(1).chain([name]);
            return Ok(Some(components.collect::<Vec<_>>().join(&b'/')));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_given_since_a_moment_or_not_at_all() {
        let events = ForeignEvents::default();
        events.add(Foreign::Anywhere);
        let made = events.made();
        assert_eq!(events.since(made).map(|notes| notes.len()), Some(0));
        for number in 0..NOTES_MAX as u64 {
            events.add(Foreign::At(InodeId(number)));
        }
        let notes = events.since(made).unwrap();
        assert!(matches!(notes[..], [Foreign::At(InodeId(0)), .., Foreign::At(InodeId(255))]), "{notes:?}");
        assert!(matches!(events.since(made + 255).unwrap()[..], [Foreign::At(InodeId(255))]));
        assert!(events.since(made - 1).is_none(), "the first one is no longer kept");
    }
}
