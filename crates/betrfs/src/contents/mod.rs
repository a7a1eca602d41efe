//! An inode's keys in `data`: the blocks of a file, and large extended attributes. Each function adds to a
//! batch, or reads; locks and the inode's record are up to the caller.

mod copy;
mod delete;
mod read;
mod write;
mod xattrs;

pub(crate) use copy::{clone_data, copy_data, copy_readable};
pub(crate) use delete::{POINT_DELETES_MAX, delete_blocks, delete_data, punch};
pub(crate) use read::{read_block, read_blocks};
pub(crate) use write::{contents_bytes, grow, put_bytes, resize};
pub(crate) use xattrs::{acl_of, drop_capabilities, get_xattr, position, put_xattr, store_xattrs, take};
