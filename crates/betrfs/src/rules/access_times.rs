//! When an access moves the time of access.

use crate::schema::Record;
use crate::types::AccessTimes;

/// After so long an access counts although nothing has changed.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Whether an access at `now_ns` moves the time of access, which is `atime_ns`: always, never, or *relatime*,
/// if it is not newer than the last change, or a day old.
pub(crate) fn access_counts(times: AccessTimes, record: &Record, atime_ns: i64, now_ns: i64) -> bool {
    match times {
        AccessTimes::Never => false,
        AccessTimes::Always => true,
        AccessTimes::Relative => {
            atime_ns <= record.mtime_ns.max(record.ctime_ns) || now_ns.saturating_sub(atime_ns) >= DAY_NS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileType;

    #[test]
    fn relative_times_move_after_a_change_and_once_a_day() {
        let mut record = Record::new(FileType::Regular, 0o644, 1, 0);
        (record.mtime_ns, record.ctime_ns) = (100, 200);
        let relative = |atime_ns, now_ns| access_counts(AccessTimes::Relative, &record, atime_ns, now_ns);
        assert!(relative(50, 1000) && relative(150, 1000) && relative(200, 1000));
        assert!(!relative(201, 1000));
        assert!(!relative(201, 200 + DAY_NS) && relative(201, 201 + DAY_NS));
        assert!(!relative(i64::MAX, i64::MIN), "a clock that was set back");
        assert!(access_counts(AccessTimes::Always, &record, 201, 1000));
        assert!(!access_counts(AccessTimes::Never, &record, 50, 1000));
    }
}
