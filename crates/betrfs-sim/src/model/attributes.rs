//! Operations that change attributes.

use std::sync::Arc;

use betrfs::{AclKind, InodeFlags, SetAttr, TimeSet, XattrMode};

use super::file_changes::refuse_protected;
use super::refusal::refuse_if;
use super::{AccessTime, Body, Done, Refusal, State, Why};
use crate::at::At;

impl State {
    pub(super) fn set_attr(&mut self, at: &At, set: &SetAttr, now_ns: i64) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        let object = self.object(id);
        let is_fixed = |time| matches!(time, Some(TimeSet::At(_)));
        let is_set = set.perm.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some();
        let changes_old_state = is_set || is_fixed(set.atime_ns) || is_fixed(set.mtime_ns);
        let is_refused = if changes_old_state { object.is_protected() } else { object.is_immutable() };
        refuse_protected(object, is_refused)?;
        if set.size.is_some() {
            super::file_changes::check_file(object)?;
        }
        let or = self.check_frozen(id)?;
        let time = |set| match set {
            TimeSet::Now => now_ns,
            TimeSet::At(ns) => ns,
        };
        let object = self.change(id);
        if let (Some(size), Body::File(contents)) = (set.size, &mut object.body) {
            contents.resize(size);
            object.mtime_ns = now_ns;
        }
        if set.uid.is_some() || set.gid.is_some() || set.kill_set_id {
            object.kill_set_id(set.outside_group);
            object.drop_capabilities();
        }
        if set.size.is_some() {
            object.drop_capabilities();
        }
        object.perm = set.perm.map_or(object.perm, |perm| perm & 0o7777);
        object.uid = set.uid.unwrap_or(object.uid);
        object.gid = set.gid.unwrap_or(object.gid);
        object.atime = set.atime_ns.map_or(object.atime, |set| AccessTime::at(time(set)));
        object.mtime_ns = set.mtime_ns.map_or(object.mtime_ns, time);
        object.ctime_ns = set.ctime_ns.unwrap_or(now_ns);
        Ok(Done { or, ..Done::default() })
    }

    pub(super) fn set_xattr(
        &mut self,
        at: &At,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now_ns: i64,
    ) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        check_xattr_name(name)?;
        // No value that is drawn is an access control list.
        refuse_if(AclKind::of_name(name).is_some(), Why::Invalid)?;
        let object = self.object(id);
        refuse_protected(object, object.is_protected())?;
        let is_there = object.xattrs.contains_key(name);
        refuse_if(mode == XattrMode::Create && is_there, Why::Exists)?;
        refuse_if(mode == XattrMode::Replace && !is_there, Why::NoData)?;
        let or = self.check_frozen(id)?;
        let object = self.change(id);
        object.xattrs.insert(name.to_vec(), Arc::from(value));
        object.ctime_ns = now_ns;
        Ok(Done { or, ..Done::default() })
    }

    pub(super) fn remove_xattr(&mut self, at: &At, name: &[u8], now_ns: i64) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        check_xattr_name(name)?;
        let object = self.object(id);
        refuse_protected(object, object.is_protected())?;
        if AclKind::of_name(name).is_some() {
            // There never is one.
            return Ok(Done::default());
        }
        refuse_if(!object.xattrs.contains_key(name), Why::NoData)?;
        let or = self.check_frozen(id)?;
        let object = self.change(id);
        object.xattrs.remove(name);
        object.ctime_ns = now_ns;
        Ok(Done { or, ..Done::default() })
    }

    /// Sets flags as root.
    pub(super) fn set_flags(
        &mut self,
        at: &At,
        flags: InodeFlags,
        project: Option<u32>,
        now_ns: i64,
    ) -> Result<Done, Refusal> {
        let id = self.find(at)?;
        let object = self.object(id);
        let project = project.unwrap_or(object.project);
        let stays_immutable = object.is_immutable() && flags.has(InodeFlags::IMMUTABLE);
        refuse_if(stays_immutable && (object.flags != flags || object.project != project), Why::Protected)?;
        let or = self.check_frozen(id)?;
        let object = self.change(id);
        (object.flags, object.project, object.ctime_ns) = (flags, project, now_ns);
        Ok(Done { or, ..Done::default() })
    }
}

fn check_xattr_name(name: &[u8]) -> Result<(), Refusal> {
    if AclKind::of_name(name).is_some() {
        return Ok(());
    }
    let namespaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match namespaces.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        None => Err(Why::NotSupported.into()),
        Some([]) => Err(Why::Invalid.into()),
        Some(_) => Ok(()),
    }
}
