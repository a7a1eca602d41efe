//! Checking the whole volume: first the engine's structures, then that keys and records of the
//! three dictionaries fit together. It keeps a count for each directory and linked file in memory.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use betree::Cut;

use crate::error::{Error, Result};
use crate::schema::block::{BLOCK, BLOCK_BYTES};
use crate::schema::key::{self, DataTag};
use crate::schema::{DATA, Flags, LINKS, META, Marker, Record, Stored, VolumeRecord, XattrValue};
use crate::types::FileType;
use crate::volume::Volume;
use crate::volume::op::{Op, OpKind};

const EVERYTHING: (Cut, Cut) = (Cut::LOW, Cut::HIGH);

/// What a directory's record counts, and what was found.
#[derive(Default)]
struct DirCount {
    entries: u64,
    subdirs: u64,
    entries_found: u64,
    subdirs_found: u64,
    snapshots: u64,
    snapshots_found: u64,
}

/// What a linked file's record counts, and what was found.
struct LinkCount {
    file_type: FileType,
    ino: u64,
    nlink: u64,
    found: u64,
}

struct Check<'a> {
    op: Op<'a>,
    problem: &'a mut dyn FnMut(String),
    /// By path.
    dirs: BTreeMap<Vec<u8>, DirCount>,
    /// By object id.
    links: BTreeMap<u64, LinkCount>,
    /// Keys whose blocks belong to unlinked files.
    orphans: BTreeSet<Vec<u8>>,
    /// The lowest numbers that were not reserved.
    volume: Option<VolumeRecord>,
    redirects: u64,
}

impl Volume {
    /// Checks the volume from the device up. Each problem is given to `problem` as a sentence that
    /// names the place; `progress` hears how many of the engine's nodes are done. Nothing is
    /// changed, and nothing else can change the volume meanwhile.
    ///
    /// # Errors
    /// What makes further checking impossible.
    pub fn check(&self, problem: &mut dyn FnMut(String), progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let _alone = self.namespace.write();
        self.env.check(&mut |found| found.into_problem().into_iter().for_each(&mut *problem), progress)?;
        let mut check = Check {
            op: self.query(OpKind::Internal),
            problem,
            dirs: BTreeMap::new(),
            links: BTreeMap::new(),
            orphans: BTreeSet::new(),
            volume: None,
            redirects: 0,
        };
        check.reserved()?;
        check.names()?;
        check.counts();
        check.data()?;
        check.links()
    }
}

impl Check<'_> {
    fn problem(&mut self, at: &[u8], why: &str) {
        (self.problem)(format!("{}: {why}", key::describe(at)));
    }

    /// A sentence instead of an error, where checking can go on.
    fn heard<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error: Error| (self.problem)(format!("{error}"))).ok()
    }

    /// The root, the volume's record, objects and markers: everything that is no name.
    fn reserved(&mut self) -> Result<()> {
        let mut pairs = self.op.scan(META, (Cut::before([1]), Cut::HIGH));
        let mut root = false;
        while let Some((at, bytes)) = pairs.next()? {
            if at == key::VOLUME_KEY {
                self.volume = self.heard(VolumeRecord::decode(bytes));
            } else if at == key::ROOT_KEY {
                match self.heard(Stored::decode(at, bytes)) {
                    Some(Stored::Inode(record)) if record.is_dir() => {
                        root = true;
                        self.inode(at, &record, Some(Vec::new()))?;
                    }
                    Some(_) => self.problem(at, "it is not a directory"),
                    None => {}
                }
            } else if let Some(oid) = key::object_id(at) {
                match self.heard(Stored::decode(at, bytes)) {
                    Some(Stored::Inode(record)) if !record.is_dir() => {
                        let (file_type, ino) = (record.file_type, record.id);
                        let count = LinkCount { file_type, ino, nlink: u64::from(record.nlink), found: 0 };
                        self.links.insert(oid, count);
                        self.inode(at, &record, None)?;
                    }
                    Some(_) => self.problem(at, "it is not the record of a file"),
                    None => {}
                }
            } else if key::marker_id(at).is_some() {
                if let Some(marker) = self.heard(Marker::decode(at, bytes)) {
                    self.orphans.insert(marker.base);
                }
            } else if key::split_entry(at).is_none() {
                self.problem(at, "no such key has a meaning");
            }
        }
        if !root {
            self.problem(&key::ROOT_KEY, "its record is not there");
        }
        match self.volume {
            None => self.problem(&key::VOLUME_KEY, "it is not there"),
            Some(volume) => {
                if let Some((oid, _)) = self.links.range(volume.oids..).next() {
                    let oid = *oid;
                    self.problem(&key::object(oid), "its number was never reserved");
                }
            }
        }
        Ok(())
    }

    /// All names, each after the names of the directories above it.
    fn names(&mut self) -> Result<()> {
        key::names().into_iter().try_for_each(|bounds| self.names_in(bounds))
    }

    fn names_in(&mut self, bounds: (Cut, Cut)) -> Result<()> {
        let mut pairs = self.op.scan(META, bounds);
        while let Some((at, bytes)) = pairs.next()? {
            let Some((path, name)) = key::split_entry(at) else {
                self.problem(at, "it is no name");
                continue;
            };
            let stored = self.heard(Stored::decode(at, bytes));
            let is_dir = matches!(&stored, Some(Stored::Inode(record)) if record.is_dir());
            let of = key::snapshots_of(path);
            match self.dirs.get_mut(of.unwrap_or(path)) {
                Some(dir) if of.is_some() => dir.snapshots_found += 1,
                Some(dir) => {
                    dir.entries_found += 1;
                    dir.subdirs_found += u64::from(is_dir);
                }
                None => self.problem(at, "what should be its directory is none"),
            }
            match stored {
                Some(Stored::Inode(record)) => {
                    let child = is_dir.then(|| key::child_path(path, name));
                    self.inode(at, &record, child)?;
                }
                Some(Stored::Redirect(redirect)) => {
                    self.redirects += 1;
                    match self.links.get_mut(&redirect.oid) {
                        None => self.problem(at, "the file that it links to is lost"),
                        Some(link) => {
                            link.found += 1;
                            if (link.file_type, link.ino) != (redirect.file_type, redirect.ino) {
                                self.problem(at, "the file that it links to is of another type or number");
                            }
                        }
                    }
                    if self.op.get(LINKS, at)?.as_deref() != Some(&redirect.oid.to_be_bytes()) {
                        self.problem(at, "it is not listed, or wrongly, among the links");
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// A record, with the path if it is a directory's.
    fn inode(&mut self, at: &[u8], record: &Record, path: Option<Vec<u8>>) -> Result<()> {
        if let Some(path) = path {
            let (entries, subdirs) = (record.entries, record.subdirs);
            let snapshots = u64::from(record.snapshots);
            self.dirs.insert(path, DirCount { entries, subdirs, snapshots, ..DirCount::default() });
        } else if key::object_id(at).is_none() && record.nlink != 1 {
            self.problem(at, &format!("it has one name, but counts {}", record.nlink));
        }
        if record.file_type == FileType::Symlink && record.target.len() as u64 != record.size {
            self.problem(at, "the size is not that of the target");
        }
        if record.file_type == FileType::Regular {
            self.blocks(at, record)?;
        }
        for attr in &record.xattrs {
            if let XattrValue::Stored(len) = attr.value {
                let attr_key = key::xattr(at, &attr.name);
                match self.op.get(DATA, &attr_key)? {
                    Some(value) if value.len() == len as usize => {}
                    Some(_) => self.problem(&attr_key, "its length is wrong"),
                    None => self.problem(&attr_key, "its value is lost"),
                }
                if !record.flags.has(Flags::LARGE_XATTRS) {
                    self.problem(at, "it has a large attribute, but not the flag that says so");
                }
            }
        }
        Ok(())
    }

    /// The blocks of a file: none at or past the size, none missing that is not a hole.
    fn blocks(&mut self, at: &[u8], record: &Record) -> Result<()> {
        let mut expected = 0;
        let end = record.size.div_ceil(BLOCK);
        let mut blocks = self.op.scan(DATA, key::blocks_from(at, 0));
        while let Some((block_key, block)) = blocks.next()? {
            let Some((_, DataTag::Block(number))) = key::split_data(block_key) else {
                self.problem(block_key, "it is no key of a block");
                continue;
            };
            let room = record.size.saturating_sub(number.saturating_mul(BLOCK));
            if block.len() > BLOCK_BYTES || block.len() as u64 > room {
                self.problem(block_key, "there are bytes past the end of the file, or of the block");
            }
            if number != expected && !record.flags.has(Flags::SPARSE) {
                self.problem(&key::block(at, expected), "the block is lost");
            }
            expected = number.saturating_add(1);
        }
        if expected < end && !record.flags.has(Flags::SPARSE) {
            self.problem(&key::block(at, expected), "the block is lost");
        }
        Ok(())
    }

    fn counts(&mut self) {
        for (path, dir) in core::mem::take(&mut self.dirs) {
            if (dir.entries, dir.subdirs) != (dir.entries_found, dir.subdirs_found) {
                let why = format!(
                    "it counts {} entries, {} of them directories, but has {} and {}",
                    dir.entries, dir.subdirs, dir.entries_found, dir.subdirs_found
                );
                self.problem(&key::own(&path), &why);
            }
            // A copy of a directory counts the snapshots of what it is a copy of.
            if dir.snapshots < dir.snapshots_found {
                let why = format!("it counts {} snapshots, but has {}", dir.snapshots, dir.snapshots_found);
                self.problem(&key::own(&path), &why);
            }
        }
        for (oid, link) in core::mem::take(&mut self.links) {
            if link.nlink != link.found {
                let why = format!("it counts {} names, but has {}", link.nlink, link.found);
                self.problem(&key::object(oid), &why);
            }
        }
    }

    /// Everything in `data` belongs to something.
    fn data(&mut self) -> Result<()> {
        let mut pairs = self.op.scan(DATA, EVERYTHING);
        let mut owner: (Vec<u8>, Option<Record>) = (Vec::new(), None);
        while let Some((at, _)) = pairs.next()? {
            let Some((own, tag)) = key::split_data(at) else {
                self.problem(at, "no such key has a meaning");
                continue;
            };
            if owner.0 != own {
                let record = match self.op.get(META, own)?.map(|bytes| Stored::decode(own, &bytes)) {
                    Some(Ok(Stored::Inode(record))) => Some(record),
                    _ => None,
                };
                owner = (own.to_vec(), record);
            }
            let belongs = match (tag, &owner.1) {
                (DataTag::Block(_), _) if self.orphans.contains(own) => true,
                (DataTag::Block(_), Some(record)) => record.file_type == FileType::Regular,
                (DataTag::Xattr(name), Some(record)) => record
                    .xattrs
                    .iter()
                    .any(|attr| attr.name == name && matches!(attr.value, XattrValue::Stored(_))),
                (_, None) => false,
            };
            if !belongs {
                self.problem(at, "it belongs to no file");
            }
        }
        Ok(())
    }

    /// As many links are listed as there are redirects; that each redirect is, was seen before.
    fn links(&mut self) -> Result<()> {
        let mut listed = 0;
        let mut pairs = self.op.scan(LINKS, EVERYTHING);
        while let Some((at, _)) = pairs.next()? {
            listed += 1;
            let stored = self.op.get(META, at)?.map(|bytes| Stored::decode(at, &bytes));
            if !matches!(stored, Some(Ok(Stored::Redirect(_)))) {
                self.problem(at, "it is listed among the links, but is none");
            }
        }
        if listed < self.redirects {
            let why = format!("{} names of linked files, of which {listed} are listed", self.redirects);
            (self.problem)(why);
        }
        Ok(())
    }
}
