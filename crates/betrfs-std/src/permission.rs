//! Who may do what, as Linux has it for a file system that leaves permissions to the kernel: pure functions
//! on attributes. The library below checks none, as a mount's kernel has done so before it asks.

use betrfs::{Acl, AclKind, Attr, FileType, SetAttr};

use crate::caller::Caller;
use crate::error::{ErrorKind, Kinded};

pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const SEARCH: u16 = 1;

const STICKY: u16 = 0o1000;
const SET_GROUP_ID: u16 = 0o2000;
const SET_USER_ID: u16 = 0o4000;
const SET_ID: u16 = SET_USER_ID | SET_GROUP_ID;
const GROUP_EXECUTE: u16 = 0o0010;

/// The permission bits of the group, or of the mask of an access control list.
const GROUP: u16 = 0o0070;

/// What decides who may use an object.
#[derive(Clone)]
pub(crate) struct Judged {
    pub attr: Attr,
    /// Its access control list, where [`asks_for_acl`] says so.
    pub acl: Option<Acl>,
}

/// Whether an object's access control list counts for a caller. With an empty mask Linux asks for no list:
/// then all but the owning group have what others have.
pub(crate) fn asks_for_acl(caller: &Caller, attr: &Attr) -> bool {
    !caller.is_root() && caller.uid != attr.uid && attr.perm & GROUP != 0
}

/// Whether a caller may read, write, or search an object.
pub(crate) fn may(caller: &Caller, Judged { attr, acl }: &Judged, wanted: u16) -> Kinded<()> {
    let bits = |perm: u16| perm & wanted == wanted;
    let is_granted = if caller.is_root() {
        true
    } else if caller.uid == attr.uid {
        bits(attr.perm >> 6)
    } else if let Some(acl) = acl {
        acl.grants(caller.uid, |group| caller.is_in(group), (attr.uid, attr.gid), wanted)
    } else if caller.is_in(attr.gid) {
        bits(attr.perm >> 3)
    } else {
        bits(attr.perm)
    };
    if is_granted { Ok(()) } else { Err(ErrorKind::Denied) }
}

/// Whether a caller may take an entry from a directory: in a sticky one its owner and the entry's may.
pub(crate) fn may_remove(caller: &Caller, dir: &Judged, entry: &Attr) -> Kinded<()> {
    may(caller, dir, WRITE | SEARCH)?;
    let is_owner = caller.is_root() || [dir.attr.uid, entry.uid].contains(&caller.uid);
    if dir.attr.perm & STICKY == 0 || is_owner { Ok(()) } else { Err(ErrorKind::NotPermitted) }
}

/// Whether a caller may rename an entry to another directory: a directory's own `..` changes by it.
pub(crate) fn may_move(caller: &Caller, entry: &Judged) -> Kinded<()> {
    if entry.attr.file_type == FileType::Directory { may(caller, entry, WRITE) } else { Ok(()) }
}

/// Whether a caller owns an object, or is root.
pub(crate) fn owns(caller: &Caller, attr: &Attr) -> Kinded<()> {
    if caller.is_root() || caller.uid == attr.uid { Ok(()) } else { Err(ErrorKind::NotPermitted) }
}

/// Whether a caller may give a file one more name: its own, or one that it may read and write and that gives
/// no rights away, as the kernel has it by default (`fs.protected_hardlinks`).
pub(crate) fn may_link(caller: &Caller, file: &Judged) -> Kinded<()> {
    let attr = &file.attr;
    if caller.is_root() || caller.uid == attr.uid {
        return Ok(());
    }
    let gives_rights = attr.perm & SET_USER_ID != 0
        || attr.perm & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID | GROUP_EXECUTE;
    let is_harmless = attr.file_type == FileType::Regular && !gives_rights;
    if is_harmless && may(caller, file, READ | WRITE).is_ok() { Ok(()) } else { Err(ErrorKind::NotPermitted) }
}

/// Whether the set-group-id bit stays when a caller sets permissions: its group is one of his.
pub(crate) fn keeps_set_group_id(caller: &Caller, attr: &Attr) -> bool {
    caller.is_root() || caller.is_in(attr.gid)
}

/// The permissions that an owner sets: without the set-group-id bit of a group that is not his.
pub(crate) fn settable(caller: &Caller, attr: &Attr, perm: u16) -> u16 {
    if keeps_set_group_id(caller, attr) { perm } else { perm & !SET_GROUP_ID }
}

/// Whether a caller may give an object to a user and a group.
pub(crate) fn may_give(caller: &Caller, attr: &Attr, uid: Option<u32>, gid: Option<u32>) -> Kinded<()> {
    let is_owner = caller.uid == attr.uid;
    let user_is_fine = uid.is_none_or(|uid| is_owner && uid == attr.uid);
    let group_is_fine = gid.is_none_or(|gid| is_owner && (gid == attr.gid || caller.is_in(gid)));
    if caller.is_root() || user_is_fine && group_is_fine { Ok(()) } else { Err(ErrorKind::NotPermitted) }
}

/// Whether a caller who changes a file's contents clears its set-id bits.
pub(crate) fn kills_set_id(caller: &Caller, attr: &Attr) -> bool {
    !caller.is_root() && attr.file_type == FileType::Regular && attr.perm & SET_ID != 0
}

/// The change of a file's attributes that comes with a change of its contents by a caller.
pub(crate) fn set_by_writer(caller: &Caller, attr: &Attr) -> SetAttr {
    let (kill_set_id, outside_group) = (kills_set_id(caller, attr), !keeps_set_group_id(caller, attr));
    SetAttr { kill_set_id, outside_group, ..SetAttr::default() }
}

/// The access to extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XattrAccess {
    Get,
    Change,
}

/// Whether a caller may use an extended attribute of this name (xattr(7)). Who may not know of one is told
/// that there is none.
pub(crate) fn may_use_xattr(
    caller: &Caller,
    object: &Judged,
    name: &[u8],
    access: XattrAccess,
) -> Kinded<()> {
    let attr = &object.attr;
    if AclKind::of_name(name).is_some() {
        return if access == XattrAccess::Get { Ok(()) } else { owns(caller, attr) };
    }
    let refused = || match access {
        XattrAccess::Get => Err(betrfs::Error::NoData.into()),
        XattrAccess::Change => Err(ErrorKind::NotPermitted),
    };
    if name.starts_with(b"user.") {
        if !matches!(attr.file_type, FileType::Regular | FileType::Directory) {
            return refused();
        }
        let is_sticky_dir = attr.file_type == FileType::Directory && attr.perm & STICKY != 0;
        if access == XattrAccess::Change && is_sticky_dir {
            owns(caller, attr)?;
        }
        return may(caller, object, if access == XattrAccess::Get { READ } else { WRITE });
    }
    let is_open_to_all = access == XattrAccess::Get && name.starts_with(b"security.");
    if is_open_to_all || caller.is_root() { Ok(()) } else { refused() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec(), umask: 0o022 }
    }

    fn attr(file_type: FileType, perm: u16, uid: u32, gid: u32) -> Attr {
        Attr {
            ino: 7,
            file_type,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            size: 0,
            blocks_512: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            crtime_ns: 0,
        }
    }

    fn judged(attr: Attr) -> Judged {
        Judged { attr, acl: None }
    }

    fn number(result: Kinded<()>) -> i32 {
        result.err().map_or(0, |kind| kind.errno().raw_os_error())
    }

    const EPERM: i32 = 1;
    const EACCES: i32 = 13;
    const ENODATA: i32 = 61;

    #[test]
    fn the_first_class_that_fits_decides() {
        let file = judged(attr(FileType::Regular, 0o640, 5, 50));
        for (caller, read, write) in [
            (caller(5, 1, &[]), 0, 0),
            (caller(6, 50, &[]), 0, EACCES),
            (caller(6, 1, &[9, 50]), 0, EACCES),
            (caller(6, 1, &[]), EACCES, EACCES),
            (caller(0, 0, &[]), 0, 0),
        ] {
            assert_eq!(number(may(&caller, &file, READ)), read, "{caller:?}");
            assert_eq!(number(may(&caller, &file, WRITE)), write, "{caller:?}");
        }
        // An owner without permission has none, though all others do.
        assert_eq!(
            number(may(&caller(5, 50, &[]), &judged(attr(FileType::Regular, 0o077, 5, 50)), READ)),
            EACCES
        );
    }

    #[test]
    fn a_list_counts_for_all_but_root_and_the_owner() {
        let entry = |tag: u8, perm: u8, id: u8| [tag, 0, perm, 0, id, 0, 0, 0];
        let none = |tag: u8, perm: u8| [tag, 0, perm, 0, 255, 255, 255, 255];
        let entries = [none(1, 0), entry(2, 6, 6), none(4, 0), none(0x10, 4), none(0x20, 2)];
        let acl = Acl::parse(&[&[2, 0, 0, 0][..], entries.as_flattened()].concat()).unwrap();
        let file = Judged { attr: attr(FileType::Regular, acl.perm(), 5, 50), acl: Some(acl) };
        for (caller, read, write) in [
            (caller(0, 0, &[]), 0, 0),
            (caller(5, 50, &[]), EACCES, EACCES),
            (caller(6, 50, &[]), 0, EACCES),
            (caller(7, 50, &[]), EACCES, EACCES),
            (caller(7, 1, &[]), EACCES, 0),
        ] {
            assert_eq!(number(may(&caller, &file, READ)), read, "{caller:?}");
            assert_eq!(number(may(&caller, &file, WRITE)), write, "{caller:?}");
            assert_eq!(asks_for_acl(&caller, &file.attr), ![0, 5].contains(&caller.uid));
        }
        assert!(!asks_for_acl(&caller(6, 50, &[]), &attr(FileType::Regular, 0o707, 5, 50)));
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let sticky = judged(attr(FileType::Directory, 0o1777, 9, 9));
        let entry = attr(FileType::Regular, 0o666, 5, 5);
        for (uid, expected) in [(5, 0), (9, 0), (0, 0), (6, EPERM)] {
            assert_eq!(number(may_remove(&caller(uid, 1, &[]), &sticky, &entry)), expected, "{uid}");
        }
        let closed = judged(attr(FileType::Directory, 0o755, 9, 9));
        assert_eq!(number(may_remove(&caller(5, 1, &[]), &closed, &entry)), EACCES);
        let (dir, file) = (attr(FileType::Directory, 0o555, 5, 5), attr(FileType::Regular, 0o444, 5, 5));
        let (dir, file) = (judged(dir), judged(file));
        assert_eq!(number(may_move(&caller(5, 5, &[]), &dir)), EACCES);
        assert_eq!(number(may_move(&caller(5, 5, &[]), &file)), 0);
    }

    #[test]
    fn owners_change_modes_and_give_to_their_groups() {
        let file = attr(FileType::Regular, 0o644, 5, 50);
        assert_eq!(
            (number(owns(&caller(5, 1, &[]), &file)), number(owns(&caller(6, 1, &[]), &file))),
            (0, EPERM)
        );
        assert_eq!(settable(&caller(5, 1, &[]), &file, 0o6755), 0o4755);
        assert_eq!(settable(&caller(5, 1, &[50]), &file, 0o6755), 0o6755);
        assert_eq!(settable(&caller(0, 0, &[]), &file, 0o6755), 0o6755);
        for (uid, new_uid, new_gid, expected) in [
            (5, Some(5), None, 0),
            (5, Some(6), None, EPERM),
            (5, None, Some(50), 0),
            (5, None, Some(3), 0),
            (5, None, Some(4), EPERM),
            (6, None, Some(3), EPERM),
            (0, Some(6), Some(4), 0),
        ] {
            let given = may_give(&caller(uid, 1, &[3]), &file, new_uid, new_gid);
            assert_eq!(number(given), expected, "{uid} gives to {new_uid:?} {new_gid:?}");
        }
        let set_id = attr(FileType::Regular, 0o4755, 5, 50);
        assert!(kills_set_id(&caller(5, 1, &[]), &set_id) && !kills_set_id(&caller(0, 0, &[]), &set_id));
        assert!(!kills_set_id(&caller(5, 1, &[]), &file));
    }

    #[test]
    fn others_files_get_names_only_where_that_gives_nothing_away() {
        for (perm, expected) in [(0o666, 0), (0o644, EPERM), (0o4666, EPERM), (0o2676, EPERM), (0o2666, 0)] {
            let file = judged(attr(FileType::Regular, perm, 5, 5));
            assert_eq!(number(may_link(&caller(6, 6, &[]), &file)), expected, "{perm:o}");
            assert_eq!(number(may_link(&caller(5, 5, &[]), &file)), 0, "{perm:o}");
        }
        let link = judged(attr(FileType::Symlink, 0o777, 5, 5));
        assert_eq!(number(may_link(&caller(6, 6, &[]), &link)), EPERM);
    }

    #[test]
    fn extended_attributes_are_for_those_whom_their_namespace_names() {
        use XattrAccess::{Change, Get};
        let (owner, other, root) = (caller(5, 5, &[]), caller(6, 6, &[]), caller(0, 0, &[]));
        let file = judged(attr(FileType::Regular, 0o644, 5, 5));
        let link = judged(attr(FileType::Symlink, 0o777, 5, 5));
        let sticky = judged(attr(FileType::Directory, 0o1777, 5, 5));
        for (caller, attr, name, access, expected) in [
            (&owner, &file, "user.a", Change, 0),
            (&other, &file, "user.a", Get, 0),
            (&other, &file, "user.a", Change, EACCES),
            (&root, &link, "user.a", Change, EPERM),
            (&root, &link, "user.a", Get, ENODATA),
            (&other, &sticky, "user.a", Change, EPERM),
            (&owner, &sticky, "user.a", Change, 0),
            (&owner, &file, "trusted.a", Get, ENODATA),
            (&owner, &file, "trusted.a", Change, EPERM),
            (&root, &file, "trusted.a", Change, 0),
            (&other, &file, "security.a", Get, 0),
            (&owner, &file, "security.a", Change, EPERM),
            (&other, &file, "system.posix_acl_access", Get, 0),
            (&owner, &file, "system.posix_acl_access", Change, 0),
            (&root, &file, "system.posix_acl_default", Change, 0),
            (&other, &file, "system.posix_acl_access", Change, EPERM),
        ] {
            let used = number(may_use_xattr(caller, attr, name.as_bytes(), access));
            assert_eq!(used, expected, "{name} {access:?} by {}", caller.uid);
        }
    }
}
