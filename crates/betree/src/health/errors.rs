//! Errors of the device and of what is stored on it, counted over the life of a volume.

use alloc::string::String;

use super::Trouble;

/// The errors of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCount {
    /// How many.
    pub count: u64,
    /// When the first of them came, in nanoseconds since 1970-01-01 00:00 UTC; 0 without a clock, or without
    /// an error.
    pub first_ns: i64,
    /// When the last of them came, likewise.
    pub last_ns: i64,
}

impl ErrorCount {
    /// Counts an error of this moment.
    fn add(&mut self, now_ns: i64) {
        self.join(ErrorCount { count: 1, first_ns: now_ns, last_ns: now_ns });
    }

    /// Adds errors that came later.
    fn join(&mut self, later: ErrorCount) {
        match (self.count, later.count) {
            (0, _) => *self = later,
            (_, 0) => {}
            _ => {
                self.count = self.count.saturating_add(later.count);
                self.last_ns = later.last_ns;
            }
        }
    }
}

/// A kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The device refused a read.
    Read,
    /// It refused a write, for another reason than want of room.
    Write,
    /// It refused a sync.
    Sync,
    /// Bytes that it gave are not those that were written.
    Checksum,
}

/// What is counted of a volume's errors, since it was made or since the counts were
/// [reset](crate::Env::reset_errors). The same place counts each time that it is met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorRecord {
    /// Reads that the device refused.
    pub reads: ErrorCount,
    /// Writes that it refused, but for those that found the disk under it full.
    pub writes: ErrorCount,
    /// Syncs that it refused.
    pub syncs: ErrorCount,
    /// Structures whose bytes are not those that were written: a checksum does not match, or what they say
    /// makes no sense.
    pub checksums: ErrorCount,
    /// The last time that a failure made the volume read-only.
    pub read_only: Option<Trouble>,
}

impl ErrorRecord {
    /// The counts with the names of their kinds.
    pub fn counts(&self) -> [(&'static str, ErrorCount); 4] {
        let ErrorRecord { reads, writes, syncs, checksums, read_only: _ } = *self;
        [("read", reads), ("write", writes), ("sync", syncs), ("checksum", checksums)]
    }

    /// Counts an error of this moment.
    pub(crate) fn add(&mut self, kind: ErrorKind, now_ns: i64) {
        match kind {
            ErrorKind::Read => self.reads.add(now_ns),
            ErrorKind::Write => self.writes.add(now_ns),
            ErrorKind::Sync => self.syncs.add(now_ns),
            ErrorKind::Checksum => self.checksums.add(now_ns),
        }
    }

    /// Notes that a failure has made the volume read-only.
    pub(crate) fn note_read_only(&mut self, why: &str, since_ns: i64) {
        self.read_only = Some(Trouble { why: String::from(why), since_ns });
    }

    /// Adds what came later.
    pub(crate) fn join(&mut self, later: ErrorRecord) {
        self.reads.join(later.reads);
        self.writes.join(later.writes);
        self.syncs.join(later.syncs);
        self.checksums.join(later.checksums);
        self.read_only = later.read_only.or(self.read_only.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_time_stay_when_counts_are_joined() {
        let mut record = ErrorRecord::default();
        record.add(ErrorKind::Read, 5);
        record.add(ErrorKind::Read, 7);
        record.note_read_only("first", 7);
        let mut later = ErrorRecord::default();
        later.add(ErrorKind::Read, 9);
        later.add(ErrorKind::Sync, 10);
        record.join(later);
        assert_eq!(record.reads, ErrorCount { count: 3, first_ns: 5, last_ns: 9 });
        assert_eq!(record.syncs, ErrorCount { count: 1, first_ns: 10, last_ns: 10 });
        assert_eq!(record.read_only.as_ref().map(|trouble| trouble.why.as_str()), Some("first"));
        let before = record.clone();
        record.join(ErrorRecord::default());
        assert_eq!(record, before);
    }
}
