//! What an entry that comes or goes changes in the record of its directory, and what it has of that.

use super::set_id::SET_GROUP_ID;
use super::with_perm_of;
use crate::schema::{Acl, Record, Xattr, XattrValue};
use crate::types::{AclKind, FileType, InodeFlags, NewNode};

/// Records that an entry came (1) or went (-1).
pub(crate) fn count_entry(dir: &mut Record, is_dir: bool, by: i64, now_ns: i64) {
    dir.entries = dir.entries.saturating_add_signed(by);
    if is_dir {
        dir.subdirs = dir.subdirs.saturating_add_signed(by);
    }
    dir.mtime_ns = now_ns;
    dir.ctime_ns = now_ns;
}

/// The flags that a new object inherits from its directory, as on ext4.
const INHERITED: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// The record of an object to be made in a directory with this default access control list. Attributes have
/// their values in it.
pub(crate) fn new_record(
    new: &NewNode,
    dir: &Record,
    default_acl: Option<&Acl>,
    id: u64,
    now_ns: i64,
) -> Record {
    let mut record = Record::new(new.file_type, new.perm, id, now_ns);
    // Nobody asks for the permissions of a symbolic link.
    if new.file_type != FileType::Symlink {
        inherit_acl(&mut record, default_acl, new.umask);
    }
    (record.uid, record.gid) = (new.uid, new.gid);
    if matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice) {
        record.rdev = new.rdev;
    }
    if dir.perm & SET_GROUP_ID != 0 {
        record.gid = dir.gid;
        if record.is_dir() {
            record.perm |= SET_GROUP_ID;
        }
    }
    let inherited = dir.rare().flags.intersection(INHERITED);
    if inherited != InodeFlags::NONE {
        record.change_rare(|rare| rare.flags = inherited);
    }
    record
}

/// Gives a new object what it inherits of its directory's default list. Without one the umask counts.
fn inherit_acl(record: &mut Record, default_acl: Option<&Acl>, umask: u16) {
    let Some(default_acl) = default_acl else {
        record.perm &= !(umask & 0o777);
        return;
    };
    let mut add = |kind: AclKind, acl: &Acl| {
        record.xattrs.push(Xattr { name: kind.name().to_vec(), value: XattrValue::Inline(acl.encode()) });
    };
    let acl = default_acl.inherited(record.perm);
    if !acl.is_minimal() {
        add(AclKind::Access, &acl);
    }
    if record.file_type == FileType::Directory {
        add(AclKind::Default, default_acl);
    }
    record.perm = with_perm_of(&acl, record.perm);
}

/// The record of `.betrfs-snapshots` when one came (1) or went (-1).
pub(crate) fn with_snapshot_counted(snapshots: &Record, by: i64, now_ns: i64) -> Record {
    let mut record = snapshots.clone();
    record.entries = record.entries.saturating_add_signed(by);
    record.subdirs = record.entries;
    (record.mtime_ns, record.ctime_ns) = (now_ns, now_ns);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(file_type: FileType, rdev: u32) -> NewNode {
        NewNode { file_type, perm: 0o755, uid: 3, gid: 4, rdev, umask: 0 }
    }

    #[test]
    fn a_group_is_inherited_from_a_directory_that_says_so() {
        let mut dir = Record::new(FileType::Directory, 0o755, 1, 0);
        dir.gid = 9;
        let made = |dir: &Record, new: &NewNode| {
            let record = new_record(new, dir, None, 7, 5);
            (record.uid, record.gid, record.perm, record.rdev)
        };
        assert_eq!(made(&dir, &new(FileType::Directory, 1)), (3, 4, 0o755, 0));
        assert_eq!(made(&dir, &new(FileType::CharDevice, 1)), (3, 4, 0o755, 1));
        dir.perm |= SET_GROUP_ID;
        assert_eq!(made(&dir, &new(FileType::Directory, 1)), (3, 9, 0o2755, 0));
        assert_eq!(made(&dir, &new(FileType::Regular, 1)), (3, 9, 0o755, 0));
    }

    #[test]
    fn counts_of_entries_never_go_below_zero() {
        let mut dir = Record::new(FileType::Directory, 0o755, 1, 0);
        count_entry(&mut dir, true, 1, 10);
        count_entry(&mut dir, false, 1, 11);
        assert_eq!((dir.entries, dir.subdirs, dir.mtime_ns, dir.ctime_ns), (2, 1, 11, 11));
        (0..4).for_each(|_| count_entry(&mut dir, true, -1, 12));
        assert_eq!((dir.entries, dir.subdirs), (0, 0));
        let snapshots = with_snapshot_counted(&dir, 1, 13);
        assert_eq!((snapshots.entries, snapshots.subdirs, snapshots.ctime_ns), (1, 1, 13));
    }
}
