//! Copying out all that can be read of a volume, however damaged it is, and naming all that cannot.
//!
//! The dictionaries are read from their first key to their last, past unreadable parts. Nothing is invented:
//! a part that cannot be read is told with its reason, and left out. A name whose record is lost is found by
//! its data, if it has any: the keys of these hold the whole path.
//!
//! Memory is needed for one object at a time.

mod contents;
mod names;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree::{Env, Finding};
use betree_platform::Device;

use crate::error::Result;
use crate::op::{AllCounts, Op, OpKind};
use crate::types::{FileType, InodeFlags};

/// Where an object belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The root directory.
    Root,
    /// The names on the way from the root, at least one. Each can be a name in a directory: none is empty,
    /// `.` or `..`, or holds a `/`. Snapshots are below [`SNAPSHOTS_NAME`](crate::SNAPSHOTS_NAME), which has
    /// no object of its own.
    Path(Vec<Vec<u8>>),
    /// A file with several names, by the number that [`Destination::name`] refers to.
    Linked(u64),
}

/// The attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions and set-id bits (07777).
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u32,
    /// Size of a file in bytes.
    pub size: u64,
    /// Time of the last access.
    pub atime_ns: i64,
    /// Time of the last change of the contents.
    pub mtime_ns: i64,
    /// What its owner wants of it, as chattr(1) sets it.
    pub flags: InodeFlags,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
}

/// An object that is copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it belongs.
    pub location: Location,
    /// The object's type.
    pub file_type: FileType,
    /// `None` if its record is lost: then it is a file, as long as the last of its data that can be read.
    pub attributes: Option<Attributes>,
}

/// The part of a volume that cannot be copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The volume's own record.
    Volume,
    /// All names between two paths, with what belongs to them. Those that can be found by their data come as
    /// objects nevertheless.
    Names {
        /// The first path.
        from: String,
        /// The path behind the last.
        to: String,
    },
    /// The whole object.
    Object(Location),
    /// The record of an object: its attributes, and for a file the size.
    Record(Location),
    /// Bytes of a file.
    Bytes {
        /// The file.
        of: Location,
        /// The first byte.
        from: u64,
        /// Behind the last byte.
        to: u64,
    },
    /// An extended attribute.
    Attribute {
        /// The object.
        of: Location,
        /// The attribute's name.
        name: Vec<u8>,
    },
    /// A key or a name that no volume has, described.
    Senseless(String),
}

/// Whether an object's contents are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// They follow.
    Wanted,
    /// They are left out.
    Unwanted,
}

/// Where a rescued volume is copied to. `Break` ends the rescue.
///
/// Directories come before what is in them, but their records may be lost, so that they do not come at all.
/// Files with several names come first, each as an object by its number; then their names.
pub trait Destination {
    /// The next object. Its attributes and data follow, if they are wanted.
    fn object(&mut self, object: &Object) -> ControlFlow<(), Contents>;

    /// An extended attribute of the last object.
    fn attribute(&mut self, name: &[u8], value: &[u8]) -> ControlFlow<()>;

    /// Bytes of the last object at an offset, in ascending order. What is in between is a hole, or lost.
    fn data(&mut self, offset: u64, bytes: &[u8]) -> ControlFlow<()>;

    /// All that can be read of the last object has come.
    fn end(&mut self) -> ControlFlow<()>;

    /// A name of a file with several.
    fn name(&mut self, location: &Location, number: u64) -> ControlFlow<()>;

    /// Something is lost, with the reason.
    fn lost(&mut self, lost: &Lost, why: &str) -> ControlFlow<()>;
}

/// What is left of a volume, for reading.
pub struct Rescue {
    env: Env,
}

impl Rescue {
    /// Opens what is left of a volume, as [`Env::open_for_rescue`]. Nothing is ever written to the device.
    ///
    /// # Errors
    /// As there.
    pub fn open(
        device: Arc<dyn Device>,
        options: betree::Options,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Rescue> {
        Ok(Rescue { env: Env::open_for_rescue(device, options, tell)? })
    }

    /// Copies out all that can be read: the names with their objects, then those in snapshots. Files that
    /// were removed and still open are not among them.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// use std::ops::ControlFlow;
    ///
    /// use betrfs::rescue::{Contents, Destination, Location, Lost, Object, Rescue};
    /// use betrfs::{FormatOptions, InodeId, OpenOptions, Volume};
    /// # use betrfs::{FileType, NewNode};
    ///
    /// /// Counts bytes, and objects that lack something.
    /// #[derive(Default)]
    /// struct Count {
    ///     bytes: usize,
    ///     lost: usize,
    /// }
    ///
    /// impl Destination for Count {
    ///     fn object(&mut self, _: &Object) -> ControlFlow<(), Contents> {
    ///         ControlFlow::Continue(Contents::Wanted)
    ///     }
    ///     fn attribute(&mut self, _: &[u8], _: &[u8]) -> ControlFlow<()> {
    ///         ControlFlow::Continue(())
    ///     }
    ///     fn data(&mut self, _: u64, bytes: &[u8]) -> ControlFlow<()> {
    ///         self.bytes += bytes.len();
    ///         ControlFlow::Continue(())
    ///     }
    ///     fn end(&mut self) -> ControlFlow<()> {
    ///         ControlFlow::Continue(())
    ///     }
    ///     fn name(&mut self, _: &Location, _: u64) -> ControlFlow<()> {
    ///         ControlFlow::Continue(())
    ///     }
    ///     fn lost(&mut self, _: &Lost, _: &str) -> ControlFlow<()> {
    ///         self.lost += 1;
    ///         ControlFlow::Continue(())
    ///     }
    /// }
    ///
    /// let (device, platform) = doc::device();
    /// Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    /// let volume = Volume::open(device.clone(), OpenOptions::new(platform))?;
    /// # let new_file =
    /// #     NewNode { file_type: FileType::Regular, perm: 0o644, uid: 0, gid: 0, rdev: 0, umask: 0 };
    /// volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?;
    /// volume.close()?;
    ///
    /// let rescue = Rescue::open(device, Volume::engine_options(8 << 20), &mut |_| ())?;
    /// let mut count = Count::default();
    /// assert!(rescue.copy(&mut count)?.is_continue());
    /// assert_eq!((count.bytes, count.lost), (4, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file system in it is of another version; what cannot be read is no error.
    pub fn copy(&self, to: &mut dyn Destination) -> Result<ControlFlow<()>> {
        let counts = AllCounts::default();
        let op = counts.begin(&self.env, OpKind::Internal);
        let mut copying = Copying { op: &op, to };
        if copying.volume_record()?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        Ok(copying.everything())
    }
}

/// A copy under way.
struct Copying<'c> {
    op: &'c Op<'c>,
    to: &'c mut dyn Destination,
}
