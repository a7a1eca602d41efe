//! The record of the last scrub, kept in the superblock's tail.
//!
//! ```text
//! began i64 | written i64 | bytes read u64 | problems u64 | next slot u32 | whether it is complete u32
//! ```
//! Times are in nanoseconds since 1970-01-01 00:00 UTC; 0 if there was no clock.

use super::raw::TAIL_BYTES_MAX;
use crate::format::tail::TaggedTail;

/// The superblock's tag of the record.
const TAG: u16 = 2;
const BYTES: usize = 40;

/// How a scrub has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubState {
    /// It has not.
    UnderWay,
    /// Before it had read everything. The next one may go on there.
    #[default]
    Interrupted,
    /// It has read everything.
    Complete,
}

/// What is known of the last scrub of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubRecord {
    /// How it has ended.
    pub state: ScrubState,
    /// When it began, in nanoseconds since 1970-01-01 00:00 UTC; 0 without a clock.
    pub began_ns: i64,
    /// When the record was made: when it ended, or how far it was by then.
    pub written_ns: i64,
    /// The bytes that it has read.
    pub read_bytes: u64,
    /// The problems that it has found.
    pub problems: u64,
    /// The first slot of the node table that it has not looked at.
    pub(crate) next_slot: u32,
}

impl ScrubRecord {
    /// The record in a superblock's tail, if there is one that this version understands.
    pub(crate) fn of(tail: &TaggedTail) -> Option<ScrubRecord> {
        let (_, value) = tail.iter().find(|(tag, _)| *tag == TAG)?;
        let value: &[u8; BYTES] = value.try_into().ok()?;
        let number = |at: usize| {
            let bytes = value.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let last = number(32)?;
        Some(ScrubRecord {
            state: if last >> 32 == 1 { ScrubState::Complete } else { ScrubState::Interrupted },
            began_ns: number(0)?.cast_signed(),
            written_ns: number(8)?.cast_signed(),
            read_bytes: number(16)?,
            problems: number(24)?,
            next_slot: last as u32,
        })
    }

    /// The tail with this record; unchanged if values of later versions leave no room for it.
    pub(crate) fn put(&self, tail: &TaggedTail) -> TaggedTail {
        let is_complete = u64::from(self.state == ScrubState::Complete);
        let last = is_complete << 32 | u64::from(self.next_slot);
        let numbers = [
            self.began_ns.cast_unsigned(),
            self.written_ns.cast_unsigned(),
            self.read_bytes,
            self.problems,
            last,
        ];
        let mut with = tail.clone();
        let value: alloc::vec::Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let fits = with.set(TAG, &value) && with.as_bytes().len() <= TAIL_BYTES_MAX;
        if fits { with } else { tail.clone() }
    }

    /// The tail without a record: of a copy that nobody has scrubbed.
    pub(crate) fn removed_from(tail: &TaggedTail) -> TaggedTail {
        tail.without(TAG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ScrubRecord {
        let state = ScrubState::Complete;
        ScrubRecord { state, began_ns: -1, written_ns: 2, read_bytes: 3, problems: 4, next_slot: u32::MAX }
    }

    #[test]
    fn a_record_comes_back_beside_other_values() {
        let mut tail = TaggedTail::new();
        assert!(tail.set(1, b"one") && tail.set(9, b"nine"));
        assert_eq!(ScrubRecord::of(&tail), None);
        for state in [ScrubState::Complete, ScrubState::Interrupted] {
            let record = ScrubRecord { state, ..record() };
            let with = record.put(&tail);
            assert_eq!(ScrubRecord::of(&with), Some(record));
            assert_eq!(with.iter().count(), 3);
            assert_eq!(ScrubRecord::removed_from(&with), tail);
        }
        // A scrub that nobody ended was interrupted.
        let under_way = ScrubRecord { state: ScrubState::UnderWay, ..record() }.put(&tail);
        assert_eq!(ScrubRecord::of(&under_way).map(|record| record.state), Some(ScrubState::Interrupted));
    }

    #[test]
    fn a_tail_without_room_or_of_a_later_version_stays() {
        let mut tail = TaggedTail::new();
        assert!(tail.set(7, &[1; TAIL_BYTES_MAX - 4 - BYTES]));
        assert_eq!(record().put(&tail), tail);
        let mut later = TaggedTail::new();
        assert!(later.set(TAG, &[0; BYTES + 1]));
        assert_eq!(ScrubRecord::of(&later), None);
    }
}
