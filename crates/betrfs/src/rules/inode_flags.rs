//! What the flags of an inode (chattr(1)) forbid, as on ext4, and who may change them.

use crate::error::{Error, Result};
use crate::schema::Record;
use crate::types::{FlagSetter, InodeFlags};

/// The flags that forbid changes, to root as well; only root sets and clears them.
const PROTECTING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Refuses a change that only adds something: immutable objects refuse it, append-only ones do not.
pub(crate) fn refuse_if_immutable(record: &Record) -> Result<()> {
    if record.rare().flags.has(InodeFlags::IMMUTABLE) { Err(Error::Protected) } else { Ok(()) }
}

/// Refuses any other change: immutable and append-only objects refuse it.
pub(crate) fn refuse_if_protected(record: &Record) -> Result<()> {
    let protects = record.rare().flags.intersection(PROTECTING) != InodeFlags::NONE;
    if protects { Err(Error::Protected) } else { Ok(()) }
}

/// Refuses a write at an offset in bytes: append-only files refuse it before their end.
pub(crate) fn refuse_overwrite(record: &Record, offset: u64) -> Result<()> {
    if offset < record.size { refuse_if_protected(record) } else { refuse_if_immutable(record) }
}

/// Clears the flags of a copy that would prevent its completion.
pub(crate) fn unprotect(record: &mut Record) {
    record.change_rare(|rare| rare.flags = rare.flags.without(PROTECTING));
}

/// Checks whether an object with this record may get these flags and this project.
///
/// # Errors
/// [`Error::NotPermitted`]; [`Error::NotSupported`] if an unknown flag is to change; [`Error::Protected`] if
/// the object is immutable, stays so, and anything else is to change.
pub(crate) fn check_new_flags(
    record: &Record,
    flags: InodeFlags,
    project: u32,
    setter: FlagSetter,
) -> Result<()> {
    let old = record.rare();
    let changed = InodeFlags::from_bits(old.flags.bits() ^ flags.bits());
    if setter.owner.is_some_and(|owner| owner != record.uid) {
        return Err(Error::NotPermitted);
    }
    if changed.intersection(PROTECTING) != InodeFlags::NONE && !setter.may_protect {
        return Err(Error::NotPermitted);
    }
    if !InodeFlags::KNOWN.has(changed) {
        return Err(Error::NotSupported);
    }
    let stays_immutable = old.flags.intersection(flags).has(InodeFlags::IMMUTABLE);
    if stays_immutable && (changed != InodeFlags::NONE || old.project != project) {
        return Err(Error::Protected);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileType;

    const OWNER: FlagSetter = FlagSetter { owner: Some(7), may_protect: false };

    fn with(flags: InodeFlags) -> Record {
        let mut record = Record::new(FileType::Regular, 0o644, 1, 0);
        (record.uid, record.size) = (7, 100);
        record.change_rare(|rare| (rare.flags, rare.project) = (flags, 3));
        record
    }

    #[test]
    fn append_only_objects_grow_and_immutable_ones_stay() {
        let refusals = |flags| {
            let record = with(flags);
            let results = [
                refuse_if_immutable(&record),
                refuse_if_protected(&record),
                refuse_overwrite(&record, 99),
                refuse_overwrite(&record, 100),
            ];
            results.map(|result| result.is_err())
        };
        assert_eq!(refusals(InodeFlags::NODUMP.union(InodeFlags::NOATIME)), [false; 4]);
        assert_eq!(refusals(InodeFlags::IMMUTABLE), [true; 4]);
        assert_eq!(refusals(InodeFlags::APPEND), [false, true, true, false]);
        assert_eq!(refusals(PROTECTING), [true; 4]);
    }

    #[test]
    fn owners_set_harmless_flags_and_root_the_others() {
        use InodeFlags as F;
        let check = |old, new, setter| check_new_flags(&with(old), new, 3, setter);
        for (old, new) in [(F::NONE, F::NODUMP), (F::NOATIME, F::NONE), (F::IMMUTABLE, F::IMMUTABLE)] {
            assert_eq!(check(old, new, OWNER), Ok(()));
            let other = FlagSetter { owner: Some(8), may_protect: true };
            assert_eq!(check(old, new, other), Err(Error::NotPermitted));
        }
        for protects in [F::IMMUTABLE, F::APPEND] {
            for (old, new) in [(F::NONE, protects), (protects, F::NONE)] {
                assert_eq!(check(old, new, OWNER), Err(Error::NotPermitted));
                assert_eq!(check(old, new, FlagSetter::ROOT), Ok(()));
            }
        }
    }

    #[test]
    fn an_object_that_stays_immutable_keeps_its_other_flags_and_its_project() {
        use InodeFlags as F;
        let check = |old, new, project| check_new_flags(&with(old), new, project, FlagSetter::ROOT);
        let both = F::IMMUTABLE.union(F::NODUMP);
        assert_eq!(check(F::IMMUTABLE, both, 3), Err(Error::Protected));
        assert_eq!(check(F::IMMUTABLE, F::IMMUTABLE, 4), Err(Error::Protected));
        for (old, new) in [(F::IMMUTABLE, F::NODUMP), (F::NONE, both), (F::APPEND, F::APPEND)] {
            assert_eq!(check(old, new, 4), Ok(()));
        }
    }

    #[test]
    fn an_unknown_flag_can_be_neither_set_nor_cleared() {
        let (none, unknown) = (InodeFlags::NONE, InodeFlags::from_bits(0x4000_0000));
        let check = |old, new| check_new_flags(&with(old), new, 3, FlagSetter::ROOT);
        assert_eq!(check(none, unknown), Err(Error::NotSupported));
        assert_eq!(check(unknown, none), Err(Error::NotSupported));
        assert_eq!(check(unknown, unknown.union(InodeFlags::NODUMP)), Ok(()));
    }
}
