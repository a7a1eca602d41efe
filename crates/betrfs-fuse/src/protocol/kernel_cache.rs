//! The kernel's cache of an object, and the notices that keep it right.
//!
//! The kernel may cache entries and attributes for a day
//! ([`LIFETIME_SECONDS`](super::convert::LIFETIME_SECONDS)), so for each change the kernel must know of it
//! before the change is answered:
//!
//! | cached | changed by | how the kernel knows |
//! |---|---|---|
//! | mode, owner, group | chmod, chown, truncation | the reply to SETATTR, which has all attributes |
//! | access control lists | SETXATTR, chmod | the kernel drops them itself, and asks for the attributes again |
//! | | it is filled as a copy | the notice of that, below |
//! | set-id bits | another user's WRITE, OPEN with O_TRUNC, FALLOCATE, COPY_FILE_RANGE | a notice, *before* the contents change (`Dispatch::kill_set_id`) |
//! | capabilities of a program | a change of the contents | not cached: the kernel asks at each execution |
//! | size, blocks, mtime, ctime of a file | WRITE, FALLOCATE, COPY_FILE_RANGE, O_TRUNC | the kernel makes these changes itself |
//! | atime | READ, READDIR, READLINK | the kernel, likewise |
//! | | OPEN of a file that may have pages in the kernel | a notice |
//! | mtime, ctime and number of names of a directory | names made or removed | the kernel, likewise |
//! | number of names of a file | LINK | the reply |
//! | | UNLINK, RENAME over a name | the kernel, likewise |
//! | | removal of a tree or a snapshot with other names of it | a notice ([`Pages::None`]) |
//! | everything about a file or directory | it is filled as a copy | a notice; for a directory with its listing |
//! | ctime of a file or directory | a change of its flags, its project or its properties | a notice |
//! | dirty pages of a mapped file | flags that forbid them | a notice ([`Pages::All`]): the kernel writes them back, or drops them if refused |
//! | that a file can be written, and where | flags | nothing can: OPEN and each WRITE are checked |
//! | listing of a directory | names made or removed | the kernel |
//! | | removal of everything below; bringing it back to a snapshot | a notice ([`Pages::All`]) |
//! | pages of a file | WRITE, past the pages or not; FALLOCATE; COPY_FILE_RANGE | the kernel: see [`WANTED`](super::init::WANTED) for why direct writes are synchronous |
//! | presence or absence of a name | LOOKUP, CREATE, UNLINK, RENAME and their like | the kernel |
//! | | filling a directory as a copy | not cached: absent names there have a lifetime of 0 |
//! | | removal of everything below | a notice for each name that may be in the kernel |
//! | | bringing a directory back to a snapshot | a notice for each name that may be in the kernel; absent names of a directory with snapshots have a lifetime of 0 |
//! | the directory of snapshots | snapshots made or removed; chmod of its parent | not cached: its lifetime is 0 |
//! | the target of a symbolic link | never changes | |
//!
//! Of the root alone, Linux 6.18 remembers no list: it makes that inode before it knows the answer to INIT.
//! Other extended attributes, the volume's free space and locks are not cached. The tests are
//! `crates/betrfs-cli/tests/mount/kernel_cache.rs` and, for flags, `inode_flags.rs` next to it.

use std::io::IoSlice;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::NotifySink;
use crate::wire::{NotifyInvalEntry, NotifyInvalInode, OutHeader};

/// Code of the notice that invalidates an inode.
const NOTIFY_INVAL_INODE: i32 = 2;
/// Code of the notice that invalidates a name.
const NOTIFY_INVAL_ENTRY: i32 = 3;

/// The pages of an inode that the kernel must drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// None: the attributes alone.
    None,
    /// All; the kernel writes dirty pages back first, and waits for that.
    All,
}

/// Tells the kernel to drop an inode's attributes, and with [`Pages::All`] its pages.
pub fn forget_inode(sink: &dyn NotifySink, nodeid: u64, pages: Pages) {
    let offset = if pages == Pages::All { 0 } else { -1 };
    let what = NotifyInvalInode { nodeid, offset, len: -1 };
    tell(sink, NOTIFY_INVAL_INODE, &[what.as_bytes()]);
}

/// Tells the kernel to drop a name of a directory, and all that it knows below it. The kernel waits for those
/// who change the directory, so no thread that answers requests may send this.
pub fn forget_name(sink: &dyn NotifySink, parent: u64, name: &[u8]) {
    // Names have at most 255 bytes.
    let what = NotifyInvalEntry { parent, name_len: name.len() as u32, flags: 0 };
    tell(sink, NOTIFY_INVAL_ENTRY, &[what.as_bytes(), name, &[0]]);
}

/// Sends a notice with this code. That the kernel does not know its object is no error.
pub(super) fn tell(sink: &dyn NotifySink, code: i32, parts: &[&[u8]]) {
    let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    // `unique` 0 marks a notice; `error` then holds its code.
    let header = OutHeader { len: len as u32, error: code, unique: 0 };
    let all: Vec<IoSlice<'_>> =
        [header.as_bytes()].iter().chain(parts).map(|part| IoSlice::new(part)).collect();
    match sink.send(&all) {
        // ENOENT: the kernel does not know the inode or the name.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(errno) => tracing::error!("the kernel does not take a notice: {errno}"),
    }
}
