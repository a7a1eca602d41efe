//! Operations that make and move names.

use std::sync::Arc;

use betrfs::{FileType, InodeFlags, RenameFlags};

use super::refusal::refuse_if;
use super::removals::Loss;
use super::{Body, Contents, Dir, Done, Held, Object, ObjectId, Refusal, Rules, Spot, Standing, State, Why};
use crate::at::At;
use crate::op::Op;

impl State {
    pub(super) fn create(&mut self, op: &Op, now_ns: i64, rules: &Rules) -> Result<Done, Refusal> {
        if let Op::Create { at, .. } | Op::CreateWith { at, .. } | Op::Symlink { at, .. } = op {
            // The directory is looked up before anything else.
            self.resolve(&at.split().ok_or(Refusal::Unsaid)?.0)?;
        }
        let (at, object) = match op {
            Op::Create { at, file_type, owner, rdev } => {
                let body = match file_type {
                    FileType::Regular => Body::File(Contents::default()),
                    FileType::Directory => Body::Dir(Dir::below(super::ROOT)),
                    FileType::Symlink => return Err(Why::Invalid.into()),
                    other => Body::Other(*other),
                };
                let mut object = Object::new(owner.perm, owner.uid, owner.gid, now_ns, body);
                if matches!(file_type, FileType::CharDevice | FileType::BlockDevice) {
                    object.rdev = *rdev;
                }
                (at, object)
            }
            Op::CreateWith { at, owner, data } => {
                refuse_if(data.len as u64 > rules.piece_bytes, Why::FileTooLarge)?;
                let mut contents = Contents::default();
                contents.write(0, &data.bytes());
                (at, Object::new(owner.perm, owner.uid, owner.gid, now_ns, Body::File(contents)))
            }
            Op::Symlink { at, target, uid, gid } => {
                refuse_if(target.is_empty(), Why::NotFound)?;
                let body = Body::Symlink(Arc::from(target.as_slice()));
                (at, Object::new(0o777, *uid, *gid, now_ns, body))
            }
            Op::CreateUnnamed { dir, owner, slot } => {
                refuse_if(self.slots.contains_key(slot), Why::Other).map_err(|_| Refusal::Unsaid)?;
                let dir = self.changeable_dir(self.resolve(dir)?)?;
                refuse_if(self.object(dir).is_immutable(), Why::Protected)?;
                let body = Body::File(Contents::default());
                let mut object = Object::new(owner.perm, owner.uid, owner.gid, now_ns, body);
                (object.names, object.standing) = (0, Standing::Unnamed);
                self.inherit(&mut object, dir);
                let id = self.add(object);
                self.slots.insert(*slot, Held { id, is_open: true });
                return Ok(Done::default());
            }
            _ => return Err(Refusal::Unsaid),
        };
        if let (Some((above, name)), Op::Create { file_type: FileType::Directory, .. }) = (at.split(), op)
            && matches!(self.resolve(&above)?, Spot::Snapshots(_))
        {
            let (of, _) = above.split().ok_or(Refusal::Unsaid)?;
            return self.snapshot(&of, name, now_ns, rules);
        }
        let (dir, name) = self.place(at)?;
        self.check_room(rules)?;
        refuse_if(self.entry(dir, name).is_some(), Why::Exists)?;
        refuse_if(self.object(dir).is_immutable(), Why::Protected)?;
        let mut object = object;
        self.inherit(&mut object, dir);
        let id = self.add(object);
        self.enter(dir, name, id, now_ns);
        Ok(Done::default())
    }

    /// Gives a new object what its directory passes on.
    fn inherit(&self, object: &mut Object, dir: ObjectId) {
        let dir = self.object(dir);
        if dir.perm & 0o2000 != 0 {
            object.gid = dir.gid;
            if object.is_dir() {
                object.perm |= 0o2000;
            }
        }
        object.flags = dir.flags.intersection(InodeFlags::NODUMP.union(InodeFlags::NOATIME));
    }

    /// Leaves an operation out where there are many objects already: clones of clones double without end.
    pub(super) fn check_room(&self, rules: &Rules) -> Result<(), Refusal> {
        if self.objects.len() >= rules.objects_max { Err(Refusal::Unsaid) } else { Ok(()) }
    }

    pub(super) fn link(&mut self, from: &At, to: &At, now_ns: i64) -> Result<Done, Refusal> {
        let id = self.find(from)?;
        let object = self.object(id);
        let (is_protected, standing) = (object.is_protected(), object.standing);
        // The directory of the new name is looked up first.
        let (above, _) = to.split().ok_or(Refusal::Unsaid)?;
        self.resolve(&above)?;
        refuse_if(object.is_dir(), Why::IsADirectory)?;
        let no_longer_in_snapshot = self.check_frozen(id)?;
        let (dir, name) = self.place(to)?;
        let exists = self.entry(dir, name).is_some();
        // Of a removed snapshot: it may be refused for this reason before all others.
        let or_first = |why: Why| Refusal::With([no_longer_in_snapshot.clone(), vec![why]].concat());
        refuse_if(exists, Why::Exists).map_err(|_| or_first(Why::Exists))?;
        let is_refused = self.object(dir).is_immutable() || is_protected;
        refuse_if(is_refused, Why::Protected).map_err(|_| or_first(Why::Protected))?;
        let file = self.change(id);
        (file.names, file.ctime_ns, file.standing) = (file.names + 1, now_ns, Standing::Named);
        file.is_frozen = false;
        self.enter(dir, name, id, now_ns);
        // A file that lost all names may have left its blocks where another file can be.
        let mut or = no_longer_in_snapshot;
        or.extend((standing == Standing::Kept).then_some(Why::NotFound));
        Ok(Done { or, ..Done::default() })
    }

    pub(super) fn rename(
        &mut self,
        from: &At,
        to: &At,
        flags: RenameFlags,
        now_ns: i64,
    ) -> Result<Done, Refusal> {
        // Both directories are looked up before anything else.
        for at in [from, to] {
            self.resolve(&at.split().ok_or(Refusal::Unsaid)?.0)?;
        }
        refuse_if(flags.exchange && (flags.no_replace || flags.whiteout), Why::Invalid)?;
        let ((from_dir, name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        let source = self.entry(from_dir, name).ok_or(Why::NotFound)?;
        let target = self.entry(to_dir, to_name);
        refuse_if(target.is_some() && flags.no_replace, Why::Exists)?;
        refuse_if(target.is_none() && flags.exchange, Why::NotFound)?;
        let source_is_dir = self.object(source).is_dir();
        refuse_if(source_is_dir && self.is_within(to_dir, source), Why::Invalid)?;
        if target == Some(source) {
            return Ok(Done::default());
        }
        let is_protected = |id| self.object(id).is_protected();
        let stays = is_protected(from_dir) || is_protected(source);
        let to_stays = match target {
            None => self.object(to_dir).is_immutable(),
            Some(target) => is_protected(to_dir) || is_protected(target),
        };
        refuse_if(stays || to_stays, Why::Protected)?;
        if flags.exchange {
            let Some(target) = target else { return Err(Why::NotFound.into()) };
            let target_is_dir = self.object(target).is_dir();
            refuse_if(target_is_dir && self.is_within(from_dir, target), Why::Invalid)?;
            self.change(source).ctime_ns = now_ns;
            self.change(target).ctime_ns = now_ns;
            self.enter(to_dir, to_name, source, now_ns);
            self.enter(from_dir, name, target, now_ns);
            return Ok(Done::default());
        }
        if let Some(target) = target {
            match (source_is_dir, self.object(target).is_dir()) {
                (true, false) => return Err(Why::NotADirectory.into()),
                (false, true) => return Err(Why::IsADirectory.into()),
                (true, true) => self.refuse_in_use(target)?,
                (false, false) => {}
            }
            self.lose_name(target, Loss::Replaced, now_ns);
        }
        self.change(source).ctime_ns = now_ns;
        self.leave(from_dir, name, now_ns);
        self.enter(to_dir, to_name, source, now_ns);
        if flags.whiteout {
            let whiteout = self.add(Object::new(0, 0, 0, now_ns, Body::Other(FileType::CharDevice)));
            self.enter(from_dir, name, whiteout, now_ns);
        }
        Ok(Done::default())
    }
}
