//! Where the inode numbers of a volume were when its names were last looked through.
//!
//! The map is a hint: what it leads to is read again. It has names in *stretches*, some hundred in a row
//! below the same salts, and of each name 32 bits of its number. A number's stretch is found by a pass over
//! these bits, which are 4 bytes a name.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Number of names in a stretch.
pub(super) const STRETCH_NAMES: usize = 256;
/// Number of names that the map has room for: 16 MiB.
const NAMES_MAX: usize = 4 << 20;
/// Bytes of keys of stretches that it has room for.
const KEY_BYTES_MAX: usize = 16 << 20;
/// Number of stretches to look into for one number, at most. By chance two numbers have the same 32 bits in
/// one of 2^32 cases.
const STRETCHES_MAX: usize = 8;
/// Number of absent numbers remembered.
const ABSENT_MAX: usize = 1024;

/// Names in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::volume) struct Stretch {
    /// The index of its first name.
    first: usize,
    /// The key of its first name.
    pub key: Vec<u8>,
    /// The sum of the salts above.
    pub salts: u64,
}

/// The numbers of names, in the order in which the names were looked at.
#[derive(Default)]
pub(in crate::volume) struct NumberMap {
    tags: Vec<u32>,
    stretches: Vec<Stretch>,
    key_bytes: usize,
    /// Whether the next name begins a stretch.
    is_cut: bool,
    /// Numbers that no object has or will have, oldest first.
    absent: VecDeque<u64>,
}

fn tag(number: u64) -> u32 {
    (number ^ number >> u32::BITS) as u32
}

impl NumberMap {
    /// Forgets all names.
    pub fn clear(&mut self) {
        self.tags.clear();
        self.stretches.clear();
        self.key_bytes = 0;
    }

    /// Whether it has no room for more names.
    pub fn is_full(&self) -> bool {
        self.tags.len() >= NAMES_MAX || self.key_bytes >= KEY_BYTES_MAX
    }

    /// Begins a stretch with the next name.
    pub fn begin_stretch(&mut self) {
        self.is_cut = true;
    }

    /// Adds the name at `key` with its number, if there is room.
    pub fn add(&mut self, number: u64, key: &[u8], salts: u64) {
        if self.is_full() {
            return;
        }
        let first = self.tags.len();
        let is_long = self.stretches.last().is_none_or(|last| first - last.first >= STRETCH_NAMES);
        if self.is_cut || is_long {
            self.is_cut = false;
            self.key_bytes += key.len();
            self.stretches.push(Stretch { first, key: key.to_vec(), salts });
        }
        self.tags.push(tag(number));
    }

    /// The stretches that may have a number.
    pub fn stretches_of(&self, number: u64) -> Vec<Stretch> {
        let tag = tag(number);
        let hits = self.tags.iter().enumerate().filter(|(_, here)| **here == tag);
        let mut found: Vec<&Stretch> = Vec::new();
        for (hit, _) in hits {
            let end = self.stretches.partition_point(|stretch| stretch.first <= hit);
            let Some(stretch) = end.checked_sub(1).and_then(|at| self.stretches.get(at)) else { continue };
            if found.last().is_none_or(|last| last.first != stretch.first) {
                found.push(stretch);
            }
            if found.len() == STRETCHES_MAX {
                break;
            }
        }
        found.into_iter().cloned().collect()
    }

    /// Notes a number that no object has or will have.
    pub fn note_absent(&mut self, number: u64) {
        if self.absent.len() == ABSENT_MAX {
            self.absent.pop_front();
        }
        self.absent.push_back(number);
    }

    /// Whether a number was noted as absent.
    pub fn is_absent(&self, number: u64) -> bool {
        self.absent.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(map: &NumberMap, number: u64) -> Vec<u64> {
        map.stretches_of(number)
            .iter()
            .map(|stretch| u64::from_be_bytes(stretch.key.as_slice().try_into().unwrap()))
            .collect()
    }

    #[test]
    fn a_number_leads_to_the_stretches_that_may_have_it() {
        let mut map = NumberMap::default();
        assert!(map.stretches_of(7).is_empty());
        for number in 0..1000u64 {
            map.add(number, &number.to_be_bytes(), 0);
        }
        // The stretches begin with 0, 256, 512 and 768.
        assert_eq!((keys(&map, 0), keys(&map, 255), keys(&map, 256)), ([0].into(), [0].into(), [256].into()));
        assert_eq!((keys(&map, 999), keys(&map, 1000)), ([768].into(), Vec::new()));
        // Other names with the same 32 bits, one of them in the same stretch.
        map.add(7 << 32, &1000u64.to_be_bytes(), 0);
        map.begin_stretch();
        map.add(7 << 32, &1001u64.to_be_bytes(), 5);
        map.add(7 << 32, &1002u64.to_be_bytes(), 5);
        assert_eq!(keys(&map, 7), [0, 768, 1001]);
        assert_eq!(map.stretches_of(7).iter().map(|stretch| stretch.salts).collect::<Vec<_>>(), [0, 0, 5]);
        map.clear();
        assert!(map.stretches_of(7).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut map = NumberMap::default();
        (0..NAMES_MAX as u64 + 10).for_each(|number| map.add(number, &number.to_be_bytes(), 0));
        assert!(map.is_full());
        assert_eq!((map.tags.len(), map.stretches.len()), (NAMES_MAX, NAMES_MAX / STRETCH_NAMES));
        assert!(map.stretches_of(7).len() == 1);
        let mut map = NumberMap::default();
        // Long keys, and one number everywhere.
        while !map.is_full() {
            map.add(7, &[1; 60_000], 0);
        }
        assert_eq!(map.stretches.len(), KEY_BYTES_MAX.div_ceil(60_000));
        assert_eq!(map.stretches_of(7).len(), STRETCHES_MAX);
        for number in 0..2000 {
            map.note_absent(number);
        }
        assert_eq!(map.absent.len(), ABSENT_MAX);
        assert!(map.is_absent(1999) && map.is_absent(976) && !map.is_absent(975));
    }
}
