//! Files without a name get one in a directory of their own.

use alloc::format;
use alloc::vec::Vec;

use super::Check;
use super::code::Code;
use super::mends::{Change, Mends};
use crate::schema::{DATA, LINKS, META, Redirect, Stored, key};

/// Names to try for the directory of files without a name.
const LOST_NAMES: [&[u8]; 3] = [b"lost+found", b"lost+found.1", b"lost+found.2"];
/// Names to try for a file in it: its number, and one of these.
const SUFFIXES: [&str; 3] = ["", ".1", ".2"];

impl Check<'_> {
    /// Gives a file without a name one in the directory of lost files, which is made if need be.
    pub(super) fn mend_nameless(&mut self, code: Code, oid: u64) {
        if !self.is_mending() {
            return;
        }
        let object = key::object(oid);
        let Some(Some(bytes)) = self.get(META, &object) else { return };
        let Ok(Stored::Inode(mut record)) = Stored::decode(&object, &bytes) else { return };
        let mut changes = Vec::new();
        let Some(dir) = self.lost_directory(&mut changes) else { return };
        let is_dir_new = !changes.is_empty();
        record.nlink = 1;
        let lost = key::child_path(b"", dir);
        let names = SUFFIXES.iter().map(|suffix| key::entry(&lost, format!("#{oid}{suffix}").as_bytes()));
        let Some(name) = names.into_iter().find(|name| self.is_free(name)) else { return };
        let redirect = Redirect { oid, ino: record.id, file_type: record.file_type };
        changes.push(Change::Put(META, object.clone(), record.encode()));
        changes.push(Change::Put(META, name.clone(), redirect.encode()));
        changes.push(Change::Put(LINKS, name, oid.to_be_bytes().to_vec()));
        if self.mend(code, &object, changes) {
            self.adds_to(&lost, false);
            if is_dir_new {
                self.adds_to(b"", true);
            }
        }
    }

    /// Whether a repair may make an object at a key: nothing is there or, where names were lost, nothing can
    /// be read that would be its own or below it.
    fn is_free(&mut self, own: &[u8]) -> bool {
        match self.op.get(META, own) {
            Ok(None) => true,
            Err(error) if error.is_known_damage() => {
                let mut ranges = Vec::from([(DATA, key::within(key::data(own)))]);
                if let Some((path, name)) = key::split_entry(own) {
                    let below = key::child_path(path, name);
                    for dict in [META, DATA, LINKS] {
                        ranges.extend([(dict, key::subtree(&below)), (dict, key::snapshots(&below))]);
                    }
                }
                ranges.into_iter().all(|(dict, range)| {
                    let mut pairs = self.op.scan(dict, range);
                    self.next(dict, &mut pairs).is_none()
                })
            }
            Ok(Some(_)) | Err(_) => false,
        }
    }

    /// The name of the directory of lost files; adds the changes that make it. The next check counts its
    /// entries.
    fn lost_directory(&mut self, changes: &mut Vec<Change>) -> Option<&'static [u8]> {
        for name in LOST_NAMES {
            let (own, path) = (key::entry(b"", name), key::child_path(b"", name));
            // What is changed there may be a file.
            let is_made = |mends: &Mends| {
                mends.changed.contains(&(META.0, own.clone())) && mends.made.uncounted.contains_key(&path)
            };
            if self.mends.as_ref().is_some_and(is_made) {
                return Some(name);
            }
            if let Ok(Some(bytes)) = self.op.get(META, &own) {
                let stored = Stored::decode(&own, &bytes);
                if matches!(stored, Ok(Stored::Inode(record)) if record.is_dir()) {
                    return Some(name);
                }
            } else if self.is_free(&own) {
                let (record, volume) = self.new_directory()?;
                changes.push(Change::Put(META, own, record.encode()));
                changes.push(volume);
                return Some(name);
            }
        }
        None
    }
}
