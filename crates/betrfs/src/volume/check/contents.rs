//! `data` and `links`: blocks and attributes of files, and the list of the names of linked files.

use alloc::format;
use alloc::vec::Vec;

use betree::{Unreadable, counted};

use super::code::Code;
use super::losses::Lost;
use super::{Check, EVERYTHING};
use crate::rules::with_perm_of;
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::key::{self, DataTag};
use crate::schema::{
    Acl, DATA, Extents, Flags, LINKS, META, Record, Recount, Stored, USER, Xattr, XattrValue, unknown,
};
use crate::types::{AclKind, FileType};

/// The object to which keys in `data` belong.
struct Owner {
    own: Vec<u8>,
    what: AtOwn,
}

/// What stands at an own key.
enum AtOwn {
    Unreadable,
    Nothing,
    BadRecord,
    Record(Record),
    /// What has no data: a redirect, for one.
    Other,
}

impl Check<'_> {
    /// Checks the blocks of a file: none at or past the size, and none missing outside of holes.
    pub(super) fn blocks(&mut self, at: &[u8], record: &Record) {
        let end = record.size.div_ceil(BLOCK);
        if self.gaps.over(DATA, &key::blocks_from(at, 0)).is_some() {
            if end > 0 {
                let all = Lost::Data { own: at, from: 0, to: record.size, size: record.size };
                self.is_lost(DATA, &key::block(at, 0), all);
                self.want_name(at);
                self.unchecked.blocks += 1;
            }
            return;
        }
        let mut recount = record.extents().map(Extents::recount);
        let mut expected = 0;
        let (mut lacks, mut is_cut) = (false, false);
        let mut passed = Vec::new();
        let mut pairs = self.op.scan(DATA, key::blocks_from(at, 0));
        loop {
            let next = pairs.next_past(&mut |unreadable| passed.push(unreadable));
            for unreadable in passed.drain(..) {
                // Blocks before it can be read, and are not there.
                let begin = key::first_block_behind(at, &unreadable.lo).min(end);
                if unreadable.lo.bytes().starts_with(&key::data(at)) && !record.is_sparse() {
                    self.blocks_lost(at, expected, begin);
                    expected = begin.max(expected);
                }
                lacks |= self.lost_blocks(at, record, &mut expected, unreadable);
            }
            let Some((block_key, block)) = next.filter(|_| self.may_go_on()) else { break };
            let Some((_, DataTag::Block(number))) = key::split_data(block_key) else {
                self.problem(Code::BadKey, block_key, "it is no key of a block");
                self.mend_by_removal_of(Code::BadKey, DATA, block_key);
                continue;
            };
            let room = record.size.saturating_sub(number.saturating_mul(BLOCK));
            if block.len() > BLOCK_BYTES || block.len() as u64 > room {
                self.misfit(
                    Code::BytesBehindEnd,
                    block_key,
                    "there are bytes past the end of the file, or of the block",
                );
                let kept = block.get(..(room.min(BLOCK) as usize)).unwrap_or_default();
                if !kept.is_empty() {
                    self.mend_block(Code::BytesBehindEnd, block_key, kept);
                } else if !core::mem::replace(&mut is_cut, true) {
                    self.mend_by_removal_of_blocks(Code::BytesBehindEnd, at, number);
                }
            }
            if let Some(recount) = &mut recount {
                recount.found(number);
            }
            if !record.is_sparse() {
                self.blocks_lost(at, expected, number.min(end));
            }
            expected = number.saturating_add(1);
        }
        if !record.is_sparse() {
            self.blocks_lost(at, expected, end);
        }
        // An unreadable block may be any block.
        if let Some(number) = recount.and_then(Recount::finish).filter(|_| !lacks) {
            self.misfit(
                Code::WrongBlocks,
                &key::block(at, number),
                "there are other blocks than the record of the file says",
            );
            self.mend_blocks(Code::WrongBlocks, at);
        }
        self.unchecked.blocks += u64::from(lacks);
    }

    /// Reports blocks `[from, to)` of a file without holes, if these are any: none of them is there.
    fn blocks_lost(&mut self, at: &[u8], from: u64, to: u64) {
        if from >= to {
            return;
        }
        self.misfit(Code::LostBlock, &key::block(at, from), "the block is lost");
        self.mend_lost_blocks(Code::LostBlock, at, from, to);
    }

    /// Skips unreadable blocks from `expected` on, and sets `expected` behind them. Returns whether the file
    /// has any there.
    pub(super) fn lost_blocks(
        &mut self,
        at: &[u8],
        record: &Record,
        expected: &mut u64,
        unreadable: Unreadable,
    ) -> bool {
        let behind = key::first_block_behind(at, &unreadable.hi);
        let to_blame = self.pass(DATA, unreadable);
        let (from, to) = (*expected, behind.min(record.size.div_ceil(BLOCK)));
        *expected = behind.max(*expected);
        if from >= to {
            return false;
        }
        let bytes = |block: u64| block.saturating_mul(BLOCK).min(record.size);
        let lost = Lost::Data { own: at, from: bytes(from), to: bytes(to), size: record.size };
        to_blame.iter().for_each(|losses| self.findings.lose(*losses, &lost));
        self.want_name(at);
        true
    }

    /// Checks that the large attributes of a record exist, and its access control lists.
    pub(super) fn attributes(&mut self, at: &[u8], record: &Record) {
        for attr in &record.xattrs {
            let len = match &attr.value {
                XattrValue::Stored(len) => *len,
                XattrValue::Inline(value) => {
                    self.access_control_list(at, record, attr, value);
                    continue;
                }
            };
            let attr_key = key::xattr(at, &attr.name);
            match self.get(DATA, &attr_key) {
                Some(Some(value)) if value.len() == len as usize => {
                    self.access_control_list(at, record, attr, &value);
                }
                Some(found) => {
                    let why = if found.is_some() { "its length is wrong" } else { "its value is lost" };
                    self.misfit(Code::LostAttribute, &attr_key, why);
                    self.mend_attribute(Code::LostAttribute, at, &attr.name);
                }
                None => {
                    self.is_lost(DATA, &attr_key, Lost::Attribute { own: at, name: &attr.name });
                    self.want_name(at);
                }
            }
            if !record.flags.has(Flags::LARGE_XATTRS) {
                self.problem(
                    Code::AttributeFlag,
                    at,
                    "it has a large attribute, but not the flag that says so",
                );
                self.mend_record(Code::AttributeFlag, at, |record| record.flags.set(Flags::LARGE_XATTRS));
            }
        }
    }

    /// Checks an attribute that is an access control list.
    fn access_control_list(&mut self, at: &[u8], record: &Record, attr: &Xattr, value: &[u8]) {
        let Some(kind) = AclKind::of_name(&attr.name) else { return };
        match Acl::parse(value) {
            Err(_) => {
                self.problem(Code::BadAcl, at, "an access control list of it is none");
                self.mend_bad_acl(Code::BadAcl, at, kind);
            }
            Ok(acl) if kind == AclKind::Access && with_perm_of(&acl, record.perm) != record.perm => {
                let why = "it has other permissions than its access control list says";
                self.problem(Code::WrongAclPermissions, at, why);
                self.mend_acl_permissions(Code::WrongAclPermissions, at, acl);
            }
            Ok(_) => {}
        }
    }

    /// Checks that each key in `data` belongs to an object.
    pub(super) fn data(&mut self) {
        let mut pairs = self.op.scan(DATA, EVERYTHING);
        let mut owner = Owner { own: Vec::new(), what: AtOwn::Unreadable };
        let mut is_told = false;
        while let Some((at, _)) = self.next(DATA, &mut pairs) {
            if let Some(number) = key::detached_number(at) {
                if self.is_of_no_detached_tree(number, at) {
                    self.mend_by_removal_of_tree(Code::BadKey, DATA, number);
                }
                pairs.seek(&key::detached(number).1);
                continue;
            }
            let Some((own, tag)) = key::split_data(at) else {
                match key::reserved_space(at) {
                    Some(space) => self.of_later_version(at, &unknown(at, "key of the space", space)),
                    None => {
                        self.problem(Code::BadKey, at, "no such key has a meaning");
                        self.mend_by_removal_of(Code::BadKey, DATA, at);
                    }
                }
                continue;
            };
            if let DataTag::Reserved(tag) = tag {
                self.of_later_version(own, &unknown(own, "value of the tag", tag));
                continue;
            }
            if owner.own != own {
                owner = self.owner(own);
                is_told = false;
            }
            let belongs = match (tag, &owner.what) {
                // A record that cannot be decoded is a problem of its own, and mended first.
                (_, AtOwn::Unreadable | AtOwn::BadRecord) => true,
                (DataTag::Block(_), _) if self.orphans.contains(own) => true,
                // Of a linked file's copy that got no name.
                (DataTag::Xattr(_), AtOwn::Nothing) if self.orphans.contains(own) => {
                    key::object_id(own).is_some()
                }
                (DataTag::Block(_), AtOwn::Record(record)) => record.file_type == FileType::Regular,
                (DataTag::Xattr(name), AtOwn::Record(record)) => record
                    .xattrs
                    .iter()
                    .any(|attr| attr.name == name && matches!(attr.value, XattrValue::Stored(_))),
                (DataTag::QuotaUse, AtOwn::Record(record)) => record.quota().is_some(),
                (DataTag::Reserved(_), _) | (_, AtOwn::Nothing | AtOwn::Other) => false,
            };
            if belongs {
            } else if self.gaps.touch(META, &key::markers()) {
                // An unlinked file's marker may be unreadable.
                self.unchecked.owners += 1;
            } else if matches!((tag, &owner.what), (DataTag::Block(_), AtOwn::Nothing)) && may_be_made(own) {
                // Once for all its blocks.
                if !core::mem::replace(&mut is_told, true) {
                    self.lacks_records = true;
                    self.problem(Code::LostRecord, own, "it has blocks, and no record");
                    self.mend_lost_record(Code::LostRecord, own);
                }
            } else {
                self.misfit(Code::OwnerlessData, at, "it belongs to no file");
                match tag {
                    DataTag::Block(_) => self.mend_by_removal_of_blocks(Code::OwnerlessData, own, 0),
                    _ => self.mend_by_removal_of(Code::OwnerlessData, DATA, at),
                }
            }
        }
    }

    /// What the names have for an own key in `data`.
    fn owner(&mut self, own: &[u8]) -> Owner {
        let what = match self.get(META, own) {
            None => {
                self.is_lost(META, own, Lost::Name { own });
                self.want_name(own);
                self.unchecked.owners += 1;
                AtOwn::Unreadable
            }
            Some(None) => AtOwn::Nothing,
            Some(Some(bytes)) => match Stored::decode(own, &bytes) {
                Ok(Stored::Inode(record)) => AtOwn::Record(record),
                Ok(_) => AtOwn::Other,
                Err(_) => AtOwn::BadRecord,
            },
        };
        Owner { own: own.to_vec(), what }
    }

    /// Checks that the dictionary for later versions is empty.
    pub(super) fn user(&mut self) {
        let mut pairs = self.op.scan(USER, EVERYTHING);
        if let Some((at, _)) = self.next(USER, &mut pairs) {
            let why = "it stands in the dictionary `user`, of which this version knows nothing";
            self.problem(Code::LaterDictionary, at, why);
        }
    }

    /// Checks that as many links are listed as there are redirects. That each redirect is listed was checked
    /// before.
    pub(super) fn links(&mut self) {
        let mut listed = 0;
        let mut pairs = self.op.scan(LINKS, EVERYTHING);
        while let Some((at, oid)) = self.next(LINKS, &mut pairs) {
            if let Some(number) = key::detached_number(at) {
                if self.is_of_no_detached_tree(number, at) {
                    self.mend_by_removal_of_tree(Code::BadKey, LINKS, number);
                    pairs.seek(&key::detached(number).1);
                } else {
                    self.detached_link(number, oid);
                }
                continue;
            }
            listed += 1;
            let Some(found) = self.get(META, at) else {
                // The name is unreadable, but the list has it.
                self.is_lost(META, at, Lost::Name { own: at });
                if let Ok(oid) = oid.try_into().map(u64::from_be_bytes) {
                    self.has_name(oid, at);
                    self.links.entry(oid).and_modify(|link| link.found += 1);
                    self.name_again(at, oid);
                }
                self.redirects += 1;
                continue;
            };
            let stored = found.map(|bytes| Stored::decode(at, &bytes));
            if !matches!(stored, Some(Ok(Stored::Redirect(_)))) {
                self.misfit(Code::WronglyListed, at, "it is listed among the links, but is none");
                self.mend_by_removal_of(Code::WronglyListed, LINKS, at);
            }
        }
        if listed >= self.redirects {
        } else if self.gaps.touch(LINKS, &EVERYTHING) {
            self.unchecked.links = true;
        } else {
            let why = format!(
                "{} of linked files, of which {listed} {} listed",
                counted(self.redirects, "name", "names"),
                if listed == 1 { "is" } else { "are" }
            );
            self.misfits(Code::NotListed, why);
        }
    }
}

impl Check<'_> {
    /// Makes a name of a linked file again that is known damage, if its directory is there. That counts it
    /// still.
    fn name_again(&mut self, at: &[u8], oid: u64) {
        let (Some(redirect), Some((path, _))) =
            (self.links.get(&oid).map(|link| link.redirect(oid)), key::split_entry(at))
        else {
            return;
        };
        let dir = key::own(key::snapshots_of(path).unwrap_or(path));
        if self.op.get(META, at).is_err_and(|error| error.is_known_damage())
            && matches!(self.op.get(META, &dir), Ok(Some(_)))
        {
            self.misfit(
                Code::LostName,
                at,
                "the name was lost, but the list of names of linked files has it",
            );
            self.mend_redirect(Code::LostName, at, &redirect);
        }
    }

    /// Counts a name in a detached tree.
    pub(super) fn detached_link(&mut self, number: u64, oid: &[u8]) {
        let why = self.detached.get(&number).copied();
        let oid = oid.try_into().map(u64::from_be_bytes);
        let counted = oid.ok().filter(|oid| why.is_some_and(|why| why.counts(number, *oid)));
        if let Some(link) = counted.and_then(|oid| self.links.get_mut(&oid)) {
            link.found += 1;
        }
    }
}

/// Whether a file could be made at an own key: where it has a name, or a number as a linked file. A snapshot
/// is as it was made, or not at all.
fn may_be_made(own: &[u8]) -> bool {
    !key::is_in_snapshot(own) && (key::split_entry(own).is_some() || key::object_id(own).is_some())
}
