//! Arguments and results of the library's calls.

mod quota;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use betree::OpenMode;
use betree_platform::{Codec, Platform};
pub use quota::{Quota, QuotaLimits, QuotaUse};

/// The name of the entry with a directory's snapshots. It is never listed, and no other entry can have it.
pub const SNAPSHOTS_NAME: &[u8] = b".betrfs-snapshots";

/// Number of names of a directory that are read, numbered, listed or evicted while others wait.
pub(crate) const NAMES_AT_ONCE: usize = 4096;

/// The identity of an object: one for each, however many names it has. It is the object's inode number, by
/// which [`Volume::find_inode`](crate::Volume::find_inode) finds the object again in a later use of the
/// volume; [`Entry::generation`] tells it from others that had the number. Should two objects in memory have
/// one number, which random salts of copies make possible and improbable, one of them has another identity
/// while it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory.
    pub const ROOT: InodeId = InodeId(1);
}

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A socket's name.
    Socket,
}

/// The attributes of an object, as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode number, stable over remounts and renames.
    pub ino: u64,
    /// The object's type.
    pub file_type: FileType,
    /// Permissions and set-id bits (07777).
    pub perm: u16,
    /// Number of names; for a directory, 2 and the number of its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Units of 512 bytes in use.
    pub blocks_512: u64,
    /// Time of the last access, kept as with the mount option `lazytime`.
    pub atime_ns: i64,
    /// Time of the last change of the contents.
    pub mtime_ns: i64,
    /// Time of the last change of contents or attributes.
    pub ctime_ns: i64,
    /// Time of creation.
    pub crtime_ns: i64,
}

/// An object that was looked up. Each one returned counts one lookup, until
/// [`Volume::forget`](crate::Volume::forget).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object.
    pub node: InodeId,
    /// What tells it from an object that had its identity before: after a crash, inode numbers of lost files
    /// are given again. It stays over renames and later uses of the volume.
    pub generation: u32,
    /// Its attributes.
    pub attr: Attr,
}

/// What the owner of an inode wants of it, as chattr(1) sets it; the bits are Linux's (`FS_IOC_GETFLAGS`). A
/// volume keeps bits that this version does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// Nothing in particular.
    pub const NONE: InodeFlags = InodeFlags(0);
    /// Nothing of it changes.
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    /// It only grows.
    pub const APPEND: InodeFlags = InodeFlags(0x20);
    /// Backups leave it out.
    pub const NODUMP: InodeFlags = InodeFlags(0x40);
    /// Its time of the last access stays.
    pub const NOATIME: InodeFlags = InodeFlags(0x80);
    /// All that this version knows.
    pub const KNOWN: InodeFlags = InodeFlags(0xf0);

    /// Those of these bits.
    pub fn from_bits(bits: u32) -> InodeFlags {
        InodeFlags(bits)
    }

    /// The bits, those that are not known too.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether it has all of the others.
    pub fn has(self, others: InodeFlags) -> bool {
        self.0 & others.0 == others.0
    }

    /// The flags in both.
    #[must_use]
    pub const fn intersection(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & others.0)
    }

    /// The flags in either.
    #[must_use]
    pub const fn union(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | others.0)
    }

    /// The flags that are not among the others.
    #[must_use]
    pub const fn without(self, others: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !others.0)
    }
}

/// Who sets the flags of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagSetter {
    /// The user whose inodes may be changed; `None` for those of all users (`CAP_FOWNER`).
    pub owner: Option<u32>,
    /// Whether [`InodeFlags::IMMUTABLE`] and [`InodeFlags::APPEND`] may change (`CAP_LINUX_IMMUTABLE`).
    pub may_protect: bool,
}

impl FlagSetter {
    /// May set all flags of all inodes.
    pub const ROOT: FlagSetter = FlagSetter { owner: None, may_protect: true };
}

/// How a file is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Only at its end (O_APPEND).
    AtEnd,
    /// Anywhere, or the opening empties it (O_TRUNC).
    Anywhere,
}

/// The properties of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// The object's type.
    pub file_type: FileType,
    /// Permissions.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group; a set-group-id directory overrides it.
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u32,
    /// The permissions that it does not get, unless its directory has a default access control list.
    pub umask: u16,
}

/// Which access control list of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    /// That by which its users are judged.
    Access,
    /// That of a directory which new objects in it inherit.
    Default,
}

impl AclKind {
    /// The name of the extended attribute with the list.
    pub const fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// The list that an extended attribute of this name is.
    pub fn of_name(name: &[u8]) -> Option<AclKind> {
        [AclKind::Access, AclKind::Default].into_iter().find(|kind| kind.name() == name)
    }
}

/// What becomes of the set-group-id bit when an access control list is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetGroupId {
    /// It stays.
    Kept,
    /// It goes: the caller is neither in the object's group nor privileged (`CAP_FSETID`).
    Cleared,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The present.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// The attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions (07777).
    pub perm: Option<u16>,
    /// Owner. A change clears the set-id bits of anything but a directory, unless `perm` is given.
    pub uid: Option<u32>,
    /// Group, likewise.
    pub gid: Option<u32>,
    /// Size in bytes; truncates, or extends by a hole.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime_ns: Option<TimeSet>,
    /// Time of the last change of the contents.
    pub mtime_ns: Option<TimeSet>,
    /// Time of the last change; now if `None`.
    pub ctime_ns: Option<i64>,
    /// Whether to clear set-id bits and a program's capabilities: the caller is about to change the contents,
    /// or changes the size, and has no privilege to keep them (`CAP_FSETID`).
    pub kill_set_id: bool,
    /// Whether the caller is outside of the object's group and has no privilege to keep set-id bits. Then a
    /// change that clears set-id bits also clears set-group-id of a file without execute permission for the
    /// group.
    pub outside_group: bool,
}

/// Which entries of a listing include their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// None: names and types alone.
    None,
    /// Directories only, for a walk of the tree.
    Directories,
    /// All, except linked files that are not in memory.
    All,
}

impl Objects {
    /// Whether an entry of this type includes its object.
    pub(crate) fn include(self, file_type: FileType) -> bool {
        match self {
            Objects::None => false,
            Objects::Directories => file_type == FileType::Directory,
            Objects::All => true,
        }
    }
}

/// An entry of a directory's listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number.
    pub ino: u64,
    /// The cookie that continues the listing behind this entry; at least 3 and below 2^63.
    pub cookie: u64,
    /// The object's type.
    pub file_type: FileType,
    /// Its name.
    pub name: &'a [u8],
    /// The object, if it was asked for and is available.
    pub entry: Option<Entry>,
}

/// How [`Volume::rename`](crate::Volume::rename) treats the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the target exists.
    pub no_replace: bool,
    /// Swap the two entries.
    pub exchange: bool,
    /// Leave a 0:0 character device at the source.
    pub whiteout: bool,
}

/// The room on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// The volume's capacity.
    pub total_bytes: u64,
    /// Bytes in use neither on the device nor by changes yet to be written.
    pub free_bytes: u64,
    /// The part of `free_bytes` for writers: the rest is kept for deletes, as ext4 keeps some for root.
    pub available_bytes: u64,
    /// Number of objects that exist or can be made. Existing objects are not counted exactly: the number of
    /// ids ever used is taken, or of objects that fit into the used room if that is less.
    pub files: u64,
    /// Number of objects that can still be made, from the available room.
    pub files_free: u64,
    /// The longest name in bytes.
    pub name_bytes_max: u32,
    /// The unit of file data in bytes.
    pub block_bytes: u32,
}

/// Whether an extended attribute must or must not exist when it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// What [`Volume::fallocate`](crate::Volume::fallocate) does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Makes sure that the range can be written: room is set aside for it. The file is extended unless
    /// `keep_size`.
    Allocate {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Makes the range a hole; the size stays.
    PunchHole,
    /// Makes the range read as zeros.
    Zero {
        /// Leave the size as it is.
        keep_size: bool,
    },
}

/// What [`Volume::seek`](crate::Volume::seek) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekWhat {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is in a hole; there is one at the end of the file.
    Hole,
}

/// Which accesses move an object's time of last access. In a snapshot none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// None, as with the mount option `noatime`.
    Never,
    /// The first one since a change, and the first one in a day, as with `relatime`.
    #[default]
    Relative,
    /// All, as with `strictatime`.
    Always,
}

/// Whether a read leaves a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It counts for the time of last access.
    Counts,
    /// The reader asked for no trace, as with O_NOATIME.
    Unnoticed,
}

/// The properties fixed when a volume is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// The engine's geometry; chosen by the size of the volume if `None`.
    pub geometry: Option<betree::Geometry>,
    /// The owner's name for the volume: at most 255 bytes, no control characters.
    pub label: String,
    /// The system's name for the volume; random if `None`.
    pub uuid: Option<betree::Uuid>,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permissions of the root directory; 0755 if `None`.
    pub root_perm: Option<u16>,
    /// The size up to which the volume grows by itself, in bytes: [`betree::Env::set_growth_limit`].
    pub grow_to_bytes: Option<u64>,
    /// How many copies of interior nodes the volume has: [`betree::Env::set_node_copies`].
    pub node_copies: betree::NodeCopies,
}

/// The properties chosen each time a volume is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The engine's node cache in bytes.
    pub cache_bytes: usize,
    /// The clock and randomness.
    pub platform: Arc<dyn Platform>,
    /// Hears of troubles with the volume or its device.
    pub watcher: Option<Arc<dyn betree::Watcher>>,
    /// Number of inodes in memory above which those that nobody has open or looked up are evicted.
    pub inodes_max: usize,
    /// Number of names in memory above which those of inodes that are not in memory are evicted.
    pub names_max: usize,
    /// The most names of files with several names that a clone or the removal of a tree goes through while
    /// others wait; of more it goes through without the lock of all names.
    pub links_alone_max: usize,
    /// The most bytes of memory for contents of small files: files of up to 4 KiB that were read.
    pub contents_bytes_max: usize,
    /// Which accesses count for the time of last access; none of a volume that is opened for reading.
    pub access_times: AccessTimes,
    /// Whether listing a directory counts too.
    pub listings_count: bool,
    /// Whether a caller that opens a file by its name and gets [`Stale`](crate::Error::Stale) looks the name
    /// up once more, as Linux does. A file replaced by a rename then need not be kept for callers that have
    /// looked it up but not yet opened it.
    pub names_are_looked_up_again: bool,
    /// What opening does if the log has lost durable changes.
    pub log_loss: betree::LogLoss,
    /// What may be written.
    pub mode: OpenMode,
    /// Whether blocks that became free are discarded after each checkpoint.
    pub discard: bool,
    /// The codec of zstd: without it what was written with zstd cannot be read, and it cannot be set.
    pub zstd: Option<Arc<dyn Codec>>,
    /// Hears how far the replay of the log is: [`betree::Options::replay_progress`].
    pub replay_progress: Option<Arc<betree::ReplayProgress>>,
}

impl OpenOptions {
    /// No watcher, a cache of 256 MiB, 65,536 inodes, a million names, 16 MiB of contents of small files;
    /// times of access as with `relatime`; a replaced file can still be opened by a caller that looked it up.
    pub fn new(platform: Arc<dyn Platform>) -> OpenOptions {
        OpenOptions {
            cache_bytes: 256 << 20,
            platform,
            watcher: None,
            inodes_max: 1 << 16,
            names_max: 1 << 20,
            links_alone_max: 64,
            contents_bytes_max: 16 << 20,
            access_times: AccessTimes::Relative,
            listings_count: true,
            names_are_looked_up_again: false,
            log_loss: betree::LogLoss::Refuse,
            mode: OpenMode::ReadWrite,
            discard: false,
            zstd: None,
            replay_progress: None,
        }
    }
}

/// What the removal of everything below a directory does about snapshots of the directory itself and of
/// directories below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotsBelow {
    /// They hold the directory: if there is one, nothing is removed.
    Hold,
    /// They are removed too.
    Go,
}

/// A user, and the groups that count as the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The numbers of the groups.
    pub groups: Vec<u32>,
}

/// That a file or a directory with everything below it belonged to a user, and where to look whether that has
/// changed ([`Volume::owned_by`](crate::Volume::owned_by)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub(crate) node: InodeId,
    pub(crate) uid: u32,
    /// Number of notes of foreign objects when it was looked through.
    pub(crate) notes: u64,
}

/// What the caller may remember of a directory whose contents were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedBelow {
    /// Objects that the caller holds and whose attributes have changed.
    pub changed: Vec<InodeId>,
    /// Names of entries that were in memory, each with its directory: the one that was emptied, or the entry
    /// with its snapshots.
    pub names: Vec<(InodeId, Arc<[u8]>)>,
}

/// What has changed beside the new state of a directory that was brought back to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The entry with the directory's snapshots.
    pub snapshots: InodeId,
    /// Snapshots that are there now: the entry with them, and the name. The one of the directory's own
    /// earlier state is missing if space is too short for it at the moment: [`Volume::finish_removals`]
    /// makes it.
    ///
    /// [`Volume::finish_removals`]: crate::Volume::finish_removals
    pub made: Vec<(InodeId, Arc<[u8]>)>,
    /// Names of entries that were in memory: none of them leads to what it led to.
    pub names: Vec<Arc<[u8]>>,
    /// Objects that the caller holds and whose attributes have changed.
    pub changed: Vec<InodeId>,
}

/// What has changed when removals and ways back to snapshots were finished that had been put off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Objects that the caller holds and whose attributes have changed.
    pub changed: Vec<InodeId>,
    /// Snapshots that are there now: the entry with them, and the name.
    pub snapshots: Vec<(InodeId, Arc<[u8]>)>,
}

/// The snapshots that hold a directory: its own and those of directories below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The number of snapshots, but no more than [`Held::COUNT_MAX`].
    pub count: usize,
    /// The paths of the first ones, relative to the directory.
    pub paths: Vec<Vec<u8>>,
}

impl Held {
    /// Snapshots beyond this number are not counted.
    pub const COUNT_MAX: usize = 1000;
    /// Number of paths reported.
    pub const PATHS_MAX: usize = 10;
}
