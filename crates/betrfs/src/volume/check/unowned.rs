//! Known damage over keys of `data` that no file has: nothing was lost there, and it can go.
//!
//! Of a lost leaf nothing tells which keys it had, so its damage lies over its whole range: over the blocks
//! of files, and between them. Where all names in the range can be read, they tell which keys files may have.
//! What lies outside of these goes, so that deletes of the files take the last of the damage along.

use alloc::vec::Vec;

use betree::Cut;

use super::Check;
use crate::contents::POINT_DELETES_MAX;
use crate::schema::block::BLOCK;
use crate::schema::{DATA, META, Record, Stored, XattrValue, key};
use crate::types::FileType;

/// A range of keys.
type Range = (Cut, Cut);

impl Check<'_> {
    /// Collects deletes of known damage in `data` where no file has a key, and of that among the records of
    /// linked files to which no name leads.
    pub(super) fn unowned_damage(&mut self) {
        let known = core::mem::take(&mut self.known_in_data);
        if !self.is_mending() || self.gaps.touch(META, &key::markers()) {
            return;
        }
        let mut unowned = Vec::new();
        for range in joined(known) {
            if let Some(owned) = self.owned_within(&range) {
                outside(range, owned, &mut unowned);
            }
        }
        self.mend_unowned_damage(DATA, &unowned);
        let [names, snapshots] = key::names();
        let are_names_lost = self.gaps.touch(META, &names) || self.gaps.touch(META, &snapshots);
        if are_names_lost || !self.detached.is_empty() || self.unchecked.links_uncounted > 0 {
            return;
        }
        unowned.clear();
        // In the order of their keys.
        let owned: Vec<Range> = self.lost_objects.iter().map(|oid| only(key::object(*oid))).collect();
        for range in joined(core::mem::take(&mut self.known_in_objects)) {
            let from = owned.partition_point(|(_, end)| *end <= range.0);
            let to = owned.partition_point(|(begin, _)| *begin < range.1);
            outside(range, owned.get(from..to).unwrap_or_default().to_vec(), &mut unowned);
        }
        self.mend_unowned_damage(META, &unowned);
    }

    /// The keys in a range of `data` that files may have; `None` if not all of their names can be read.
    fn owned_within(&mut self, (lo, hi): &Range) -> Option<Vec<Range>> {
        let names = (Cut::before(lo.bytes()), hi.clone());
        if self.gaps.touch(META, &names) {
            return None;
        }
        let mut owned = Vec::new();
        // Files before the range whose keys may reach into it: their own keys begin its bound.
        for (at, _) in lo.bytes().iter().enumerate().filter(|(_, byte)| **byte == 0) {
            let own = lo.bytes().get(..at).unwrap_or_default();
            if let Some(bytes) = self.get(META, own)? {
                keys_of(own, &Stored::decode(own, &bytes).ok()?, &mut owned);
            }
        }
        let mut pairs = self.op.scan(META, names);
        while let Some((own, bytes)) = self.next(META, &mut pairs) {
            if key::split_entry(own).is_some() || key::object_id(own).is_some() || own == key::ROOT_KEY {
                keys_of(own, &Stored::decode(own, bytes).ok()?, &mut owned);
            }
        }
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

fn only(key: Vec<u8>) -> Range {
    (Cut::before(key.clone()), Cut::just_after(&key))
}

/// Adds the keys in `data` that an object may have. A file of few blocks deletes them one by one: so what it
/// leaves between them has to go now.
fn keys_of(own: &[u8], stored: &Stored, owned: &mut Vec<Range>) {
    let Stored::Inode(record) = stored else { return };
    let blocks = blocks_of(record);
    if blocks > POINT_DELETES_MAX {
        owned.push(key::blocks(own, 0, blocks));
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
