//! Reads of bytes at several places: all are asked of the device together, and neighbours take one read.

use alloc::vec::Vec;

use betree_platform::{BLOCK_BYTES, Read};

use super::{HAS_ROOM, LEAVES_AHEAD, Store, blocks_around, zeroed};
use crate::error::{Error, Result};
use crate::format::node::RunRef;
use crate::invariant::internal;
use crate::io::AlignedBuf;
use crate::space::Extent;

/// Bytes at most this far apart are read in one go, with the bytes between them.
const READ_GAP_BYTES: u64 = 32 << 10;
/// The same for a device that seeks: it reads this much in about half a turn.
const READ_GAP_SEEKING_BYTES: u64 = 512 << 10;
/// Reads are not joined beyond this length.
const READ_BYTES_MAX: u64 = 8 << 20;
/// No more is asked of the device together, but for a single read that is longer.
const ASKED_BYTES_MAX: usize = 32 << 20;
/// The memory of a read is kept for the next one up to this size: a leaf read ahead fits.
pub(super) const SPARE_BYTES_MAX: usize = 5 << 20;

const READ_IS_THERE: &str = "bytes that were read are in memory";

/// Bytes of an extent.
pub(super) struct Span<'e> {
    pub extent: &'e Extent,
    pub offset: u64,
    pub len: u64,
}

impl<'e> Span<'e> {
    /// The stored bytes of a run.
    pub fn of_run(extent: &'e Extent, run: &RunRef) -> Span<'e> {
        Span { extent, offset: run.offset.into(), len: run.stored_len.into() }
    }
}

/// Bytes in a row on the device that belong to a span.
struct Part {
    at: u64,
    len: u64,
    /// The span's index, and the offset of the bytes in it.
    span: usize,
    into: usize,
}

/// A read of parts that are in order on the device, with the bytes between them.
struct Joined<'p> {
    parts: &'p [Part],
    /// The whole blocks around them.
    at: u64,
    blocks: usize,
}

impl<'p> Joined<'p> {
    fn of(parts: &'p [Part]) -> Joined<'p> {
        let start = parts.first().map_or(0, |part| part.at);
        let end = parts.iter().map(|part| part.at + part.len).max().unwrap_or(start);
        let (at, blocks) = blocks_around(start, end - start);
        Joined { parts, at, blocks }
    }

    fn len(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// Copies the parts from the bytes that were read to their places in `found`.
    fn copy_to(&self, bytes: &[u8], spans: &[Span<'_>], found: &mut [Result<Vec<u8>>]) -> Result<()> {
        for Part { at, len, span, into } in self.parts {
            let from = (at - self.at) as usize;
            let bytes = bytes.get(from..from + *len as usize).ok_or_else(|| internal!(READ_IS_THERE))?;
            let of_span = spans.get(*span).zip(found.get_mut(*span));
            let (whole, found) = of_span.ok_or_else(|| internal!("bytes that are read are of a span"))?;
            // Another part of the span could not be read.
            let Ok(out) = found else { continue };
            let whole_len = whole.len as usize;
            if bytes.len() == whole_len {
                out.extend_from_slice(bytes);
                continue;
            }
            if out.is_empty() {
                *out = zeroed(whole_len)?;
            }
            let room = out.get_mut(*into..into + bytes.len());
            room.ok_or_else(|| internal!("the parts of a span are as long as the span"))?
                .copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Store {
    /// The bytes of spans, in their order, or the error of reading them: an unreadable block hides only the
    /// spans that it is in.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(super) fn read_spans(&self, spans: &[Span<'_>]) -> Result<Vec<Result<Vec<u8>>>> {
        let mut parts: Vec<Part> = Vec::with_capacity(spans.len());
        for (span, Span { extent, offset, len }) in spans.iter().enumerate() {
            let mut into = 0;
            for (at, len) in extent.places(*offset, *len) {
                parts.push(Part { at, len, span, into });
                into += len as usize;
            }
        }
        parts.sort_unstable_by_key(|part| part.at);
        let mut found: Vec<Result<Vec<u8>>> = spans.iter().map(|_| Ok(Vec::new())).collect();
        let failed = self.read_joined(&self.joined(&parts), spans, &mut found)?;
        // The unreadable place may lie between parts that were read together.
        let alone: Vec<Joined<'_>> =
            failed.into_iter().flat_map(|parts| parts.chunks(1)).map(Joined::of).collect();
        self.read_joined(&alone, spans, &mut found)?;
        Ok(found)
    }

    /// The reads for parts, which are in order on the device.
    fn joined<'p>(&self, parts: &'p [Part]) -> Vec<Joined<'p>> {
        let gap_bytes = if self.disk.seeks() { READ_GAP_SEEKING_BYTES } else { READ_GAP_BYTES };
        let mut reads = Vec::new();
        let mut rest = parts;
        while let Some(first) = rest.first() {
            let mut end = first.at + first.len;
            let mut count = 1;
            while let Some(Part { at, len, .. }) = rest.get(count) {
                if *at > end + gap_bytes || at + len - first.at > READ_BYTES_MAX {
                    break;
                }
                end = end.max(at + len);
                count += 1;
            }
            let (together, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            reads.push(Joined::of(together));
            rest = behind;
        }
        reads
    }

    /// Makes reads, as many at once as memory allows, and copies the parts to their places in `found`.
    /// Returns the parts of failed reads of several; the error of a single part goes to its span.
    fn read_joined<'p>(
        &self,
        reads: &[Joined<'p>],
        spans: &[Span<'_>],
        found: &mut [Result<Vec<u8>>],
    ) -> Result<Vec<&'p [Part]>> {
        let mut failed = Vec::new();
        let mut rest = reads;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |read: &&Joined<'_>| {
                bytes += read.len();
                bytes <= ASKED_BYTES_MAX
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (asked, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = behind;
            let mut buffers =
                asked.iter().map(|read| self.buffer_of(read.blocks)).collect::<Result<Vec<_>>>()?;
            let results = self.ask(asked, &mut buffers)?;
            for ((read, buffer), result) in asked.iter().zip(buffers).zip(results) {
                match (result, read.parts) {
                    (Ok(()), _) => read.copy_to(buffer.as_slice(), spans, found)?,
                    (Err(error), [alone]) => {
                        if let Some(found) = found.get_mut(alone.span) {
                            *found = Err(error);
                        }
                    }
                    (Err(_), parts) => failed.push(parts),
                }
                self.give_back(buffer);
            }
        }
        Ok(failed)
    }

    /// Makes reads together, each into its buffer.
    fn ask(&self, asked: &[Joined<'_>], buffers: &mut [AlignedBuf]) -> Result<Vec<Result<()>>> {
        let mut reads = Vec::with_capacity(asked.len());
        for (read, buffer) in asked.iter().zip(buffers) {
            let room = buffer.as_mut_slice().get_mut(..read.len());
            reads.push(Read::new(read.at, room.ok_or_else(|| internal!(HAS_ROOM))?));
        }
        self.disk.read_many(&mut reads);
        Ok(reads.into_iter().map(|read| read.result.map_err(Error::from)).collect())
    }

    /// Memory for a read of at least `blocks` blocks. Its contents are old.
    pub(super) fn buffer_of(&self, blocks: usize) -> Result<AlignedBuf> {
        let mut buffer = self.reading.spare.lock().pop().unwrap_or_default();
        buffer.grow_to(blocks)?;
        Ok(buffer)
    }

    /// Keeps the memory of a read for the next one.
    pub(super) fn give_back(&self, buffer: AlignedBuf) {
        let mut spare = self.reading.spare.lock();
        if buffer.capacity() <= SPARE_BYTES_MAX && spare.len() < LEAVES_AHEAD {
            spare.push(buffer);
        }
    }
}
