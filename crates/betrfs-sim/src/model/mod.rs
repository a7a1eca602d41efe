//! A file system as plain maps: what each operation does, and which errors it may have.
//!
//! A [`State`] is cheap to copy, so a history keeps the state after each operation; after a crash the volume
//! must equal one of them.

mod answers;
mod attributes;
mod contents;
mod copies;
mod file_changes;
mod held;
mod names;
mod object;
mod properties;
mod quotas;
mod refusal;
mod removals;

use std::collections::BTreeMap;
use std::sync::Arc;

use betrfs::SNAPSHOTS_NAME;

pub use contents::Contents;
pub use object::{AccessTime, Body, Dir, Object, ObjectId, Standing};
pub use properties::Values;
pub use refusal::{Refusal, Why};

use crate::at::{At, Base, SlotId};
use crate::op::Op;

/// The root directory.
pub const ROOT: ObjectId = 0;

/// Properties of the volume on which results depend.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The most bytes written as a whole; a longer write is cut at multiples of it.
    pub piece_bytes: u64,
    /// Whether reads move times of access.
    pub reads_count: bool,
    /// The most objects: more are not made.
    pub objects_max: usize,
}

/// An object that the history holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The object.
    pub id: ObjectId,
    /// Whether it is open.
    pub is_open: bool,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// An object.
    Object(ObjectId),
    /// The entry for the snapshots of a directory.
    Snapshots(ObjectId),
}

/// An operation that succeeds.
#[derive(Default)]
pub struct Done {
    /// The states between the one before and the one after, if it takes effect in several steps.
    pub between: Vec<State>,
    /// The errors that it may have instead; nothing is changed then.
    pub or: Vec<Why>,
    /// The number of bytes written or copied.
    pub written: u64,
}

/// All objects at one moment.
#[derive(Clone)]
pub struct State {
    objects: Vec<Arc<Object>>,
    slots: BTreeMap<SlotId, Held>,
    /// Whether any directory has ever had a quota.
    has_quotas: bool,
    /// What a full disk may have kept removals from.
    lag: Lag,
}

/// What a full disk may have kept removals of trees from doing at once, of files with other names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lag {
    /// Nothing.
    #[default]
    None,
    /// They may have changed these files later than at their own time.
    Times,
    /// They may not have taken names from them yet.
    Names,
}

impl State {
    /// An empty volume, made at this time.
    pub fn new(now_ns: i64) -> State {
        let root = Object::new(0o755, 0, 0, now_ns, Body::Dir(Dir::below(ROOT)));
        State { objects: vec![Arc::new(root)], slots: BTreeMap::new(), has_quotas: false, lag: Lag::None }
    }

    /// Takes an operation at this time.
    ///
    /// # Errors
    /// Why it does not succeed; nothing is changed then.
    pub fn apply(&mut self, op: &Op, now_ns: i64, rules: &Rules) -> Result<Done, Refusal> {
        if !self.has_quotas {
            return self.apply_within(op, now_ns, rules);
        }
        let before = self.clone();
        let done = self.apply_within(op, now_ns, rules);
        let done = self.under_quotas(&before, op, done);
        if done.is_err() {
            *self = before;
        }
        done
    }

    /// Takes an operation as far as quotas as a whole do not refuse it.
    fn apply_within(&mut self, op: &Op, now_ns: i64, rules: &Rules) -> Result<Done, Refusal> {
        match op {
            Op::Create { .. } | Op::CreateWith { .. } | Op::Symlink { .. } | Op::CreateUnnamed { .. } => {
                self.create(op, now_ns, rules)
            }
            Op::Link { from, to } => self.link(from, to, now_ns),
            Op::Unlink { at } => self.unlink(at, now_ns),
            Op::Rmdir { at } => self.rmdir(at, now_ns),
            Op::RemoveBelow { at, snapshots } => self.remove_below(at, *snapshots, now_ns),
            Op::Rename { from, to, flags } => self.rename(from, to, *flags, now_ns),
            Op::Write { at, offset, data } => self.write(at, Some(*offset), &data.bytes(), now_ns, rules),
            Op::Append { at, data } => self.write(at, None, &data.bytes(), now_ns, rules),
            Op::Fallocate { at, mode, offset, len } => self.fallocate(at, *mode, *offset, *len, now_ns),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range((from, *from_offset), (to, *to_offset), *len, now_ns, rules)
            }
            Op::SetAttr { at, set } => self.set_attr(at, set, now_ns),
            Op::SetXattr { at, name, value, mode } => self.set_xattr(at, name, &value.bytes(), *mode, now_ns),
            Op::RemoveXattr { at, name } => self.remove_xattr(at, name, now_ns),
            Op::SetFlags { at, flags, project } => self.set_flags(at, *flags, *project, now_ns),
            Op::SetProperties { at, set } => self.set_properties(at, set, now_ns),
            Op::SetQuota { at, limits } => self.set_quota(at, *limits),
            Op::Clone { from, to } => self.clone_tree(from, to, now_ns, rules),
            Op::CloneOnto { from, to } => self.clone_onto(from, to, now_ns, rules),
            Op::Snapshot { of, name } => self.snapshot(of, name, now_ns, rules),
            Op::RemoveSnapshot { of, name } => self.remove_snapshot(of, name, now_ns),
            Op::Restore { of, name, keep_as } => self.restore(of, name, keep_as, now_ns, rules),
            Op::Open { at, slot } => self.hold(at, *slot, true),
            Op::Hold { at, slot } => self.hold(at, *slot, false),
            Op::OpenHeld { slot } => self.open_held(*slot),
            Op::Close { slot } => self.close(*slot),
            Op::Stat { at } | Op::OpenFilesIn { at } | Op::Usage { at } | Op::Fsync { at } => {
                self.ask_about(op, at)
            }
            Op::Read { at, .. } | Op::Seek { at, .. } => self.ask_file(op, at, now_ns, rules),
            Op::List { at, .. } => self.ask_dir(at, now_ns, rules),
            Op::ListOn { slot, .. } => self.ask_dir(&At::slot(*slot), now_ns, rules),
            Op::SnapshotsBelow { at } => self.ask_snapshots(at),
            Op::StatFs | Op::Sync => Ok(Done::default()),
        }
    }

    /// An object.
    pub fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id as usize]
    }

    /// Number of objects ever made.
    pub fn objects_made(&self) -> usize {
        self.objects.len()
    }

    /// The objects that the history holds.
    pub fn slots(&self) -> &BTreeMap<SlotId, Held> {
        &self.slots
    }

    /// The state after a crash, or after the volume was opened anew: nothing is held.
    pub fn let_go(&mut self) {
        self.slots.clear();
    }

    /// Sets the time of access that was found.
    pub fn found_atime(&mut self, id: ObjectId, ns: i64) {
        if self.object(id).atime != AccessTime::at(ns) {
            self.change(id).atime = AccessTime::at(ns);
        }
    }

    /// Notes what removals may not have done yet.
    pub fn note_lag(&mut self, lag: Lag) {
        self.lag = lag;
    }

    /// Whether a number of names of an object is right, beside the right one.
    pub fn has_names(&self, id: ObjectId, found: u32, right: u32) -> bool {
        let lags = self.lag == Lag::Names && self.object(id).lost_with_tree_ns.is_some();
        found == right || lags && found > right
    }

    /// Whether a time of change of an object is right.
    pub fn has_ctime(&self, id: ObjectId, ns: i64) -> bool {
        let object = self.object(id);
        let lags = self.lag != Lag::None && object.lost_with_tree_ns.is_some();
        // Until then it has an earlier one.
        ns == object.ctime_ns || lags && (ns > object.ctime_ns || self.lag == Lag::Names)
    }

    /// Sets the time of change that was found, if it is that of the opening after a crash, which has taken
    /// names from files that a removal had not come to.
    pub fn found_ctime(&mut self, id: ObjectId, ns: i64) {
        let object = self.object(id);
        let was_late = object.lost_with_tree_ns.is_some_and(|lost_ns| {
            // What has changed the file since has done so after the removal, unless that was late already.
            lost_ns == object.ctime_ns || self.lag != Lag::None
        });
        if was_late && ns > object.ctime_ns {
            self.change(id).ctime_ns = ns;
        }
    }

    /// Number of names of a file as `stat` shows it; for a directory, 2 and the number of its subdirectories.
    pub fn nlink(&self, id: ObjectId) -> u32 {
        let object = self.object(id);
        match object.dir() {
            Some(_) if object.standing == Standing::Gone => 0,
            Some(dir) => 2 + dir.entries.values().filter(|id| self.object(**id).is_dir()).count() as u32,
            None => object.names,
        }
    }

    /// What a path leads to.
    ///
    /// # Errors
    /// The way ends, or its base is not held.
    pub fn resolve(&self, at: &At) -> Result<Spot, Refusal> {
        let mut spot = match at.base {
            Base::Root => Spot::Object(ROOT),
            Base::Slot(slot) => Spot::Object(self.slots.get(&slot).ok_or(Refusal::Unsaid)?.id),
        };
        for name in &at.names {
            spot = self.child(spot, name)?;
        }
        Ok(spot)
    }

    /// What a name leads to.
    ///
    /// # Errors
    /// There is no such name, or the model does not say.
    pub fn child(&self, spot: Spot, name: &[u8]) -> Result<Spot, Refusal> {
        let id = match spot {
            Spot::Snapshots(of) => {
                let found = self.object(of).dir().and_then(|dir| dir.snapshots.get(name));
                return found.map(|id| Spot::Object(*id)).ok_or(Why::NotFound.into());
            }
            Spot::Object(id) => id,
        };
        let object = self.object(id);
        let dir = object.dir().ok_or(Why::NotADirectory)?;
        if object.standing == Standing::Gone {
            return Err(Why::NotFound.into());
        }
        if name == SNAPSHOTS_NAME {
            return if object.is_frozen { Err(Why::NotFound.into()) } else { Ok(Spot::Snapshots(id)) };
        }
        dir.entries.get(name).map(|id| Spot::Object(*id)).ok_or(Why::NotFound.into())
    }

    /// The object that a path leads to, if the model says what is done with it.
    fn find(&self, at: &At) -> Result<ObjectId, Refusal> {
        let Spot::Object(id) = self.resolve(at)? else { return Err(Refusal::Unsaid) };
        match self.object(id).standing {
            Standing::Gone | Standing::Limbo => Err(Refusal::Unsaid),
            _ => Ok(id),
        }
    }

    /// The directory and the name at the end of a path, for a change of that directory.
    fn place<'a>(&self, at: &'a At) -> Result<(ObjectId, &'a [u8]), Refusal> {
        let (above, name) = at.split().ok_or(Refusal::Unsaid)?;
        // `split` gives a path of its own; the name is the last one of `at`.
        let spot = self.resolve(&above)?;
        if name == SNAPSHOTS_NAME {
            return Err(Refusal::Unsaid);
        }
        Ok((self.changeable_dir(spot)?, name))
    }

    /// The directory, if its entries can be changed.
    fn changeable_dir(&self, spot: Spot) -> Result<ObjectId, Refusal> {
        let Spot::Object(id) = spot else { return Err(Why::InSnapshot.into()) };
        let object = self.object(id);
        match (object.is_dir(), object.is_frozen, object.standing == Standing::Gone) {
            (false, ..) => Err(Why::NotADirectory.into()),
            (_, true, true) => Err(Refusal::With(vec![Why::InSnapshot, Why::NotFound])),
            (_, true, false) => Err(Why::InSnapshot.into()),
            (_, _, true) => Err(Why::NotFound.into()),
            _ => Ok(id),
        }
    }

    fn entry(&self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        self.object(dir).dir()?.entries.get(name).copied()
    }

    fn change(&mut self, id: ObjectId) -> &mut Object {
        Arc::make_mut(&mut self.objects[id as usize])
    }

    /// Number of objects that there are or were: the next one to be made.
    pub(crate) fn next_object(&self) -> ObjectId {
        self.objects.len() as ObjectId
    }

    fn add(&mut self, object: Object) -> ObjectId {
        self.objects.push(Arc::new(object));
        (self.objects.len() - 1) as ObjectId
    }

    /// Puts an object under a name, in place of the one there, and notes the change of the directory.
    fn enter(&mut self, dir: ObjectId, name: &[u8], id: ObjectId, now_ns: i64) {
        if let Some(moved) = self.change(id).dir_mut() {
            moved.parent = dir;
        }
        let above = self.change(dir);
        above.modified(now_ns);
        if let Some(above) = above.dir_mut() {
            above.entries.insert(name.to_vec(), id);
        }
    }

    /// Takes a name away, and notes the change of the directory.
    fn leave(&mut self, dir: ObjectId, name: &[u8], now_ns: i64) {
        let above = self.change(dir);
        above.modified(now_ns);
        if let Some(above) = above.dir_mut() {
            above.entries.remove(name);
        }
    }

    fn is_open(&self, id: ObjectId) -> bool {
        self.slots.values().any(|held| held.id == id && held.is_open)
    }

    fn is_held(&self, id: ObjectId) -> bool {
        self.slots.values().any(|held| held.id == id)
    }

    /// Whether `id` is the directory `above` or below it.
    fn is_within(&self, mut id: ObjectId, above: ObjectId) -> bool {
        loop {
            if id == above {
                return true;
            }
            match self.object(id).dir() {
                Some(dir) if id != ROOT => id = dir.parent,
                _ => return false,
            }
        }
    }
}
