//! `meta`: records, names and their counts.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use betree::{Cut, counted};

use super::code::Code;
use super::losses::{Lost, ObjectNames, and_more};
use super::report::Findings;
use super::{Check, EVERYTHING};
use crate::error::Error;
use crate::schema::key::{self, DataTag};
use crate::schema::{DATA, Detached, LINKS, META, Marker, Record, Redirect, Stored, VolumeRecord, unknown};
use crate::types::FileType;

/// Number of directories named whose entries could not be counted.
const NAMED_MAX: usize = 10;
/// Number of directories counted at the same time, and of linked files: what is beyond is not counted.
const DIRS_MAX: usize = 250_000;
const LINKS_MAX: usize = 1_000_000;
/// Number of linked files with losses whose names are looked for.
const WANTED_MAX: usize = 10_000;

/// The counts in a directory's record, and the numbers found.
#[derive(Default)]
pub(super) struct DirCount {
    entries: u64,
    subdirs: u64,
    entries_found: u64,
    subdirs_found: u64,
    snapshots: u64,
    snapshots_found: u64,
}

/// The count in a linked file's record, and the number found.
pub(super) struct LinkCount {
    file_type: FileType,
    ino: u64,
    nlink: u64,
    pub found: u64,
}

impl LinkCount {
    /// What the file's names lead to.
    pub fn redirect(&self, oid: u64) -> Redirect {
        Redirect { oid, ino: self.ino, file_type: self.file_type }
    }
}

/// The checks that unreadable parts prevented.
#[derive(Default)]
pub(super) struct Unchecked {
    dirs: Vec<String>,
    dirs_more: u64,
    pub linked_files: u64,
    /// Directories and linked files that were not counted, because they are many.
    dirs_uncounted: u64,
    pub links_uncounted: u64,
    pub blocks: u64,
    pub owners: u64,
    pub quotas: u64,
    pub links: bool,
    /// Linked files with losses.
    wanted: BTreeSet<u64>,
    /// Their names.
    pub object_names: ObjectNames,
}

impl Unchecked {
    pub fn are_all_dirs_counted(&self) -> bool {
        self.dirs_uncounted == 0
    }

    /// Adds a note for each kind of check that could not be made.
    pub fn tell(&self, findings: &mut Findings) {
        let mut note = |what: String| findings.note(format!("not checked: {what}"));
        if !self.dirs.is_empty() {
            let all = and_more(&self.dirs.join(", "), self.dirs_more);
            note(format!(
                "whether directories have as many entries as they count, because not all names in them can be read: {all}"
            ));
        }
        if self.linked_files > 0 {
            note(format!(
                "whether {} as many as counted, because not all names can be read",
                counted(self.linked_files, "file with several names has", "files with several names have")
            ));
        }
        if self.dirs_uncounted + self.links_uncounted > 0 {
            note(format!(
                "the counts of names in {} and of {} with several names, because they are too many to be remembered",
                counted(self.dirs_uncounted, "directory", "directories"),
                counted(self.links_uncounted, "file", "files")
            ));
        }
        if self.blocks > 0 {
            note(format!(
                "whether all blocks are there of {}, because not all of the data can be read",
                counted(self.blocks, "file", "files")
            ));
        }
        if self.owners > 0 {
            note(format!(
                "whether the data of {} belong to one, because no name can be read (`betrfs rescue` copies out what is \
                 left)",
                counted(self.owners, "file", "files")
            ));
        }
        if self.quotas > 0 {
            note(format!(
                "whether {} what is below, because not all of that can be read, or there are too many",
                counted(self.quotas, "quota counts", "quotas count")
            ));
        }
        if self.links {
            note("whether all names of linked files are listed, because not all names or not all of the list can be read".into());
        }
    }
}

impl Check<'_> {
    /// Looks for a name of a linked file, if this is the key of one.
    pub(super) fn want_name(&mut self, own: &[u8]) {
        let unchecked = &mut self.unchecked;
        if let Some(oid) = key::object_id(own).filter(|_| unchecked.wanted.len() < WANTED_MAX) {
            unchecked.wanted.insert(oid);
        }
    }

    /// Keeps a name of a linked file, if one is looked for.
    pub(super) fn has_name(&mut self, oid: u64, at: &[u8]) {
        if self.unchecked.wanted.contains(&oid) {
            self.unchecked.object_names.add(oid, at);
        }
    }

    /// Looks up the names of linked files that are wanted in the list of these names.
    pub(super) fn listed_names(&mut self) {
        if self.unchecked.wanted.is_empty() {
            return;
        }
        let mut pairs = self.op.scan(LINKS, EVERYTHING);
        while let Some((at, oid)) = self.next(LINKS, &mut pairs) {
            if let Ok(oid) = oid.try_into().map(u64::from_be_bytes) {
                self.has_name(oid, at);
            }
        }
    }

    /// The root, the volume's record, objects and markers: all keys that are not names.
    pub(super) fn reserved(&mut self) {
        self.markers();
        let mut pairs = self.op.scan(META, (Cut::before([1]), Cut::HIGH));
        let (mut root, mut has_volume) = (false, false);
        while let Some((at, bytes)) = self.next(META, &mut pairs) {
            if at == key::VOLUME_KEY {
                has_volume = true;
                match VolumeRecord::decode(bytes) {
                    Ok(volume) => self.volume = Some(volume),
                    Err(error @ Error::NotAVolume { .. }) => self.of_later_version(at, &error),
                    Err(error) => {
                        self.findings.problem_of(Code::NoVolumeRecord, at, format!("{error}"));
                        self.mend_volume(Code::NoVolumeRecord);
                    }
                }
            } else if at == key::ROOT_KEY {
                root = true;
                match self.decoded(at, Stored::decode(at, bytes)) {
                    Some(Stored::Inode(record)) if record.is_dir() => {
                        self.inode(at, &record, Some(Vec::new()));
                    }
                    Some(_) => {
                        self.problem(Code::NoRoot, at, "it is not a directory");
                        self.mend_root(Code::NoRoot);
                    }
                    None => {}
                }
            } else if let Some(oid) = key::object_id(at) {
                match self.decoded(at, Stored::decode(at, bytes)) {
                    // What a marker names goes at the next opening.
                    Some(Stored::Inode(record)) if !record.is_dir() && self.orphans.contains(at) => {}
                    Some(Stored::Inode(record)) if !record.is_dir() => {
                        let (file_type, ino) = (record.file_type, record.id);
                        let count = LinkCount { file_type, ino, nlink: u64::from(record.nlink), found: 0 };
                        if self.links.len() < LINKS_MAX {
                            self.links.insert(oid, count);
                        } else {
                            self.unchecked.links_uncounted += 1;
                        }
                        self.inode(at, &record, None);
                    }
                    Some(_) => {
                        self.problem(Code::BadRecord, at, "it is not the record of a file");
                        self.mend_by_removal(Code::BadRecord, at);
                    }
                    None => {}
                }
            } else if let Some(number) = key::detached_number(at) {
                if self.is_of_no_detached_tree(number, at) {
                    self.mend_by_removal_of_tree(Code::BadKey, META, number);
                }
                pairs.seek(&key::detached(number).1);
            } else if let Some(space) = key::reserved_space(at) {
                self.of_later_version(at, &unknown(at, "key of the space", space));
            } else if key::marker_id(at).is_none() && key::split_entry(at).is_none() {
                self.problem(Code::BadKey, at, "no such key has a meaning");
                self.mend_by_removal(Code::BadKey, at);
            }
        }
        let is_root_lost = !root && self.is_lost(META, &key::ROOT_KEY, Lost::Name { own: &key::ROOT_KEY });
        if !root && let Some(why) = self.why_gone(&key::ROOT_KEY) {
            self.problem(Code::NoRoot, &key::ROOT_KEY, why);
            self.mend_root(Code::NoRoot);
        }
        match self.volume {
            // Without both it may be that none was ever made.
            None if !root && !is_root_lost => {}
            None if has_volume => {}
            None => {
                if let Some(why) = self.why_gone(&key::VOLUME_KEY) {
                    self.problem(Code::NoVolumeRecord, &key::VOLUME_KEY, why);
                    self.mend_volume(Code::NoVolumeRecord);
                }
            }
            Some(volume) => {
                if let Some((oid, _)) = self.links.range(volume.oids..).next_back() {
                    let oid = *oid;
                    self.problem(Code::NumberNotGiven, &key::object(oid), "its number was never reserved");
                    self.mend_numbers(Code::NumberNotGiven, oid);
                }
            }
        }
    }

    /// Whether a key is one of a detached tree that no marker tells of, which is a problem.
    pub(super) fn is_of_no_detached_tree(&mut self, number: u64, at: &[u8]) -> bool {
        if self.detached.contains_key(&number) || self.gaps.touch(META, &key::markers()) {
            return false;
        }
        self.problem(Code::BadKey, at, "no such tree is being removed or copied");
        true
    }

    /// Why there is nothing at a key of `meta` where no scan has met a pair; `None` if it may be there still.
    fn why_gone(&self, at: &[u8]) -> Option<&'static str> {
        match self.op.get(META, at) {
            Ok(None) => Some("its record is not there"),
            Err(error) if error.is_known_damage() => Some("its record was lost"),
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// The markers of files that were unlinked while open, of unfinished copies, and of detached trees.
    fn markers(&mut self) {
        let mut pairs = self.op.scan(META, key::markers());
        let mut gaps = Vec::new();
        while self.may_go_on() {
            let Some((at, bytes)) = pairs.next_past(&mut |gap| gaps.push(gap)) else { break };
            match self.decoded(at, Marker::decode(at, bytes)) {
                Some(Marker::Unlinked { base }) => drop(self.orphans.insert(base)),
                Some(Marker::Detached(why)) => {
                    self.detached.extend(key::marker_id(at).map(|number| (number, why)));
                }
                // Until it has a name, only what was made for it counts, as in any copy.
                Some(Marker::Kept(_)) => {
                    self.detached.extend(key::marker_id(at).map(|number| (number, Detached::Copy)));
                }
                None => {}
            }
        }
        let mut lost = Vec::new();
        for gap in gaps {
            // The gap may reach on to snapshots and the root, of which this says nothing.
            let hi = gap.hi.clone().min(key::markers().1);
            if gap.errors.iter().all(betree::Error::is_known_damage) {
                lost.push((gap.lo.clone(), hi));
            }
            self.pass(META, gap);
        }
        // Known damage is an error to the opening, which reads all of them.
        if let Some((lo, _)) = lost.first() {
            let at = lo.bytes().to_vec();
            self.problem(Code::BadRecord, &at, "markers of unlinked files or detached trees were lost");
            self.mend_lost_markers(Code::BadRecord, &at, lost);
        }
    }

    /// All names, each after the names of the directories above it.
    pub(super) fn names(&mut self) {
        for bounds in key::names() {
            let mut pairs = self.op.scan(META, bounds);
            // The entries of a directory come one after the other.
            let mut dir_path = Vec::new();
            while let Some((at, bytes)) = self.next(META, &mut pairs) {
                if let Some((path, _)) = key::split_entry(at)
                    && path != dir_path
                {
                    self.leave_dir(&dir_path);
                    dir_path = path.to_vec();
                }
                self.name(at, bytes);
            }
        }
    }

    fn name(&mut self, at: &[u8], bytes: &[u8]) {
        let Some((path, name)) = key::split_entry(at) else {
            self.problem(Code::BadKey, at, "it is no name");
            self.mend_by_removal(Code::BadKey, at);
            return;
        };
        let stored = self.decoded(at, Stored::decode(at, bytes));
        let is_dir = matches!(&stored, Some(Stored::Inode(record)) if record.is_dir());
        let of = key::snapshots_of(path);
        let dir_path = of.unwrap_or(path);
        match self.dirs.get_mut(dir_path) {
            Some(dir) if of.is_some() => dir.snapshots_found += 1,
            Some(dir) => {
                dir.entries_found += 1;
                dir.subdirs_found += u64::from(is_dir);
            }
            None if self.unchecked.dirs_uncounted > 0 => {}
            None => {
                let own = key::own(dir_path);
                if !self.is_lost(META, &own, Lost::Name { own: &own }) {
                    self.problem(Code::NoDirectory, at, "what should be its directory is none");
                    self.mend_directory(Code::NoDirectory, &own);
                }
            }
        }
        match stored {
            Some(Stored::Inode(record)) => {
                let child = is_dir.then(|| key::child_path(path, name));
                self.inode(at, &record, child);
            }
            Some(Stored::Redirect(redirect)) => self.redirect(at, &redirect),
            None => {}
        }
    }

    fn redirect(&mut self, at: &[u8], redirect: &Redirect) {
        self.redirects += 1;
        self.has_name(redirect.oid, at);
        match self.links.get_mut(&redirect.oid) {
            None if self.unchecked.links_uncounted > 0 => {}
            None => {
                // The record is unreadable: this is the file's known name.
                if !self.is_lost(META, &key::object(redirect.oid), Lost::Name { own: at }) {
                    self.misfit(Code::LostFile, at, "the file that it links to is lost");
                    // If a record is made for its blocks, the next look leads the name to it; but none in a
                    // snapshot, which would not be as it was made.
                    if key::is_in_snapshot(at) || !self.gets_record(&key::object(redirect.oid)) {
                        self.mend_by_removal(Code::LostFile, at);
                    }
                } else if self.mends.is_some() {
                    self.lost_objects.insert(redirect.oid);
                }
            }
            Some(link) => {
                link.found += 1;
                if (link.file_type, link.ino) != (redirect.file_type, redirect.ino) {
                    let right = Redirect { file_type: link.file_type, ino: link.ino, ..*redirect };
                    self.misfit(
                        Code::WrongRedirect,
                        at,
                        "the file that it links to is of another type or number",
                    );
                    self.mend_redirect(Code::WrongRedirect, at, &right);
                }
            }
        }
        match self.get(LINKS, at) {
            Some(listed) if listed.as_deref() == Some(&redirect.oid.to_be_bytes()) => {}
            Some(_) => {
                self.misfit(Code::NotListed, at, "it is not listed, or wrongly, among the links");
                self.mend_listing(Code::NotListed, at, redirect.oid);
            }
            None => {
                self.is_lost(LINKS, at, Lost::Link { own: at });
                self.relist(at, redirect.oid);
            }
        }
    }

    /// Whether a file without a record has blocks, for which this repair makes one.
    fn gets_record(&mut self, object: &[u8]) -> bool {
        // What a marker names goes at the next opening.
        if !self.is_mending() || self.orphans.contains(object) {
            return false;
        }
        let mut pairs = self.op.scan(DATA, key::blocks_from(object, 0));
        while let Some((at, _)) = self.next(DATA, &mut pairs) {
            if let Some((_, DataTag::Block(_))) = key::split_data(at) {
                return true;
            }
        }
        false
    }

    /// Checks a record; `path` is a directory's.
    fn inode(&mut self, at: &[u8], record: &Record, path: Option<Vec<u8>>) {
        if let Some(path) = path {
            let (entries, subdirs) = (record.entries, record.subdirs);
            let snapshots = u64::from(record.snapshots);
            if record.quota().is_some() {
                self.has_quota(&path);
            }
            if self.dirs.len() < DIRS_MAX {
                self.dirs.insert(path, DirCount { entries, subdirs, snapshots, ..DirCount::default() });
            } else {
                self.unchecked.dirs_uncounted += 1;
            }
        } else if key::object_id(at).is_none() && record.nlink != 1 {
            self.problem(Code::WrongLinkCount, at, &format!("it has one name, but counts {}", record.nlink));
            self.mend_record(Code::WrongLinkCount, at, |record| record.nlink = 1);
        }
        if record.file_type == FileType::Symlink && record.target.len() as u64 != record.size {
            self.problem(Code::WrongSize, at, "the size is not that of the target");
            self.mend_record(Code::WrongSize, at, |record| record.size = record.target.len() as u64);
        }
        if record.file_type == FileType::Regular {
            self.blocks(at, record);
        }
        self.attributes(at, record);
    }

    /// Checks that each directory has as many entries as it counts.
    pub(super) fn counts(&mut self) {
        for (path, dir) in core::mem::take(&mut self.dirs) {
            self.count(&path, &dir);
        }
    }

    /// Counts a directory of which all entries were seen, if many are remembered.
    fn leave_dir(&mut self, path: &[u8]) {
        // Its snapshots come later.
        if self.dirs.len() >= DIRS_MAX / 2
            && self.dirs.get(path).is_some_and(|dir| dir.snapshots == 0)
            && let Some((path, dir)) = self.dirs.remove_entry(path)
        {
            self.count(&path, &dir);
        }
    }

    fn count(&mut self, path: &[u8], dir: &DirCount) {
        let (counted, found) = ((dir.entries, dir.subdirs), (dir.entries_found, dir.subdirs_found));
        let lacks = self.gaps.touch(META, &key::entries(path));
        // With the names that a repair has given it, which the next change of its record counts.
        let [names, directories] = self.uncounted_in(path);
        let due = (counted.0.saturating_add(names), counted.1.saturating_add(directories));
        let may_be_more = found.0 <= due.0 && found.1 <= due.1;
        if lacks {
            // A listing of it comes to what cannot be read.
            self.findings.name(&key::own(path));
        }
        // What a repair has made counts no lost names yet.
        let tells_nothing = self.has_made_in(path);
        let counts_none = lacks && found.0 >= due.0 && (tells_nothing || self.may_be_older());
        let has_made_snapshots = tells_nothing || self.has_made_in(&key::snapshots_path(path));
        let lacks_snapshots = has_made_snapshots || dir.snapshots != dir.snapshots_found;
        self.incomplete.counted(
            path,
            [
                tells_nothing || due != found,
                tells_nothing || due.1 != found.1,
                lacks_snapshots && !key::is_in_snapshot(path),
            ],
        );
        let is_due = lacks && due != counted;
        if counted == found && !counts_none && !is_due {
        } else if may_be_more && lacks && !counts_none && !is_due {
            if path.is_empty() && !self.unread_names {
                let what = "names in the root were lost, and none can be made where they may have been: `betrfs \
                            check -y --accept-name-loss` gives them up";
                self.findings.note(what.into());
            }
            let unchecked = &mut self.unchecked;
            if unchecked.dirs.len() < NAMED_MAX {
                let shown = key::describe(&key::own(path));
                unchecked.dirs.push(format!("{shown} ({} of {} could)", found.0, counted.0));
            } else {
                unchecked.dirs_more += 1;
            }
        } else {
            let why = format!(
                "it counts {}, {} of them directories, but has {} and {}",
                betree::counted(counted.0, "entry", "entries"),
                counted.1,
                found.0,
                found.1
            );
            let own = key::own(path);
            self.problem(Code::WrongEntryCounts, &own, &why);
            if !lacks {
                self.mend_counts(Code::WrongEntryCounts, path, |record| {
                    (record.entries, record.subdirs) = found;
                });
            } else if !self.unread_names {
                // With as many as can be read, the volume would take those that are lost for absent.
                let least = found.0.saturating_add(u64::from(counts_none || !may_be_more));
                self.mend_counts(Code::WrongEntryCounts, path, |record| {
                    record.entries = due.0.max(least);
                    record.subdirs = due.1.max(found.1);
                });
            }
        }
        // A copied directory counts the snapshots of its source.
        let snapshots = key::entries(&key::snapshots_path(path));
        let more = u64::from(self.has_made_in(path) && self.gaps.touch(META, &snapshots));
        let snapshots_found = dir.snapshots_found.saturating_add(more);
        if dir.snapshots < snapshots_found {
            let why = format!(
                "it counts {}, but has {snapshots_found}",
                betree::counted(dir.snapshots, "snapshot", "snapshots")
            );
            let own = key::own(path);
            self.problem(Code::WrongSnapshotCount, &own, &why);
            if let Ok(found) = u32::try_from(snapshots_found) {
                self.mend_record(Code::WrongSnapshotCount, &own, |record| record.snapshots = found);
            }
        }
    }

    /// Checks that each linked file has as many names as it counts. An unreadable name counts if it is
    /// listed; of detached trees the list alone is read.
    pub(super) fn link_counts(&mut self) {
        let [names, snapshots] = key::names();
        let names_lack = self.gaps.touch(META, &names) || self.gaps.touch(META, &snapshots);
        let is_unknown = names_lack && self.gaps.touch(LINKS, &EVERYTHING)
            || self.detached.keys().any(|number| self.gaps.touch(LINKS, &key::detached(*number)));
        for (oid, link) in core::mem::take(&mut self.links) {
            // What a marker names goes at the next opening.
            if link.nlink == link.found || self.orphans.contains(&key::object(oid)) {
                continue;
            }
            if is_unknown && link.found < link.nlink {
                self.unchecked.linked_files += 1;
                continue;
            }
            let why = format!("it counts {}, but has {}", counted(link.nlink, "name", "names"), link.found);
            let object = key::object(oid);
            if link.found == 0 {
                self.misfit(Code::NamelessFile, &object, &why);
                self.mend_nameless(Code::NamelessFile, oid);
                continue;
            }
            self.misfit(Code::WrongLinkCount, &object, &why);
            if let Ok(found) = u32::try_from(link.found) {
                self.mend_record(Code::WrongLinkCount, &object, |record| record.nlink = found);
            }
        }
    }
}
