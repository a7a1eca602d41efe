//! The values of `meta`: inode records, and redirects to the object of a file with several names. [`layout`]
//! has their bytes.

mod layout;
mod properties;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use betree::TaggedTail;

use crate::schema::Extents;
use crate::schema::block::BLOCK;
use crate::schema::xattr::Xattr;
use crate::types::{FileType, InodeFlags, QuotaLimits};

/// The longest target of a symbolic link.
pub(crate) const TARGET_BYTES_MAX: usize = 4095;

/// The tag of a snapshot's maker.
const MAKER: u16 = 1;
/// The tag of the limits of a directory's quota.
const QUOTA: u16 = 0x20;

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

/// The parts of an inode record that inode numbers are made of, read without the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub id: u64,
    /// Of a directory.
    pub salt: Option<u64>,
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

    /// Whether a file may have a block: it lies before the end, and in no hole.
    pub fn may_have_block(&self, number: u64) -> bool {
        let is_in = |extents: &Extents| extents.spans().any(|(from, to)| (from..to).contains(&number));
        number < self.size.div_ceil(BLOCK) && self.extents().is_none_or(is_in)
    }

    /// The extents of a file, for a change; a dense file becomes sparse. To be called before its size is
    /// changed.
    pub fn make_sparse(&mut self) -> &mut Extents {
        let blocks = self.size.div_ceil(BLOCK);
        let rare = self.rare.get_or_insert_default();
        rare.extents.get_or_insert_with(|| Extents::of_blocks(blocks))
    }

    /// Notes that a file has no hole: each absent block is damage from now on.
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

    /// The user who has made a snapshot, if a mount has let users make snapshots.
    pub fn maker(&self) -> Option<u32> {
        let (_, uid) = self.rare().tail.iter().find(|(tag, _)| *tag == MAKER)?;
        Some(u32::from_le_bytes(uid.try_into().ok()?))
    }

    /// Notes the user who makes a snapshot.
    pub fn set_maker(&mut self, uid: Option<u32>) {
        if uid.is_none() && self.maker().is_none() {
            return;
        }
        self.change_rare(|rare| {
            rare.tail = rare.tail.without(MAKER);
            // Where there is no room for it, only trusted users remove the snapshot.
            let _fits = uid.is_none_or(|uid| rare.tail.set(MAKER, &uid.to_le_bytes()));
        });
    }

    /// The limits of a directory's quota, if it has one. The tag of anything else has no meaning.
    pub fn quota(&self) -> Option<QuotaLimits> {
        let (_, limits) = self.rare().tail.iter().find(|(tag, _)| *tag == QUOTA && self.is_dir())?;
        QuotaLimits::decode(limits)
    }

    /// Sets or removes a directory's quota. `false`, without a change, if the record has no room for it.
    #[must_use]
    pub fn set_quota(&mut self, limits: Option<QuotaLimits>) -> bool {
        let mut fits = true;
        self.change_rare(|rare| match limits {
            Some(limits) => fits = rare.tail.set(QUOTA, &limits.encode()),
            None => rare.tail = rare.tail.without(QUOTA),
        });
        fits
    }

    /// The stretches of blocks that are stored, with some holes between them if there are very many.
    pub fn stored_blocks(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let dense = self.extents().is_none().then(|| 0..self.size.div_ceil(BLOCK));
        let sparse = self.extents().into_iter().flat_map(Extents::spans);
        dense.into_iter().chain(sparse.map(|(first, span)| first..first.saturating_add(span)))
    }

    /// Number of units of 512 bytes that a file takes. For a sparse file with a size it is not 0: bytes
    /// written to a mapping may not have arrived yet, and archivers would skip the file.
    pub fn units_512(&self) -> u64 {
        match self.file_type {
            FileType::Regular => self.stored_512().max(u64::from(self.size > 0)),
            _ => 0,
        }
    }

    /// Number of units of 512 bytes of a file's blocks that are stored, about if it has very many holes.
    pub fn stored_512(&self) -> u64 {
        self.blocks().saturating_mul(BLOCK / 512).min(self.size.div_ceil(512))
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }
}

#[cfg(test)]
mod tests;
