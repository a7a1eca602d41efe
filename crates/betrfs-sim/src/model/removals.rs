//! Operations that remove names, and trees of them.

use betrfs::SnapshotsBelow;

use super::refusal::refuse_if;
use super::{Body, Done, ObjectId, Refusal, Spot, Standing, State, Why};
use crate::at::At;

/// How an object loses a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is removed.
    Removed,
    /// A rename puts another object there. A file that is looked up may still be opened.
    Replaced,
}

impl State {
    pub(super) fn unlink(&mut self, at: &At, now_ns: i64) -> Result<Done, Refusal> {
        let (dir, name) = self.place(at)?;
        let id = self.entry(dir, name).ok_or(Why::NotFound)?;
        refuse_if(self.object(dir).is_protected() || self.object(id).is_protected(), Why::Protected)?;
        refuse_if(self.object(id).is_dir(), Why::IsADirectory)?;
        self.leave(dir, name, now_ns);
        self.lose_name(id, Loss::Removed, now_ns);
        Ok(Done::default())
    }

    pub(super) fn rmdir(&mut self, at: &At, now_ns: i64) -> Result<Done, Refusal> {
        if let Some((above, name)) = at.split()
            && matches!(self.resolve(&above)?, Spot::Snapshots(_))
        {
            let (of, _) = above.split().ok_or(Refusal::Unsaid)?;
            return self.remove_snapshot(&of, name, now_ns);
        }
        let (dir, name) = self.place(at)?;
        let id = self.entry(dir, name).ok_or(Why::NotFound)?;
        refuse_if(self.object(dir).is_protected() || self.object(id).is_protected(), Why::Protected)?;
        refuse_if(!self.object(id).is_dir(), Why::NotADirectory)?;
        self.refuse_in_use(id)?;
        self.leave(dir, name, now_ns);
        self.lose_name(id, Loss::Removed, now_ns);
        Ok(Done::default())
    }

    pub(super) fn refuse_in_use(&self, dir: ObjectId) -> Result<(), Refusal> {
        let Some(dir) = self.object(dir).dir() else { return Err(Why::NotADirectory.into()) };
        refuse_if(!dir.entries.is_empty(), Why::NotEmpty)?;
        refuse_if(!dir.snapshots.is_empty(), Why::HeldBySnapshots)
    }

    pub(super) fn remove_below(
        &mut self,
        at: &At,
        snapshots: SnapshotsBelow,
        now_ns: i64,
    ) -> Result<Done, Refusal> {
        let id = self.changeable_dir(self.resolve(at)?)?;
        refuse_if(self.object(id).is_protected(), Why::Protected)?;
        let has_snapshots = self.count_snapshots(id) > 0;
        refuse_if(has_snapshots && snapshots == SnapshotsBelow::Hold, Why::HeldBySnapshots)?;
        let is_empty = self.object(id).dir().is_none_or(|dir| dir.entries.is_empty());
        if is_empty && !has_snapshots {
            return Ok(Done::default());
        }
        self.empty(id, now_ns);
        self.change(id).modified(now_ns);
        Ok(Done::default())
    }

    pub(super) fn remove_snapshot(&mut self, of: &At, name: &[u8], now_ns: i64) -> Result<Done, Refusal> {
        let of = self.snapshots_holder(of)?;
        let found = self.object(of).dir().and_then(|dir| dir.snapshots.get(name)).copied();
        let snapshot = found.ok_or(Why::NotFound)?;
        self.empty(snapshot, now_ns);
        self.lose_name(snapshot, Loss::Removed, now_ns);
        if let Some(dir) = self.change(of).dir_mut() {
            dir.snapshots.remove(name);
        }
        Ok(Done::default())
    }

    /// The directory whose snapshots a path asks for.
    pub(super) fn snapshots_holder(&self, of: &At) -> Result<ObjectId, Refusal> {
        match self.resolve(&of.child(betrfs::SNAPSHOTS_NAME))? {
            Spot::Snapshots(of) => Ok(of),
            Spot::Object(_) => Err(Refusal::Unsaid),
        }
    }

    /// Number of snapshots of a directory and of those below it.
    pub fn count_snapshots(&self, id: ObjectId) -> usize {
        let Some(dir) = self.object(id).dir() else { return 0 };
        let below = dir.entries.values().map(|id| self.count_snapshots(*id)).sum::<usize>();
        below + dir.snapshots.len()
    }

    /// Removes all entries and snapshots of a directory with everything below them.
    fn empty(&mut self, id: ObjectId, now_ns: i64) {
        self.empty_of_entries(id, now_ns);
        let Some(dir) = self.change(id).dir_mut() else { return };
        let snapshots = std::mem::take(&mut dir.snapshots);
        snapshots.into_values().for_each(|id| self.remove_whole(id, now_ns));
    }

    /// Removes all entries of a directory with everything below them.
    pub(super) fn empty_of_entries(&mut self, id: ObjectId, now_ns: i64) {
        let Some(dir) = self.change(id).dir_mut() else { return };
        let entries = std::mem::take(&mut dir.entries);
        entries.into_values().for_each(|id| self.remove_whole(id, now_ns));
    }

    fn remove_whole(&mut self, id: ObjectId, now_ns: i64) {
        self.empty_if_dir(id, now_ns);
        self.lose_name(id, Loss::Removed, now_ns);
        self.change(id).lost_with_tree_ns = Some(now_ns);
    }

    fn empty_if_dir(&mut self, id: ObjectId, now_ns: i64) {
        if self.object(id).is_dir() {
            self.empty(id, now_ns);
        }
    }

    /// Takes one name from an object.
    pub(super) fn lose_name(&mut self, id: ObjectId, loss: Loss, now_ns: i64) {
        let (is_open, is_held) = (self.is_open(id), self.is_held(id));
        let object = self.change(id);
        object.names = object.names.saturating_sub(1);
        object.ctime_ns = now_ns;
        if object.names > 0 {
            return;
        }
        let is_file = matches!(object.body, Body::File(_));
        object.standing = match loss {
            _ if is_file && is_open => Standing::Kept,
            Loss::Replaced if is_file && is_held => Standing::Limbo,
            _ => Standing::Gone,
        };
    }
}
