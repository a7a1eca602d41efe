//! The bytes of the kernel's FUSE protocol: the declarations of `linux/fuse.h` in use here, and the parsing
//! of requests and building of replies.

mod body;
pub mod change;
pub mod ioctl;
mod listing;
mod messages;
mod opcode;
pub mod properties;
pub mod quota;
pub mod recompress;

pub use body::{Body, name};
pub use listing::Listing;
pub use messages::*;
pub use opcode::Opcode;

/// The protocol's version spoken here. Kernels with an earlier minor version are served too.
pub const MAJOR: u32 = 7;
/// See [`MAJOR`].
pub const MINOR: u32 = 45;
/// The earliest minor version served (Linux 5.1): before it, the kernel needs an answer to OPENDIR.
pub const MINOR_MIN: u32 = 29;
/// From this version on (Linux 5.14) the kernel lets only owners set an inode's flags.
pub const MINOR_OWNERS_ASKED_FOR: u32 = 34;
/// From this version on (Linux 6.6) the kernel drops the pages that a write past them has made stale.
pub const MINOR_COHERENT_DIRECT_IO: u32 = 39;

/// Flags of INIT; the upper half travels in a field of its own.
pub mod init {
    /// Several reads of one file at once.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// OPEN with O_TRUNC empties the file.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// The server looks up `.` and `..` for handles of files.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The server applies the umask.
    pub const DONT_MASK: u64 = 1 << 6;
    /// READDIRPLUS exists.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses between READDIR and READDIRPLUS.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Concurrent lookups and listings in one directory.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel judges users by access control lists, which are extended attributes.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// The field `max_pages` is valid.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The kernel caches targets of symbolic links.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// Pages are dropped when the server says so, and not when times change.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// The server clears set-id bits, so the kernel need not ask for them at each write.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR comes with a [`SetxattrWhole`](super::SetxattrWhole).
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// The upper half of the flags is valid.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The mount may be idmapped; then only requests that make something name a user.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests come by io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of the reply to OPEN and CREATE.
pub mod fopen {
    /// Reads and writes go past the pages.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The kernel's pages of the file stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Closing sends no FLUSH.
    pub const NOFLUSH: u32 = 1 << 5;
}

/// Flags for the valid fields of a [`SetattrIn`].
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    /// Set-id bits are to be cleared.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// A flag of an [`IoctlIn`]: it is about a directory.
pub const IOCTL_DIR: u32 = 1 << 4;
/// A flag of a [`WriteIn`]: the data are a dirty page of a mapping, written back.
pub const WRITE_CACHE: u32 = 1 << 0;
/// A flag of a [`WriteIn`]: set-id bits are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A flag of a [`SetxattrMore`] with an access control list: the set-group-id bit is to be cleared.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// A flag of an [`OpenIn`]: set-id bits are to be cleared.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
