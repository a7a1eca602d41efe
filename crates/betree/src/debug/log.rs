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

/// A segment that a replay reads.
pub struct LogSegment<'s> {
    /// Its first byte on the device.
    pub offset: u64,
    /// How long it is in whole blocks, in bytes.
    pub len_bytes: u64,
    /// The life of the log that it belongs to.
    pub epoch: u64,
    /// Its number in that.
    pub seq: u64,
    /// Every segment of the epoch below this one was durable before it was written.
    pub durable_seq: u64,
    /// The number of its first change.
    pub first_msn: Msn,
    /// The number of its last change.
    pub last_msn: Msn,
    /// How many records it has, and of how many bytes with their heads, by its header.
    pub records: u32,
    /// See `records`.
    pub records_bytes: u32,
    header: Header,
    bytes: &'s [u8],
}

/// A batch in the log.
pub struct LogRecord<'s> {
    /// The number of its first change; the others follow.
    pub first_msn: Msn,
    bytes: &'s [u8],
}

/// Where and why a replay ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The segment that would be next. Its position counts from the log's start.
    pub next: LogStart,
    /// Segments that are replayed.
    pub segments: u64,
    /// The number of the last change in them; 0 if there is none.
    pub last_msn: Msn,
    /// The first byte on the device of a segment that carries the number that is due, and whose records are
    /// not what was written: torn by a crash, or rotten.
    pub torn: Option<u64>,
    /// Why what stood at the end was durable, and is lost, if so.
    pub lost: Option<Error>,
}

fn told(tell: &mut dyn FnMut(Finding), offset: u64, error: &Error) {
    let place = Place::Log { offset: error.offset().unwrap_or(offset) };
    tell(Finding::problem(FindingCode::BadLog, place, error.to_string()));
}

/// Gives `each` the segments that a replay from a superblock's start reads. What hinders that is given to
/// `tell`. `None` where the log cannot be read to its end.
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
    /// How many bytes its changes take.
    pub fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The changes in order, up to the first that does not parse.
    pub fn changes(&self) -> impl Iterator<Item = (DictId, Change<'s>)> + use<'s> {
        Changes::of(self.bytes).map_while(Result::ok)
    }
}

impl LogSegment<'_> {
    /// Gives `each` the records in order. What is not as a record is to be is given to `tell`.
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
