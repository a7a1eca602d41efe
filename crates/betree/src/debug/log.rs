//! The segments of the log, in the order in which a replay reads them.

use alloc::string::ToString;
use alloc::sync::Arc;

use betree_platform::Device;

use crate::check::{Finding, FindingCode, Place};
use crate::env::recover::log_area;
use crate::error::Error;
use crate::format::record::{Change, Changes};
use crate::format::segment::Header;
use crate::format::superblock::{LogStart, Superblock};
use crate::io::Disk;
use crate::log::{NOT_THE_CHANGES, NOT_THE_RECORDS, Segment, Segments, senseless};
use crate::message::Msn;
use crate::settings::DictId;

/// A segment of the log, as a replay reads it.
pub struct LogSegment<'s> {
    /// Its first byte on the device.
    pub offset: u64,
    /// Its length in bytes, in whole blocks.
    pub len_bytes: u64,
    /// Its epoch of the log.
    pub epoch: u64,
    /// Its number in the epoch.
    pub seq: u64,
    /// Every segment of the epoch below this number was durable before it was written.
    pub durable_seq: u64,
    /// The number of its first change.
    pub first_msn: Msn,
    /// The number of its last change.
    pub last_msn: Msn,
    /// The number of its records.
    pub records: u32,
    /// The length of its records with their heads, in bytes.
    pub records_bytes: u32,
    header: Header,
    bytes: &'s [u8],
}

/// A record: a batch in the log.
pub struct LogRecord<'s> {
    /// The number of its first change; the others follow.
    pub first_msn: Msn,
    bytes: &'s [u8],
}

/// Where and why a replay ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The due segment. Its position counts from the log's start.
    pub next: LogStart,
    /// The number of segments that a replay reads.
    pub segments: u64,
    /// The number of the last change in them; 0 if there is none.
    pub last_msn: Msn,
    /// The first byte on the device of a segment with the due number whose checksum does not match: a crash
    /// cut its write short, or it is damaged.
    pub torn: Option<u64>,
    /// The error if the due segment is proved to have been durable.
    pub lost: Option<Error>,
}

fn told(tell: &mut dyn FnMut(Finding), offset: u64, error: &Error) {
    let place = Place::Log { offset: error.offset().unwrap_or(offset) };
    tell(Finding::problem(FindingCode::BadLog, place, error.to_string()));
}

/// Calls `each` with the segments that a replay reads, and `tell` with the log's damage. Returns `None` if
/// the log cannot be read to its end.
pub fn log(
    device: Arc<dyn Device>,
    superblock: &Superblock,
    each: &mut dyn FnMut(&LogSegment<'_>),
    tell: &mut dyn FnMut(Finding),
) -> Option<LogEnd> {
    let disk = Disk::for_reading(device);
    let area = log_area(superblock);
    let mut segments = Segments::new(&disk, area, &superblock.identity.volume_id, &superblock.log_start);
    loop {
        match segments.next() {
            Ok(Some(Segment { offset, header, bytes })) => {
                let (records, records_bytes) = header.counts();
                each(&LogSegment {
                    offset,
                    len_bytes: header.segment_bytes(),
                    epoch: header.id.epoch,
                    seq: header.id.seq,
                    durable_seq: header.id.durable_seq,
                    first_msn: header.first_msn,
                    last_msn: header.last_msn,
                    records,
                    records_bytes,
                    header,
                    bytes,
                });
            }
            Ok(None) => break,
            Err(error) => {
                told(tell, area.offset, &error);
                return None;
            }
        }
    }
    let end = segments.end();
    if let Some(error) = &end.lost {
        told(tell, area.offset, error);
    }
    let crate::log::End { next, segments, last_msn, torn, lost, .. } = end;
    Some(LogEnd { next, segments, last_msn, torn, lost })
}

impl<'s> LogRecord<'s> {
    /// The length of its changes in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The changes in order, up to the first bad one.
    pub fn changes(&self) -> impl Iterator<Item = (DictId, Change<'s>)> + use<'s> {
        Changes::of(self.bytes).map_while(Result::ok)
    }
}

impl LogSegment<'_> {
    /// Calls `each` with the records in order, and `tell` with bad ones.
    pub fn each_record(&self, each: &mut dyn FnMut(&LogRecord<'_>), tell: &mut dyn FnMut(Finding)) {
        for record in self.header.records(self.bytes) {
            let Some(record) = record else {
                told(tell, self.offset, &senseless(self.offset, &self.header, NOT_THE_RECORDS));
                return;
            };
            let changes = Changes::of(record.bytes)
                .try_fold(0u64, |count, change| change.map(|_| count.saturating_add(1)));
            match changes {
                Ok(count) if count == u64::from(record.changes) => {}
                Ok(_) | Err(Error::BadRecord) => {
                    told(tell, self.offset, &senseless(self.offset, &self.header, NOT_THE_CHANGES));
                }
                Err(error) => told(tell, self.offset, &error.at(self.offset)),
            }
            each(&LogRecord { first_msn: record.first_msn, bytes: record.bytes });
        }
    }
}
