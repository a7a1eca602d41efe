//! The errors that are counted on a volume, in words.

use betrfs_fuse::ErrorStatus;
use jiff::Timestamp;

/// A time in seconds since 1970-01-01 00:00 UTC.
fn time(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds).ok();
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%FT%TZ").to_string())
}

/// In a sentence: `none`, or the counts, the time of the last error, and when it was read-only.
pub fn sentence(errors: &ErrorStatus) -> String {
    let counts = errors.kinds().into_iter().filter(|(_, counted)| counted.count > 0);
    let mut parts: Vec<String> = counts.map(|(name, counted)| format!("{} {name}", counted.count)).collect();
    let last = errors.kinds().into_iter().filter_map(|(_, counted)| counted.last).max();
    parts.extend(last.map(|last| format!("the last at {}", time(last))));
    parts.extend(
        errors.read_only.as_ref().map(|was| format!("read-only from {} on: {}", time(was.since), was.why)),
    );
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// As a table: a line if there are none, else one for each kind under a heading.
pub fn table(errors: &ErrorStatus) -> Vec<String> {
    if errors.is_none() {
        return vec!["errors       none".to_owned()];
    }
    let mut lines = vec![format!("{:<18}{:>12}  {:<20}  last", "errors", "count", "first")];
    let at = |seconds: Option<i64>| seconds.map_or_else(|| "-".to_owned(), time);
    lines.extend(errors.kinds().into_iter().map(|(name, counted)| {
        format!("  {name:<16}{:>12}  {:<20}  {}", counted.count, at(counted.first), at(counted.last))
    }));
    lines.extend(
        errors.read_only.as_ref().map(|was| format!("  read-only from {} on: {}", time(was.since), was.why)),
    );
    lines
}

#[cfg(test)]
mod tests {
    use betree::ErrorRecord;
    use betrfs_fuse::{CountedErrors, WasReadOnly};

    use super::*;

    #[test]
    fn errors_are_told_by_kind_with_their_times() {
        let mut errors = ErrorStatus::from(ErrorRecord::default());
        assert_eq!(
            (sentence(&errors).as_str(), table(&errors).join("\n").as_str()),
            ("none", "errors       none")
        );
        errors.read = CountedErrors { count: 3, first: Some(0), last: Some(86_400) };
        errors.sync = CountedErrors { count: 1, first: Some(60), last: Some(60) };
        errors.read_only = Some(WasReadOnly { since: 60, why: "device sync failed".to_owned() });
        let told = "3 read, 1 sync, the last at 1970-01-02T00:00:00Z, \
                    read-only from 1970-01-01T00:01:00Z on: device sync failed";
        assert_eq!(sentence(&errors), told);
        let lines = table(&errors);
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[1], "  read                       3  1970-01-01T00:00:00Z  1970-01-02T00:00:00Z");
        assert_eq!(lines[2], "  write                      0  -                     -");
        assert_eq!(lines[5], "  read-only from 1970-01-01T00:01:00Z on: device sync failed");
    }
}
