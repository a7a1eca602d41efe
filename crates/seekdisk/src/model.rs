//! The timing of a 7200 rpm disk: a pure function of its state, a request and the time. Nothing here sleeps
//! or moves data.
//!
//! The surface is one long spiral of [`TRACK_BYTES`] a turn: the time alone determines the angle of the head,
//! and sequential data passes under it at the media's rate. The image is the outermost part of a disk of
//! [`CAPACITY_BYTES`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A moment or a span on the drive's clock, in nanoseconds.
pub type Nanos = u64;

/// The time of one turn at 7200 rpm.
pub const ROTATION_NS: Nanos = 8_333_333;
/// The bytes that pass under the head in a turn: the media's rate is 147 MB/s.
pub const TRACK_BYTES: u64 = 1200 << 10;
/// The size of the whole disk, by which the length of seeks is measured.
const CAPACITY_BYTES: u64 = 250_000_000_000;
/// The time of the shortest seek: to start, to stop and to settle.
const SEEK_NS_MIN: Nanos = 1_000_000;
/// The additional time of a seek across the whole disk.
const SEEK_NS_ACROSS: f64 = 13e6;
/// The time of a seek in fast-forward: long enough for a program under test to notice that the disk seeks.
const FAST_FORWARD_SEEK_NS: Nanos = 1_200_000;
/// The most by which a sum of rounded times falls short of a whole turn.
const ROUNDING_NS: Nanos = 10_000;
/// The rate of the interface.
const INTERFACE_BYTES_PER_S: u64 = 550_000_000;
/// The drive's read-ahead after a request.
const READ_AHEAD_BYTES: u64 = 4 << 20;
/// The size of a segment of the cache.
const SEGMENT_BYTES: u64 = 4 << 20;
/// The number of segments: with the dirty data, 64 MiB.
const SEGMENTS: usize = 12;
/// The most dirty data.
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// The most of a run that is written back at a time.
const DESTAGE_BYTES: u64 = 512 << 10;

/// Requests to a drive, and its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests to read.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Requests to empty the write cache.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Moves of the head to another track.
    pub seeks: u64,
    /// Requests in fast-forward.
    pub fast_forwarded: u64,
}

/// Reading ahead: since a time, from a place, up to another.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    since: Nanos,
    from: u64,
    limit: u64,
}

impl ReadAhead {
    fn place(&self, now: Nanos) -> u64 {
        let passed = u128::from(now.saturating_sub(self.since)) * u128::from(TRACK_BYTES);
        let passed = u64::try_from(passed / u128::from(ROTATION_NS)).unwrap_or(u64::MAX);
        self.from.saturating_add(passed).min(self.limit)
    }
}

/// The head's way to a place.
struct Approach {
    /// Its time.
    takes: Nanos,
    /// The bytes that pass under the head before the place comes; a read takes them into the cache as well.
    passes: u64,
    /// Whether the head moves to another track.
    seeks: bool,
}

/// The state of one drive.
#[derive(Debug, Default)]
pub struct Model {
    /// When the head is done with its last task.
    free_at: Nanos,
    /// Where the head stands, or stood when it began to read ahead.
    place: u64,
    read_ahead: Option<ReadAhead>,
    /// The ranges of the surface in the cache, the latest at the end: that one grows while the head reads
    /// ahead.
    segments: VecDeque<Range<u64>>,
    /// Dirty runs: where each begins and ends. None touches another.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    fast_forward: bool,
    counters: Counters,
}

/// The media's time for a number of bytes.
fn media_ns(bytes: u64) -> Nanos {
    (u128::from(bytes) * u128::from(ROTATION_NS) / u128::from(TRACK_BYTES)) as Nanos
}

/// The interface's time for a number of bytes.
pub(crate) fn interface_ns(bytes: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(INTERFACE_BYTES_PER_S)) as Nanos
}

fn seek_ns(distance_bytes: u64) -> Nanos {
    let share = distance_bytes as f64 / CAPACITY_BYTES as f64;
    SEEK_NS_MIN + (SEEK_NS_ACROSS * share.sqrt()) as Nanos
}

impl Model {
    /// When the head is free for its next task.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The size of the dirty data.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Whether there is so much dirty data that the drive should write some back.
    pub fn is_half_dirty(&self) -> bool {
        self.dirty_bytes > DIRTY_BYTES_MAX / 2
    }

    /// Starts or ends fast-forward, in which only the seeks of reads take time. The cache and the place of
    /// the head stay as they are.
    pub fn set_fast_forward(&mut self, now: Nanos, on: bool) {
        self.stop_read_ahead(now);
        self.fast_forward = on;
    }

    /// The time for a number of bytes to pass under the head.
    fn passing_ns(&self, bytes: u64) -> Nanos {
        if self.fast_forward { 0 } else { media_ns(bytes) }
    }

    fn approach(&self, now: Nanos, to: u64) -> Approach {
        if self.fast_forward {
            let seeks = self.place.abs_diff(to) > TRACK_BYTES;
            return Approach { takes: if seeks { FAST_FORWARD_SEEK_NS } else { 0 }, passes: 0, seeks };
        }
        if let Some(read_ahead) = self.read_ahead {
            let place = read_ahead.place(now);
            if place < read_ahead.limit && (place..=place.saturating_add(TRACK_BYTES)).contains(&to) {
                return Approach { takes: media_ns(to - place), passes: to - place, seeks: false };
            }
        }
        let place = self.read_ahead.map_or(self.place, |read_ahead| read_ahead.place(now));
        let distance = place.abs_diff(to);
        let seeks = distance > TRACK_BYTES;
        let moving = if seeks { seek_ns(distance) } else { 0 };
        let turned = (now + moving) % ROTATION_NS;
        let mut turn = (media_ns(to % TRACK_BYTES) + ROTATION_NS - turned) % ROTATION_NS;
        if ROTATION_NS - turn < ROUNDING_NS {
            turn = 0;
        }
        let passes = (u128::from(turn) * u128::from(TRACK_BYTES) / u128::from(ROTATION_NS)) as u64;
        Approach { takes: moving + turn, passes, seeks }
    }

    /// The first byte from `place` on that neither the segments nor the dirty runs hold.
    fn in_memory_until(&self, now: Nanos, mut place: u64) -> u64 {
        let now_read = self.read_ahead.map(|read_ahead| read_ahead.place(now));
        loop {
            let dirty = self.dirty.range(..=place).next_back().map(|(_, end)| *end);
            let last = self.segments.len().wrapping_sub(1);
            let cached = self.segments.iter().enumerate().filter(|(_, range)| range.start <= place);
            let cached = cached.map(|(at, range)| match now_read {
                Some(end) if at == last => end.max(range.end),
                _ => range.end,
            });
            match cached.chain(dirty).max() {
                Some(end) if end > place => place = end,
                _ => return place,
            }
        }
    }

    /// Counts a read.
    pub fn asked_to_read(&mut self, range: &Range<u64>) {
        self.counters.reads += 1;
        self.counters.fast_forwarded += u64::from(self.fast_forward);
        self.counters.read_bytes += range.end - range.start;
    }

    /// Answers a read from the cache, if all of it is there. Returns the time when the bytes are across the
    /// interface. A head that reads ahead goes on.
    pub fn read_from_memory(&mut self, now: Nanos, range: &Range<u64>) -> Option<Nanos> {
        if self.in_memory_until(now, range.start) < range.end {
            return None;
        }
        if let (Some(read_ahead), Some(segment)) = (&mut self.read_ahead, self.segments.back())
            && read_ahead.place(now) < read_ahead.limit
            && (segment.start..=read_ahead.limit).contains(&range.end)
        {
            read_ahead.limit = read_ahead.limit.max(range.end.saturating_add(READ_AHEAD_BYTES));
        }
        // Data that the head is reading now is in the cache once it is done.
        let being_read = self.segments.back().is_some_and(|segment| segment.end > range.start);
        let there_at = if being_read { self.free_at.max(now) } else { now };
        Some(there_at + interface_ns(range.end - range.start))
    }

    /// The time until the head stands where a read needs it.
    pub fn read_takes(&self, now: Nanos, range: &Range<u64>) -> Nanos {
        self.approach(now, self.in_memory_until(now, range.start)).takes
    }

    /// Reads from the surface, from a time on at which the head is free. Returns the time when it is done;
    /// the head then reads ahead.
    pub fn read(&mut self, now: Nanos, range: &Range<u64>) -> Nanos {
        let from = self.in_memory_until(now, range.start).min(range.end);
        let approach = self.approach(now, from);
        let begins = from.saturating_sub(approach.passes);
        self.stop_read_ahead(now);
        match self.segments.back_mut() {
            // The next part of a sequential read.
            Some(segment) if !approach.seeks && (segment.start..=segment.end).contains(&begins) => {
                segment.end = range.end.max(segment.end);
                segment.start = segment.start.max(segment.end.saturating_sub(SEGMENT_BYTES));
            }
            _ => self.segments.push_back(begins.max(range.end.saturating_sub(SEGMENT_BYTES))..range.end),
        }
        while self.segments.len() > SEGMENTS {
            self.segments.pop_front();
        }
        self.counters.seeks += u64::from(approach.seeks);
        self.free_at = now + approach.takes + self.passing_ns(range.end - from);
        self.place = range.end;
        let limit = range.end.saturating_add(READ_AHEAD_BYTES);
        self.read_ahead =
            (!self.fast_forward).then_some(ReadAhead { since: self.free_at, from: range.end, limit });
        self.free_at
    }

    /// Ends reading ahead; the data read by now stays in the cache.
    fn stop_read_ahead(&mut self, now: Nanos) {
        if let (Some(read_ahead), Some(segment)) = (self.read_ahead.take(), self.segments.back_mut()) {
            self.place = read_ahead.place(now);
            segment.end = segment.end.max(self.place);
            segment.start = segment.start.max(segment.end.saturating_sub(SEGMENT_BYTES));
        }
    }

    /// Takes a write into the cache, if it has room. Returns the time when the bytes are across the
    /// interface.
    pub fn write(&mut self, now: Nanos, range: &Range<u64>) -> Option<Nanos> {
        let len = range.end - range.start;
        if self.dirty_bytes > 0 && self.dirty_bytes + len > DIRTY_BYTES_MAX {
            return None;
        }
        self.counters.writes += 1;
        self.counters.fast_forwarded += u64::from(self.fast_forward);
        self.counters.write_bytes += len;
        let (mut start, mut end) = (range.start, range.end);
        // Runs that overlap or touch it are merged.
        while let Some((other, other_end)) = self.dirty.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if other_end < start {
                break;
            }
            self.dirty.remove(&other);
            self.dirty_bytes -= other_end - other;
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.dirty.insert(start, end);
        self.dirty_bytes += end - start;
        Some(now + interface_ns(len))
    }

    /// Writes back a piece of the dirty data, from a time on at which the head is free: the next run upwards,
    /// or the lowest after the highest. Returns the time when it is done; `None` without dirty data.
    pub fn destage(&mut self, now: Nanos) -> Option<Nanos> {
        // Without dirty data the head goes on reading ahead.
        self.dirty.first_key_value()?;
        self.stop_read_ahead(now);
        let next = self.dirty.range(self.place..).next().or_else(|| self.dirty.iter().next());
        let (start, end) = next.map(|(start, end)| (*start, *end))?;
        let until = end.min(start + DESTAGE_BYTES);
        let approach = self.approach(now, start);
        self.dirty.remove(&start);
        if until < end {
            self.dirty.insert(until, end);
        }
        self.dirty_bytes -= until - start;
        self.counters.seeks += u64::from(approach.seeks);
        self.place = until;
        let takes = if self.fast_forward { 0 } else { approach.takes + media_ns(until - start) };
        self.free_at = now + takes;
        Some(self.free_at)
    }

    /// Counts a flush.
    pub fn asked_to_flush(&mut self) {
        self.counters.flushes += 1;
        self.counters.fast_forwarded += u64::from(self.fast_forward);
    }
}

#[cfg(test)]
mod tests;
