//! What users could have made themselves.

use crate::schema::Record;
use crate::types::{FileType, InodeFlags, User};

const SET_GROUP_ID: u16 = 0o2000;

/// Whether an object in a user's tree is one that the user could not have made there.
pub(crate) fn is_foreign(record: &Record, user: &User) -> bool {
    let is_group_theirs = || user.groups.contains(&record.gid);
    record.uid != user.uid || is_beyond_users(record) || runs_as_group(record) && !is_group_theirs()
}

/// Whether an object may be one that the owner of a directory could not have made there.
pub(crate) fn may_be_foreign(record: &Record, owner_of_dir: u32) -> bool {
    record.uid != owner_of_dir || is_beyond_users(record) || runs_as_group(record)
}

/// Whether a file is a program that runs with the rights of its group.
pub(crate) fn runs_as_group(record: &Record) -> bool {
    record.file_type == FileType::Regular && record.perm & SET_GROUP_ID != 0
}

/// Whether only privileged users can make an object of that kind.
pub(crate) fn is_beyond_users(record: &Record) -> bool {
    let is_device = matches!(record.file_type, FileType::CharDevice | FileType::BlockDevice);
    let flags = record.rare().flags;
    let is_protected = flags.has(InodeFlags::IMMUTABLE) || flags.has(InodeFlags::APPEND);
    is_device || is_protected || record.xattrs.iter().any(|attr| is_for_privileged(&attr.name))
}

/// Whether only privileged users can set an extended attribute.
pub(crate) fn is_for_privileged(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}
