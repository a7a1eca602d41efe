//! The bytes of inode records and redirects.
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

use super::{Flags, Numbers, Rare, Record, Redirect, Stored, TARGET_BYTES_MAX};
use crate::error::Result;
use crate::schema::xattr;
use crate::schema::{Extents, damaged, unknown};
use crate::types::{FileType, InodeFlags};

/// The version of the layouts below.
pub(super) const VERSION: u8 = 1;
const INODE: u8 = 1;
const REDIRECT: u8 = 2;

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

impl Record {
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

impl Numbers {
    /// Reads the numbers in the value of `meta` at `key`; `None` for a redirect.
    pub fn read(key: &[u8], bytes: &[u8]) -> Result<Option<Numbers>> {
        match bytes {
            [VERSION, INODE, ..] => {
                let (head, _) =
                    InodeHead::ref_from_prefix(bytes).map_err(|_| damaged(key, "the record is too short"))?;
                let is_dir =
                    type_of(head.mode.get()).map_err(|why| damaged(key, why))? == FileType::Directory;
                Ok(Some(Numbers { id: head.id.get(), salt: is_dir.then(|| head.salt.get()) }))
            }
            // A redirect, or none that can be read.
            _ => Stored::decode(key, bytes).map(|_| None),
        }
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

pub(super) const TYPES: [(FileType, u32); 7] = [
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
