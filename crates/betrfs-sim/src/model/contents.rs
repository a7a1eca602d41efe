//! The bytes of a file, and its blocks that are stored. The others are holes.

use std::collections::BTreeSet;
use std::sync::Arc;

use betrfs::{FallocateMode, SeekWhat};

const BLOCK: u64 = 4096;

/// The contents of a file; copies share them until one is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    bytes: Arc<Vec<u8>>,
    stored: Arc<BTreeSet<u64>>,
    /// Upper bound of the space that fallocate may have set aside, in units of 512 bytes. Reopening the
    /// volume releases it all; the bound stays.
    aside_512_max: u64,
}

impl Contents {
    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Up to `len` bytes from `offset` on.
    pub fn part(&self, offset: u64, len: usize) -> &[u8] {
        let from = self.bytes.len().min(offset as usize);
        &self.bytes[from..self.bytes.len().min(from.saturating_add(len))]
    }

    /// Units of 512 bytes in use, as `stat` shows them.
    pub fn blocks_512(&self) -> u64 {
        let stored = self.stored.len() as u64 * (BLOCK / 512);
        stored.clamp(u64::from(self.size() > 0), self.size().div_ceil(512))
    }

    /// Whether `stat` may report `shown` units of 512 bytes for a file with these contents: at least its
    /// stored blocks, at most these and everything that fallocate may have set aside.
    pub fn may_show_512(&self, shown: u64) -> bool {
        let stored = self.blocks_512();
        if self.aside_512_max == 0 {
            return shown == stored;
        }
        let least = if self.stored.is_empty() { 0 } else { stored };
        (least..=stored + self.aside_512_max).contains(&shown)
    }

    /// Adds the bound of the contents that these replace: the file keeps the space set aside for it.
    pub fn keep_room_of(&mut self, other: &Contents) {
        self.aside_512_max += other.aside_512_max;
    }

    /// Writes bytes at an offset.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (from, end) = (offset as usize, offset as usize + data.len());
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.resize(bytes.len().max(end), 0);
        bytes[from..end].copy_from_slice(data);
        self.store(offset / BLOCK, (end as u64).div_ceil(BLOCK));
    }

    /// Cuts the file off at a size, or extends it by a hole.
    pub fn resize(&mut self, size: u64) {
        Arc::make_mut(&mut self.bytes).resize(size as usize, 0);
        Arc::make_mut(&mut self.stored).split_off(&size.div_ceil(BLOCK));
    }

    /// Does what `fallocate` does; returns whether anything changed.
    pub fn fallocate(&mut self, mode: FallocateMode, offset: u64, len: u64) -> bool {
        let (zeroes, extends) = match mode {
            FallocateMode::Allocate { keep_size } => (false, !keep_size),
            FallocateMode::PunchHole => (true, false),
            FallocateMode::Zero { keep_size } => (true, !keep_size),
        };
        if mode != FallocateMode::PunchHole {
            // The range may begin and end within blocks.
            self.aside_512_max += (len / BLOCK + 2) * (BLOCK / 512);
        }
        let (size, end) = (self.size(), offset + len);
        let punches = zeroes && offset < size;
        if punches {
            self.punch(offset, end.min(size));
        }
        if extends && end > size {
            self.resize(end);
            return true;
        }
        punches
    }

    /// Makes a range of bytes read as zeros; whole blocks become holes, and so does the last one if the range
    /// reaches the end of the file.
    fn punch(&mut self, from: u64, end: u64) {
        let first = from.div_ceil(BLOCK);
        let after = if end == self.size() { end.div_ceil(BLOCK) } else { end / BLOCK };
        Arc::make_mut(&mut self.bytes)[from as usize..end as usize].fill(0);
        Arc::make_mut(&mut self.stored).retain(|block| !(first..after).contains(block));
    }

    /// Takes over a range of another file's blocks, up to the byte `end`.
    pub fn share(&mut self, source: &Contents, offset: u64, end: u64) {
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.resize(bytes.len().max(end as usize), 0);
        bytes[offset as usize..end as usize].copy_from_slice(&source.bytes[offset as usize..end as usize]);
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let stored = Arc::make_mut(&mut self.stored);
        stored.retain(|block| !blocks.contains(block));
        stored.extend(source.stored.range(blocks));
    }

    /// The first place at or behind `offset` that is data, or that is a hole.
    pub fn seek(&self, offset: u64, what: SeekWhat) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let mut block = offset / BLOCK;
        match what {
            SeekWhat::Data => {
                let found = *self.stored.range(block..).next()?;
                Some(offset.max(found * BLOCK))
            }
            SeekWhat::Hole => {
                while self.stored.contains(&block) {
                    block += 1;
                }
                Some(offset.max(block * BLOCK).min(self.size()))
            }
        }
    }

    /// The stretches of data: first byte, and the byte behind the last.
    pub fn stretches(&self) -> Vec<(u64, u64)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(data) = self.seek(at, SeekWhat::Data) {
            let hole = self.seek(data, SeekWhat::Hole).unwrap_or(self.size());
            found.push((data, hole));
            at = hole;
        }
        found
    }

    fn store(&mut self, first: u64, after: u64) {
        Arc::make_mut(&mut self.stored).extend(first..after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_where_nothing_was_written_and_where_blocks_were_punched() {
        let mut contents = Contents::default();
        contents.write(0, &[1; 10_000]);
        assert_eq!((contents.stretches(), contents.blocks_512()), (vec![(0, 10_000)], 20));
        contents.write(20_000, b"far");
        assert_eq!(contents.stretches(), [(0, 12_288), (16_384, 20_003)]);
        assert!(contents.fallocate(FallocateMode::PunchHole, 100, 8092));
        assert_eq!(contents.stretches(), [(0, 4096), (8192, 12_288), (16_384, 20_003)]);
        assert!(contents.bytes()[100..8192].iter().all(|byte| *byte == 0) && contents.bytes()[8192] == 1);
        contents.resize(50);
        contents.resize(100);
        assert_eq!(contents.part(40, 100), [[1; 10].as_slice(), &[0; 50]].concat());
        assert_eq!((contents.stretches(), contents.blocks_512()), (vec![(0, 100)], 1));
        assert!(!contents.fallocate(FallocateMode::Allocate { keep_size: true }, 0, 9000));
        assert!(contents.fallocate(FallocateMode::Allocate { keep_size: false }, 0, 9000));
        assert_eq!((contents.size(), contents.stretches()), (9000, vec![(0, 4096)]));
        assert_eq!(contents.seek(4096, SeekWhat::Data), None);
    }
}
