//! Known damage over keys of `data` that no file has, over names that no directory misses, and over keys that
//! have no meaning: nothing was lost there, and it can go.
//!
//! Of a lost leaf nothing tells which keys it had, so its damage lies over its whole range: over the blocks
//! of files, and between them. Where all names in the range can be read, they tell which keys files may have.
//! What lies outside of these goes, so that deletes of the files take the last of the damage along.
//!
//! A directory that has as many entries as it counts has lost none. So a name was lost only in a directory
//! that counts more, or below a directory whose own record is lost: then one above it counts more directories
//! than it has, as the root can be read. What lies outside of these goes, for it keeps directories that have
//! all of their names from being listed and changed.

use alloc::vec::Vec;

use betree::{Cut, DictId};

use super::Check;
use crate::contents::POINT_DELETES_MAX;
use crate::planted::{self, Bug};
use crate::schema::block::BLOCK;
use crate::schema::{DATA, LINKS, META, Record, Stored, USER, XattrValue, key};
use crate::types::FileType;

/// A range of keys.
type Range = (Cut, Cut);
/// Number of ranges in which names may have been lost. With more, known damage over names stays.
const INCOMPLETE_MAX: usize = 10_000;

/// Known damage that scans have met, by the kinds of keys that are looked at.
#[derive(Default)]
pub(super) struct Known {
    data: Vec<Range>,
    objects: Vec<Range>,
    names: Vec<Range>,
    /// Of detached trees.
    detached: Vec<Range>,
    /// Of `meta` and `user` where this version has none: a later one would have a feature word.
    meaningless: Vec<(DictId, Range)>,
}

impl Known {
    pub fn note(&mut self, dict: DictId, lo: &Cut, hi: &Cut) {
        if dict == DATA {
            self.data.push((lo.clone(), hi.clone()));
        } else if dict == META {
            self.objects.extend(clipped((lo, hi), &key::objects()));
            self.names.extend(key::names().iter().filter_map(|names| clipped((lo, hi), names)));
            self.detached.extend(clipped((lo, hi), &key::all_detached()));
            let meaningless = key::meaningless();
            let parts = meaningless.iter().filter_map(|range| clipped((lo, hi), range));
            self.meaningless.extend(parts.map(|part| (META, part)));
        } else if dict == USER {
            self.meaningless.push((USER, (lo.clone(), hi.clone())));
        }
    }
}

/// Where names may have been lost.
#[derive(Default)]
pub(super) struct Incomplete {
    ranges: Vec<Range>,
    /// Those of them that are in snapshots.
    in_snapshots: Vec<Range>,
    /// Whether some are missing.
    are_more: bool,
    /// Whether the root was counted: without it nothing tells what was lost.
    has_root: bool,
}

impl Incomplete {
    /// Notes that a directory was counted. `lacks` says whether it may have lost names, directories among
    /// them, and snapshots.
    pub fn counted(&mut self, path: &[u8], lacks: [bool; 3]) {
        let [names, directories, snapshots] = lacks;
        let is_in_snapshot = key::is_in_snapshot(path);
        self.has_root |= path.is_empty();
        if directories {
            self.add(key::subtree(path), is_in_snapshot);
            self.add(key::snapshots_below(path), is_in_snapshot);
        } else if names {
            self.add(key::entries(path), is_in_snapshot);
        }
        if snapshots {
            self.add(key::within(key::child_path(&key::snapshots_path(path), b"")), is_in_snapshot);
        }
    }

    fn add(&mut self, range: Range, is_in_snapshot: bool) {
        self.are_more |= self.ranges.len() >= INCOMPLETE_MAX;
        if !self.are_more {
            if is_in_snapshot {
                self.in_snapshots.push(range.clone());
            }
            self.ranges.push(range);
        }
    }
}

impl Check<'_> {
    /// Collects deletes of known damage in `data` where no file has a key, and of that among the records of
    /// linked files to which no name leads; and where no directory misses a name. A file that gets its record
    /// in this look has keys only in the next one.
    pub(super) fn unowned_damage(&mut self) {
        let known = core::mem::take(&mut self.known);
        self.known.names = joined(known.names);
        if !self.is_mending() || self.lacks_records || self.gaps.touch(META, &key::markers()) {
            return;
        }
        for dict in [META, USER] {
            let of_it = known.meaningless.iter().filter(|(of, _)| *of == dict);
            self.mend_unowned_damage(dict, &joined(of_it.map(|(_, range)| range.clone()).collect()));
        }
        if self.detached.is_empty() {
            self.mend_unowned_damage(META, &joined(known.detached));
        }
        let mut unowned = Vec::new();
        for range in joined(known.data) {
            if let Some(mut owned) = self.owned_within(&range) {
                if planted::is(Bug::LostBlocksTakenForNone) {
                    owned.clear();
                }
                outside(range, owned, &mut unowned);
            }
        }
        self.mend_unowned_damage(DATA, &unowned);
        self.damage_of_no_names();
        let [names, snapshots] = key::names();
        let are_names_lost = self.gaps.touch(META, &names) || self.gaps.touch(META, &snapshots);
        if are_names_lost || !self.detached.is_empty() || self.unchecked.links_uncounted > 0 {
            return;
        }
        unowned.clear();
        // In the order of their keys.
        let owned: Vec<Range> = self.lost_objects.iter().map(|oid| only(key::object(*oid))).collect();
        for range in joined(known.objects) {
            outside(range.clone(), touching(&owned, &range).to_vec(), &mut unowned);
        }
        self.mend_unowned_damage(META, &unowned);
    }

    /// Collects deletes of known damage over names of directories that have all that they count.
    fn damage_of_no_names(&mut self) {
        let Incomplete { ranges, are_more, has_root, .. } = &self.incomplete;
        if self.keeps_names()
            || *are_more
            || !has_root
            || !self.unchecked.are_all_dirs_counted()
            || self.may_be_older()
        {
            return;
        }
        let taken_for_none = planted::is(Bug::LostNamesTakenForNone);
        let incomplete = if taken_for_none { Vec::new() } else { joined(ranges.clone()) };
        let mut unowned = Vec::new();
        for range in &self.known.names {
            outside(range.clone(), touching(&incomplete, range).to_vec(), &mut unowned);
        }
        // Counts that are wrong may hide no name of which there is a trace.
        unowned.retain(|range| !self.have_traces(range));
        self.mend_unowned_damage(META, &unowned);
    }

    /// Collects deletes of the known damage over names, if the caller gives these up and nothing else is left
    /// to mend: of all but that in snapshots. What these have lost hinders nobody, for nothing is made there
    /// and they can be removed; and who reads them, or goes back to them, has to hear of it.
    pub(super) fn lost_names(&mut self) {
        if self.incomplete.are_more || !self.may_give_up_names() {
            return;
        }
        let kept = joined(self.incomplete.in_snapshots.clone());
        let mut given_up = Vec::new();
        for range in &self.known.names {
            outside(range.clone(), touching(&kept, range).to_vec(), &mut given_up);
        }
        self.give_up_names(&given_up);
    }

    /// Whether data, or the list of names of linked files, tell of names in a range.
    fn have_traces(&mut self, (lo, hi): &Range) -> bool {
        let mut links = self.op.scan(LINKS, (lo.clone(), hi.clone()));
        if self.next(LINKS, &mut links).is_some() {
            return true;
        }
        let mut data = self.op.scan(DATA, (lo.clone(), hi.clone()));
        while let Some((at, _)) = self.next(DATA, &mut data) {
            match key::split_data(at) {
                // Of a file before the range.
                Some((own, _)) if lo.is_above(own) => {
                    let behind = key::within(key::data(own)).1;
                    data.seek(&behind);
                }
                _ => return true,
            }
        }
        self.stopped.is_some()
    }

    /// The keys in a range of `data` that files may have; `None` if not all of their names can be read.
    fn owned_within(&mut self, range: &Range) -> Option<Vec<Range>> {
        let (lo, hi) = range;
        let names = (Cut::before(lo.bytes()), hi.clone());
        if self.gaps.touch(META, &names) {
            return None;
        }
        let mut owned = Vec::new();
        // Files before the range whose keys may reach into it: their own keys begin its bound.
        for (at, _) in lo.bytes().iter().enumerate().filter(|(_, byte)| **byte == 0) {
            let own = lo.bytes().get(..at).unwrap_or_default();
            if let Some(bytes) = self.get(META, own)? {
                keys_of(own, &Stored::decode(own, &bytes).ok()?, range, &mut owned);
            }
        }
        let mut pairs = self.op.scan(META, names);
        while let Some((own, bytes)) = self.next(META, &mut pairs) {
            if key::split_entry(own).is_some() || key::object_id(own).is_some() || own == key::ROOT_KEY {
                keys_of(own, &Stored::decode(own, bytes).ok()?, range, &mut owned);
            }
        }
        // What is kept of a directory becomes a snapshot.
        owned.extend(self.detached.keys().map(|number| key::detached(*number)));
        self.stopped.is_none().then_some(owned)
    }
}

/// The same ranges, those joined that touch.
fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort();
    let mut joined: Vec<Range> = Vec::new();
    for (lo, hi) in ranges {
        match joined.last_mut() {
            Some((_, end)) if lo <= *end => *end = hi.max(end.clone()),
            _ => joined.push((lo, hi)),
        }
    }
    joined
}

/// Those of ranges, which are in order and apart, that have a part of another one.
fn touching<'r>(ranges: &'r [Range], (lo, hi): &Range) -> &'r [Range] {
    let from = ranges.partition_point(|(_, end)| *end <= *lo);
    let to = ranges.partition_point(|(begin, _)| *begin < *hi);
    ranges.get(from..to).unwrap_or_default()
}

fn clipped((lo, hi): (&Cut, &Cut), to: &Range) -> Option<Range> {
    let (lo, hi) = (lo.max(&to.0), hi.min(&to.1));
    (lo < hi).then(|| (lo.clone(), hi.clone()))
}

fn only(key: Vec<u8>) -> Range {
    (Cut::before(key.clone()), Cut::just_after(&key))
}

/// Adds the keys in `data` that an object may have within a range. A file of few blocks deletes them one by
/// one: so what it leaves between them has to go now. So too what is left between two blocks that were
/// written anew.
fn keys_of(own: &[u8], stored: &Stored, range: &Range, owned: &mut Vec<Range>) {
    let Stored::Inode(record) = stored else { return };
    let blocks = blocks_of(record);
    if blocks > POINT_DELETES_MAX {
        let (lo, hi) = key::blocks(own, 0, blocks);
        let first = if range.0 <= lo { 0 } else { key::first_block_behind(own, &range.0) };
        let end = if range.1 >= hi { blocks } else { key::first_block_behind(own, &range.1) };
        if first < end {
            owned.push(key::blocks(own, first, end));
        }
    } else {
        owned.extend((0..blocks).map(|number| only(key::block(own, number))));
    }
    if record.quota().is_some() {
        owned.push(only(key::quota_use(own)));
    }
    let stored = record.xattrs.iter().filter(|attr| matches!(attr.value, XattrValue::Stored(_)));
    owned.extend(stored.map(|attr| only(key::xattr(own, &attr.name))));
}

fn blocks_of(record: &Record) -> u64 {
    if record.file_type == FileType::Regular { record.size.div_ceil(BLOCK) } else { 0 }
}

/// Adds the parts of a range outside of others.
fn outside((lo, hi): Range, mut others: Vec<Range>, parts: &mut Vec<Range>) {
    others.sort();
    let mut from = lo;
    for (begin, end) in others {
        if begin >= hi {
            break;
        }
        if from < begin {
            parts.push((from.clone(), begin));
        }
        from = from.max(end);
    }
    if from < hi {
        parts.push((from, hi));
    }
}

#[cfg(test)]
mod tests {
    use super::super::EVERYTHING;
    use super::*;

    fn range(lo: u8, hi: u8) -> Range {
        (Cut::before([lo]), Cut::before([hi]))
    }

    #[test]
    fn what_lies_outside_of_other_ranges_is_all_but_them() {
        let mut parts = Vec::new();
        outside(
            range(10, 20),
            Vec::from([range(14, 16), range(5, 11), range(15, 17), range(19, 30)]),
            &mut parts,
        );
        assert_eq!(parts, [range(11, 14), range(17, 19)]);
        parts.clear();
        outside(range(10, 20), Vec::from([range(20, 22), range(1, 10)]), &mut parts);
        assert_eq!(parts, [range(10, 20)]);
        parts.clear();
        outside(range(10, 20), Vec::from([EVERYTHING]), &mut parts);
        assert_eq!(parts, []);
    }
}
