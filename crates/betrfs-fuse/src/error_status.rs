//! The errors that are counted on a volume, as programs get them.

use betree::{ErrorCount, ErrorRecord, Trouble};
use serde::{Deserialize, Serialize};

const SECOND_NS: i64 = 1_000_000_000;

/// The errors of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedErrors {
    /// How many.
    pub count: u64,
    /// When the first of them came, in seconds since 1970-01-01 00:00 UTC; `None` without any.
    pub first: Option<i64>,
    /// When the last of them came, likewise.
    pub last: Option<i64>,
}

impl From<ErrorCount> for CountedErrors {
    fn from(ErrorCount { count, first_ns, last_ns }: ErrorCount) -> CountedErrors {
        let seconds = |ns: i64| (count > 0).then_some(ns / SECOND_NS);
        CountedErrors { count, first: seconds(first_ns), last: seconds(last_ns) }
    }
}

/// A time at which a failure made the volume read-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasReadOnly {
    /// When that was, in seconds since 1970-01-01 00:00 UTC.
    pub since: i64,
    /// The failure.
    pub why: String,
}

/// What was counted since the volume was made, or since the counts were reset, as
/// [`ErrorRecord`] has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorStatus {
    /// Reads that the device refused.
    pub read: CountedErrors,
    /// Writes that it refused.
    pub write: CountedErrors,
    /// Syncs that it refused.
    pub sync: CountedErrors,
    /// Structures whose bytes are not those that were written.
    pub checksum: CountedErrors,
    /// The last time that a failure made the volume read-only.
    pub read_only: Option<WasReadOnly>,
}

impl From<ErrorRecord> for ErrorStatus {
    fn from(record: ErrorRecord) -> ErrorStatus {
        let read_only = record.read_only.map(|Trouble { why, since_ns }| {
            let since = since_ns / SECOND_NS;
            WasReadOnly { since, why }
        });
        ErrorStatus {
            read: record.reads.into(),
            write: record.writes.into(),
            sync: record.syncs.into(),
            checksum: record.checksums.into(),
            read_only,
        }
    }
}

impl ErrorStatus {
    /// The kinds by their names.
    pub fn kinds(&self) -> [(&'static str, &CountedErrors); 4] {
        [("read", &self.read), ("write", &self.write), ("sync", &self.sync), ("checksum", &self.checksum)]
    }

    /// Whether there was none.
    pub fn is_none(&self) -> bool {
        *self == ErrorStatus::default()
    }
}
