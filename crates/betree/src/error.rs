//! Errors, with place and reason.

use alloc::string::String;
use alloc::vec::Vec;

use betree_platform::{DeviceError, DeviceOp};

use crate::key::Cut;

/// The result of the engine's calls.
pub type Result<T> = core::result::Result<T, Error>;

/// The sentence for damage. A structure without a place of its own has length 0.
fn damaged(what: &str, offset: u64, len: u64, why: &str) -> String {
    match len {
        0 => alloc::format!("{what} is damaged: {why}"),
        _ => alloc::format!("{what} at byte {offset} ({len} bytes) is damaged: {why}"),
    }
}

/// Why a device holds no volume, where nothing in it begins as a superblock: a volume may have been there.
pub const NO_SUPERBLOCK: &str = "it has no superblock";

/// The numbers of the bits that are set, for messages.
pub fn bit_numbers(bits: u64) -> String {
    let set: Vec<String> =
        (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1).map(|bit| alloc::format!("{bit}")).collect();
    set.join(", ")
}

/// A number with the noun of what it counts, for messages: `1 node`, `2 nodes`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    alloc::format!("{number} {}", if number == 1 { one } else { many })
}

/// An error of the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A write found the disk under the device full. The data is kept, and can be written once there is room.
    #[error("the disk under the volume is full: {0}")]
    DeviceFull(DeviceError),
    /// Bytes on the device are not those that were written.
    #[error("{}", damaged(what, *offset, *len, why))]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// Its place on the device.
        offset: u64,
        /// Its length on the device; 0 if it has no place of its own.
        len: u64,
        /// The mismatch.
        why: String,
    },
    /// The keys were lost, and a repair has noted that.
    #[error("known damage: the keys from {lo:?} to {hi:?} of a node were lost")]
    KnownDamage {
        /// Where they begin, in the coordinates of the node that has the note.
        lo: Cut,
        /// Where they end, likewise.
        hi: Cut,
    },
    /// The device holds no volume.
    #[error("this is not a BetrFS volume: {why}")]
    NotAVolume {
        /// The reason.
        why: String,
    },
    /// The device is shorter than the volume.
    #[error(
        "the volume is truncated: it should have {volume_bytes} bytes, and has {device_bytes} bytes; give a file its size again \
         (`truncate -s {volume_bytes}`) and check it, or copy out what is left (`betrfs rescue`)"
    )]
    Truncated {
        /// The size of the volume.
        volume_bytes: u64,
        /// The size of the device.
        device_bytes: u64,
    },
    /// The volume was made by a later version of this program.
    #[error("the volume has format version {found}; this program reads up to {known}")]
    NewerFormat {
        /// The volume's format version.
        found: u32,
        /// The latest that this program knows.
        known: u32,
    },
    /// The volume was made by a version of this program before the first release, whose format is not read
    /// any more.
    #[error(
        "the volume has the older format version {found}, and this program reads {known}: mount it with the version \
         of betrfs that made it, and copy its contents to a new volume (`cp -a`, or `rsync -aHAX`)"
    )]
    OlderFormat {
        /// The volume's format version.
        found: u32,
        /// The one that this program reads.
        known: u32,
    },
    /// The volume has features that must be known to read it, and are not.
    #[error(
        "the volume has incompatible features that this version does not know: {} (bits {bits:#x}); a later version \
         of betrfs reads it",
        bit_numbers(*bits)
    )]
    UnknownFeatures {
        /// The bits of the feature word `incompat` that are not known.
        bits: u64,
    },
    /// A structure on the device has a kind that only later versions of this program know.
    #[error(
        "{what} {number}, which this version does not know, at byte {offset}: a later version of betrfs made it"
    )]
    UnknownKind {
        /// The structure, and the word for its kind.
        what: &'static str,
        /// The kind.
        number: u64,
        /// The offset on the device of the structure's header, or of its log segment.
        offset: u64,
    },
    /// A dictionary's upserts were made for another function than the one that it is opened with.
    #[error("the upserts of dictionary {dict} are for {made_with}, and it is opened with {opened_with}")]
    OtherUpsert {
        /// The dictionary.
        dict: u8,
        /// Name and version of the function that it was used with.
        made_with: String,
        /// Name and version of the given function.
        opened_with: String,
    },
    /// A label or a name that a volume cannot have.
    #[error("{0}")]
    BadIdentity(&'static str),
    /// No room for the change; nothing was changed.
    #[error("no space left on the volume")]
    NoSpace,
    /// A view has lost what it held, because space was short. Another one can be begun.
    #[error("the view has ended: its space was needed")]
    ViewEnded,
    /// A read that may not wait for the device has come to something that is not in memory.
    #[error("what was asked for is not in memory")]
    NotInMemory,
    /// The caller has ended the work.
    #[error("it was interrupted")]
    Interrupted,
    /// The volume accepts no changes: a write or sync has failed, or it was opened for reading.
    #[error("the volume is read-only: {why}")]
    ReadOnly {
        /// The failure, or the reason why the volume can only be read.
        why: String,
    },
    /// The process that opened the device was forked, and this is the fork: it cannot use the volume, and
    /// nothing was changed.
    #[error(
        "the volume was opened by process {opened_by}, of which this one is a fork: only that process can use it"
    )]
    Forked {
        /// The process that opened the device.
        opened_by: u32,
    },
    /// A key is over the limit; nothing was changed.
    #[error("a key of {bytes} bytes is over the limit of {limit_bytes} bytes")]
    KeyTooLong {
        /// Its length, or an upper bound on the lengths of a clone's keys.
        bytes: u64,
        /// The longest that is allowed.
        limit_bytes: u64,
    },
    /// The pairs of an ingest are not in the order of their keys, or a key comes twice; nothing was changed.
    #[error("pair {position}, counted from 0, does not come behind the one before it")]
    NotInOrder {
        /// Which pair it is, counted from 0.
        position: u64,
    },
    /// A value, a batch or a log record is over its limit; nothing was changed.
    #[error("{what} of {bytes} bytes is over the limit of {limit_bytes} bytes")]
    TooLarge {
        /// The name of the value, batch or record.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// A transaction would have more clones than one may have, or they would be cut into more parts; nothing
    /// was changed.
    #[error("a transaction has at most {limit} clones, or parts of them")]
    TooManyClones {
        /// The most that one has.
        limit: usize,
    },
    /// No memory for a buffer; nothing was changed.
    #[error("out of memory for a buffer of {bytes} bytes")]
    NoMemory {
        /// The buffer's size.
        bytes: u64,
    },
    /// The volume has no dictionary of that number; nothing was changed.
    #[error("the volume has no dictionary {id}")]
    NoSuchDictionary {
        /// The number asked for.
        id: u8,
    },
    /// Clones of clones would make a tree too high; nothing was changed.
    #[error(
        "clones of clones would make a tree of {levels} levels, which is over the limit of {limit_levels}"
    )]
    TooHigh {
        /// The number of levels that it would have.
        levels: u64,
        /// The most that a tree has.
        limit_levels: u64,
    },
    /// The record of a batch's changes does not parse.
    #[error("the changes of a batch do not parse as a log record")]
    BadRecord,
    /// An invariant of this program does not hold; nothing on the device is to blame.
    #[error("internal error at {place}: this does not hold: {what}")]
    Internal {
        /// The invariant.
        what: &'static str,
        /// File and line of the check.
        place: &'static str,
    },
    /// The device is too small for a new volume.
    #[error(
        "it has {bytes} bytes in whole blocks; a volume with nodes and a log of these sizes needs at least {least_bytes} bytes"
    )]
    TooSmall {
        /// The size of the device.
        bytes: u64,
        /// The least that it would need.
        least_bytes: u64,
    },
    /// A volume never shrinks; nothing was changed.
    #[error("a volume cannot shrink: it has {volume_bytes} bytes, and {bytes} bytes are fewer")]
    CannotShrink {
        /// The size asked for.
        bytes: u64,
        /// The size of the volume.
        volume_bytes: u64,
    },
    /// The device, of a given size, is too small for the volume to grow as asked; nothing was changed.
    #[error("the device has {device_bytes} bytes: a volume of {bytes} bytes does not fit on it")]
    DeviceTooSmall {
        /// The size asked for.
        bytes: u64,
        /// The size of the device.
        device_bytes: u64,
    },
    /// The parameters of a new volume do not fit together.
    #[error("{0}")]
    BadGeometry(&'static str),
}

impl Error {
    /// The place on the device that it names, in bytes.
    pub(crate) fn offset(&self) -> Option<u64> {
        match self {
            Error::Corrupt { offset, len, .. } => Some(*offset).filter(|_| *len > 0),
            Error::UnknownKind { offset, .. } => Some(*offset),
            Error::Device(error) | Error::DeviceFull(error) => Some(error.offset),
            _ => None,
        }
    }

    /// Whether it is about space that is missing, on the volume or on the disk below it.
    pub(crate) fn is_want_of_space(&self) -> bool {
        matches!(self, Error::NoSpace | Error::DeviceFull(_))
    }

    /// Whether it says that bytes on the device are not those that were written, or that a repair has noted
    /// so: reading them again gives the same error.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Corrupt { .. }) || self.is_known_damage()
    }

    /// Whether it says that a repair has noted the loss of what was asked for.
    pub fn is_known_damage(&self) -> bool {
        matches!(self, Error::KnownDamage { .. })
    }

    /// The same error; an unknown kind gets its place on the device.
    pub(crate) fn at(self, offset: u64) -> Error {
        match self {
            Error::UnknownKind { what, number, .. } => Error::UnknownKind { what, number, offset },
            other => other,
        }
    }

    /// Whether it is about a place on the device that cannot be read or is damaged. What a repair has noted
    /// can be read as such.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. }
                | Error::UnknownKind { .. }
                | Error::Device(DeviceError { op: DeviceOp::Read, .. })
        )
    }
}
