//! What access control lists say, and how they and permission bits follow each other: acl(5), and POSIX
//! 1003.1e draft 17, section 23.

use crate::schema::{Acl, Named};

/// The permission bits of owner, group and others.
const ALL: u16 = 0o777;
const EACH: u16 = 0o7;

impl Acl {
    /// The permission bits of an object with this list: those of the group are the mask, if there is one.
    pub fn perm(&self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.others
    }

    /// Whether permission bits say all of it.
    pub(crate) fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// Follows chmod(2).
    pub(crate) fn set_perm(&mut self, perm: u16) {
        self.owner = perm >> 6 & EACH;
        *self.group_class() = perm >> 3 & EACH;
        self.others = perm & EACH;
    }

    /// The list of an object that is made with the permissions `perm` where this is the default list: it has
    /// what both allow, whatever the umask.
    pub(crate) fn inherited(&self, perm: u16) -> Acl {
        let mut acl = self.clone();
        acl.set_perm(self.perm() & perm);
        acl
    }

    /// What bounds all but the owner and the others.
    fn group_class(&mut self) -> &mut u16 {
        self.mask.as_mut().unwrap_or(&mut self.group)
    }

    /// Whether a user may read (4), write (2), execute or search (1) an object with this list. `owner` are
    /// the object's user and group; `is_in` knows the user's groups.
    ///
    /// ```
    /// use betrfs::Acl;
    ///
    /// let entry = |tag: u8, perm: u8| vec![tag, 0, perm, 0, 255, 255, 255, 255];
    /// let acl = Acl::parse(&[vec![2, 0, 0, 0], entry(1, 6), entry(4, 4), entry(0x20, 0)].concat())?;
    /// let owner = (1000, 100);
    /// assert!(acl.grants(1000, |_| false, owner, 6));
    /// assert!(acl.grants(7, |group| group == 100, owner, 4));
    /// assert!(!acl.grants(7, |_| false, owner, 4));
    /// # Ok::<(), betrfs::Error>(())
    /// ```
    pub fn grants(&self, user: u32, is_in: impl Fn(u32) -> bool, owner: (u32, u32), wanted: u16) -> bool {
        let has = |perm: u16| perm & wanted == wanted;
        let mask = self.mask.unwrap_or(EACH);
        if user == owner.0 {
            return has(self.owner);
        }
        if let Some(named) = self.users.iter().find(|named| named.id == user) {
            return has(named.perm & mask);
        }
        let owning = Named { id: owner.1, perm: self.group };
        let mut theirs = self.groups.iter().chain([&owning]).filter(|group| is_in(group.id)).peekable();
        if theirs.peek().is_none() {
            return has(self.others);
        }
        // One of the groups must allow all that is wanted.
        theirs.any(|group| has(group.perm & mask))
    }
}

/// Permission bits with those of a list in their place, the upper ones as they are.
pub(crate) fn with_perm_of(acl: &Acl, perm: u16) -> u16 {
    perm & !ALL | acl.perm()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn minimal(perm: u16) -> Acl {
        let [owner, group, others] = [perm >> 6, perm >> 3, perm].map(|perm| perm & EACH);
        Acl { owner, users: vec![], group, groups: vec![], mask: None, others }
    }

    /// User 5 may read and write, groups 50 and 51 may read or write; the mask lets nobody write.
    fn full() -> Acl {
        Acl {
            users: vec![Named { id: 5, perm: 6 }],
            groups: vec![Named { id: 50, perm: 4 }, Named { id: 51, perm: 3 }],
            mask: Some(5),
            ..minimal(0o770)
        }
    }

    #[test]
    fn the_mask_stands_for_the_group() {
        assert_eq!((minimal(0o641).perm(), minimal(0o641).is_minimal()), (0o641, true));
        assert_eq!((full().perm(), full().is_minimal()), (0o750, false));
        let masked = Acl { mask: Some(7), ..minimal(0o600) };
        assert_eq!((masked.perm(), masked.is_minimal()), (0o670, false));
        assert_eq!(with_perm_of(&full(), 0o6711), 0o6750);
    }

    #[test]
    fn a_change_of_the_mode_changes_the_mask_and_no_group() {
        let mut acl = full();
        acl.set_perm(0o2623);
        assert_eq!((acl.owner, acl.group, acl.mask, acl.others), (6, 7, Some(2), 3));
        assert_eq!(acl.users, full().users);
        let mut acl = minimal(0o777);
        acl.set_perm(0o640);
        assert_eq!(acl, minimal(0o640));
    }

    #[test]
    fn what_is_inherited_has_what_list_and_mode_allow() {
        let made = full().inherited(0o4666);
        assert_eq!((made.owner, made.group, made.mask, made.others), (6, 7, Some(4), 0));
        assert_eq!((made.users, made.groups), (full().users, full().groups));
        assert_eq!(minimal(0o750).inherited(0o666), minimal(0o640));
    }

    #[test]
    fn the_first_class_that_fits_decides_and_one_of_the_groups_must_allow_all() {
        let owner = (1, 10);
        for (user, groups, granted) in [
            (1, &[][..], 7),
            // The owner's entry alone counts for the owner, a user's for that user.
            (1, &[10, 50], 7),
            (5, &[], 4),
            (5, &[10, 50, 51], 4),
            (6, &[10], 5),
            (6, &[50], 4),
            (6, &[51], 1),
            (6, &[50, 51], 0b1101),
            (6, &[], 0),
            (6, &[52], 0),
        ] {
            let grants = |wanted| full().grants(user, |group| groups.contains(&group), owner, wanted);
            // Bit 3: 4 and 1, each by another group, but not both by one.
            let split = granted & 8 != 0;
            for wanted in 1..8 {
                let expected = granted & wanted == wanted && !(split && wanted == 5);
                assert_eq!(grants(wanted), expected, "{user} in {groups:?} wants {wanted}");
            }
        }
        let mut owned = full();
        owned.owner = 0;
        assert!(!owned.grants(1, |_| true, owner, 4));
    }
}
