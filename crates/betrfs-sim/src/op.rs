//! Operations on a volume, with all their choices. So any part of a history replays alike.

use std::fmt;

use betrfs::{
    FallocateMode, FileType, InodeFlags, Objects, QuotaLimits, RenameFlags, SeekWhat, SetAttr, SetProperties,
    SnapshotsBelow, XattrMode,
};

use crate::at::{At, SlotId};

/// Bytes to write, as a function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Number of bytes.
    pub len: usize,
    /// What distinguishes them from those of other writes.
    pub mark: u8,
}

impl Data {
    /// The bytes. None is 0, so that they differ from a hole.
    pub fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|at| self.mark.wrapping_add((at / 7) as u8) | 1).collect()
    }
}

/// Owner and permissions of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Permissions.
    pub perm: u16,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// An operation on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of `Display` say what each does with its parts")]
pub enum Op {
    // Names.
    Create { at: At, file_type: FileType, owner: Owner, rdev: u32 },
    CreateWith { at: At, owner: Owner, data: Data },
    Symlink { at: At, target: Vec<u8>, uid: u32, gid: u32 },
    CreateUnnamed { dir: At, owner: Owner, slot: SlotId },
    Link { from: At, to: At },
    Unlink { at: At },
    Rmdir { at: At },
    RemoveBelow { at: At, snapshots: SnapshotsBelow },
    Rename { from: At, to: At, flags: RenameFlags },
    // Contents.
    Write { at: At, offset: u64, data: Data },
    Append { at: At, data: Data },
    Fallocate { at: At, mode: FallocateMode, offset: u64, len: u64 },
    CopyRange { from: At, from_offset: u64, to: At, to_offset: u64, len: u64 },
    // Attributes.
    SetAttr { at: At, set: SetAttr },
    SetXattr { at: At, name: Vec<u8>, value: Data, mode: XattrMode },
    RemoveXattr { at: At, name: Vec<u8> },
    SetFlags { at: At, flags: InodeFlags, project: Option<u32> },
    SetProperties { at: At, set: SetProperties },
    SetQuota { at: At, limits: Option<QuotaLimits> },
    // Copies.
    Clone { from: At, to: At },
    CloneOnto { from: At, to: At },
    Snapshot { of: At, name: Vec<u8> },
    RemoveSnapshot { of: At, name: Vec<u8> },
    Restore { of: At, name: Vec<u8>, keep_as: Vec<u8> },
    // Held objects.
    Open { at: At, slot: SlotId },
    Hold { at: At, slot: SlotId },
    OpenHeld { slot: SlotId },
    Close { slot: SlotId },
    // Questions.
    Stat { at: At },
    Read { at: At, offset: u64, len: usize },
    Seek { at: At, offset: u64, what: SeekWhat },
    List { at: At, objects: Objects, chunk: usize },
    ListOn { slot: SlotId, objects: Objects, count: usize },
    SnapshotsBelow { at: At },
    OpenFilesIn { at: At },
    Usage { at: At },
    StatFs,
    // Durability.
    Fsync { at: At },
    Sync,
}

impl Op {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Create { file_type: FileType::Directory, .. } => "mkdir",
            Op::Create { .. } => "create",
            Op::CreateWith { .. } => "create with contents",
            Op::Symlink { .. } => "symlink",
            Op::CreateUnnamed { .. } => "create unnamed",
            Op::Link { .. } => "link",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::RemoveBelow { .. } => "remove below",
            Op::Rename { flags: RenameFlags { exchange: true, .. }, .. } => "exchange",
            Op::Rename { .. } => "rename",
            Op::Write { .. } => "write",
            Op::Append { .. } => "append",
            Op::Fallocate { .. } => "fallocate",
            Op::CopyRange { .. } => "copy range",
            Op::SetAttr { set: SetAttr { size: Some(_), .. }, .. } => "truncate",
            Op::SetAttr { .. } => "setattr",
            Op::SetXattr { .. } => "set xattr",
            Op::RemoveXattr { .. } => "remove xattr",
            Op::SetFlags { .. } => "set flags",
            Op::SetProperties { .. } => "set properties",
            Op::SetQuota { limits: Some(_), .. } => "set quota",
            Op::SetQuota { limits: None, .. } => "clear quota",
            Op::Clone { .. } => "clone",
            Op::CloneOnto { .. } => "clone onto",
            Op::Snapshot { .. } => "snapshot",
            Op::RemoveSnapshot { .. } => "remove snapshot",
            Op::Restore { .. } => "restore snapshot",
            Op::Open { .. } => "open",
            Op::Hold { .. } => "hold",
            Op::OpenHeld { .. } => "open held",
            Op::Close { .. } => "close",
            Op::Stat { .. } => "stat",
            Op::Read { .. } => "read",
            Op::Seek { .. } => "seek",
            Op::List { .. } => "list",
            Op::ListOn { .. } => "list on",
            Op::SnapshotsBelow { .. } => "snapshots below",
            Op::OpenFilesIn { .. } => "open files in",
            Op::Usage { .. } => "usage",
            Op::StatFs => "statfs",
            Op::Fsync { .. } => "fsync",
            Op::Sync => "sync",
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of mark {}", self.len, self.mark)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Op::Create { at, file_type: FileType::Directory, owner, .. } => {
                write!(f, "mkdir {at} ({:o}, {}:{})", owner.perm, owner.uid, owner.gid)
            }
            Op::Create { at, file_type, owner, rdev } => {
                write!(f, "create {at} ({file_type:?} {rdev}, {:o}, {}:{})", owner.perm, owner.uid, owner.gid)
            }
            Op::CreateWith { at, data, .. } => write!(f, "create {at} with {data}"),
            Op::Symlink { at, target, .. } => write!(f, "symlink {at} to a target of {} bytes", target.len()),
            Op::CreateUnnamed { dir, slot, .. } => {
                write!(f, "create a file without a name in {dir}, open as #{slot}")
            }
            Op::Link { from, to } => write!(f, "link {from} as {to}"),
            Op::Unlink { at }
            | Op::Rmdir { at }
            | Op::Stat { at }
            | Op::OpenFilesIn { at }
            | Op::Usage { at }
            | Op::Fsync { at }
            | Op::SnapshotsBelow { at } => write!(f, "{kind} {at}"),
            Op::RemoveBelow { at, snapshots } => {
                write!(f, "remove everything below {at}, snapshots {snapshots:?}")
            }
            Op::Rename { from, to, flags } => {
                let replace = if flags.no_replace { " without replacing" } else { "" };
                let whiteout = if flags.whiteout { " leaving a whiteout" } else { "" };
                let to_or_and = if flags.exchange { "and" } else { "to" };
                write!(f, "{kind} {from} {to_or_and} {to}{replace}{whiteout}")
            }
            Op::Write { at, offset, data } => write!(f, "write {data} at {offset} of {at}"),
            Op::Append { at, data } => write!(f, "append {data} to {at}"),
            Op::Fallocate { at, mode, offset, len } => write!(f, "{mode:?} {len} bytes at {offset} of {at}"),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                write!(f, "copy {len} bytes at {from_offset} of {from} to {to_offset} of {to}")
            }
            Op::SetAttr { at, set } => write!(f, "{kind} {at}: {}", Changes(set)),
            Op::SetXattr { at, name, value, mode } => {
                write!(f, "set xattr {} of {at} to {value} ({mode:?})", name.escape_ascii())
            }
            Op::RemoveXattr { at, name } => write!(f, "remove xattr {} of {at}", name.escape_ascii()),
            Op::SetFlags { at, flags, project } => {
                write!(f, "set flags of {at} to {:#x}, project {project:?}", flags.bits())
            }
            Op::SetProperties { at, set } => {
                write!(
                    f,
                    "set properties of {at}: noatime {:?}, compression {:?}",
                    set.noatime, set.compression
                )
            }
            Op::SetQuota { at, limits: Some(QuotaLimits { bytes, objects }) } => {
                write!(f, "limit what is below {at} to {bytes:?} bytes and {objects:?} objects")
            }
            Op::SetQuota { at, limits: None } => write!(f, "{kind} {at}"),
            Op::Clone { from, to } => write!(f, "clone {from} as {to}"),
            Op::CloneOnto { from, to } => write!(f, "clone {from} onto {to}"),
            Op::Snapshot { of, name } | Op::RemoveSnapshot { of, name } => {
                write!(f, "{kind} {} of {of}", name.escape_ascii())
            }
            Op::Restore { of, name, keep_as } => {
                let (name, keep_as) = (name.escape_ascii(), keep_as.escape_ascii());
                write!(f, "restore {of} to its snapshot {name}, and keep it as {keep_as}")
            }
            Op::Open { at, slot } => write!(f, "open {at} as #{slot}"),
            Op::Hold { at, slot } => write!(f, "look {at} up as #{slot}"),
            Op::OpenHeld { slot } => write!(f, "open #{slot}"),
            Op::Close { slot } => write!(f, "close #{slot}"),
            Op::Read { at, offset, len } => write!(f, "read {len} bytes at {offset} of {at}"),
            Op::Seek { at, offset, what } => write!(f, "seek {what:?} from {offset} in {at}"),
            Op::List { at, objects, chunk } => write!(f, "list {at} by {chunk} with objects {objects:?}"),
            Op::ListOn { slot, objects, count } => {
                write!(f, "list {count} more entries of #{slot} with objects {objects:?}")
            }
            Op::StatFs | Op::Sync => f.write_str(kind),
        }
    }
}

/// The changes of a [`SetAttr`], in words.
struct Changes<'a>(&'a SetAttr);

impl fmt::Display for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.0;
        if let Some(perm) = set.perm {
            write!(f, "permissions {perm:o} ")?;
        }
        if let Some(uid) = set.uid {
            write!(f, "user {uid} ")?;
        }
        if let Some(gid) = set.gid {
            write!(f, "group {gid} ")?;
        }
        if let Some(size) = set.size {
            write!(f, "size {size} ")?;
        }
        if let Some(time) = set.atime_ns {
            write!(f, "atime {time:?} ")?;
        }
        if let Some(time) = set.mtime_ns {
            write!(f, "mtime {time:?} ")?;
        }
        if let Some(time) = set.ctime_ns {
            write!(f, "ctime {time} ")?;
        }
        f.write_str(if set.kill_set_id { "without set-id bits" } else { "" })?;
        f.write_str(if set.outside_group { " from outside of the group" } else { "" })
    }
}
