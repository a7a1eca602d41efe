//! The places of segments in the circle, and which of them are still needed.

use alloc::collections::VecDeque;

use crate::format::superblock::LogStart;

/// The circle. Positions and lengths are in bytes, in whole blocks.
pub(super) struct Ring {
    len: u64,
    epoch: u64,
    /// The next segment's position, if it fits before the circle's end.
    head: u64,
    next_seq: u64,
    /// From the oldest to the newest, numbered without a gap.
    live: VecDeque<Live>,
}

struct Live {
    seq: u64,
    position: u64,
    last_msn: u64,
}

/// Where a new segment was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub seq: u64,
    pub position: u64,
}

impl Ring {
    /// A circle without live segments, whose first one will stand at `start`.
    pub fn new(len: u64, start: &LogStart) -> Ring {
        let head = if start.position < len { start.position } else { 0 };
        Ring { len, epoch: start.epoch, head, next_seq: start.seq, live: VecDeque::new() }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The next segment's number.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Finds room for the next segment: at the head, or at the circle's start if it does not fit before the
    /// end. `None`, without a change, if it would overlap a live one.
    pub fn place(&mut self, bytes: u64, last_msn: u64) -> Option<Place> {
        let fits_at = |from: u64, limit: u64| limit.checked_sub(from).is_some_and(|room| bytes <= room);
        let position = match self.tail() {
            Some(tail) if self.head <= tail => fits_at(self.head, tail).then_some(self.head),
            _ if fits_at(self.head, self.len) => Some(self.head),
            Some(tail) => fits_at(0, tail).then_some(0),
            None => fits_at(0, self.len).then_some(0),
        }?;
        let seq = self.next_seq;
        self.live.push_back(Live { seq, position, last_msn });
        self.next_seq += 1;
        self.head = position + bytes;
        if self.head == self.len {
            self.head = 0;
        }
        Some(Place { seq, position })
    }

    /// The bytes from the oldest live segment to the head, with those left out before the circle's end.
    pub fn used_bytes(&self) -> u64 {
        match self.tail() {
            None => 0,
            Some(tail) if self.head > tail => self.head - tail,
            Some(tail) => self.len - tail + self.head,
        }
    }

    /// The start of a replay that needs all changes from `msn` on.
    pub fn start_for(&self, msn: u64) -> LogStart {
        let (seq, position) = match self.live.iter().find(|l| l.last_msn >= msn) {
            Some(oldest) => (oldest.seq, oldest.position),
            None => (self.next_seq, self.head),
        };
        LogStart { epoch: self.epoch, seq, position }
    }

    /// Gives up the segments before `start`.
    pub fn trim_to(&mut self, start: &LogStart) {
        if start.epoch != self.epoch {
            return;
        }
        while self.live.front().is_some_and(|oldest| oldest.seq < start.seq) {
            self.live.pop_front();
        }
    }

    /// Whether a segment is still needed.
    pub fn is_live(&self, seq: u64) -> bool {
        self.live.iter().any(|live| live.seq == seq)
    }

    fn tail(&self) -> Option<u64> {
        self.live.front().map(|oldest| oldest.position)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use seeded::Rng;

    use super::*;

    /// Random placing and trimming on a full and an empty circle, checked against a list of live segments: a
    /// segment is placed at the head or at the start, never over a live one, and is refused only if it fits
    /// at neither.
    #[test]
    fn no_segment_is_placed_over_a_live_one() {
        let mut refused = 0;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut below = |n: u64| rng.below_u64(n);
            let len = 8 + below(30);
            let mut head = below(len);
            let mut ring = Ring::new(len, &LogStart { epoch: 1, seq: 0, position: head });
            let mut live: Vec<(Place, u64)> = vec![];
            for msn in 0..300 {
                if below(3) == 0 {
                    let start = ring.start_for(below(msn + 1));
                    ring.trim_to(&start);
                    live.retain(|(place, _)| place.seq >= start.seq);
                    let first = live.first().map(|(place, _)| place.position);
                    assert_eq!(start.position, first.unwrap_or(head), "seed {seed}");
                }
                let bytes = 1 + below(if msn % 5 == 0 { len } else { 6 });
                let free = |from: u64| {
                    let to = from + bytes;
                    to <= len && live.iter().all(|(p, l)| p.position >= to || p.position + l <= from)
                };
                let expected = [head, 0].into_iter().find(|&at| free(at));
                let placed = ring.place(bytes, msn);
                assert_eq!(placed.map(|p| p.position), expected, "seed {seed}: {bytes} of {len} at {head}");
                match placed {
                    Some(place) => {
                        live.push((place, bytes));
                        head = (place.position + bytes) % len;
                    }
                    None => refused += 1,
                }
                let in_live: u64 = live.iter().map(|l| l.1).sum();
                assert!((in_live..=len).contains(&ring.used_bytes()), "seed {seed}");
            }
        }
        assert!(refused > 1000, "the circle was often full: {refused}");
    }
}
