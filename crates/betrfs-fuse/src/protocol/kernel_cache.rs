//! What the kernel remembers of an object, and who tells it of a change.
//!
//! The kernel may believe what it was told for a day
//! ([`LIFETIME_SECONDS`](super::convert::LIFETIME_SECONDS)), so that each change of what it remembers has
//! somebody who tells it before the change is answered:
//!
//! | what it remembers | what changes it | who tells the kernel |
//! |---|---|---|
//! | mode, owner, group | chmod, chown, truncation | the reply to SETATTR, which has all attributes |
//! | set-id bits | another user's WRITE, OPEN with O_TRUNC, FALLOCATE, COPY_FILE_RANGE | a notice, *before* the contents change (`Dispatch::kill_set_id`) |
//! | capabilities of a program | a change of the contents | nobody need: the kernel asks for them at each execution |
//! | size, blocks, mtime, ctime of a file | WRITE, FALLOCATE, COPY_FILE_RANGE, O_TRUNC | the kernel, which knows these for changes |
//! | atime | READ, READDIR, READLINK | the kernel, likewise |
//! | | OPEN of a file that can be read from the kernel's pages | a notice |
//! | mtime, ctime and number of names of a directory | a name that comes or goes | the kernel, likewise |
//! | number of names of a file | LINK | the reply |
//! | | UNLINK, RENAME over a name | the kernel, likewise |
//! | | removal of a tree or a snapshot with other names of it | a notice ([`Pages::None`]) |
//! | all of a file or directory | it is filled as a copy | a notice; of a directory its listing too |
//! | listing of a directory | names that come and go | the kernel |
//! | | removal of all that is below | a notice ([`Pages::All`]) |
//! | pages of a file | WRITE, past the pages or not; FALLOCATE; COPY_FILE_RANGE | the kernel: see [`WANTED`](super::init::WANTED) for why direct writes are synchronous |
//! | that a name is there, or is not | LOOKUP, CREATE, UNLINK, RENAME and their like | the kernel |
//! | | a directory that is being filled as a copy | nobody need: of absent names there the kernel is told to remember nothing |
//! | the way in to snapshots | snapshots that come and go; a chmod of its directory | nobody need: its lifetime is 0 |
//! | the target of a symbolic link | nothing | nobody need |
//!
//! What is not remembered (extended attributes, the volume's room, locks) is asked for each time. The tests
//! are `crates/betrfs-cli/tests/mount/kernel_cache.rs`.

use std::io::IoSlice;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::NotifySink;
use crate::wire::{NotifyInvalInode, OutHeader};

/// The notice that an inode is no longer what the kernel knows.
const NOTIFY_INVAL_INODE: i32 = 2;

/// Which pages of an inode the kernel is to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// None: its attributes alone.
    None,
    /// All. Those that are dirty it writes back before, and waits.
    All,
}

/// Tells the kernel that an inode's attributes, and maybe its pages, are no longer what it knows.
pub fn forget_inode(sink: &dyn NotifySink, nodeid: u64, pages: Pages) {
    let offset = if pages == Pages::All { 0 } else { -1 };
    let what = NotifyInvalInode { nodeid, offset, len: -1 };
    let len = (size_of::<OutHeader>() + size_of_val(&what)) as u32;
    // Nobody asked: the number is that of a notice in the place of a request's.
    let header = OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 };
    match sink.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(what.as_bytes())]) {
        // ENOENT: it does not know the inode.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(errno) => tracing::error!("the kernel does not take a notice: {errno}"),
    }
}
