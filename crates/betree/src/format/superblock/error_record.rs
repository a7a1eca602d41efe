//! The counts of errors, kept in the superblock's tail.
//!
//! ```text
//! (count u64 | first time i64 | last time i64) of reads, writes, syncs and checksums
//! | since when it was read-only i64 | why, UTF-8 text up to the end; empty if it was not
//! ```
//! Times are in nanoseconds since 1970-01-01 00:00 UTC; 0 if there was no clock. A volume without errors has
//! no such tag. A program that does not know the tag keeps it, and counts nothing.

use alloc::vec::Vec;

use super::raw::TAIL_BYTES_MAX;
use crate::format::tail::TaggedTail;
use crate::health::{ErrorCount, ErrorRecord, Trouble};

/// The superblock's tag of the counts.
const TAG: u16 = 5;
const COUNT_BYTES: usize = 24;
/// The bytes before the text.
const HEAD_BYTES: usize = 4 * COUNT_BYTES + 8;
/// The longest text in bytes. A longer one is cut.
const WHY_BYTES_MAX: usize = 256;

/// The counts in a superblock's tail; `None` if there are none that this version understands.
pub(crate) fn of(tail: &TaggedTail) -> Option<ErrorRecord> {
    let (_, value) = tail.iter().find(|(tag, _)| *tag == TAG)?;
    let (head, why) = value.split_at_checked(HEAD_BYTES)?;
    let number = |at: usize| Some(i64::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let count = |index: usize| {
        let at = index * COUNT_BYTES;
        let count = number(at)?.cast_unsigned();
        Some(ErrorCount { count, first_ns: number(at + 8)?, last_ns: number(at + 16)? })
    };
    let why = core::str::from_utf8(why).ok()?;
    let since_ns = number(4 * COUNT_BYTES)?;
    Some(ErrorRecord {
        reads: count(0)?,
        writes: count(1)?,
        syncs: count(2)?,
        checksums: count(3)?,
        read_only: (!why.is_empty()).then(|| Trouble { why: why.into(), since_ns }),
    })
}

/// The tail with these counts; unchanged if values of later versions leave no room for them. A record without
/// errors takes the tag away.
pub(crate) fn put(record: &ErrorRecord, tail: TaggedTail) -> TaggedTail {
    if *record == ErrorRecord::default() {
        return if of(&tail).is_some() { tail.without(TAG) } else { tail };
    }
    let numbers = record
        .counts()
        .into_iter()
        .flat_map(|(_, count)| [count.count.cast_signed(), count.first_ns, count.last_ns]);
    let read_only = record.read_only.as_ref();
    let since_ns = read_only.map_or(0, |trouble| trouble.since_ns);
    let why = read_only.map_or("", |trouble| beginning(&trouble.why));
    let mut value: Vec<u8> = numbers.chain([since_ns]).flat_map(i64::to_le_bytes).collect();
    value.extend_from_slice(why.as_bytes());
    let mut with = tail.clone();
    let fits = with.set(TAG, &value) && with.as_bytes().len() <= TAIL_BYTES_MAX;
    if fits { with } else { tail }
}

/// The tail without counts: of a copy, whose device has had no error.
pub(crate) fn removed_from(tail: &TaggedTail) -> TaggedTail {
    tail.without(TAG)
}

/// As much of a text as is kept.
fn beginning(text: &str) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(WHY_BYTES_MAX)).rev().find(fits).unwrap_or_default();
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::ErrorKind;

    fn record() -> ErrorRecord {
        let mut record = ErrorRecord::default();
        for (at, kind) in (1..).zip([ErrorKind::Read, ErrorKind::Write, ErrorKind::Sync, ErrorKind::Checksum])
        {
            (0..at).for_each(|now_ns| record.add(kind, now_ns - 2));
        }
        record
    }

    #[test]
    fn counts_come_back_beside_other_values() {
        let mut tail = TaggedTail::new();
        assert!(tail.set(1, b"one") && tail.set(9, b"nine"));
        assert_eq!(of(&tail), None);
        assert_eq!(put(&ErrorRecord::default(), tail.clone()), tail);
        let mut counted = record();
        for why in [None, Some("the device failed")] {
            if let Some(why) = why {
                counted.note_read_only(why, -7);
            }
            let with = put(&counted, tail.clone());
            assert_eq!(of(&with), Some(counted.clone()));
            assert_eq!(with.iter().count(), 3);
            assert_eq!(removed_from(&with), tail);
            assert_eq!(put(&ErrorRecord::default(), with), tail);
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut counted = record();
        counted.note_read_only(&"ö".repeat(200), 3);
        counted.note_read_only(&alloc::format!("x{}", "ö".repeat(200)), 3);
        let kept = of(&put(&counted, TaggedTail::new())).unwrap().read_only.unwrap();
        assert_eq!(kept.why, alloc::format!("x{}", "ö".repeat(127)));
    }

    #[test]
    fn a_tail_without_room_or_of_a_later_version_stays() {
        let mut tail = TaggedTail::new();
        assert!(tail.set(7, &[1; TAIL_BYTES_MAX - 4 - HEAD_BYTES]));
        assert_eq!(put(&record(), tail.clone()), tail);
        for value in [&[0; HEAD_BYTES - 1][..], &[0xff; HEAD_BYTES + 1]] {
            let mut later = TaggedTail::new();
            assert!(later.set(TAG, value));
            assert_eq!(of(&later), None);
            assert_eq!(put(&ErrorRecord::default(), later.clone()), later);
        }
    }
}
