//! What a 7200 rpm disk does and how long it takes: a pure function of its state, a request and the
//! time. Nothing here sleeps or moves data.
//!
//! The surface is one long track wound up, [`TRACK_BYTES`] a turn: where the head stands in a turn
//! follows from the time alone, and what lies in order passes under it in order, at the media's rate.
//! The image that is exposed is the outermost part of a disk of [`CAPACITY_BYTES`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A moment or a span on the drive's clock, in nanoseconds.
pub type Nanos = u64;

/// What a turn takes at 7200 rpm.
pub const ROTATION_NS: Nanos = 8_333_333;
/// What passes under the head in a turn; it makes the media's rate 147 MB/s.
pub const TRACK_BYTES: u64 = 1200 << 10;
/// The whole disk, of which the image is a part: what seeks are measured by.
const CAPACITY_BYTES: u64 = 250_000_000_000;
/// The shortest seek: to start, to stop and to settle.
const SEEK_NS_MIN: Nanos = 1_000_000;
/// What the way across the whole disk takes on top.
const SEEK_NS_ACROSS: f64 = 13e6;
/// What a seek takes in haste: so much that whoever looks can see that there is a head.
const HASTY_SEEK_NS: Nanos = 1_200_000;
/// What adding up rounded times may come short of a whole turn.
const ROUNDING_NS: Nanos = 10_000;
/// The rate of the cable.
const INTERFACE_BYTES_PER_S: u64 = 550_000_000;
/// How far the drive reads on after a request.
const READ_ON_BYTES: u64 = 4 << 20;
/// What a segment of the cache holds.
const SEGMENT_BYTES: u64 = 4 << 20;
/// How many there are: with the writes that wait, 64 MiB.
const SEGMENTS: usize = 12;
/// How much may wait to be written.
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// How much of a run is written at a time.
const DESTAGE_BYTES: u64 = 512 << 10;

/// What a drive was asked for and did.
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
    /// How often the head moved to another track.
    pub seeks: u64,
    /// Requests that it was asked in haste.
    pub hasty: u64,
}

/// The head reads on, since a moment, from a place, up to another.
#[derive(Clone, Copy, Debug)]
struct ReadingOn {
    since: Nanos,
    from: u64,
    limit: u64,
}

impl ReadingOn {
    fn place(&self, now: Nanos) -> u64 {
        let passed = u128::from(now.saturating_sub(self.since)) * u128::from(TRACK_BYTES);
        let passed = u64::try_from(passed / u128::from(ROTATION_NS)).unwrap_or(u64::MAX);
        self.from.saturating_add(passed).min(self.limit)
    }
}

/// How the head gets to a place.
struct Approach {
    /// What it takes.
    takes: Nanos,
    /// What passes under the head before the place comes: read as well, if anything is.
    passes: u64,
    /// Whether the head moves.
    seeks: bool,
}

/// One drive.
#[derive(Debug, Default)]
pub struct Model {
    /// When the head is done with what it was last told to do.
    free_at: Nanos,
    /// Where it stands, or stood when it began to read on.
    place: u64,
    reading_on: Option<ReadingOn>,
    /// What of the surface is in the cache, the latest at the end. While the head reads on it is
    /// that one which grows.
    segments: VecDeque<Range<u64>>,
    /// Runs that wait to be written: where each begins and ends. None touches another.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    in_haste: bool,
    counters: Counters,
}

/// What the media needs to pass so many bytes.
fn media_ns(bytes: u64) -> Nanos {
    (u128::from(bytes) * u128::from(ROTATION_NS) / u128::from(TRACK_BYTES)) as Nanos
}

/// What the cable needs to carry so many bytes.
pub fn interface_ns(bytes: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(INTERFACE_BYTES_PER_S)) as Nanos
}

fn seek_ns(distance_bytes: u64) -> Nanos {
    let share = distance_bytes as f64 / CAPACITY_BYTES as f64;
    SEEK_NS_MIN + (SEEK_NS_ACROSS * share.sqrt()) as Nanos
}

impl Model {
    /// When the head can be told the next thing.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How much waits to be written.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Whether so much waits to be written that the drive should see to it.
    pub fn is_half_dirty(&self) -> bool {
        self.dirty_bytes > DIRTY_BYTES_MAX / 2
    }

    /// In haste, or no longer: nothing but a seek that a read needs takes time then, so that what is not measured
    /// is soon done. What the drive keeps, and where its head stands, stays.
    pub fn set_in_haste(&mut self, now: Nanos, in_haste: bool) {
        self.stop_reading_on(now);
        self.in_haste = in_haste;
    }

    /// What the media needs to pass so many bytes.
    fn passing_ns(&self, bytes: u64) -> Nanos {
        if self.in_haste { 0 } else { media_ns(bytes) }
    }

    fn approach(&self, now: Nanos, to: u64) -> Approach {
        if self.in_haste {
            let seeks = self.place.abs_diff(to) > TRACK_BYTES;
            return Approach { takes: if seeks { HASTY_SEEK_NS } else { 0 }, passes: 0, seeks };
        }
        if let Some(reading_on) = self.reading_on {
            let place = reading_on.place(now);
            if place < reading_on.limit && (place..=place.saturating_add(TRACK_BYTES)).contains(&to) {
                return Approach { takes: media_ns(to - place), passes: to - place, seeks: false };
            }
        }
        let place = self.reading_on.map_or(self.place, |reading_on| reading_on.place(now));
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

    /// The cache's segments and the runs that wait: up to where all from a place on is in memory.
    fn in_memory_until(&self, now: Nanos, mut place: u64) -> u64 {
        let now_read = self.reading_on.map(|reading_on| reading_on.place(now));
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

    /// Counts a request to read.
    pub fn asked_to_read(&mut self, range: &Range<u64>) {
        self.counters.reads += 1;
        self.counters.hasty += u64::from(self.in_haste);
        self.counters.read_bytes += range.end - range.start;
    }

    /// Answers a read from memory, if all of it is there: when the bytes are across. Where the head
    /// reads on, it then does so from there.
    pub fn read_from_memory(&mut self, now: Nanos, range: &Range<u64>) -> Option<Nanos> {
        if self.in_memory_until(now, range.start) < range.end {
            return None;
        }
        if let (Some(reading_on), Some(segment)) = (&mut self.reading_on, self.segments.back())
            && reading_on.place(now) < reading_on.limit
            && (segment.start..=reading_on.limit).contains(&range.end)
        {
            reading_on.limit = reading_on.limit.max(range.end.saturating_add(READ_ON_BYTES));
        }
        // What the head is reading at this moment is there when it is done.
        let being_read = self.segments.back().is_some_and(|segment| segment.end > range.start);
        let there_at = if being_read { self.free_at.max(now) } else { now };
        Some(there_at + interface_ns(range.end - range.start))
    }

    /// How long until the head stands where a read needs it.
    pub fn read_takes(&self, now: Nanos, range: &Range<u64>) -> Nanos {
        self.approach(now, self.in_memory_until(now, range.start)).takes
    }

    /// Reads from the surface from a moment on at which the head is free: when it is done. The head
    /// then reads on.
    pub fn read(&mut self, now: Nanos, range: &Range<u64>) -> Nanos {
        let from = self.in_memory_until(now, range.start).min(range.end);
        let approach = self.approach(now, from);
        let begins = from.saturating_sub(approach.passes);
        self.stop_reading_on(now);
        match self.segments.back_mut() {
            // Further of what is being read.
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
        let limit = range.end.saturating_add(READ_ON_BYTES);
        self.reading_on =
            (!self.in_haste).then_some(ReadingOn { since: self.free_at, from: range.end, limit });
        self.free_at
    }

    /// What the head has read by now stays in the cache.
    fn stop_reading_on(&mut self, now: Nanos) {
        if let (Some(reading_on), Some(segment)) = (self.reading_on.take(), self.segments.back_mut()) {
            self.place = reading_on.place(now);
            segment.end = segment.end.max(self.place);
            segment.start = segment.start.max(segment.end.saturating_sub(SEGMENT_BYTES));
        }
    }

    /// Takes a write into the cache, if there is room: when the bytes are across.
    pub fn write(&mut self, now: Nanos, range: &Range<u64>) -> Option<Nanos> {
        let len = range.end - range.start;
        if self.dirty_bytes > 0 && self.dirty_bytes + len > DIRTY_BYTES_MAX {
            return None;
        }
        self.counters.writes += 1;
        self.counters.hasty += u64::from(self.in_haste);
        self.counters.write_bytes += len;
        let (mut start, mut end) = (range.start, range.end);
        // Those that it overlaps or touches become one with it.
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

    /// Writes a piece of what waits to the surface, from a moment on at which the head is free: the
    /// next one upwards, and from the lowest again after the highest. When it is done; `None` where
    /// nothing waits.
    pub fn destage(&mut self, now: Nanos) -> Option<Nanos> {
        // With nothing to write the head reads on.
        self.dirty.first_key_value()?;
        self.stop_reading_on(now);
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
        let takes = if self.in_haste { 0 } else { approach.takes + media_ns(until - start) };
        self.free_at = now + takes;
        Some(self.free_at)
    }

    /// Counts a request to empty the write cache.
    pub fn asked_to_flush(&mut self) {
        self.counters.flushes += 1;
        self.counters.hasty += u64::from(self.in_haste);
    }
}

#[cfg(test)]
mod tests;
