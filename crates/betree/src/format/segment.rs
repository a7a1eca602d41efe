//! A segment of the log: the unit in which it is written.
//!
//! A header, then records one after the other, then zeros up to a whole block. The header has a checksum of
//! its own, so that its lengths are verified before anything else is read; the payload's checksum covers the
//! zeros too.

use betree_platform::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::format::superblock::COUNTER_MAX;
use crate::io::AlignedBuf;

const MAGIC: [u8; 8] = *b"BetrLog\x01";
/// The bytes of a segment besides its records.
pub(crate) const HEADER_BYTES: usize = size_of::<RawHeader>();
/// The bytes before a record.
pub(crate) const RECORD_HEAD_BYTES: usize = size_of::<RawRecord>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    volume_hash: U64,
    epoch: U64,
    seq: U64,
    durable_seq: U64,
    first_msn: U64,
    last_msn: U64,
    payload_len: U32,
    records: U32,
    /// xxh3-64 of all bytes of the segment after the header.
    payload_checksum: U64,
    /// xxh3-64 of all bytes of the header before it.
    header_checksum: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    first_msn: U64,
    changes: U32,
    len: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 80 && size_of::<RawRecord>() == 16);

/// The identity of a segment, by which a log recognizes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentId {
    /// [`volume_hash`] of the volume.
    pub volume_hash: u64,
    /// The epoch of the log; each recovery begins a new one.
    pub epoch: u64,
    /// The segment's number within its epoch.
    pub seq: u64,
    /// Every segment of its epoch below this number was durable before this one was written, so a missing one
    /// is damaged.
    pub durable_seq: u64,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub id: SegmentId,
    pub first_msn: u64,
    pub last_msn: u64,
    payload_len: u32,
    records: u32,
    payload_checksum: u64,
}

/// A batch in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'s> {
    /// The MSN of its first change; the others follow.
    pub first_msn: u64,
    pub changes: u32,
    /// The batch's own bytes.
    pub bytes: &'s [u8],
}

/// The hash that stands for the volume in its segments.
pub(crate) fn volume_hash(volume_id: &[u8; 16]) -> u64 {
    xxh3_64(volume_id)
}

/// The MSN of the last of `changes` changes. A record without changes takes one MSN too.
pub(crate) fn last_msn(first_msn: u64, changes: u32) -> u64 {
    first_msn.saturating_add(u64::from(changes.max(1)) - 1)
}

/// A segment that is being filled in memory.
#[derive(Default)]
pub(crate) struct SegmentBuf {
    buf: AlignedBuf,
    /// Payload bytes.
    len: usize,
    records: u32,
    first_msn: u64,
    last_msn: u64,
}

impl SegmentBuf {
    /// [`Error::TooLarge`] where a record is too long for any segment.
    pub(crate) fn refuse_too_long(record: &[u8]) -> Result<()> {
        match u32::try_from(record.len().saturating_add(HEADER_BYTES + RECORD_HEAD_BYTES)) {
            Ok(_) => Ok(()),
            Err(_) => {
                let (bytes, limit_bytes) = (record.len() as u64, u64::from(u32::MAX));
                Err(Error::TooLarge { what: "a log record", bytes, limit_bytes })
            }
        }
    }

    /// Adds a record, whose MSN is above all before it. On an error the segment is as it was.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::TooLarge`] where a length would not fit its field.
    pub(crate) fn push(&mut self, first_msn: u64, changes: u32, record: &[u8]) -> Result<()> {
        let from = HEADER_BYTES + self.len;
        let to = from.saturating_add(RECORD_HEAD_BYTES).saturating_add(record.len());
        let (Ok(len), Ok(_)) = (u32::try_from(record.len()), u32::try_from(to)) else {
            let (bytes, limit_bytes) = (record.len() as u64, u64::from(u32::MAX));
            return Err(Error::TooLarge { what: "a log record", bytes, limit_bytes });
        };
        self.buf.grow_to(to.div_ceil(BLOCK_BYTES))?;
        let head = RawRecord { first_msn: first_msn.into(), changes: changes.into(), len: len.into() };
        let Some((head_at, record_at)) =
            self.buf.as_mut_slice().get_mut(from..to).and_then(|s| s.split_at_mut_checked(RECORD_HEAD_BYTES))
        else {
            return Err(Error::NoMemory { bytes: to as u64 });
        };
        head_at.copy_from_slice(head.as_bytes());
        record_at.copy_from_slice(record);
        if self.records == 0 {
            self.first_msn = first_msn;
        }
        self.last_msn = last_msn(first_msn, changes);
        self.records += 1;
        self.len = to - HEADER_BYTES;
        Ok(())
    }

    /// Its length with the present records, in bytes; whole blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.buf.len()
    }

    /// Its length with another record of `len` bytes, in bytes.
    pub(crate) fn bytes_with(&self, len: usize) -> usize {
        let bytes = HEADER_BYTES + self.len + RECORD_HEAD_BYTES;
        bytes.saturating_add(len).div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
    }

    /// MSN of the last change in it.
    pub(crate) fn last_msn(&self) -> u64 {
        self.last_msn
    }

    /// How much memory it holds, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.buf.clear();
        (self.len, self.records, self.first_msn, self.last_msn) = (0, 0, 0, 0);
    }

    /// Adds the header and returns the bytes to write. It must hold at least one record.
    pub(crate) fn seal(&mut self, id: &SegmentId) -> &[u8] {
        let payload_checksum = self.buf.as_slice().get(HEADER_BYTES..).map_or(0, xxh3_64);
        let mut header = RawHeader {
            magic: MAGIC,
            volume_hash: id.volume_hash.into(),
            epoch: id.epoch.into(),
            seq: id.seq.into(),
            durable_seq: id.durable_seq.into(),
            first_msn: self.first_msn.into(),
            last_msn: self.last_msn.into(),
            // `push` has checked that it fits.
            payload_len: (self.len as u32).into(),
            records: self.records.into(),
            payload_checksum: payload_checksum.into(),
            header_checksum: 0.into(),
        };
        header.header_checksum = header_checksum(&header).into();
        if let Some(at) = self.buf.as_mut_slice().get_mut(..HEADER_BYTES) {
            at.copy_from_slice(header.as_bytes());
        }
        self.buf.as_slice()
    }
}

impl Header {
    /// The header at the start of a block, if one is there and whole.
    pub(crate) fn decode(block: &[u8]) -> Option<Header> {
        let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
        if raw.magic != MAGIC || raw.header_checksum.get() != header_checksum(raw) {
            return None;
        }
        Some(Header {
            id: SegmentId {
                volume_hash: raw.volume_hash.get(),
                epoch: raw.epoch.get(),
                seq: raw.seq.get(),
                durable_seq: raw.durable_seq.get(),
            },
            first_msn: raw.first_msn.get(),
            last_msn: raw.last_msn.get(),
            payload_len: raw.payload_len.get(),
            records: raw.records.get(),
            payload_checksum: raw.payload_checksum.get(),
        })
    }

    /// The segment's length in bytes, in whole blocks.
    pub(crate) fn segment_bytes(&self) -> u64 {
        (HEADER_BYTES as u64 + u64::from(self.payload_len)).next_multiple_of(BLOCK_BYTES as u64)
    }

    /// The number of records, and their length with their heads in bytes.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.records, self.payload_len)
    }

    /// Whether all bytes of the segment are as they were written.
    pub(crate) fn fits(&self, segment: &[u8]) -> bool {
        segment.len() as u64 == self.segment_bytes()
            && segment.get(HEADER_BYTES..).map(xxh3_64) == Some(self.payload_checksum)
    }

    /// The records of a segment that [fits](Header::fits), in order; `None` ends them if they do not match
    /// the header, or have numbers that no volume reaches.
    pub(crate) fn records<'s>(&self, segment: &'s [u8]) -> Records<'s> {
        let end = HEADER_BYTES.saturating_add(self.payload_len as usize);
        Records {
            rest: segment.get(HEADER_BYTES..end).unwrap_or(&[]),
            left: self.records,
            next_msn: self.first_msn,
            last_msn: self.last_msn,
        }
    }
}

/// See [`Header::records`].
pub(crate) struct Records<'s> {
    rest: &'s [u8],
    left: u32,
    /// The lowest first MSN of the next record; the header's for the first record.
    next_msn: u64,
    /// The header's MSN of the last change.
    last_msn: u64,
}

impl<'s> Records<'s> {
    fn take(&mut self) -> Option<Record<'s>> {
        let (head, rest) = RawRecord::ref_from_prefix(self.rest).ok()?;
        let (bytes, rest) = rest.split_at_checked(head.len.get() as usize)?;
        let (first_msn, changes) = (head.first_msn.get(), head.changes.get());
        let last_msn = last_msn(first_msn, changes);
        if first_msn < self.next_msn || last_msn > self.last_msn.min(COUNTER_MAX) {
            return None;
        }
        if self.left == 1 && last_msn != self.last_msn {
            return None;
        }
        self.next_msn = last_msn.saturating_add(1);
        self.rest = rest;
        Some(Record { first_msn, changes, bytes })
    }
}

impl<'s> Iterator for Records<'s> {
    type Item = Option<Record<'s>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return if core::mem::take(&mut self.rest).is_empty() { None } else { Some(None) };
        }
        let record = self.take();
        self.left = if record.is_some() { self.left - 1 } else { 0 };
        if record.is_none() {
            self.rest = &[];
        }
        Some(record)
    }
}

fn header_checksum(header: &RawHeader) -> u64 {
    let bytes = header.as_bytes();
    xxh3_64(bytes.get(..HEADER_BYTES - size_of::<U64>()).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const ID: SegmentId = SegmentId { volume_hash: 11, epoch: 22, seq: 33, durable_seq: 30 };

    fn sealed(records: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut segment = SegmentBuf::default();
        for &(msn, changes, bytes) in records {
            let foreseen = segment.bytes_with(bytes.len());
            segment.push(msn, changes, bytes).unwrap();
            assert_eq!(segment.bytes(), foreseen);
        }
        segment.seal(&ID).to_vec()
    }

    #[test]
    fn a_segment_returns_its_records() {
        let large = vec![5; 9000];
        let written: [(u64, u32, &[u8]); 4] = [(7, 3, b"abc"), (10, 1, b""), (11, 2, &large), (20, 0, b"z")];
        let bytes = sealed(&written);
        assert_eq!(bytes.len(), 3 * BLOCK_BYTES);
        let header = Header::decode(&bytes).unwrap();
        assert_eq!((header.id, header.first_msn, header.last_msn), (ID, 7, 20));
        assert_eq!(header.segment_bytes(), bytes.len() as u64);
        assert!(header.fits(&bytes));
        let read: Vec<_> = header.records(&bytes).map(|r| r.unwrap()).collect();
        let expected = written.map(|(first_msn, changes, bytes)| Record { first_msn, changes, bytes });
        assert_eq!(read, expected);
    }

    #[test]
    fn a_cleared_buffer_leaves_nothing_of_its_past() {
        let mut segment = SegmentBuf::default();
        segment.push(1, 1, &[0xff; 10_000]).unwrap();
        segment.seal(&ID);
        segment.clear();
        segment.push(7, 3, b"abc").unwrap();
        assert_eq!(segment.seal(&ID), sealed(&[(7, 3, b"abc")]));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut bytes = sealed(&[(7, 3, b"abc"), (10, 1, &[9; 4100])]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let believed = Header::decode(&bytes).is_some_and(|h| h.fits(&bytes));
            assert!(!believed, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Header::decode(&bytes).unwrap().fits(&bytes));
    }

    #[test]
    fn records_that_do_not_match_the_header_end_in_none() {
        let bytes = sealed(&[(7, 3, b"abc"), (10, 1, b"defg")]);
        let header = Header::decode(&bytes).unwrap();
        let ends_badly = |h: Header| h.records(&bytes).last() == Some(None);
        assert!(!ends_badly(header));
        assert!(ends_badly(Header { records: 1, ..header }));
        assert!(ends_badly(Header { records: 3, ..header }));
        for payload_len in (0..header.payload_len).chain([header.payload_len + 1, u32::MAX]) {
            assert!(ends_badly(Header { payload_len, ..header }), "{payload_len}");
        }
        let backwards = sealed(&[(10, 3, b""), (12, 1, b"")]);
        let header = Header::decode(&backwards).unwrap();
        assert_eq!(header.records(&backwards).last(), Some(None));
        assert!(Header::decode(&backwards[..HEADER_BYTES - 1]).is_none());
    }
}
