//! The header of a node on the device.
//!
//! A node is one extent: the header, then its pieces one after the other. The header's length and
//! checksum stand in the node table.
//!
//! ```text
//! magic u32 | height u8 | reserved u8 × 3 | slot u32 | generation u32 | lo cut | hi cut
//! | entries u32 | entries
//! cut:      side u8 (1: after) | length u32 | bytes
//! run:      offset u32 | stored length u32 | raw length u32 | codec u8 | range deletes u24 | checksum u64
//! leaf:     first key length u32 | first key | runs
//! interior: hi cut | strip length u32 | prepend length u32 | prepend | child slot u32 (all ones:
//!           none) | child generation u32 | longest key u32 | runs | GOTOs u32 | GOTOs
//! runs:     count u32 | (run | last msn u64) of each
//! GOTO:     lo cut | hi cut | strip length u32 | prepend length u32 | prepend | target slot u32
//!           | target generation u32 | longest key u32
//! ```
//! The runs of an interior entry are its partition: each has messages that are newer than all in those
//! before. Those of a leaf's entry are a basement: the first has its pairs, with last msn 0 unless messages stand among them, the
//! others messages over them. How many range deletes are in a run says what it weighs before anybody has read it; a greater
//! count stands as the greatest. Offsets of runs count from the extent's start; checksums are over the stored bytes.

use alloc::vec::Vec;

use super::limits::{BOUND_BYTES_MAX, Limits};
use crate::key::{Cut, Translation};
use crate::message::Msn;
use crate::node::{Goto, NodeId};

const MAGIC: u32 = 0x6e72_7462;
const NO_CHILD: u32 = u32::MAX;
/// What a byte of a block stands for at most: 255 bytes more of a match.
const LZ4_RATIO_MAX: u64 = 255;
/// A block of at most 128 KiB takes four bytes at least.
const ZSTD_RATIO_MAX: u64 = (128 << 10) / 4;

/// The greatest count of range deletes that a run's reference holds.
const RANGES_MAX: u32 = (1 << 24) - 1;

/// How a run is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoredAs {
    /// As it is.
    #[default]
    Raw,
    /// An LZ4 block.
    Lz4,
    /// A zstd frame.
    Zstd,
}

impl StoredAs {
    fn from_code(code: u32) -> Option<StoredAs> {
        match code {
            0 => Some(StoredAs::Raw),
            1 => Some(StoredAs::Lz4),
            2 => Some(StoredAs::Zstd),
            _ => None,
        }
    }

    /// No run is longer, in bytes, of which so many are stored: what claims to be is not given the memory.
    fn raw_len_max(self, stored_len: u32) -> u64 {
        let stored_len = u64::from(stored_len);
        match self {
            StoredAs::Raw => stored_len,
            StoredAs::Lz4 => stored_len * LZ4_RATIO_MAX,
            StoredAs::Zstd => stored_len * ZSTD_RATIO_MAX,
        }
    }
}

/// The place and form of a run inside its node's extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunRef {
    pub offset: u32,
    pub stored_len: u32,
    pub raw_len: u32,
    pub stored_as: StoredAs,
    /// How many range deletes are in it; no more than are counted.
    pub ranges: u32,
    pub checksum: u64,
    /// The newest message in it; 0 of pairs.
    pub last_msn: Msn,
}

/// An edge as stored; its lower bound is the upper bound of the edge before.
pub(crate) struct StoredEdge {
    pub hi: Cut,
    pub translation: Translation,
    pub child: Option<NodeId>,
    pub longest_key: u32,
    /// None where nothing is pending.
    pub partition: Vec<RunRef>,
    pub gotos: Vec<Goto>,
}

/// What stands in a header.
pub(crate) struct Header {
    pub id: NodeId,
    pub height: u8,
    pub lo: Cut,
    pub hi: Cut,
    pub entries: Entries,
}

/// The parts of a node as stored.
pub(crate) enum Entries {
    /// First keys and basements, none without a run.
    Leaf(Vec<(Vec<u8>, Vec<RunRef>)>),
    /// Edges with their partitions.
    Interior(Vec<StoredEdge>),
}

impl Header {
    /// The header's bytes. How many they are does not depend on where the runs are.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer { out: Vec::new() };
        out.u32(MAGIC);
        out.u32(u32::from(self.height));
        out.u32(self.id.slot);
        out.u32(self.id.generation);
        out.cut(&self.lo);
        out.cut(&self.hi);
        match &self.entries {
            Entries::Leaf(basements) => {
                out.u32(basements.len() as u32);
                for (first, runs) in basements {
                    out.bytes(first);
                    out.runs(runs);
                }
            }
            Entries::Interior(edges) => {
                out.u32(edges.len() as u32);
                for edge in edges {
                    out.cut(&edge.hi);
                    out.u32(edge.translation.strip_len as u32);
                    out.bytes(&edge.translation.prepend);
                    out.u32(edge.child.map_or(NO_CHILD, |c| c.slot));
                    out.u32(edge.child.map_or(0, |c| c.generation));
                    out.u32(edge.longest_key);
                    out.runs(&edge.partition);
                    out.u32(edge.gotos.len() as u32);
                    for goto in &edge.gotos {
                        out.cut(&goto.lo);
                        out.cut(&goto.hi);
                        out.u32(goto.translation.strip_len as u32);
                        out.bytes(&goto.translation.prepend);
                        out.u32(goto.target.slot);
                        out.u32(goto.target.generation);
                        out.u32(goto.longest_key);
                    }
                }
            }
        }
        out.out
    }

    /// Reads a header back from exactly its bytes, of a node in an extent of `extent_bytes`, which has no more than
    /// the limits allow and no message of `next_msn` or later.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn decode(
        bytes: &[u8],
        extent_bytes: u64,
        limits: &Limits,
        next_msn: Msn,
    ) -> Result<Header, &'static str> {
        let mut from = Reader {
            rest: bytes,
            extent_bytes,
            stored_left: extent_bytes,
            raw_left: limits.contents_bytes,
            next_msn,
        };
        if from.u32()? != MAGIC {
            return Err("no node starts here");
        }
        let height = u8::try_from(from.u32()?).map_err(|_| "the height is out of range")?;
        let id = NodeId { slot: from.u32()?, generation: from.u32()? };
        let (lo, hi) = (from.cut()?, from.cut()?);
        if lo >= hi {
            return Err("the bounds are out of order");
        }
        let count = from.u32()?;
        let entries = if height == 0 {
            let mut basements: Vec<(Vec<u8>, Vec<RunRef>)> = Vec::new();
            for _ in 0..count {
                let first = from.bound()?.to_vec();
                if basements.last().is_some_and(|(last, _)| *last >= first) {
                    return Err("basements out of order");
                }
                if lo.is_above(&first) || !hi.is_above(&first) {
                    return Err("a basement outside of the node");
                }
                let runs = from.runs()?;
                if runs.is_empty() {
                    return Err("a basement of nothing");
                }
                basements.push((first, runs));
            }
            Entries::Leaf(basements)
        } else {
            let mut edges: Vec<StoredEdge> = Vec::new();
            for _ in 0..count {
                let edge = from.edge()?;
                let edge_lo = edges.last().map_or(&lo, |last| &last.hi);
                if edge.hi <= *edge_lo {
                    return Err("edges out of order");
                }
                if edge.translation.strip_len > crate::key::shared_len(edge_lo, &edge.hi) {
                    return Err("an edge that strips more than its window shares");
                }
                let mut end = edge_lo;
                for goto in &edge.gotos {
                    if goto.lo < *end || goto.hi <= goto.lo || goto.hi > edge.hi {
                        return Err("GOTOs out of order");
                    }
                    if goto.translation.strip_len > crate::key::shared_len(&goto.lo, &goto.hi) {
                        return Err("a GOTO that strips more than its range shares");
                    }
                    end = &goto.hi;
                }
                if edge.child.is_none() && !edge.gotos.is_empty() {
                    return Err("a GOTO above no child");
                }
                edges.push(edge);
            }
            if edges.last().is_none_or(|last| last.hi != hi) {
                return Err("edges that do not span the node");
            }
            Entries::Interior(edges)
        };
        if !from.rest.is_empty() {
            return Err("bytes after the last entry");
        }
        Ok(Header { id, height, lo, hi, entries })
    }
}

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.out.extend_from_slice(bytes);
    }

    fn cut(&mut self, cut: &Cut) {
        self.out.push(u8::from(cut.is_after()));
        self.bytes(cut.bytes());
    }

    fn runs(&mut self, runs: &[RunRef]) {
        self.u32(runs.len() as u32);
        for run in runs {
            self.u32(run.offset);
            self.u32(run.stored_len);
            self.u32(run.raw_len);
            self.u32(run.stored_as as u32 | run.ranges.min(RANGES_MAX) << 8);
            self.u64(run.checksum);
            self.u64(run.last_msn);
        }
    }
}

struct Reader<'b> {
    rest: &'b [u8],
    extent_bytes: u64,
    /// What the runs that are still to come may be at most, all together, in bytes: as they are stored, and
    /// before that.
    stored_left: u64,
    raw_left: u64,
    next_msn: Msn,
}

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("the header ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        let bytes = self.take(4)?.first_chunk().ok_or("the header ends too early")?;
        Ok(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        let bytes = self.take(8)?.first_chunk().ok_or("the header ends too early")?;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn bytes(&mut self) -> Result<&'b [u8], &'static str> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// A bound's bytes, or a prefix.
    fn bound(&mut self) -> Result<&'b [u8], &'static str> {
        let bytes = self.bytes()?;
        if bytes.len() > BOUND_BYTES_MAX { Err("a bound longer than any key") } else { Ok(bytes) }
    }

    fn cut(&mut self) -> Result<Cut, &'static str> {
        match self.take(1)? {
            [0] => Ok(Cut::before(self.bound()?)),
            [1] => Ok(Cut::after(self.bound()?)),
            _ => Err("a bound on neither side"),
        }
    }

    fn run(&mut self) -> Result<RunRef, &'static str> {
        let (offset, stored_len, raw_len) = (self.u32()?, self.u32()?, self.u32()?);
        let form = self.u32()?;
        let stored_as = StoredAs::from_code(form & 0xff).ok_or("an unknown codec")?;
        let ranges = form >> 8;
        let checksum = self.u64()?;
        if u64::from(offset) + u64::from(stored_len) > self.extent_bytes {
            return Err("a run outside of the extent");
        }
        if u64::from(raw_len) > stored_as.raw_len_max(stored_len) {
            return Err("a run longer than what is stored can hold");
        }
        let left = self.stored_left.checked_sub(stored_len.into());
        self.stored_left = left.ok_or("more runs than the extent has room for")?;
        let left = self.raw_left.checked_sub(raw_len.max(stored_len).into());
        self.raw_left = left.ok_or("more in it than in any node of such a volume")?;
        let last_msn = self.u64()?;
        if last_msn >= self.next_msn {
            return Err("a message that is newer than the volume");
        }
        Ok(RunRef { offset, stored_len, raw_len, stored_as, ranges, checksum, last_msn })
    }

    fn runs(&mut self) -> Result<Vec<RunRef>, &'static str> {
        let mut runs = Vec::new();
        for _ in 0..self.u32()? {
            runs.push(self.run()?);
        }
        if !runs.is_sorted_by(|older: &RunRef, newer| older.last_msn < newer.last_msn) {
            return Err("runs out of order");
        }
        Ok(runs)
    }

    fn edge(&mut self) -> Result<StoredEdge, &'static str> {
        let hi = self.cut()?;
        let strip_len = self.u32()? as usize;
        let prepend = self.bound()?.to_vec();
        let (slot, generation) = (self.u32()?, self.u32()?);
        let longest_key = self.u32()?;
        let partition = self.runs()?;
        let child = (slot != NO_CHILD).then_some(NodeId { slot, generation });
        let mut gotos = Vec::new();
        for _ in 0..self.u32()? {
            gotos.push(self.goto()?);
        }
        let translation = Translation { strip_len, prepend };
        Ok(StoredEdge { hi, translation, child, longest_key, partition, gotos })
    }

    fn goto(&mut self) -> Result<Goto, &'static str> {
        Ok(Goto {
            lo: self.cut()?,
            hi: self.cut()?,
            translation: Translation { strip_len: self.u32()? as usize, prepend: self.bound()?.to_vec() },
            target: NodeId { slot: self.u32()?, generation: self.u32()? },
            longest_key: self.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT_BYTES: u64 = 4096;
    const LIMITS: Limits = Limits { contents_bytes: 1 << 20, header_bytes: 4096, slots: 1, blocks: 1 };
    const NEXT_MSN: Msn = 100;

    /// Reads back a node of one edge with a partition of these runs.
    fn read_back(partition: &[RunRef]) -> Result<Header, &'static str> {
        let edge = StoredEdge {
            hi: Cut::HIGH,
            translation: Translation::default(),
            child: None,
            longest_key: 0,
            partition: partition.to_vec(),
            gotos: Vec::new(),
        };
        let id = NodeId { slot: 1, generation: 1 };
        let entries = Entries::Interior(Vec::from([edge]));
        let header = Header { id, height: 1, lo: Cut::LOW, hi: Cut::HIGH, entries };
        Header::decode(&header.encode(), EXTENT_BYTES, &LIMITS, NEXT_MSN)
    }

    #[test]
    fn each_run_of_a_partition_is_newer_than_those_before() {
        let read = |last_msns: &[Msn]| {
            let run = |last_msn: &Msn| RunRef {
                stored_len: 9,
                raw_len: 9,
                last_msn: *last_msn,
                ..RunRef::default()
            };
            read_back(&last_msns.iter().map(run).collect::<Vec<_>>()).is_ok()
        };
        assert!(read(&[]) && read(&[1]) && read(&[1, 2, 9]));
        assert!(!read(&[2, 2]) && !read(&[3, 1]) && !read(&[1, 2, 0]) && !read(&[1, 0, 2]));
    }

    #[test]
    fn range_deletes_are_counted_up_to_what_fits() {
        for (ranges, counted) in [(0, 0), (1, 1), (RANGES_MAX, RANGES_MAX), (u32::MAX, RANGES_MAX)] {
            let run = RunRef { stored_as: StoredAs::Zstd, ranges, last_msn: 1, ..RunRef::default() };
            let Ok(Header { entries: Entries::Interior(edges), .. }) = read_back(&[run]) else { panic!() };
            let read = edges[0].partition[0];
            assert_eq!((read.ranges, read.stored_as), (counted, StoredAs::Zstd));
        }
    }

    #[test]
    fn no_run_claims_to_be_longer_than_what_is_stored_can_hold() {
        let stored_len = 10;
        for stored_as in [StoredAs::Raw, StoredAs::Lz4, StoredAs::Zstd] {
            let most = stored_as.raw_len_max(stored_len) as u32;
            assert!(u64::from(most) <= LIMITS.contents_bytes);
            let read = |raw_len| {
                read_back(&[RunRef { stored_len, raw_len, stored_as, last_msn: 1, ..RunRef::default() }])
            };
            assert!(read(most).is_ok(), "{stored_as:?}");
            assert!(read(most + 1).is_err() && read(u32::MAX).is_err(), "{stored_as:?}");
        }
    }

    #[test]
    fn all_runs_of_a_node_together_are_within_its_extent_and_the_limits() {
        let run = |stored_len, raw_len, last_msn| RunRef {
            stored_len,
            raw_len,
            stored_as: StoredAs::Lz4,
            last_msn,
            ..RunRef::default()
        };
        assert!(read_back(&[run(2000, 9000, 1), run(2096, 9000, 2)]).is_ok());
        assert!(read_back(&[run(2000, 9000, 1), run(2097, 9000, 2)]).is_err());
        assert!(read_back(&[run(2048, 1 << 19, 1), run(2048, 1 << 19, 2)]).is_err(), "255 times at most");
        assert!(read_back(&[run(2100, 1 << 19, 1), run(1996, 255 * 1996, 2)]).is_ok());
        let zstd = |raw_len, last_msn| RunRef { stored_as: StoredAs::Zstd, ..run(2048, raw_len, last_msn) };
        assert!(read_back(&[zstd(1 << 19, 1), zstd(1 << 19, 2)]).is_ok());
        assert!(read_back(&[zstd(1 << 19, 1), zstd((1 << 19) + 1, 2)]).is_err());
    }

    #[test]
    fn no_message_is_newer_than_the_volume() {
        let read =
            |last_msn| read_back(&[RunRef { stored_len: 9, raw_len: 9, last_msn, ..RunRef::default() }]);
        assert!(read(NEXT_MSN - 1).is_ok());
        assert!(read(NEXT_MSN).is_err() && read(Msn::MAX).is_err());
    }

    #[test]
    fn what_compresses_best_is_not_too_long() {
        for raw_len in [64, 4096, 1 << 20] {
            let raw = alloc::vec![0; raw_len];
            let stored = lz4_flex::block::compress(&raw);
            let most = StoredAs::Lz4.raw_len_max(stored.len() as u32);
            assert!(raw_len as u64 <= most, "{raw_len} bytes in {}", stored.len());
        }
    }
}
