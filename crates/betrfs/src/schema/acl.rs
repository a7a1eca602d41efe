//! Access control lists (acl(5)) in the form in which Linux hands them over as extended attributes, which is
//! also how they are stored: a version, then entries of tag, permissions and id, the owner's first.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};

/// The only version (`POSIX_ACL_XATTR_VERSION`).
const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
/// The id of entries that name nobody.
const NO_ID: u32 = u32::MAX;
const PERM_MAX: u16 = 0o7;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    tag: U16,
    perm: U16,
    id: U32,
}

/// A user or group in a list, with its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub id: u32,
    pub perm: u16,
}

/// A POSIX access control list: permissions (4 to read, 2 to write, 1 to execute or search) of the owner, of
/// users and groups by their numbers, and of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    pub(crate) owner: u16,
    pub(crate) users: Vec<Named>,
    pub(crate) group: u16,
    pub(crate) groups: Vec<Named>,
    /// The most that named users, the owning group and named groups have.
    pub(crate) mask: Option<u16>,
    pub(crate) others: u16,
}

impl Acl {
    /// Reads the value of the extended attribute.
    ///
    /// ```
    /// use betrfs::Acl;
    ///
    /// let entry = |tag: u8, perm: u8| vec![tag, 0, perm, 0, 255, 255, 255, 255];
    /// let bytes = [vec![2, 0, 0, 0], entry(1, 6), entry(4, 4), entry(0x20, 0)].concat();
    /// assert_eq!(Acl::parse(&bytes)?.perm(), 0o640);
    /// assert!(Acl::parse(&bytes[..20]).is_err());
    /// # Ok::<(), betrfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for another version, unknown permissions, entries that are missing, repeated or out
    /// of order, and named entries without a mask.
    pub fn parse(bytes: &[u8]) -> Result<Acl> {
        let (version, rest) = U32::read_from_prefix(bytes).map_err(|_| SHORT)?;
        if version.get() != VERSION {
            return Err(Error::Invalid("the access control list is of an unknown version"));
        }
        let entries = <[Entry]>::ref_from_bytes(rest).map_err(|_| SHORT)?;
        if entries.iter().any(|entry| entry.perm.get() > PERM_MAX) {
            return Err(Error::Invalid("the access control list has unknown permissions"));
        }
        let mut left = entries;
        let owner = take_one(&mut left, OWNER).ok_or(MISPLACED)?;
        let users = take_named(&mut left, USER)?;
        let group = take_one(&mut left, OWNING_GROUP).ok_or(MISPLACED)?;
        let groups = take_named(&mut left, GROUP)?;
        let mask = take_one(&mut left, MASK);
        let others = take_one(&mut left, OTHERS).ok_or(MISPLACED)?;
        if !left.is_empty() {
            return Err(MISPLACED);
        }
        if mask.is_none() && !(users.is_empty() && groups.is_empty()) {
            return Err(Error::Invalid("the access control list names somebody and has no mask"));
        }
        Ok(Acl { owner, users, group, groups, mask, others })
    }

    /// The value of the extended attribute.
    pub fn encode(&self) -> Vec<u8> {
        let entry = |tag, id, perm| Entry { tag: U16::new(tag), perm: U16::new(perm), id: U32::new(id) };
        let one = |tag, perm| entry(tag, NO_ID, perm);
        let named = |tag, named: &Named| entry(tag, named.id, named.perm);
        let mut entries = Vec::with_capacity(4 + self.users.len() + self.groups.len());
        entries.push(one(OWNER, self.owner));
        entries.extend(self.users.iter().map(|user| named(USER, user)));
        entries.push(one(OWNING_GROUP, self.group));
        entries.extend(self.groups.iter().map(|group| named(GROUP, group)));
        entries.extend(self.mask.map(|mask| one(MASK, mask)));
        entries.push(one(OTHERS, self.others));
        [U32::new(VERSION).as_bytes(), entries.as_bytes()].concat()
    }
}

const SHORT: Error = Error::Invalid("the access control list is cut off");
const MISPLACED: Error = Error::Invalid("an entry of the access control list is missing or out of order");

/// Takes the next entry, if it is of this tag; returns its permissions.
fn take_one(left: &mut &[Entry], tag: u16) -> Option<u16> {
    let (first, rest) = left.split_first()?;
    if first.tag.get() != tag {
        return None;
    }
    *left = rest;
    Some(first.perm.get())
}

/// Takes all next entries of a tag for named users or groups.
fn take_named(left: &mut &[Entry], tag: u16) -> Result<Vec<Named>> {
    let count = left.iter().take_while(|entry| entry.tag.get() == tag).count();
    let (taken, rest) = left.split_at_checked(count).ok_or(MISPLACED)?;
    *left = rest;
    let mut seen = BTreeSet::new();
    let named = taken.iter().map(|entry| Named { id: entry.id.get(), perm: entry.perm.get() });
    named
        .map(|named| match named.id != NO_ID && seen.insert(named.id) {
            true => Ok(named),
            false => Err(Error::Invalid("the access control list names nobody, or somebody twice")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(version: u32, entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = version.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&perm.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    const U: (u16, u16, u32) = (OWNER, 7, NO_ID);
    const G: (u16, u16, u32) = (OWNING_GROUP, 5, NO_ID);
    const M: (u16, u16, u32) = (MASK, 5, NO_ID);
    const O: (u16, u16, u32) = (OTHERS, 4, NO_ID);

    #[test]
    fn a_list_is_read_and_written() {
        let full = [U, (USER, 6, 0), (USER, 1, 70_000), G, (GROUP, 2, 9), M, O];
        for entries in [&[U, G, O][..], &[U, G, M, O], &[U, (USER, 0, 5), G, M, O], &full] {
            let bytes = bytes(VERSION, entries);
            assert_eq!(Acl::parse(&bytes).unwrap().encode(), bytes, "{entries:?}");
        }
        let acl = Acl::parse(&bytes(VERSION, &full)).unwrap();
        assert_eq!((acl.owner, acl.group, acl.mask, acl.others), (7, 5, Some(5), 4));
        assert_eq!(acl.users, [Named { id: 0, perm: 6 }, Named { id: 70_000, perm: 1 }]);
        assert_eq!(acl.groups, [Named { id: 9, perm: 2 }]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let refused = |bytes: &[u8]| matches!(Acl::parse(bytes), Err(Error::Invalid(_)));
        for version in [0, 1, 3, 0x0200_0000] {
            assert!(refused(&bytes(version, &[U, G, O])), "version {version}");
        }
        let whole = bytes(VERSION, &[U, G, O]);
        for len in (0..whole.len()).filter(|len| *len != whole.len()) {
            assert!(refused(&whole[..len]), "{len} bytes");
        }
        assert!(refused(&[&whole[..], &[0]].concat()), "one byte more");
        let (user, group) = ((USER, 6, 5), (GROUP, 6, 5));
        for entries in [
            &[][..],
            &[U],
            &[U, O],
            &[G, O],
            &[U, G],
            &[U, O, G],
            &[G, U, O],
            &[U, U, G, O],
            &[U, G, O, O],
            &[U, G, O, M],
            &[U, M, G, O],
            &[U, G, M, M, O],
            &[U, G, user, M, O],
            &[user, U, G, M, O],
            &[U, group, G, M, O],
            &[U, G, M, group, O],
            // Nobody, somebody twice, no mask.
            &[U, (USER, 6, NO_ID), G, M, O],
            &[U, user, user, G, M, O],
            &[U, user, (USER, 0, 6), user, G, M, O],
            &[U, G, group, group, M, O],
            &[U, user, G, O],
            &[U, G, group, O],
            // Unknown permissions and tags.
            &[(OWNER, 8, NO_ID), G, O],
            &[U, G, (OTHERS, 0xffff, NO_ID)],
            &[U, G, (0x40, 4, NO_ID), O],
            &[U, G, (0, 4, NO_ID), O],
        ] {
            assert!(refused(&bytes(VERSION, entries)), "{entries:?}");
        }
    }
}
