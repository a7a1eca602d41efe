//! The comparison of a volume with a state of the model.

use std::collections::HashMap;

use betrfs::Attr;

use crate::model::{Body, Contents, ObjectId, ROOT, State, Values};
use crate::tree::{Found, FoundEntry};

/// A time of creation that is not told: most replies of a mount lack it.
pub const NOT_TOLD_NS: i64 = i64::MIN;

/// The inode numbers of objects, as far as they were seen. They never change.
#[derive(Clone, Default)]
pub struct Inos {
    by_object: HashMap<ObjectId, u64>,
    by_ino: HashMap<u64, ObjectId>,
}

impl Inos {
    /// The numbers, ascending.
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.by_ino.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether an object has this number.
    pub fn has(&self, ino: u64) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// Forgets the numbers of objects from one on.
    pub fn forget_from(&mut self, first: ObjectId) {
        self.by_object.retain(|id, _| *id < first);
        self.by_ino.retain(|_, id| *id < first);
    }

    /// Notes the number of an object.
    ///
    /// # Errors
    /// It had another one, or another object has it.
    pub fn note(&mut self, id: ObjectId, ino: u64) -> Result<(), String> {
        let known = *self.by_object.entry(id).or_insert(ino);
        let of = *self.by_ino.entry(ino).or_insert(id);
        match (known == ino, of == id) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("its inode number is {ino}, and was {known}")),
            (_, false) => Err(format!("its inode number {ino} is that of another object")),
        }
    }
}

/// The first difference between a volume and a state, as a sentence with the path; `None` if they are equal.
/// Numbers of inodes that are seen for the first time are noted.
pub fn difference(state: &State, found: &Found, inos: &mut Inos) -> Option<String> {
    // A state that turns out to be another leaves no notes.
    let mut seen = inos.clone();
    match compare(state, ROOT, found, "", &mut seen) {
        Ok(()) => {
            *inos = seen;
            None
        }
        Err(what) => Some(what),
    }
}

fn compare(state: &State, id: ObjectId, found: &Found, path: &str, inos: &mut Inos) -> Result<(), String> {
    let shown = if path.is_empty() { "/" } else { path };
    let at = |what: String| format!("{shown}: {what}");
    let object = state.object(id);
    compare_attr(state, id, &found.attr).map_err(at)?;
    inos.note(id, found.attr.ino).map_err(at)?;
    if (found.flags, found.project) != (object.flags, object.project) {
        return Err(at(format!(
            "its flags are {:#x} and its project is {}, and should be {:#x} and {}",
            found.flags.bits(),
            found.project,
            object.flags.bits(),
            object.project
        )));
    }
    let right = object.xattrs.iter().map(|(name, value)| (name.as_slice(), &**value));
    let is_right = found.xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).eq(right);
    if !is_right && !found.unread.xattrs {
        let names = |names: Vec<&Vec<u8>>| {
            names.iter().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        };
        return Err(at(format!(
            "its attributes or their values are wrong: {}, and should be {}",
            names(found.xattrs.keys().collect()),
            names(object.xattrs.keys().collect())
        )));
    }
    match &object.body {
        Body::File(contents) if !found.unread.bytes => {
            compare_bytes(&found.bytes, contents.bytes()).map_err(at)?;
            if found.stretches != contents.stretches() {
                let right = contents.stretches();
                return Err(at(format!("its data is at {:?}, and should be at {right:?}", found.stretches)));
            }
        }
        Body::Symlink(target) if !found.unread.bytes && found.bytes != **target => {
            return Err(at("the target of the link is wrong".into()));
        }
        Body::Dir(dir) => {
            compare_settings(state, id, found).map_err(at)?;
            if !found.unread.entries {
                compare_entries(state, &dir.entries, &found.entries, path, inos)?;
            }
            if !found.unread.snapshots {
                let path = format!("{path}/.betrfs-snapshots");
                compare_entries(state, &dir.snapshots, &found.snapshots, &path, inos)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Compares properties and quota of a directory. In snapshots where properties are from is told by paths that
/// the model does not have.
fn compare_settings(state: &State, id: ObjectId, found: &Found) -> Result<(), String> {
    let is_frozen = state.object(id).is_frozen;
    if let Some(properties) = &found.properties {
        let is = Values { noatime: properties.noatime.value, compression: properties.compression.value };
        let sources = [properties.noatime.source, properties.compression.source];
        let (right, right_sources) = (state.values(id), state.sources(id));
        if is != right || !is_frozen && sources != right_sources {
            return Err(format!(
                "its properties are {is:?} from {sources:?}, and should be {right:?} from {right_sources:?}"
            ));
        }
    }
    if is_frozen || found.unread.quota {
        return Ok(());
    }
    let quota = found.quota.map(|quota| (quota.levels_up, quota.limits, quota.used));
    let right = state.quota_of(id).map(|(levels_up, dir, limits)| (levels_up, limits, state.used(dir)));
    if quota == right {
        Ok(())
    } else {
        Err(format!("(levels up, limits, use) of its quota are {quota:?}, and should be {right:?}"))
    }
}

type Entries = std::collections::BTreeMap<Vec<u8>, ObjectId>;

fn compare_entries(
    state: &State,
    right: &Entries,
    found: &[FoundEntry],
    path: &str,
    inos: &mut Inos,
) -> Result<(), String> {
    let names = |names: &mut dyn Iterator<Item = &Vec<u8>>| {
        names.map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    };
    if !found.iter().map(|entry| &entry.name).eq(right.keys()) {
        return Err(format!(
            "{path}/: the entries are [{}], and should be [{}]",
            names(&mut found.iter().map(|entry| &entry.name)),
            names(&mut right.keys())
        ));
    }
    for (FoundEntry { name, ino, file_type, found }, id) in found.iter().zip(right.values()) {
        let path = format!("{path}/{}", name.escape_ascii());
        let Some(found) = found else { continue };
        compare(state, *id, found, &path, inos)?;
        if (*ino, *file_type) != (found.attr.ino, found.attr.file_type) {
            return Err(format!(
                "{path}: a listing has it as {file_type:?} {ino}, a look-up as {:?}",
                found.attr
            ));
        }
    }
    Ok(())
}

/// Compares the attributes of an object with the right ones.
///
/// # Errors
/// The first difference.
pub fn compare_attr(state: &State, id: ObjectId, found: &Attr) -> Result<(), String> {
    let object = state.object(id);
    let differs = |what: &str, is: &dyn std::fmt::Debug, right: &dyn std::fmt::Debug| {
        Err(format!("its {what} is {is:?}, and should be {right:?}"))
    };
    if found.file_type != object.file_type() {
        return differs("type", &found.file_type, &object.file_type());
    }
    let (owner, right) = ((found.uid, found.gid, found.rdev), (object.uid, object.gid, object.rdev));
    if found.perm != object.perm {
        return Err(format!("its mode is {:o}, and should be {:o}", found.perm, object.perm));
    }
    if owner != right {
        return differs("owner", &owner, &right);
    }
    if !state.has_names(id, found.nlink, state.nlink(id)) {
        return differs("number of names", &found.nlink, &state.nlink(id));
    }
    if found.size != object.size() {
        return differs("size", &found.size, &object.size());
    }
    let may_show = |contents: &Contents| contents.may_show_512(found.blocks_512);
    if !object.contents().map_or(found.blocks_512 == 0, may_show) {
        let right = object.contents().map(Contents::blocks_512);
        return differs("number of blocks of 512 bytes", &found.blocks_512, &right);
    }
    let crtime_ns = if found.crtime_ns == NOT_TOLD_NS { NOT_TOLD_NS } else { object.crtime_ns };
    let times = (found.mtime_ns, found.ctime_ns, found.crtime_ns);
    let right = (object.mtime_ns, object.ctime_ns, crtime_ns);
    if (times.0, times.2) != (right.0, right.2) || !state.has_ctime(id, found.ctime_ns) {
        return differs("(mtime, ctime, crtime)", &times, &right);
    }
    if !object.atime.allows(found.atime_ns) {
        return differs("atime", &found.atime_ns, &object.atime);
    }
    Ok(())
}

/// Compares bytes.
///
/// # Errors
/// The first difference.
pub fn compare_bytes(found: &[u8], right: &[u8]) -> Result<(), String> {
    if found == right {
        return Ok(());
    }
    let at = found.iter().zip(right).position(|(a, b)| a != b).unwrap_or(found.len().min(right.len()));
    Err(format!(
        "the contents differ from byte {at} on ({:?}, and should be {:?}); of {} bytes, and should be of {}",
        found.get(at),
        right.get(at),
        found.len(),
        right.len()
    ))
}

/// Takes times of access that were found over into a state that equals the volume but for them.
pub fn take_atimes(state: &mut State, found: &Found) {
    take(state, ROOT, found, State::found_atime, |attr| attr.atime_ns);
}

/// Likewise times of change, of files that an opening may have taken names from.
pub fn take_late_ctimes(state: &mut State, found: &Found) {
    take(state, ROOT, found, State::found_ctime, |attr| attr.ctime_ns);
}

/// Takes a time of each object over. What has other names than the state is left as it is.
fn take(
    state: &mut State,
    id: ObjectId,
    found: &Found,
    into: fn(&mut State, ObjectId, i64),
    time_ns: fn(&Attr) -> i64,
) {
    into(state, id, time_ns(&found.attr));
    let Some(dir) = state.object(id).dir().cloned() else { return };
    for (entries, found) in [(dir.entries, &found.entries), (dir.snapshots, &found.snapshots)] {
        for ((name, id), entry) in entries.iter().zip(found) {
            if let Some(found) = entry.found.as_ref().filter(|_| entry.name == *name) {
                take(state, *id, found, into, time_ns);
            }
        }
    }
}
