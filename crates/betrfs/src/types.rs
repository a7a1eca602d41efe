//! What callers give and get.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::Platform;

/// The name under which a directory's snapshots are found. It is never listed, and no other entry can
/// have it.
pub const SNAPSHOTS_NAME: &[u8] = b".betrfs-snapshots";

/// An object in memory: one for each object, whatever its names. Never used twice while a volume is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory.
    pub const ROOT: InodeId = InodeId(1);
}

/// What an entry is.
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
    /// What it is.
    pub file_type: FileType,
    /// Permissions and set-id bits (07777).
    pub perm: u16,
    /// Count of names; for a directory 2 + its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, of device files.
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

/// An object that was looked up: giving one out counts one lookup, which
/// [`Volume::forget`](crate::Volume::forget) gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object.
    pub node: InodeId,
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
    /// Its time of the last read stays.
    pub const NOATIME: InodeFlags = InodeFlags(0x80);

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
}

/// What a new object is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// What it is.
    pub file_type: FileType,
    /// Permissions, with the umask applied already.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group; a set-group-id directory overrides it.
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The present.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// The attributes to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions (07777).
    pub perm: Option<u16>,
    /// Owner. A change clears set-id bits of what is no directory, unless `perm` is given.
    pub uid: Option<u32>,
    /// Group, likewise.
    pub gid: Option<u32>,
    /// Size; truncates or extends by a hole.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime_ns: Option<TimeSet>,
    /// Time of the last change of the contents.
    pub mtime_ns: Option<TimeSet>,
    /// Time of the last change; now, where it is not given.
    pub ctime_ns: Option<i64>,
    /// Whether set-id bits, and the capabilities of a program, are to go: the caller is about to change the
    /// contents, or changes the size, and has no privilege to keep them (`CAP_FSETID`).
    pub kill_set_id: bool,
}

/// Which entries of a listing come with their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// None: names and types alone.
    None,
    /// Those of directories: what it takes to go on below.
    Directories,
    /// All, except names of linked files that are not in memory.
    All,
}

impl Objects {
    /// Whether an entry of this type comes with its object.
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
    /// What it is.
    pub file_type: FileType,
    /// Its name.
    pub name: &'a [u8],
    /// The object, where it was asked for and is at hand.
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
    /// What the volume can hold.
    pub total_bytes: u64,
    /// What nothing takes, on the device or of what is to be written there.
    pub free_bytes: u64,
    /// What of that can be given to writers: the rest is kept for deletes, as ext4 keeps some for root.
    pub available_bytes: u64,
    /// How many objects there are and can be. How many there are is not kept: no more than were ever made, or
    /// than there is room taken for.
    pub files: u64,
    /// How many more objects there can be, from the room.
    pub files_free: u64,
    /// The longest name.
    pub name_bytes_max: u32,
    /// The unit of file data.
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
    /// Makes sure that the range can be written. There is nothing to reserve in a copy-on-write
    /// store; the file is extended unless `keep_size`.
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

/// Whether what reads a file leaves a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It counts for the time of last access.
    Counts,
    /// It was asked not to, as by O_NOATIME.
    Unnoticed,
}

/// What is fixed when a volume is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// The engine's geometry; by the size of the volume where `None`.
    pub geometry: Option<betree::Geometry>,
    /// What its owner calls the volume: at most 255 bytes, no control characters.
    pub label: String,
    /// What the system calls it by; a random one where `None`.
    pub uuid: Option<betree::Uuid>,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permissions of the root directory; 0755 where `None`.
    pub root_perm: Option<u16>,
}

/// What is chosen each time a volume is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The engine's node cache in bytes.
    pub cache_bytes: usize,
    /// The clock and randomness.
    pub platform: Arc<dyn Platform>,
    /// Who is told of troubles with the volume or its device.
    pub watcher: Option<Arc<dyn betree::Watcher>>,
    /// How many inodes are kept that nobody has open or looked up.
    pub inodes_max: usize,
    /// How many names of directories are kept that nobody has open.
    pub names_max: usize,
    /// The most that contents of small files take in memory, in bytes: files of up to 4 KiB that were read.
    pub contents_bytes_max: usize,
    /// Which accesses count for the time of last access.
    pub access_times: AccessTimes,
    /// Whether listing a directory is one of them.
    pub listings_count: bool,
    /// Whether whoever opens a file by its name and is told [`Stale`](crate::Error::Stale) looks the name up
    /// again, once, as Linux does. A file that is replaced by a rename then need not be kept for those who
    /// looked it up and have not opened it yet.
    pub names_are_looked_up_again: bool,
}

impl OpenOptions {
    /// Nobody who watches, a cache of 256 MiB, 65,536 inodes, a million names, 16 MiB of small files'
    /// contents; times of access as with `relatime`; what was looked up can be opened, though it was
    /// replaced.
    pub fn new(platform: Arc<dyn Platform>) -> OpenOptions {
        OpenOptions {
            cache_bytes: 256 << 20,
            platform,
            watcher: None,
            inodes_max: 1 << 16,
            names_max: 1 << 20,
            contents_bytes_max: 16 << 20,
            access_times: AccessTimes::Relative,
            listings_count: true,
            names_are_looked_up_again: false,
        }
    }
}

/// What the removal of all that is below a directory does about snapshots, of the directory itself and of
/// those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotsBelow {
    /// They hold it: where there is one, nothing is removed.
    Hold,
    /// They go along.
    Go,
}

/// The snapshots that hold a directory: its own and those of directories below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many they are, but no more than [`Held::COUNT_MAX`].
    pub count: usize,
    /// The paths of the first of them, relative to the directory.
    pub paths: Vec<Vec<u8>>,
}

impl Held {
    /// Further than this they are not counted.
    pub const COUNT_MAX: usize = 1000;
    /// No more paths than these are told.
    pub const PATHS_MAX: usize = 10;
}
