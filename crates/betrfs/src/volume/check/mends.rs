//! What a check would change to mend what it finds. Each change is a put or a delete of what the check knows
//! for sure; those that take something away are made only if the caller wants them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use betree::{Batch, Cut, DictId, FindingCode, Remedy, counted};

use super::Check;
use super::code::Code;
use crate::contents::{POINT_DELETES_MAX, position};
use crate::schema::block::BLOCK;
use crate::schema::key::{self, DataTag};
use crate::schema::{
    Acl, Amount, DATA, Extents, Flags, LINKS, META, NUMBERS_MAX, Record, Redirect, Stored, VolumeRecord,
    Xattr, XattrValue,
};
use crate::types::{AclKind, FileType};
use crate::volume::ROOT_ID;
use crate::volume::id_allocator::behind_all_given;

/// Number of changes collected by one check.
const MENDS_MAX: usize = 20_000;
/// A batch that has reached this size is followed by another, in bytes.
const BATCH_BYTES: usize = 16 << 10;
/// Number of lost blocks in a row that become known damage one by one. A file of no more deletes them so.
const LOST_SINGLY_MAX: u64 = 2 * POINT_DELETES_MAX;
/// Makes a number that differs in all bits from those beside it.
const SALT_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// The permissions of the group.
const GROUP: u16 = 0o070;
/// Permissions of a directory that a repair makes: what was in it may be nobody else's business.
const MADE_PERM: u16 = 0o700;
/// Those of a file.
const MADE_FILE_PERM: u16 = 0o600;

/// What may be done about problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mending {
    /// What takes nothing away.
    Safe,
    /// All that can be done.
    All,
    /// The same, and names that were lost are given up: where they may have been is nothing from then on, and
    /// directories count what is left. In snapshots, which nobody changes, what is lost stays known damage.
    AllAndLostNames,
}

impl Mending {
    /// Whether something may be taken away.
    pub(super) fn takes_away(self) -> bool {
        self != Mending::Safe
    }
}

/// A change by which a problem is mended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Mended {
    /// The code of the problem.
    pub code: &'static str,
    /// Whether it takes something away that might be wanted.
    pub loses: bool,
    /// A sentence: where, and what.
    pub what: String,
}

/// The changes that a check has collected.
pub(super) struct Mends {
    mending: Mending,
    /// The changes, in their order: batches that are full, and the last one.
    full: Vec<Batch>,
    last: Batch,
    /// The keys of `data` that become known damage.
    pub lost: Vec<(Cut, Cut)>,
    pub done: Vec<Mended>,
    /// The keys that it changes already: a second change would undo the first.
    pub changed: BTreeSet<(u8, Vec<u8>)>,
    /// The records that it changes, as they become.
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub made: Made,
    /// Whether nodes were found again without what waited in them: records may be older than names.
    may_be_older: bool,
    /// Whether known damage over names stays: a repair has looked at it before, and may have known more.
    keeps_names: bool,
    now_ns: i64,
}

/// What a repair has made in directories, also in earlier rounds, by their paths.
#[derive(Default)]
pub(super) struct Made {
    /// Those that have got a record, and lists of snapshots that have got a name: their counts tell nothing
    /// about names that are lost.
    pub in_unknown: BTreeSet<Vec<u8>>,
    /// Those that have got names, until they count them: how many, and how many directories among them.
    pub uncounted: BTreeMap<Vec<u8>, [u64; 2]>,
}

impl Mends {
    pub fn new(mending: Mending, now_ns: i64) -> Mends {
        Mends {
            mending,
            full: Vec::new(),
            last: Batch::new(),
            lost: Vec::new(),
            done: Vec::new(),
            changed: BTreeSet::new(),
            records: BTreeMap::new(),
            made: Made::default(),
            may_be_older: false,
            keeps_names: false,
            now_ns,
        }
    }

    /// The batch for the next change.
    fn batch(&mut self) -> &mut Batch {
        if self.last.bytes() >= BATCH_BYTES {
            self.full.push(core::mem::take(&mut self.last));
        }
        &mut self.last
    }

    /// The changes, in their order.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.full.iter().chain([&self.last])
    }

    /// The same, for a look after others, which have made this.
    pub fn after(self, made: Made) -> Mends {
        Mends { made, ..self }
    }

    /// The same, for a volume in which nodes were found again without what waited in them, if so.
    pub fn of_older(self, may_be_older: bool) -> Mends {
        Mends { may_be_older, ..self }
    }

    /// The same, for a volume that has no problem but known damage.
    pub fn of_known_damage(self) -> Mends {
        Mends { keeps_names: true, ..self }
    }
}

/// A change of a pair.
pub(super) enum Change {
    Put(DictId, Vec<u8>, Vec<u8>),
    Delete(DictId, Vec<u8>),
    DeleteRange(DictId, Cut, Cut),
    /// Keys of `data` without pairs become known damage.
    Lose(Cut, Cut),
}

impl Check<'_> {
    /// Collects the changes that mend a problem of this kind at a key: all of them or, if one would change
    /// what another one changes already, none, and `false`. The next check then finds the problem again.
    pub(super) fn mend(&mut self, code: Code, at: &[u8], changes: Vec<Change>) -> bool {
        let Some(mends) = &mut self.mends else { return false };
        let remedy = code.remedy();
        let (what, loses) = match remedy {
            Remedy::Mended(what) => (what, false),
            Remedy::Dropped(what) if mends.mending.takes_away() => (what, true),
            Remedy::Dropped(_) | Remedy::Left(_) => return false,
        };
        let keys: Vec<(u8, Vec<u8>)> = changes.iter().map(Change::key).collect();
        if mends.done.len() >= MENDS_MAX || keys.iter().any(|key| mends.changed.contains(key)) {
            return false;
        }
        mends.changed.extend(keys);
        for change in &changes {
            match change {
                Change::Put(dict, key, value) => mends.batch().put(*dict, key, value),
                Change::Delete(dict, key) => mends.batch().delete(*dict, key),
                Change::DeleteRange(dict, lo, hi) => mends.batch().delete_range(*dict, lo, hi),
                Change::Lose(lo, hi) => mends.lost.push((lo.clone(), hi.clone())),
            }
        }
        let what = format!("{}: {what}", key::describe(key::split_data(at).map_or(at, |(own, _)| own)));
        mends.done.push(Mended { code: code.name(), loses, what });
        true
    }

    /// Notes that a directory gets a record, or a list of snapshots a name.
    fn makes_in(&mut self, path: &[u8]) {
        if let Some(mends) = &mut self.mends {
            mends.made.in_unknown.insert(path.to_vec());
        }
    }

    /// Notes that a directory gets a name, of a directory if `is_dir`.
    pub(super) fn adds_to(&mut self, path: &[u8], is_dir: bool) {
        if let Some(mends) = &mut self.mends {
            let [names, directories] = mends.made.uncounted.entry(path.to_vec()).or_default();
            *names += 1;
            *directories += u64::from(is_dir);
        }
    }

    /// How many names a directory has got that it does not count yet, and how many directories among them.
    pub(super) fn uncounted_in(&self, path: &[u8]) -> [u64; 2] {
        let uncounted = self.mends.as_ref().and_then(|mends| mends.made.uncounted.get(path));
        uncounted.copied().unwrap_or_default()
    }

    /// Notes that a name comes to where there is none: its directory may have counted it or not.
    fn makes_name(&mut self, own: &[u8], is_dir: bool) {
        match key::split_entry(own) {
            Some((path, _)) if key::snapshots_of(path).is_some() => self.makes_in(path),
            Some((path, _)) => self.adds_to(path, is_dir),
            None => {}
        }
    }

    /// Whether this repair has given a directory a record, or a list of snapshots a name.
    pub(super) fn has_made_in(&self, path: &[u8]) -> bool {
        self.mends.as_ref().is_some_and(|mends| mends.made.in_unknown.contains(path))
    }

    /// Whether records may be older than names.
    pub(super) fn may_be_older(&self) -> bool {
        self.mends.as_ref().is_some_and(|mends| mends.may_be_older)
    }

    /// Whether known damage over names stays.
    pub(super) fn keeps_names(&self) -> bool {
        self.mends.as_ref().is_some_and(|mends| mends.keeps_names)
    }

    pub(super) fn is_mending(&self) -> bool {
        self.mends.is_some() && self.is_of_one_moment
    }

    /// Removes known damage over keys of `data` or `meta` that no file has.
    pub(super) fn mend_unowned_damage(&mut self, dict: DictId, ranges: &[(Cut, Cut)]) {
        let Some(mends) = self.mends.as_mut().filter(|mends| mends.mending.takes_away()) else { return };
        if ranges.is_empty() {
            return;
        }
        ranges.iter().for_each(|(lo, hi)| mends.batch().delete_range(dict, lo, hi));
        let what = format!(
            "known damage where no file has a key goes, in {}",
            counted(ranges.len() as u64, "range", "ranges")
        );
        mends.done.push(Mended { code: FindingCode::KnownDamage.name(), loses: false, what });
    }

    /// Whether names that were lost are to be given up, and there is nothing else to mend any more.
    pub(super) fn may_give_up_names(&self) -> bool {
        let is_wanted = |mends: &Mends| mends.mending == Mending::AllAndLostNames && mends.done.is_empty();
        self.is_mending() && self.mends.as_ref().is_some_and(is_wanted)
    }

    /// Removes known damage over names that were lost. The next look counts what is left, and makes records
    /// for files of which data are left.
    pub(super) fn give_up_names(&mut self, ranges: &[(Cut, Cut)]) {
        let Some(mends) = &mut self.mends else { return };
        for (lo, hi) in ranges {
            mends.batch().delete_range(META, lo, hi);
            let what = format!(
                "the names that were lost from {} to {}: they are given up",
                key::describe_cut(lo, "the first"),
                key::describe_cut(hi, "the last")
            );
            mends.done.push(Mended { code: FindingCode::KnownDamage.name(), loses: true, what });
        }
    }

    /// Mends by a change of the record at a key, which may have been changed before; returns whether it is
    /// made.
    pub(super) fn mend_record(&mut self, code: Code, own: &[u8], change: impl FnOnce(&mut Record)) -> bool {
        if !self.is_mending() {
            return false;
        }
        let changed = self.mends.as_ref().and_then(|mends| mends.records.get(own).cloned());
        let is_changed = changed.is_some();
        let Some(bytes) = changed.or_else(|| self.get(META, own).flatten()) else { return false };
        let Ok(Stored::Inode(mut record)) = Stored::decode(own, &bytes) else { return false };
        change(&mut record);
        let (at, bytes) = ((META.0, own.to_vec()), record.encode());
        if let Some(mends) = self.mends.as_mut().filter(|_| is_changed) {
            mends.changed.remove(&at);
        }
        let is_made = self.mend(code, own, Vec::from([Change::Put(META, own.to_vec(), bytes.clone())]));
        if let Some(mends) = &mut self.mends {
            if is_made {
                mends.records.insert(own.to_vec(), bytes);
            } else if is_changed {
                mends.changed.insert(at);
            }
        }
        is_made
    }

    /// Mends the counts of a directory by its record; all names that it has got are counted then.
    pub(super) fn mend_counts(&mut self, code: Code, path: &[u8], change: impl FnOnce(&mut Record)) {
        if self.mend_record(code, &key::own(path), change)
            && let Some(mends) = &mut self.mends
        {
            mends.made.uncounted.remove(path);
        }
    }

    /// Mends blocks without a record: they get that of a file as long as they are, with a hole where none is.
    /// Its directory may be missing too: the next check finds that.
    pub(super) fn mend_lost_record(&mut self, code: Code, own: &[u8]) {
        if !self.is_mending() {
            return;
        }
        let (mut found, mut count, mut size) = (Extents::of_blocks(0), 0_u64, 0_u64);
        let mut pairs = self.op.scan(DATA, key::blocks_from(own, 0));
        while let Some((at, block)) = self.next(DATA, &mut pairs) {
            if let Some((_, DataTag::Block(number))) = key::split_data(at) {
                found.add(number, number.saturating_add(1));
                count += 1;
                size = number.saturating_mul(BLOCK).saturating_add(block.len() as u64);
            }
        }
        let Some((mut record, volume)) = self.new_record(FileType::Regular, MADE_FILE_PERM) else { return };
        record.size = size;
        if count != size.div_ceil(BLOCK) && !self.gaps.touch(DATA, &key::blocks_from(own, 0)) {
            *record.make_sparse() = found;
        }
        if self.mend(code, own, Vec::from([Change::Put(META, own.to_vec(), record.encode()), volume])) {
            self.makes_name(own, false);
        }
    }

    /// Mends the record of a sparse file: it gets the blocks that are there.
    pub(super) fn mend_blocks(&mut self, code: Code, own: &[u8]) {
        if !self.is_mending() {
            return;
        }
        let mut found = Extents::of_blocks(0);
        let mut pairs = self.op.scan(DATA, key::blocks_from(own, 0));
        while let Some((at, _)) = self.next(DATA, &mut pairs) {
            if let Some((_, DataTag::Block(number))) = key::split_data(at) {
                found.add(number, number.saturating_add(1));
            }
        }
        if !self.gaps.touch(DATA, &key::blocks_from(own, 0)) {
            self.mend_record(code, own, |record| *record.make_sparse() = found);
        }
    }

    /// Mends by removing an extended attribute whose value is not that of the record.
    pub(super) fn mend_attribute(&mut self, code: Code, own: &[u8], name: &[u8]) {
        self.mend_record(code, own, |record| record.xattrs.retain(|attr| attr.name != name));
    }

    /// Mends by removing what is no access control list. Without one, the bits of the mask are the group's,
    /// which may never have had them: so they go too.
    pub(super) fn mend_bad_acl(&mut self, code: Code, own: &[u8], kind: AclKind) {
        self.mend_record(code, own, |record| {
            record.xattrs.retain(|attr| attr.name != kind.name());
            if kind == AclKind::Access {
                record.perm &= !GROUP;
            }
        });
    }

    /// Mends by giving an object's access control list its permissions.
    pub(super) fn mend_acl_permissions(&mut self, code: Code, own: &[u8], mut acl: Acl) {
        let mut stored = None;
        self.mend_record(code, own, |record| {
            acl.set_perm(record.perm);
            match position(record, AclKind::Access.name()).and_then(|at| record.xattrs.get_mut(at)) {
                Some(Xattr { value: XattrValue::Inline(value), .. }) => *value = acl.encode(),
                _ => stored = Some(acl.encode()),
            }
        });
        if let Some(value) = stored {
            let at = key::xattr(own, AclKind::Access.name());
            self.mend(code, own, Vec::from([Change::Put(DATA, at, value)]));
        }
    }

    /// Mends by removing a pair of `meta`, and its entry in the list of links.
    pub(super) fn mend_by_removal(&mut self, code: Code, at: &[u8]) {
        if self.is_mending() {
            let both = [Change::Delete(META, at.to_vec()), Change::Delete(LINKS, at.to_vec())];
            self.mend(code, at, Vec::from(both));
        }
    }

    /// Mends by removing a pair of another dictionary.
    pub(super) fn mend_by_removal_of(&mut self, code: Code, dict: DictId, at: &[u8]) {
        if self.is_mending() {
            self.mend(code, at, Vec::from([Change::Delete(dict, at.to_vec())]));
        }
    }

    /// Mends by removing the blocks of a file, or of what has no record, from one on.
    pub(super) fn mend_by_removal_of_blocks(&mut self, code: Code, own: &[u8], first: u64) {
        if self.is_mending() {
            let (lo, hi) = key::blocks_from(own, first);
            self.mend(code, own, Vec::from([Change::DeleteRange(DATA, lo, hi)]));
        }
    }

    /// Mends by removing what a dictionary has of a detached tree.
    pub(super) fn mend_by_removal_of_tree(&mut self, code: Code, dict: DictId, number: u64) {
        if self.is_mending() {
            let (lo, hi) = key::detached(number);
            self.mend(code, &key::detached_path(number), Vec::from([Change::DeleteRange(dict, lo, hi)]));
        }
    }

    /// Mends a block that reaches behind the end: `kept` is what stays of it.
    pub(super) fn mend_block(&mut self, code: Code, at: &[u8], kept: &[u8]) {
        if self.is_mending() {
            self.mend(code, at, Vec::from([Change::Put(DATA, at.to_vec(), kept.to_vec())]));
        }
    }

    /// Mends blocks `[from, to)` of a file without holes, none of which is there: they are known to be lost,
    /// and no zeros. Few become so one by one, so that each is healed by a write.
    pub(super) fn mend_lost_blocks(&mut self, code: Code, own: &[u8], from: u64, to: u64) {
        if !self.is_mending() {
            return;
        }
        let changes = if to.saturating_sub(from) > LOST_SINGLY_MAX {
            let (lo, hi) = key::blocks(own, from, to);
            Vec::from([Change::Lose(lo, hi)])
        } else {
            let only = |number| {
                let at = key::block(own, number);
                Change::Lose(Cut::before(at.as_slice()), Cut::just_after(&at))
            };
            (from..to).map(only).collect()
        };
        self.mend(code, &key::block(own, from), changes);
    }

    /// Mends the use of a quota.
    pub(super) fn mend_quota(&mut self, code: Code, own: &[u8], found: Amount) {
        if self.is_mending() {
            self.mend(code, own, Vec::from([Change::Put(DATA, key::quota_use(own), found.encode())]));
        }
    }

    /// Mends the list of links, which lacks a name.
    pub(super) fn mend_listing(&mut self, code: Code, at: &[u8], oid: u64) {
        if self.is_mending() {
            let value = oid.to_be_bytes().to_vec();
            self.mend(code, at, Vec::from([Change::Put(LINKS, at.to_vec(), value)]));
        }
    }

    /// Removes known damage from the list of links; returns whether it is made anew there.
    pub(super) fn mend_lost_links(&mut self, ranges: &[(Cut, Cut)]) -> bool {
        let is_mending = self.is_mending();
        let is_wanted = |mends: &&mut Mends| is_mending && mends.mending.takes_away();
        let Some(mends) = self.mends.as_mut().filter(is_wanted) else { return false };
        ranges.iter().for_each(|(lo, hi)| mends.batch().delete_range(LINKS, lo, hi));
        let what = "the list of names of linked files is made anew where it was lost".into();
        mends.done.push(Mended { code: Code::NotListed.name(), loses: false, what });
        true
    }

    /// Lists a name where the list is made anew, unless the name goes. These may be many.
    pub(super) fn relist(&mut self, at: &[u8], oid: u64) {
        if let Some(mends) = &mut self.mends
            && self.relisting.at(LINKS, at).is_some()
            && !mends.changed.contains(&(LINKS.0, at.to_vec()))
        {
            mends.batch().put(LINKS, at, &oid.to_be_bytes());
        }
    }

    /// Mends a name of a linked file.
    pub(super) fn mend_redirect(&mut self, code: Code, at: &[u8], redirect: &Redirect) {
        if self.is_mending() {
            self.mend(code, at, Vec::from([Change::Put(META, at.to_vec(), redirect.encode())]));
        }
    }

    /// Removes known damage from among the markers: a file whose marker was there gets a name again.
    pub(super) fn mend_lost_markers(&mut self, code: Code, at: &[u8], lost: Vec<(Cut, Cut)>) {
        if self.is_mending() {
            let goes = lost.into_iter().map(|(lo, hi)| Change::DeleteRange(META, lo, hi)).collect();
            self.mend(code, at, goes);
        }
    }

    /// Makes the volume's record again.
    pub(super) fn mend_volume(&mut self, code: Code) {
        if let Some(volume) = behind_all_given(self.op.changes_made_max()).filter(|_| self.is_mending())
            && self.mend(code, &key::VOLUME_KEY, Vec::from([put_volume(&volume)]))
        {
            self.volume = Some(volume);
        }
    }

    /// Mends the volume's record: `oid` was given.
    pub(super) fn mend_numbers(&mut self, code: Code, oid: u64) {
        if let Some(volume) = self.volume.filter(|_| self.is_mending() && oid < NUMBERS_MAX) {
            let volume = VolumeRecord { oids: oid + 1, ..volume };
            if self.mend(code, &key::object(oid), Vec::from([put_volume(&volume)])) {
                self.volume = Some(volume);
            }
        }
    }

    /// Mends a directory that is not there though it has entries, and those above it that are not there.
    pub(super) fn mend_directory(&mut self, code: Code, own: &[u8]) {
        let mut own = own.to_vec();
        while let Some((path, name)) = key::split_entry(&own)
            && self.makes_directory(code, &own)
        {
            self.makes_name(&own, true);
            self.makes_in(&key::child_path(path, name));
            own = key::own(key::snapshots_of(path).unwrap_or(path));
        }
    }

    /// Makes a directory, if there is nothing; returns whether it did.
    fn makes_directory(&mut self, code: Code, own: &[u8]) -> bool {
        if !self.is_mending() || !matches!(self.get(META, own), Some(None)) {
            return false;
        }
        let Some((mut record, volume)) = self.new_directory() else { return false };
        if key::split_entry(own).is_some_and(|(path, _)| key::snapshots_of(path).is_some()) {
            record.flags.set(Flags::READ_ONLY);
            // What is in it has other inode numbers than what it is a snapshot of.
            record.salt = record.id.wrapping_mul(SALT_FACTOR);
        }
        self.mend(code, own, Vec::from([Change::Put(META, own.to_vec(), record.encode()), volume]))
    }

    /// Replaces what stands in the place of the root's record.
    pub(super) fn mend_root(&mut self, code: Code) {
        if let Some(now_ns) = self.mends.as_ref().map(|mends| mends.now_ns).filter(|_| self.is_mending()) {
            let record = Record::new(FileType::Directory, 0o755, ROOT_ID, now_ns);
            let made = Change::Put(META, key::ROOT_KEY.to_vec(), record.encode());
            if self.mend(code, &key::ROOT_KEY, Vec::from([made])) {
                self.makes_in(b"");
            }
        }
    }

    /// The record of a new directory, and the change of the volume's record by which it has a number.
    pub(super) fn new_directory(&mut self) -> Option<(Record, Change)> {
        self.new_record(FileType::Directory, MADE_PERM)
    }

    fn new_record(&mut self, file_type: FileType, perm: u16) -> Option<(Record, Change)> {
        let now_ns = self.mends.as_ref()?.now_ns;
        let volume = self.volume.as_mut().filter(|volume| volume.ids < NUMBERS_MAX)?;
        let record = Record::new(file_type, perm, volume.ids, now_ns);
        volume.ids += 1;
        let volume = *volume;
        // The last one counts: all of them have one key.
        if let Some(mends) = &mut self.mends {
            mends.changed.remove(&(META.0, key::VOLUME_KEY.to_vec()));
        }
        Some((record, put_volume(&volume)))
    }
}

fn put_volume(volume: &VolumeRecord) -> Change {
    Change::Put(META, key::VOLUME_KEY.to_vec(), volume.encode())
}

impl Change {
    /// The key that it is about, with its dictionary.
    fn key(&self) -> (u8, Vec<u8>) {
        match self {
            Change::Put(dict, key, _) | Change::Delete(dict, key) => (dict.0, key.clone()),
            Change::DeleteRange(dict, lo, _) => (dict.0, lo.bytes().to_vec()),
            Change::Lose(lo, _) => (DATA.0, lo.bytes().to_vec()),
        }
    }
}
