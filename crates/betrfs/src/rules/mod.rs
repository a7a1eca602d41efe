//! The rules of POSIX and Linux as pure functions on records: tried without a device, a lock or a clock.

mod access_times;
mod acl;
mod entries;
mod inode_flags;
mod names;
mod ownership;
mod set_id;

pub(crate) use access_times::access_counts;
pub(crate) use acl::with_perm_of;
pub(crate) use entries::{count_entry, new_record, with_snapshot_counted};
pub(crate) use inode_flags::{
    check_new_flags, refuse_if_immutable, refuse_if_protected, refuse_overwrite, unprotect,
};
pub(crate) use names::{check_looked_up, check_name};
pub(crate) use ownership::{is_beyond_users, is_for_privileged, is_foreign, may_be_foreign, runs_as_group};
pub(crate) use set_id::{clear_set_group_id, kill_set_id};

use crate::error::{Error, Result};
use crate::schema::{Flags, Record, key};
use crate::types::FileType;

/// Whether an object has bytes.
pub(crate) fn check_file(record: &Record) -> Result<()> {
    match record.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("it is no file")),
    }
}

/// Refuses a change of what has this record and this key or path, if that is in a snapshot.
pub(crate) fn refuse_key_in_snapshot(key: &[u8], record: &Record) -> Result<()> {
    if record.flags.has(Flags::READ_ONLY) || key::is_in_snapshot(key) {
        return Err(Error::InSnapshot);
    }
    Ok(())
}
