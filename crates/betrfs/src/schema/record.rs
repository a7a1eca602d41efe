//! The values of `meta`: inode records, and redirects to the object of a file with several names.
//!
//! ```text
//! inode record: head, 128 bytes | target of a symbolic link | extents of a sparse file
//!               | extended attributes (small ones whole, large ones as name and length) | tagged tail
//! head:         version u8 | kind u8 | attributes u16 | mode u32 | uid u32 | gid u32 | rdev u32 | nlink u32
//!               | flags u32 | target length u16 | tail length u16 | size u64
//!               | atime, mtime, ctime, crtime i64 | id u64 | salt u64 | entries u64 | subdirs u64
//!               | snapshots u32 | generation u32 | inode flags u32 | project u32 | blocks u64
//! redirect:     version u8 | kind u8 | reserved u16 | mode u32 | oid u64 | inode number u64 | reserved u64
//! ```
//! An unknown flag makes a record damage; an unknown inode flag or tag is kept through every rewrite.
//! `blocks` has room for an exact count of a sparse file's blocks; 0 means that there is none, and a version
//! without a count writes 0.

use alloc::boxed::Box;
use alloc::vec::Vec;

use betree::TaggedTail;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Result;
use crate::schema::block::BLOCK;
use crate::schema::xattr::{self, Xattr};
use crate::schema::{Extents, damaged, unknown};
use crate::types::{FileType, InodeFlags};

/// The version of the layouts below.
const VERSION: u8 = 1;
const INODE: u8 = 1;
const REDIRECT: u8 = 2;

/// The longest target of a symbolic link.
pub(crate) const TARGET_BYTES_MAX: usize = 4095;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct InodeHead {
    version: u8,
    kind: u8,
    xattrs: U16,
    mode: U32,
    uid: U32,
    gid: U32,
    rdev: U32,
    nlink: U32,
    flags: U32,
    target_len: U16,
    tail_len: U16,
    size: U64,
    atime_ns: I64,
    mtime_ns: I64,
    ctime_ns: I64,
    crtime_ns: I64,
    id: U64,
    salt: U64,
    entries: U64,
    subdirs: U64,
    snapshots: U32,
    generation: U32,
    inode_flags: U32,
    project: U32,
    blocks: U64,
}

const _: () = assert!(size_of::<InodeHead>() == 128);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RedirectHead {
    version: u8,
    kind: u8,
    reserved: U16,
    mode: U32,
    oid: U64,
    ino: U64,
    reserved_later: U64,
}

const _: () = assert!(size_of::<RedirectHead>() == 32);

/// Properties of an inode, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    /// Blocks may be absent and read as zeros: extents follow. In a file without it an absent block is
    /// damage.
    const SPARSE: Flags = Flags(1);
    /// `data` may hold large extended attributes of the entry.
    pub const LARGE_XATTRS: Flags = Flags(2);
    /// It belongs to a snapshot, and cannot be changed.
    pub const READ_ONLY: Flags = Flags(4);
    const KNOWN: u32 = 7;

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the bits of `other`.
    pub fn set(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    pub fn clear(&mut self, other: Flags) {
        self.0 &= !other.0;
    }
}

/// An inode record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub file_type: FileType,
    pub perm: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub nlink: u32,
    pub flags: Flags,
    pub size: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub crtime_ns: i64,
    /// The inode number, less the salts of the directories above.
    pub id: u64,
    /// The number that a directory adds to the inode numbers below it.
    pub salt: u64,
    /// Of a directory: number of entries.
    pub entries: u64,
    /// Of a directory: number of entries that are directories.
    pub subdirs: u64,
    /// Of a directory: number of snapshots.
    pub snapshots: u32,
    /// Of a symbolic link.
    pub target: Box<[u8]>,
    pub xattrs: Vec<Xattr>,
    /// `None` for the default, as in most inodes.
    rare: Option<Box<Rare>>,
}

/// The fields that few inodes use; the others take no memory for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// The generation of its inode number, for handles of files.
    pub generation: u32,
    /// What its owner wants of it.
    pub flags: InodeFlags,
    /// The project that it counts for.
    pub project: u32,
    /// Values of later versions: kept.
    pub tail: TaggedTail,
    /// Of a sparse file; in any other an absent block is damage.
    extents: Option<Extents>,
}

/// One name of a file that has, or had, several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub oid: u64,
    /// The inode number itself: there is no salt above objects.
    pub ino: u64,
    pub file_type: FileType,
}

/// A value of `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Inode(Record),
    Redirect(Redirect),
}

impl Record {
    /// The record of a new object without bytes, names or attributes.
    pub fn new(file_type: FileType, perm: u16, id: u64, now_ns: i64) -> Record {
        Record {
            file_type,
            perm: perm & 0o7777,
            uid: 0,
            gid: 0,
            rdev: 0,
            nlink: 1,
            flags: Flags::default(),
            size: 0,
            atime_ns: now_ns,
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            crtime_ns: now_ns,
            id,
            salt: 0,
            entries: 0,
            subdirs: 0,
            snapshots: 0,
            target: Box::default(),
            xattrs: Vec::new(),
            rare: None,
        }
    }

    /// The blocks of a file that may lack some, which then read as zeros.
    pub fn extents(&self) -> Option<&Extents> {
        self.rare().extents.as_ref()
    }

    /// Whether blocks of the file may be absent.
    pub fn is_sparse(&self) -> bool {
        self.extents().is_some()
    }

    /// The extents of a file, for a change; a dense file becomes sparse. To be called before its size is
    /// changed.
    pub fn make_sparse(&mut self) -> &mut Extents {
        let blocks = self.size.div_ceil(BLOCK);
        let rare = self.rare.get_or_insert_default();
        rare.extents.get_or_insert_with(|| Extents::of_blocks(blocks))
    }

    /// Notes that an empty file has no hole.
    pub fn make_dense(&mut self) {
        if self.rare.is_some() {
            self.change_rare(|rare| rare.extents = None);
        }
    }

    /// Number of blocks of a file, about if it has very many holes.
    pub fn blocks(&self) -> u64 {
        self.extents().map_or(self.size.div_ceil(BLOCK), Extents::blocks)
    }

    /// The fields that few inodes use.
    pub fn rare(&self) -> &Rare {
        static DEFAULT: Rare = Rare {
            generation: 0,
            flags: InodeFlags::NONE,
            project: 0,
            tail: TaggedTail::new(),
            extents: None,
        };
        self.rare.as_deref().unwrap_or(&DEFAULT)
    }

    /// Changes the fields that few inodes use.
    pub fn change_rare(&mut self, change: impl FnOnce(&mut Rare)) {
        change(self.rare.get_or_insert_default());
        self.rare.take_if(|rare| **rare == Rare::default());
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// The record's bytes in `meta`.
    pub fn encode(&self) -> Vec<u8> {
        let rare = self.rare();
        let head = InodeHead {
            version: VERSION,
            kind: INODE,
            xattrs: U16::new(self.xattrs.len() as u16),
            mode: U32::new(type_bits(self.file_type) | u32::from(self.perm)),
            uid: U32::new(self.uid),
            gid: U32::new(self.gid),
            rdev: U32::new(self.rdev),
            nlink: U32::new(self.nlink),
            flags: U32::new(self.flags.0 | if self.is_sparse() { Flags::SPARSE.0 } else { 0 }),
            target_len: U16::new(self.target.len() as u16),
            tail_len: U16::new(rare.tail.as_bytes().len() as u16),
            size: U64::new(self.size),
            atime_ns: I64::new(self.atime_ns),
            mtime_ns: I64::new(self.mtime_ns),
            ctime_ns: I64::new(self.ctime_ns),
            crtime_ns: I64::new(self.crtime_ns),
            id: U64::new(self.id),
            salt: U64::new(self.salt),
            entries: U64::new(self.entries),
            subdirs: U64::new(self.subdirs),
            snapshots: U32::new(self.snapshots),
            generation: U32::new(rare.generation),
            inode_flags: U32::new(rare.flags.bits()),
            project: U32::new(rare.project),
            blocks: U64::ZERO,
        };
        let tail = rare.tail.as_bytes();
        let mut bytes = Vec::with_capacity(size_of::<InodeHead>() + self.target.len() + tail.len());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(&self.target);
        if let Some(extents) = self.extents() {
            extents.encode(&mut bytes);
        }
        for attr in &self.xattrs {
            xattr::encode(attr, &mut bytes);
        }
        bytes.extend_from_slice(tail);
        bytes
    }
}

impl Redirect {
    /// The redirect's bytes in `meta`.
    pub fn encode(&self) -> Vec<u8> {
        let head = RedirectHead {
            version: VERSION,
            kind: REDIRECT,
            reserved: U16::ZERO,
            mode: U32::new(type_bits(self.file_type)),
            oid: U64::new(self.oid),
            ino: U64::new(self.ino),
            reserved_later: U64::ZERO,
        };
        head.as_bytes().to_vec()
    }
}

impl Stored {
    /// Decodes the value of `meta` at `key`.
    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<Stored> {
        let parsed = match bytes {
            [VERSION, INODE, ..] => parse_inode(bytes).map(Stored::Inode),
            [VERSION, REDIRECT, ..] => parse_redirect(bytes).map(Stored::Redirect),
            [VERSION, kind, ..] => return Err(unknown(key, "record of kind", *kind)),
            [VERSION] | [0, ..] | [] => Err("there is no record"),
            [version, ..] => return Err(unknown(key, "record of version", *version)),
        };
        parsed.map_err(|why| damaged(key, why))
    }
}

fn parse_inode(bytes: &[u8]) -> core::result::Result<Record, &'static str> {
    let (head, rest) = InodeHead::ref_from_prefix(bytes).map_err(|_| "the record is too short")?;
    let mode = head.mode.get();
    if head.flags.get() & !Flags::KNOWN != 0 {
        return Err("the record has unknown flags");
    }
    if head.size.get() > crate::FILE_BYTES_MAX {
        return Err("the size is over the limit");
    }
    let (target, mut rest) =
        rest.split_at_checked(head.target_len.get() as usize).ok_or("the link's target is cut off")?;
    if target.len() > TARGET_BYTES_MAX {
        return Err("the link's target is over the limit");
    }
    let mut flags = Flags(head.flags.get());
    let mut extents = None;
    if flags.has(Flags::SPARSE) {
        flags.clear(Flags::SPARSE);
        let found = Extents::parse(&mut rest).ok_or("the extents are none that a file has")?;
        extents = Some(found);
    }
    let mut xattrs = Vec::new();
    for _ in 0..head.xattrs.get() {
        xattrs.push(xattr::parse(&mut rest).ok_or("an extended attribute is cut off")?);
    }
    if rest.len() != usize::from(head.tail_len.get()) {
        return Err("the tagged values are not as long as the record says");
    }
    let rare = Rare {
        generation: head.generation.get(),
        flags: InodeFlags::from_bits(head.inode_flags.get()),
        project: head.project.get(),
        tail: TaggedTail::parse(rest).ok_or("the tagged values are cut off or out of order")?,
        extents,
    };
    Ok(Record {
        file_type: type_of(mode)?,
        perm: (mode & 0o7777) as u16,
        uid: head.uid.get(),
        gid: head.gid.get(),
        rdev: head.rdev.get(),
        nlink: head.nlink.get(),
        flags,
        size: head.size.get(),
        atime_ns: head.atime_ns.get(),
        mtime_ns: head.mtime_ns.get(),
        ctime_ns: head.ctime_ns.get(),
        crtime_ns: head.crtime_ns.get(),
        id: head.id.get(),
        salt: head.salt.get(),
        entries: head.entries.get(),
        subdirs: head.subdirs.get(),
        snapshots: head.snapshots.get(),
        target: Box::from(target),
        xattrs,
        rare: (rare != Rare::default()).then(|| Box::new(rare)),
    })
}

fn parse_redirect(bytes: &[u8]) -> core::result::Result<Redirect, &'static str> {
    let head = RedirectHead::ref_from_bytes(bytes).map_err(|_| "the redirect is not of its size")?;
    let file_type = type_of(head.mode.get())?;
    if file_type == FileType::Directory {
        return Err("the redirect is of a directory");
    }
    Ok(Redirect { oid: head.oid.get(), ino: head.ino.get(), file_type })
}

const TYPES: [(FileType, u32); 7] = [
    (FileType::Fifo, 0o010_000),
    (FileType::CharDevice, 0o020_000),
    (FileType::Directory, 0o040_000),
    (FileType::BlockDevice, 0o060_000),
    (FileType::Regular, 0o100_000),
    (FileType::Symlink, 0o120_000),
    (FileType::Socket, 0o140_000),
];

fn type_bits(file_type: FileType) -> u32 {
    TYPES.iter().find(|(known, _)| *known == file_type).map_or(0, |(_, bits)| *bits)
}

fn type_of(mode: u32) -> core::result::Result<FileType, &'static str> {
    let found = TYPES.iter().find(|(_, bits)| *bits == mode & 0o170_000);
    found.map(|(file_type, _)| *file_type).ok_or("the record is of no known type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::schema::XattrValue;
    use alloc::vec;
    use proptest::prelude::*;

    fn sample() -> Record {
        let mut record = Record::new(FileType::Symlink, 0o1777, 77, -5);
        record.size = 9;
        record.make_sparse().add(1 << 40, 1 << 41);
        record.target = Box::from(&b"elsewhere"[..]);
        record.change_rare(|rare| {
            (rare.generation, rare.project) = (0x0102_0304, 0x0506_0708);
            rare.flags = InodeFlags::from_bits(0x8000_0090);
            assert!(rare.tail.set(7, b"seven") && rare.tail.set(900, b""));
        });
        record.xattrs = vec![
            Xattr { name: b"user.a".to_vec(), value: XattrValue::Inline(b"".to_vec()) },
            Xattr { name: b"user.b".to_vec(), value: XattrValue::Stored(65536) },
        ];
        record
    }

    #[test]
    fn records_come_back() {
        assert_eq!(Stored::decode(b"k", &sample().encode()), Ok(Stored::Inode(sample())));
        for (file_type, _) in TYPES {
            let record = Record::new(file_type, 0o7777, u64::MAX, i64::MAX);
            assert_eq!(Stored::decode(b"k", &record.encode()), Ok(Stored::Inode(record)));
        }
        let redirect = Redirect { oid: 1, ino: 2, file_type: FileType::Fifo };
        assert_eq!(Stored::decode(b"k", &redirect.encode()), Ok(Stored::Redirect(redirect)));
    }

    #[test]
    fn fields_stand_at_their_documented_places() {
        let bytes = sample().encode();
        assert_eq!(bytes[28..32], [9, 0, 13, 0], "target, tail");
        assert_eq!(bytes[108..120], [4, 3, 2, 1, 0x90, 0, 0, 0x80, 8, 7, 6, 5]);
        assert_eq!(bytes[120..128], [0; 8]);
        assert_eq!(bytes[bytes.len() - 13..], *b"\x07\0\x05\0seven\x84\x03\0\0");
    }

    #[test]
    fn every_truncation_is_damage() {
        for whole in [sample().encode(), Redirect { oid: 1, ino: 2, file_type: FileType::Fifo }.encode()] {
            for len in 0..whole.len() {
                assert!(Stored::decode(b"\0\0a", &whole[..len]).is_err(), "cut at {len}");
            }
            let mut longer = whole.clone();
            longer.push(0);
            assert!(Stored::decode(b"\0\0a", &longer).is_err());
        }
    }

    #[test]
    fn kinds_and_versions_of_later_programs_are_named() {
        let kind_of = |bytes: &[u8]| match Stored::decode(b"k", bytes) {
            Err(Error::UnknownKind { what, kind, .. }) => (what, kind),
            other => panic!("{other:?}"),
        };
        let mut bytes = sample().encode();
        bytes[1] = 3;
        assert_eq!(kind_of(&bytes), ("record of kind", 3));
        bytes[0] = 2;
        assert_eq!(kind_of(&bytes), ("record of version", 2));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            kind in 0u8..4,
        ) {
            let _ = Stored::decode(b"k", &bytes);
            if let [version, second, ..] = bytes.as_mut_slice() {
                (*version, *second) = (VERSION, kind);
                let _ = Stored::decode(b"k", &bytes);
            }
        }

        #[test]
        fn flipped_bytes_decode_or_are_damage(at in 0usize..160, with: u8) {
            let mut bytes = sample().encode();
            let at = at % bytes.len();
            bytes[at] ^= with;
            if let Ok(Stored::Inode(record)) = Stored::decode(b"k", &bytes) {
                let again = record.encode();
                prop_assert_eq!(Stored::decode(b"k", &again), Ok(Stored::Inode(record)));
            }
        }
    }
}
