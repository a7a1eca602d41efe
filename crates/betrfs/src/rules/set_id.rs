//! Set-id bits: who loses them, and what inherits them.

use crate::planted::{self, Bug};
use crate::schema::Record;

const SET_USER_ID: u16 = 0o4000;
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Clears the set-id bits, as a change of the owner does, and a change of the contents by a caller without
/// the privilege to keep them. Without execute permission for the group, set-group-id means something else
/// and stays.
pub(crate) fn kill_set_id(record: &mut Record) {
    if !record.is_dir() && !planted::is(Bug::SetIdKept) {
        record.perm &= !SET_USER_ID;
        if record.perm & GROUP_EXECUTE != 0 {
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
    fn set_id_bits_go_from_what_can_be_executed() {
        for (file_type, perm, left) in [
            (FileType::Regular, 0o6755, 0o755),
            (FileType::Regular, 0o4644, 0o644),
            // A mandatory lock, on systems that have those.
            (FileType::Regular, 0o2644, 0o2644),
            (FileType::Regular, 0o1777, 0o1777),
            (FileType::Directory, 0o6755, 0o6755),
        ] {
            let mut record = Record::new(file_type, perm, 1, 0);
            kill_set_id(&mut record);
            assert_eq!(record.perm, left, "{file_type:?} {perm:o}");
        }
    }
}
