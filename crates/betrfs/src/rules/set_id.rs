//! Set-id bits: who loses them, and what inherits them.

use crate::planted::{self, Bug};
use crate::schema::Record;

const SET_USER_ID: u16 = 0o4000;
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Clears the set-id bits, as a change of the owner does, and a change of the contents by a caller without
/// the privilege to keep them. Without execute permission for the group, set-group-id is cleared only if the
/// caller is `outside_group`, as Linux does since 6.2 (`setattr_should_drop_sgid`).
pub(crate) fn kill_set_id(record: &mut Record, outside_group: bool) {
    if !record.is_dir() && !planted::is(Bug::SetIdKept) {
        record.perm &= !SET_USER_ID;
        if outside_group || record.perm & GROUP_EXECUTE != 0 {
            record.perm &= !SET_GROUP_ID;
        }
    }
}

/// Clears the set-group-id bit, as a change of the permissions does by a user who is not in the group.
pub(crate) fn clear_set_group_id(record: &mut Record) {
    record.perm &= !SET_GROUP_ID;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileType;

    #[test]
    fn set_id_bits_are_cleared_as_the_kernel_does() {
        // The permissions before, and those after a change by a caller in the group and outside of it.
        for (file_type, perm, inside, outside) in [
            (FileType::Regular, 0o6755, 0o755, 0o755),
            (FileType::Regular, 0o4644, 0o644, 0o644),
            (FileType::Regular, 0o2644, 0o2644, 0o644),
            (FileType::Regular, 0o6766, 0o2766, 0o766),
            (FileType::Regular, 0o1777, 0o1777, 0o1777),
            (FileType::Directory, 0o6755, 0o6755, 0o6755),
        ] {
            for (outside_group, left) in [(false, inside), (true, outside)] {
                let mut record = Record::new(file_type, perm, 1, 0);
                kill_set_id(&mut record, outside_group);
                assert_eq!(
                    record.perm, left,
                    "{file_type:?} {perm:o}, outside of the group: {outside_group}"
                );
            }
        }
    }
}
