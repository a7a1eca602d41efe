//! An object of the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use betrfs::{FileType, InodeFlags, QuotaLimits};

use super::contents::Contents;
use super::properties::OwnValues;

/// The number of an object in the model. None is used twice in a history without crashes.
pub type ObjectId = u32;

/// Where an object is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a name.
    Named,
    /// A file that is open and has lost its names.
    Kept,
    /// A file that is open and never had a name.
    Unnamed,
    /// Removed. A history that holds it can ask for its attributes.
    Gone,
    /// A file without a name that the history holds but has not open: the volume may keep it or not.
    Limbo,
}

/// A time of access: the volume may put it later than the access, so it is known within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTime {
    /// It is this or later.
    pub from_ns: i64,
    /// It is this or earlier.
    pub to_ns: i64,
}

impl AccessTime {
    /// A known time.
    pub fn at(ns: i64) -> AccessTime {
        AccessTime { from_ns: ns, to_ns: ns }
    }

    /// Whether a time is within the bounds.
    pub fn allows(self, ns: i64) -> bool {
        (self.from_ns..=self.to_ns).contains(&ns)
    }

    /// Notes an access that may have moved the time.
    pub fn accessed(&mut self, now_ns: i64) {
        (self.from_ns, self.to_ns) = (self.from_ns.min(now_ns), self.to_ns.max(now_ns));
    }
}

/// A file, a directory or anything else that can have a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Permissions and set-id bits.
    pub perm: u16,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Number of names; that of a directory is 1 or 0.
    pub names: u32,
    /// Where it is found.
    pub standing: Standing,
    /// Time of the last access.
    pub atime: AccessTime,
    /// Time of the last change of the contents.
    pub mtime_ns: i64,
    /// Time of the last change.
    pub ctime_ns: i64,
    /// Time of creation.
    pub crtime_ns: i64,
    /// When it last lost a name together with the tree that had it.
    pub lost_with_tree_ns: Option<i64>,
    /// Flags of chattr(1).
    pub flags: InodeFlags,
    /// The project.
    pub project: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<[u8]>>,
    /// Whether it is in a snapshot.
    pub is_frozen: bool,
    /// What depends on the type.
    pub body: Body,
}

/// The part of an object that depends on its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A regular file.
    File(Contents),
    /// A directory.
    Dir(Dir),
    /// A symbolic link, with its target.
    Symlink(Arc<[u8]>),
    /// Anything else.
    Other(FileType),
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dir {
    /// The directory above; the root's is itself.
    pub parent: ObjectId,
    /// Its entries.
    pub entries: BTreeMap<Vec<u8>, ObjectId>,
    /// Its snapshots.
    pub snapshots: BTreeMap<Vec<u8>, ObjectId>,
    /// The properties that it has of its own.
    pub own: OwnValues,
    /// The limits of its quota, if it has one.
    pub quota: Option<QuotaLimits>,
}

impl Dir {
    /// An empty directory.
    pub fn below(parent: ObjectId) -> Dir {
        let (entries, snapshots) = (BTreeMap::new(), BTreeMap::new());
        Dir { parent, entries, snapshots, own: OwnValues::default(), quota: None }
    }
}

impl Object {
    /// A new object with one name.
    pub fn new(perm: u16, uid: u32, gid: u32, now_ns: i64, body: Body) -> Object {
        Object {
            perm: perm & 0o7777,
            uid,
            gid,
            rdev: 0,
            names: 1,
            standing: Standing::Named,
            atime: AccessTime::at(now_ns),
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            crtime_ns: now_ns,
            lost_with_tree_ns: None,
            flags: InodeFlags::NONE,
            project: 0,
            xattrs: BTreeMap::new(),
            is_frozen: false,
            body,
        }
    }

    /// Its type.
    pub fn file_type(&self) -> FileType {
        match &self.body {
            Body::File(_) => FileType::Regular,
            Body::Dir(_) => FileType::Directory,
            Body::Symlink(_) => FileType::Symlink,
            Body::Other(file_type) => *file_type,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    /// The directory, if it is one.
    pub fn dir(&self) -> Option<&Dir> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    /// The directory, for a change.
    pub fn dir_mut(&mut self) -> Option<&mut Dir> {
        match &mut self.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    /// The contents, if it is a regular file.
    pub fn contents(&self) -> Option<&Contents> {
        match &self.body {
            Body::File(contents) => Some(contents),
            _ => None,
        }
    }

    /// The size as `stat` shows it.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(contents) => contents.size(),
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }

    /// Whether all changes are refused, but those that only add something.
    pub fn is_protected(&self) -> bool {
        self.flags.has(InodeFlags::APPEND) || self.is_immutable()
    }

    /// Whether all changes are refused.
    pub fn is_immutable(&self) -> bool {
        self.flags.has(InodeFlags::IMMUTABLE)
    }

    /// Notes a change of the contents.
    pub fn modified(&mut self, now_ns: i64) {
        (self.mtime_ns, self.ctime_ns) = (now_ns, now_ns);
    }

    /// Clears set-id bits, as a change of the owner does, by a caller outside of the group or in it.
    pub fn kill_set_id(&mut self, outside_group: bool) {
        if !self.is_dir() {
            self.perm &= !0o4000;
            if outside_group || self.perm & 0o0010 != 0 {
                self.perm &= !0o2000;
            }
        }
    }

    /// Whether it has set-id bits that [`kill_set_id`](Object::kill_set_id) clears.
    pub fn loses_set_id(&self, outside_group: bool) -> bool {
        self.perm & 0o4000 != 0 || self.perm & 0o2000 != 0 && (outside_group || self.perm & 0o0010 != 0)
    }

    /// Drops a program's capabilities, as each change of the contents does.
    pub fn drop_capabilities(&mut self) {
        self.xattrs.remove(&b"security.capability"[..]);
    }
}
