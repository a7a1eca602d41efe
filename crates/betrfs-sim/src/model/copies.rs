//! Clones and snapshots.

use std::collections::BTreeMap;

use betrfs::{FileType, InodeFlags};

use super::refusal::refuse_if;
use super::{Body, Done, Object, ObjectId, Refusal, Rules, Standing, State, Why};
use crate::at::At;

impl State {
    pub(super) fn clone_tree(
        &mut self,
        from: &At,
        to: &At,
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let source = self.find(from)?;
        self.check_room(rules)?;
        let (dir, name) = self.place(to)?;
        refuse_if(self.entry(dir, name).is_some(), Why::Exists)?;
        refuse_if(self.object(dir).is_immutable(), Why::Protected)?;
        let (had, there) = (self.values(source), self.values(dir));
        let copy = self.copy(source, dir, None, false);
        self.begin_copy(copy, now_ns);
        unprotect(self.change(copy));
        self.keep_values(copy, had, there);
        self.enter(dir, name, copy, now_ns);
        Ok(Done::default())
    }

    pub(super) fn clone_onto(
        &mut self,
        from: &At,
        to: &At,
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let (source, target) = (self.find(from)?, self.resolve(to)?);
        let super::Spot::Object(target) = target else { return Err(Refusal::Unsaid) };
        self.check_room(rules)?;
        let (old, new) = (self.object(target), self.object(source));
        refuse_if(old.standing != Standing::Named, Why::NotFound)?;
        refuse_if(old.is_frozen, Why::InSnapshot)?;
        let can_be = matches!(new.file_type(), FileType::Regular | FileType::Directory);
        refuse_if(!can_be || old.file_type() != new.file_type(), Why::Invalid)?;
        refuse_if(source == target || target == super::ROOT, Why::Invalid)?;
        refuse_if(old.size() > 0, Why::NotEmpty)?;
        if old.is_dir() {
            self.refuse_in_use(target)?;
        }
        refuse_if(old.is_protected(), Why::Protected)?;
        refuse_if(old.dir().is_some_and(|dir| dir.quota.is_some()), Why::Invalid)?;
        let there = old.dir().map(|dir| self.values(dir.parent));
        let had = self.values(source);
        self.replace_by_copy(source, target, now_ns);
        if let Some(there) = there {
            self.keep_values(target, had, there);
        }
        Ok(Done::default())
    }

    /// Makes an object without entries a copy of another. Its snapshots stay.
    fn replace_by_copy(&mut self, source: ObjectId, target: ObjectId, now_ns: i64) {
        let old = self.object(target);
        let (names, crtime_ns) = (old.names, old.crtime_ns);
        let stays = old.dir().map(|dir| (dir.parent, dir.snapshots.clone()));
        let copy = self.copy(source, target, Some(target), false);
        self.begin_copy(copy, now_ns);
        // The copy takes the target's place, and what is below it gets the target as its parent.
        let mut object = self.object(copy).clone();
        (object.names, object.crtime_ns) = (names, crtime_ns);
        unprotect(&mut object);
        if let (Some(dir), Some(stays)) = (object.dir_mut(), stays) {
            (dir.parent, dir.snapshots) = stays;
        }
        let below: Vec<ObjectId> =
            object.dir().map_or_else(Vec::new, |dir| dir.entries.values().copied().collect());
        for id in below {
            if let Some(dir) = self.change(id).dir_mut() {
                dir.parent = target;
            }
        }
        if let (Body::File(contents), Some(old)) = (&mut object.body, self.object(target).contents()) {
            contents.keep_room_of(old);
        }
        *self.change(target) = object;
        self.change(copy).standing = Standing::Gone;
    }

    pub(super) fn restore(
        &mut self,
        of: &At,
        name: &[u8],
        keep_as: &[u8],
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let of = self.changeable_dir(self.resolve(of)?)?;
        self.check_room(rules)?;
        let snapshots = self.object(of).dir().map(|dir| dir.snapshots.clone()).unwrap_or_default();
        let source = *snapshots.get(name).ok_or(Why::NotFound)?;
        refuse_if(snapshots.contains_key(keep_as), Why::Exists)?;
        refuse_if(self.object(of).is_protected(), Why::Protected)?;
        refuse_if(self.count_snapshots(of) > snapshots.len(), Why::HeldBySnapshots)?;
        let quota = self.object(of).dir().and_then(|dir| dir.quota);
        let kept = self.copy(of, of, None, true);
        self.begin_copy(kept, now_ns);
        self.empty_of_entries(of, now_ns);
        if let Some(dir) = self.change(of).dir_mut() {
            dir.snapshots.insert(keep_as.to_vec(), kept);
        }
        self.replace_by_copy(source, of, now_ns);
        if let Some(dir) = self.change(of).dir_mut() {
            dir.quota = quota;
        }
        Ok(Done::default())
    }

    pub(super) fn snapshot(
        &mut self,
        of: &At,
        name: &[u8],
        now_ns: i64,
        rules: &Rules,
    ) -> Result<Done, Refusal> {
        let of = self.snapshots_holder(of)?;
        self.check_room(rules)?;
        refuse_if(self.object(of).dir().is_some_and(|dir| dir.snapshots.contains_key(name)), Why::Exists)?;
        let copy = self.copy(of, of, None, true);
        self.begin_copy(copy, now_ns);
        if let Some(dir) = self.change(of).dir_mut() {
            dir.snapshots.insert(name.to_vec(), copy);
        }
        Ok(Done::default())
    }

    fn begin_copy(&mut self, copy: ObjectId, now_ns: i64) {
        let copy = self.change(copy);
        (copy.ctime_ns, copy.crtime_ns, copy.names) = (now_ns, now_ns, 1);
    }

    /// Copies an object with everything below it but `left_out`; the names of one file below it become names
    /// of one copy. The copy has no name yet.
    fn copy(
        &mut self,
        source: ObjectId,
        parent: ObjectId,
        left_out: Option<ObjectId>,
        is_frozen: bool,
    ) -> ObjectId {
        let mut files = BTreeMap::new();
        self.copy_into(source, parent, left_out, is_frozen, &mut files)
    }

    fn copy_into(
        &mut self,
        source: ObjectId,
        parent: ObjectId,
        left_out: Option<ObjectId>,
        is_frozen: bool,
        files: &mut BTreeMap<ObjectId, ObjectId>,
    ) -> ObjectId {
        if let Some(copy) = files.get(&source) {
            let copy = *copy;
            self.change(copy).names += 1;
            return copy;
        }
        let mut object = self.object(source).clone();
        (object.names, object.standing, object.is_frozen) = (1, Standing::Named, is_frozen);
        let entries = match object.dir_mut() {
            None => None,
            Some(dir) => {
                dir.parent = parent;
                dir.snapshots.clear();
                Some(std::mem::take(&mut dir.entries))
            }
        };
        let copy = self.add(object);
        match entries {
            None => drop(files.insert(source, copy)),
            Some(entries) => {
                for (name, id) in entries {
                    if Some(id) == left_out {
                        continue;
                    }
                    let below = self.copy_into(id, copy, left_out, is_frozen, files);
                    if let Some(dir) = self.change(copy).dir_mut() {
                        dir.entries.insert(name, below);
                    }
                }
            }
        }
        copy
    }
}

/// Clears the flags that would keep a copy from being completed.
fn unprotect(object: &mut Object) {
    object.flags = object.flags.without(InodeFlags::IMMUTABLE.union(InodeFlags::APPEND));
}
