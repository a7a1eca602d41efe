//! Reading the log after a crash.

use alloc::format;
use alloc::string::String;

use betree_platform::BLOCK_BYTES;

use super::LogArea;
use crate::error::{Error, Result};
use crate::format::limits::Limits;
use crate::format::segment::{Header, volume_hash};
use crate::format::superblock::LogStart;
use crate::invariant::internal;
use crate::io::{AlignedBuf, Disk};
use crate::settings::ReplayProgress;

/// The size of a read in bytes, if that much of the log area is left.
const READ_BYTES: u64 = 1 << 20;
/// The size of a read in bytes where only the headers of segments are looked at.
const HEADERS_READ_BYTES: u64 = 64 << 10;
/// How far behind the end of the log a replay looks for proof that the log went on, in bytes: twice the size
/// of most segments.
const PROOF_BYTES: u64 = 16 << 20;

/// Where and why a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The place of the next segment of the same epoch; a new epoch may begin at its position.
    pub next: LogStart,
    /// Segments replayed.
    pub segments: u64,
    /// Records replayed.
    pub records: u64,
    /// The last MSN replayed; 0 if none was.
    pub last_msn: u64,
    /// The first byte on the volume of a segment with the due number whose checksum does not match: a crash
    /// cut its write short, or it is damaged.
    pub torn: Option<u64>,
    /// [`Error::Corrupt`] if durable records are proved to have stood at the end or beyond, or if a whole
    /// segment there makes no sense: not a write that a crash cut short, but damage. [`Error::Device`] if the
    /// device does not read what is there.
    pub lost: Option<Error>,
}

/// Receives a record: its first MSN, its number of changes, its bytes.
pub(crate) type EachRecord<'e> = dyn FnMut(u64, u32, &[u8]) -> Result<()> + 'e;

/// Calls `each` with the records from `start` on, up to the first segment that is missing, torn, damaged,
/// unreadable, or whole and senseless; of a senseless one with those before what makes no sense.
///
/// Tells `progress`, if there is one, how far it is: for that it first looks at the headers of all segments.
///
/// # Errors
/// Those of `each` that are not about the record.
pub(crate) fn replay(
    disk: &Disk,
    log_area: LogArea,
    volume_id: &[u8; 16],
    start: &LogStart,
    progress: Option<&ReplayProgress>,
    each: &mut EachRecord<'_>,
) -> Result<End> {
    let mut told =
        progress.map(|progress| Told::begin(progress, live_bytes(disk, log_area, volume_id, start)));
    let mut segments = Segments::new(disk, log_area, volume_id, start);
    let mut records = 0u64;
    let unusable = match each_record(&mut segments, &mut records, told.as_mut(), each) {
        Ok(()) => None,
        Err(Stopped::Log(error)) if error.is_unreadable() => Some(error),
        Err(Stopped::Log(error) | Stopped::Caller(error)) => return Err(error),
    };
    if let Some(told) = told {
        told.end();
    }
    let mut end = segments.end();
    end.records = records;
    end.lost = unusable.or(end.lost);
    Ok(end)
}

/// What a caller has heard of a replay.
struct Told<'p> {
    progress: &'p ReplayProgress,
    done_bytes: u64,
    all_bytes: u64,
}

impl<'p> Told<'p> {
    fn begin(progress: &'p ReplayProgress, all_bytes: u64) -> Told<'p> {
        let told = Told { progress, done_bytes: 0, all_bytes };
        if all_bytes > 0 {
            told.tell();
        }
        told
    }

    fn add(&mut self, segment_bytes: u64) {
        self.done_bytes = self.done_bytes.saturating_add(segment_bytes);
        self.tell();
    }

    /// Nothing is left, also if the replay came to its end before a torn segment.
    fn end(mut self) {
        if self.done_bytes < self.all_bytes {
            self.all_bytes = self.done_bytes;
            self.tell();
        }
    }

    fn tell(&self) {
        (self.progress)(self.done_bytes, self.all_bytes);
    }
}

/// The bytes of the segments from a start on, up to the first that is missing or whose header cannot be read.
/// Only the headers are verified, so a torn or damaged segment counts, and those behind it if they are there.
///
/// A window of [`HEADERS_READ_BYTES`] is read for each header that the last one did not hold: of large
/// segments little is read, of small ones each byte once.
fn live_bytes(disk: &Disk, log_area: LogArea, volume_id: &[u8; 16], start: &LogStart) -> u64 {
    let mut window = Window::new(disk, log_area, HEADERS_READ_BYTES);
    let volume_hash = volume_hash(volume_id);
    let (mut next, mut all_bytes) = (*start, 0u64);
    // Each one has another number, and so another place.
    while let Ok(Some((position, header))) = window.find(volume_hash, &next) {
        all_bytes = all_bytes.saturating_add(header.segment_bytes());
        next = behind(&next, position, &header, log_area);
    }
    all_bytes
}

/// The place of the segment after one at a position.
fn behind(at: &LogStart, position: u64, header: &Header, log_area: LogArea) -> LogStart {
    let after = position.saturating_add(header.segment_bytes());
    let position = if after < log_area.len { after } else { 0 };
    LogStart { seq: at.seq.saturating_add(1), position, ..*at }
}

/// What keeps a replay from going on.
enum Stopped {
    /// The log.
    Log(Error),
    /// The caller, who gets the records.
    Caller(Error),
}

/// Calls `each` with all records, and counts them.
fn each_record(
    segments: &mut Segments<'_>,
    records: &mut u64,
    mut told: Option<&mut Told<'_>>,
    each: &mut EachRecord<'_>,
) -> core::result::Result<(), Stopped> {
    while let Some(Segment { offset, header, bytes }) = segments.next().map_err(Stopped::Log)? {
        let senseless = |why: &str| Stopped::Log(senseless(offset, &header, why));
        for record in header.records(bytes) {
            let record = record.ok_or_else(|| senseless(NOT_THE_RECORDS))?;
            each(record.first_msn, record.changes, record.bytes).map_err(|error| match error {
                Error::BadRecord => senseless(NOT_THE_CHANGES),
                Error::NoSuchDictionary { id } => senseless(&format!(
                    "a record changes the dictionary {id}, which the volume does not have"
                )),
                other => Stopped::Caller(other.at(offset)),
            })?;
            *records += 1;
        }
        if let Some(told) = &mut told {
            told.add(header.segment_bytes());
        }
    }
    Ok(())
}

/// What errors call a segment.
const SEGMENT: &str = "log segment";

/// The reason of an error about a segment's records as a whole.
pub(crate) const NOT_THE_RECORDS: &str = "its records do not match its header";

/// The reason of an error about a single record.
pub(crate) const NOT_THE_CHANGES: &str = "a record does not hold the changes that it counts";

/// The error of a segment with a right checksum and wrong contents.
pub(crate) fn senseless(offset: u64, header: &Header, why: &str) -> Error {
    Error::Corrupt { what: SEGMENT, offset, len: header.segment_bytes(), why: String::from(why) }
}

/// A segment with a right checksum.
pub(crate) struct Segment<'w> {
    /// Its first byte on the volume.
    pub offset: u64,
    pub header: Header,
    /// The whole segment.
    pub bytes: &'w [u8],
}

/// The segments from a start on, up to the first missing, torn or damaged one.
pub(crate) struct Segments<'d> {
    window: Window<'d>,
    volume_hash: u64,
    /// The due segment.
    next: LogStart,
    count: u64,
    last_msn: u64,
    torn: Option<u64>,
}

impl<'d> Segments<'d> {
    pub fn new(disk: &'d Disk, log_area: LogArea, volume_id: &[u8; 16], start: &LogStart) -> Segments<'d> {
        Segments {
            window: Window::new(disk, log_area, READ_BYTES),
            volume_hash: volume_hash(volume_id),
            next: *start,
            count: 0,
            last_msn: 0,
            torn: None,
        }
    }

    /// The next segment.
    ///
    /// # Errors
    /// Those of [`replay`] that are not about records.
    pub fn next(&mut self) -> Result<Option<Segment<'_>>> {
        let Some((position, header)) = self.window.find(self.volume_hash, &self.next)? else {
            return Ok(None);
        };
        let (len, log_area) = (header.segment_bytes(), self.window.log_area);
        let offset = log_area.offset.saturating_add(position);
        if !header.fits(self.window.bytes(position, len)?) {
            self.torn = Some(offset);
            return Ok(None);
        }
        if self.count > 0 && header.first_msn <= self.last_msn {
            return Err(senseless(offset, &header, "its numbers do not follow those before it"));
        }
        self.count += 1;
        self.last_msn = header.last_msn;
        self.next = behind(&self.next, position, &header, log_area);
        Ok(Some(Segment { offset, header, bytes: self.window.bytes(position, len)? }))
    }

    /// The end of the segments. It counts no records.
    pub fn end(mut self) -> End {
        let lost = self.window.proof_of_loss(self.volume_hash, &self.next);
        let Segments { next, count: segments, last_msn, torn, .. } = self;
        End { next, segments, records: 0, last_msn, torn, lost }
    }
}

/// A part of the log area in memory.
struct Window<'d> {
    disk: &'d Disk,
    log_area: LogArea,
    /// The size of a read in bytes, if that much of the log area is left.
    read_bytes: u64,
    buf: AlignedBuf,
    /// Position of its first byte in the log area.
    start: u64,
    len: u64,
}

impl<'d> Window<'d> {
    fn new(disk: &'d Disk, log_area: LogArea, read_bytes: u64) -> Window<'d> {
        Window { disk, log_area, read_bytes, buf: AlignedBuf::default(), start: 0, len: 0 }
    }

    /// The header of the segment `at`: at its position or, where it may not have fitted before the log area's
    /// end, at the log area's start.
    fn find(&mut self, volume_hash: u64, at: &LogStart) -> Result<Option<(u64, Header)>> {
        let room = self.log_area.len.saturating_sub(at.position);
        let fits = room >= Limits::segment_bytes(self.log_area.len);
        let start = (!fits).then_some(0);
        for position in core::iter::once(at.position).chain(start) {
            let Some(header) = self.header(position)? else { continue };
            let id = header.id;
            let expected = (id.volume_hash, id.epoch, id.seq) == (volume_hash, at.epoch, at.seq);
            let room =
                self.log_area.len.saturating_sub(position).min(Limits::segment_bytes(self.log_area.len));
            if expected && header.segment_bytes() <= room {
                return Ok(Some((position, header)));
            }
        }
        Ok(None)
    }

    fn header(&mut self, position: u64) -> Result<Option<Header>> {
        if position >= self.log_area.len {
            return Ok(None);
        }
        Ok(Header::decode(self.bytes(position, BLOCK_BYTES as u64)?))
    }

    /// `need` bytes from `position` on; both are whole blocks within the log area.
    fn bytes(&mut self, position: u64, need: u64) -> Result<&[u8]> {
        let has =
            position >= self.start && position.saturating_add(need) <= self.start.saturating_add(self.len);
        if !has {
            let ahead = need.max(self.read_bytes).min(self.log_area.len.saturating_sub(position));
            // The bytes ahead may never have been written; only the needed ones must be readable.
            if ahead <= need || self.read(position, ahead).is_err() {
                self.read(position, need)?;
            }
        }
        let from = usize::try_from(position.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let to = usize::try_from(need).map_or(usize::MAX, |need| from.saturating_add(need));
        self.buf
            .as_slice()
            .get(from..to)
            .ok_or_else(|| internal!("the window holds the bytes that were read"))
    }

    fn read(&mut self, position: u64, len: u64) -> Result<()> {
        self.len = 0;
        let size = usize::try_from(len).map_err(|_| Error::NoMemory { bytes: len })?;
        self.buf.grow_to(size.div_ceil(BLOCK_BYTES))?;
        let buf = self.buf.as_mut_slice().get_mut(..size);
        let buf = buf.ok_or_else(|| internal!("a buffer that was grown has room"))?;
        self.disk.read_at(self.log_area.offset.saturating_add(position), buf)?;
        (self.start, self.len) = (position, len);
        Ok(())
    }

    /// Looks behind the end of the log for a segment that was written after the missing one was durable.
    /// Finding none proves nothing; a failed read ends the search.
    fn proof_of_loss(&mut self, volume_hash: u64, missing: &LogStart) -> Option<Error> {
        let block = BLOCK_BYTES as u64;
        let mut position = missing.position;
        for _ in 0..PROOF_BYTES.min(self.log_area.len) / block {
            let Ok(header) = self.header(position) else { return None };
            if let Some(Header { id, .. }) = header
                && (id.volume_hash, id.epoch) == (volume_hash, missing.epoch)
                && id.seq > missing.seq
                && id.durable_seq > missing.seq
            {
                return Some(Error::Corrupt {
                    what: SEGMENT,
                    offset: self.log_area.offset.saturating_add(missing.position),
                    len: block,
                    why: format!(
                        "segment {} was durable before segment {} was written, and is not there",
                        missing.seq, id.seq
                    ),
                });
            }
            position += block;
            if position >= self.log_area.len {
                position = 0;
            }
        }
        None
    }
}
