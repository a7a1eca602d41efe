//! The structures of requests and replies, field by field as the kernel has them.
#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* } = $bytes:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name {
                $(pub $field: $kind,)*
            }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

messages! {
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        extensions_len: u16, padding: u16,
    } = 40;
    OutHeader { len: u32, error: i32, unique: u64, } = 16;
    InitIn {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    } = 64;
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    } = 64;
    Attr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atime_nsec: u32,
        mtime_nsec: u32, ctime_nsec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    } = 88;
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    } = 128;
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, } = 104;
    ForgetIn { lookups: u64, } = 8;
    BatchForgetIn { count: u32, dummy: u32, } = 8;
    ForgetOne { nodeid: u64, lookups: u64, } = 16;
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    } = 88;
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, } = 16;
    MkdirIn { mode: u32, umask: u32, } = 8;
    RenameIn { newdir: u64, } = 8;
    Rename2In { newdir: u64, flags: u32, padding: u32, } = 16;
    LinkIn { oldnodeid: u64, } = 8;
    OpenIn { flags: u32, open_flags: u32, } = 8;
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, } = 16;
    OpenOut { fh: u64, open_flags: u32, backing_id: u32, } = 16;
    CreateOut { entry: EntryOut, open: OpenOut, } = 144;
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, } = 24;
    /// Of READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    } = 40;
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    } = 40;
    WriteOut { size: u32, padding: u32, } = 8;
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    } = 80;
    SetxattrIn { size: u32, flags: u32, } = 8;
    SetxattrMore { setxattr_flags: u32, padding: u32, } = 8;
    /// SETXATTR's, where kernel and server have agreed on more.
    SetxattrWhole { set: SetxattrIn, more: SetxattrMore, } = 16;
    GetxattrIn { size: u32, padding: u32, } = 8;
    GetxattrOut { size: u32, padding: u32, } = 8;
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, } = 32;
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, } = 24;
    LseekOut { offset: u64, } = 8;
    CopyFileRangeIn {
        fh_in: u64, offset_in: u64, nodeid_out: u64, fh_out: u64, offset_out: u64, len: u64, flags: u64,
    } = 56;
    CopyFileRangeOut { bytes_copied: u64, } = 8;
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, } = 32;
    /// What FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR carry.
    Fsxattr {
        xflags: u32, extent_bytes: u32, extents: u32, project: u32, cow_extent_bytes: u32, padding: [u8; 8],
    } = 28;
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, } = 16;
    /// Invalidates an inode's attributes, and its pages in a range.
    NotifyInvalEntry { parent: u64, name_len: u32, flags: u32, } = 16;
    /// Asks for a request with bytes of a file.
    NotifyRetrieve { unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32, } = 32;
    NotifyInvalInode { nodeid: u64, offset: i64, len: i64, } = 24;
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, } = 24;
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32, } = 16;
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime,
        btime: StatxTime, ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    } = 256;
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    } = 288;
    Dirent { ino: u64, cookie: u64, name_len: u32, kind: u32, } = 24;
    /// Goes with each request and reply over io_uring.
    RingMessage { flags: u64, commit_id: u64, payload_len: u32, padding: u32, reserved: u64, } = 32;
    /// The argument of the kernel's commands over io_uring.
    RingCommand { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], } = 24;
}
