//! The superblock: what a volume is and where its last checkpoint stands.
//!
//! One block, kept in four copies at the volume's start; [`slots`] says which copy is believed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::settings::Geometry;
use crate::space::Part;

pub(crate) mod slots;

/// The first bytes of a superblock, in every version.
const MAGIC: [u8; 8] = *b"BetrFS\0\x01";
/// The format that this program writes, and the latest that it reads.
pub const VERSION: u32 = 5;
/// The most dictionaries of a volume.
pub(crate) const DICTS_MAX: usize = 8;
/// The smallest log in bytes.
pub(crate) const LOG_BYTES_MIN: u64 = 16 * BLOCK_BYTES as u64;

/// No node, basement or table page is larger, in bytes.
const PART_BYTES_MAX: u32 = 1 << 28;
/// No volume is larger, in bytes.
const VOLUME_BYTES_MAX: u64 = 1 << 60;
/// So many nodes fit on a volume beside its log.
pub(crate) const NODES_MIN: u64 = 16;
/// Counters that grow by one or by a record's length never come near the end of their type.
pub(crate) const COUNTER_MAX: u64 = 1 << 62;
const FLAG_CLEAN: u32 = 1;

/// A superblock in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Random, from mkfs.
    pub volume_id: [u8; 16],
    /// One more than that of the superblock before it.
    pub generation: u64,
    /// Whether the volume was closed with everything in the checkpoint and nothing in the log.
    pub clean: bool,
    /// What mkfs chose. `geometry.dicts` is the number of valid entries of `dicts`.
    pub geometry: Geometry,
    /// The volume's size in bytes; the device may be larger.
    pub volume_bytes: u64,
    /// First byte of the log.
    pub log_offset: u64,
    /// Size of a page of the node table in bytes.
    pub table_page_bytes: u32,
    /// The dictionaries; those beyond `geometry.dicts` are zero.
    pub dicts: [DictRoot; DICTS_MAX],
    /// Where the node table's directory stands.
    pub table: TablePlace,
    /// Where replay begins.
    pub log_start: LogStart,
    /// The MSN after the last one in the checkpoint.
    pub next_msn: u64,
}

/// A dictionary's root in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DictRoot {
    /// The root node's slot in the node table.
    pub slot: u32,
    /// The generation of that slot.
    pub generation: u32,
    /// Every message up to this MSN is in the checkpoint.
    pub applied_msn: u64,
}

/// The most parts that the node table's directory stands in.
pub(crate) const DIRECTORY_PARTS_MAX: usize = 16;

/// The generation in what begins as a superblock, whether it is whole or not.
fn generation_of(block: &[u8]) -> Option<u64> {
    let raw = Raw::ref_from_bytes(block).ok()?;
    (raw.magic == MAGIC).then(|| raw.generation.get())
}

/// The place of the node table's directory: all zero while there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TablePlace {
    /// First byte on the volume.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// xxh3-64 of these bytes.
    pub checksum: u64,
    /// The parts of its extent after the first, then zeros.
    pub further_parts: [Part; DIRECTORY_PARTS_MAX - 1],
}

impl TablePlace {
    /// The place of `len` bytes in these parts.
    pub(crate) fn new(parts: &[Part], len: u32, checksum: u64) -> TablePlace {
        let mut place = TablePlace { len, checksum, ..TablePlace::default() };
        place.offset = parts.first().map_or(0, |p| p.start_block * BLOCK_BYTES as u64);
        for (to, part) in place.further_parts.iter_mut().zip(parts.iter().skip(1)) {
            *to = *part;
        }
        place
    }

    /// The parts of its extent; the first has the blocks that the others have not.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let further: Vec<Part> =
            self.further_parts.iter().take_while(|p| p.len_blocks > 0).copied().collect();
        let blocks = u64::from(self.len).div_ceil(BLOCK_BYTES as u64);
        let elsewhere = further.iter().fold(0u64, |sum, p| sum.saturating_add(p.len_blocks));
        let len_blocks = blocks.saturating_sub(elsewhere);
        let mut parts = Vec::from([Part { start_block: self.offset / BLOCK_BYTES as u64, len_blocks }]);
        parts.extend(further);
        parts
    }
}

/// A place in the log: the segment that stands there or will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogStart {
    /// The life of the log that it belongs to; each recovery begins a new one.
    pub epoch: u64,
    /// The segment's number within its epoch.
    pub seq: u64,
    /// The segment's first byte, counted from the log's start (or it stands at the log's start).
    pub position: u64,
}

/// What the bytes of a slot turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Good(Box<Superblock>),
    /// It does not begin as a superblock.
    NotOurs,
    /// It is whole, and of a later format.
    Newer {
        version: u32,
    },
    /// It begins as a superblock, and is torn, rotten or senseless.
    Bad {
        why: &'static str,
    },
}

/// Of every later version, `magic`, `version` and `checksum` keep their places and meaning, so that
/// this program can tell a newer volume from a rotten one.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    flags: U32,
    volume_id: [u8; 16],
    generation: U64,
    volume_bytes: U64,
    log_offset: U64,
    log_bytes: U64,
    node_bytes: U32,
    basement_bytes: U32,
    fanout_max: U32,
    table_page_bytes: U32,
    next_msn: U64,
    log_epoch: U64,
    log_seq: U64,
    log_position: U64,
    table_offset: U64,
    table_len: U32,
    dict_count: U32,
    table_checksum: U64,
    dicts: [RawDict; DICTS_MAX],
    table_further_parts: [RawPart; DIRECTORY_PARTS_MAX - 1],
    reserved: [u8; 3584],
    /// xxh3-64 of all bytes before it.
    checksum: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDict {
    root_slot: U32,
    root_generation: U32,
    applied_msn: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPart {
    start_block: U64,
    len_blocks: U64,
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES && size_of::<RawDict>() == 16);

impl Superblock {
    /// Fills one block. On an error its contents are unspecified.
    ///
    /// # Errors
    /// [`Error::BadGeometry`] for what [`decode`](Superblock::decode) would not take back.
    pub(crate) fn encode(&self, block: &mut [u8]) -> Result<()> {
        self.validate().map_err(Error::BadGeometry)?;
        block.fill(0);
        let raw = Raw::mut_from_bytes(block).map_err(|_| Error::BadGeometry("a superblock is one block"))?;
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.flags = if self.clean { FLAG_CLEAN } else { 0 }.into();
        raw.volume_id = self.volume_id;
        raw.generation = self.generation.into();
        raw.volume_bytes = self.volume_bytes.into();
        raw.log_offset = self.log_offset.into();
        raw.log_bytes = self.geometry.log_bytes.into();
        raw.node_bytes = self.geometry.node_bytes.into();
        raw.basement_bytes = self.geometry.basement_bytes.into();
        raw.fanout_max = self.geometry.fanout_max.into();
        raw.table_page_bytes = self.table_page_bytes.into();
        raw.next_msn = self.next_msn.into();
        raw.log_epoch = self.log_start.epoch.into();
        raw.log_seq = self.log_start.seq.into();
        raw.log_position = self.log_start.position.into();
        raw.table_offset = self.table.offset.into();
        raw.table_len = self.table.len.into();
        raw.table_checksum = self.table.checksum.into();
        raw.dict_count = u32::from(self.geometry.dicts).into();
        for (raw, dict) in raw.dicts.iter_mut().zip(&self.dicts) {
            raw.root_slot = dict.slot.into();
            raw.root_generation = dict.generation.into();
            raw.applied_msn = dict.applied_msn.into();
        }
        for (raw, part) in raw.table_further_parts.iter_mut().zip(&self.table.further_parts) {
            raw.start_block = part.start_block.into();
            raw.len_blocks = part.len_blocks.into();
        }
        raw.checksum = checksum(raw).into();
        Ok(())
    }

    /// What one block holds.
    pub(crate) fn decode(block: &[u8]) -> Decoded {
        let Ok(raw) = Raw::ref_from_bytes(block) else { return Decoded::NotOurs };
        if raw.magic != MAGIC {
            return Decoded::NotOurs;
        }
        if raw.checksum.get() != checksum(raw) {
            return Decoded::Bad { why: "the checksum does not fit" };
        }
        if raw.version.get() > VERSION {
            return Decoded::Newer { version: raw.version.get() };
        }
        match Superblock::from_raw(raw).and_then(|s| s.validate().map(|()| s)) {
            Ok(superblock) => Decoded::Good(Box::new(superblock)),
            Err(why) => Decoded::Bad { why },
        }
    }

    fn from_raw(raw: &Raw) -> core::result::Result<Superblock, &'static str> {
        if raw.version.get() != VERSION {
            return Err("there is no such format version");
        }
        if raw.flags.get() & !FLAG_CLEAN != 0 {
            return Err("unknown flags are set");
        }
        let mut dicts = [DictRoot::default(); DICTS_MAX];
        for (dict, raw) in dicts.iter_mut().zip(&raw.dicts) {
            *dict = DictRoot {
                slot: raw.root_slot.get(),
                generation: raw.root_generation.get(),
                applied_msn: raw.applied_msn.get(),
            };
        }
        let mut further_parts = [Part::default(); DIRECTORY_PARTS_MAX - 1];
        for (part, raw) in further_parts.iter_mut().zip(&raw.table_further_parts) {
            *part = Part { start_block: raw.start_block.get(), len_blocks: raw.len_blocks.get() };
        }
        Ok(Superblock {
            volume_id: raw.volume_id,
            generation: raw.generation.get(),
            clean: raw.flags.get() & FLAG_CLEAN != 0,
            geometry: Geometry {
                node_bytes: raw.node_bytes.get(),
                basement_bytes: raw.basement_bytes.get(),
                fanout_max: raw.fanout_max.get(),
                log_bytes: raw.log_bytes.get(),
                dicts: u8::try_from(raw.dict_count.get()).map_err(|_| "too many dictionaries")?,
            },
            volume_bytes: raw.volume_bytes.get(),
            log_offset: raw.log_offset.get(),
            table_page_bytes: raw.table_page_bytes.get(),
            dicts,
            table: TablePlace {
                offset: raw.table_offset.get(),
                len: raw.table_len.get(),
                checksum: raw.table_checksum.get(),
                further_parts,
            },
            log_start: LogStart {
                epoch: raw.log_epoch.get(),
                seq: raw.log_seq.get(),
                position: raw.log_position.get(),
            },
            next_msn: raw.next_msn.get(),
        })
    }

    /// What every superblock fulfils, so that arithmetic on its fields need not be checked again:
    /// places are whole blocks inside the volume, sizes and counters are far from overflow.
    fn validate(&self) -> core::result::Result<(), &'static str> {
        let Superblock { geometry, volume_bytes, log_offset, log_start, table, .. } = *self;
        let whole = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES as u64);
        let part = |bytes: u32| (1..=PART_BYTES_MAX).contains(&bytes);
        let log_end = log_offset.saturating_add(geometry.log_bytes);
        let first_blocks = table.parts().first().map_or(0, |p| p.len_blocks);
        let table_end = table.offset.saturating_add(first_blocks * BLOCK_BYTES as u64);
        let dicts = usize::from(geometry.dicts);
        if let Some(why) = geometry.mismatch() {
            return Err(why);
        }
        let require = [
            (whole(volume_bytes) && volume_bytes <= VOLUME_BYTES_MAX, "the volume's size is senseless"),
            (whole(log_offset) && log_offset >= slots::BYTES, "the log's place is senseless"),
            (whole(geometry.log_bytes) && geometry.log_bytes >= LOG_BYTES_MIN, "the log's size is senseless"),
            (log_end <= volume_bytes, "the log is not within the volume"),
            (part(geometry.node_bytes), "the size of nodes is senseless"),
            (part(geometry.basement_bytes), "the size of basements is senseless"),
            (
                u64::from(geometry.node_bytes) * NODES_MIN <= volume_bytes.saturating_sub(geometry.log_bytes),
                "the volume is too small for its nodes",
            ),
            (
                self.table_page_bytes == geometry.table_page_bytes()
                    && whole(u64::from(self.table_page_bytes)),
                "the size of table pages is senseless",
            ),
            ((1..=DICTS_MAX).contains(&dicts), "the number of dictionaries is senseless"),
            (
                self.dicts.iter().skip(dicts).all(|d| *d == DictRoot::default()),
                "a dictionary beyond the last has a root",
            ),
            (
                whole(log_start.position) && log_start.position < geometry.log_bytes,
                "the log's start is not within the log",
            ),
            (self.next_msn > 0, "the number of the next change is senseless"),
            (
                self.generation.max(self.next_msn).max(log_start.epoch).max(log_start.seq) <= COUNTER_MAX,
                "a counter is senseless",
            ),
            (
                self.dicts.iter().all(|d| d.applied_msn <= self.next_msn),
                "a dictionary is ahead of the volume",
            ),
            (
                table == TablePlace::default()
                    || whole(table.offset)
                        && first_blocks > 0
                        && table_end <= volume_bytes
                        && (table.offset >= log_end
                            || table.offset >= slots::BYTES && table_end <= log_offset),
                "the table's place is senseless",
            ),
        ];
        require.iter().find(|(holds, _)| !holds).map_or(Ok(()), |&(_, why)| Err(why))
    }
}

fn checksum(raw: &Raw) -> u64 {
    let bytes = raw.as_bytes();
    xxh3_64(bytes.get(..BLOCK_BYTES - size_of::<U64>()).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    /// A valid one with a different number in every field.
    pub(super) fn sample() -> Superblock {
        let mut dicts = [DictRoot::default(); DICTS_MAX];
        for (i, dict) in (1..).zip(dicts.iter_mut().take(3)) {
            *dict = DictRoot { slot: i, generation: 10 + i, applied_msn: 100 + u64::from(i) };
        }
        Superblock {
            volume_id: *b"sixteen bytes id",
            generation: 7,
            clean: true,
            geometry: Geometry {
                node_bytes: 8192,
                basement_bytes: 1024,
                fanout_max: 16,
                log_bytes: 32 * 4096,
                dicts: 3,
            },
            volume_bytes: 100 * 4096,
            log_offset: 4 * 4096,
            table_page_bytes: 4096,
            dicts,
            table: TablePlace::new(
                &[Part { start_block: 40, len_blocks: 1 }, Part { start_block: 60, len_blocks: 1 }],
                5000,
                0x1122_3344_5566_7788,
            ),
            log_start: LogStart { epoch: 3, seq: 12, position: 5 * 4096 },
            next_msn: 2000,
        }
    }

    fn encoded(superblock: &Superblock) -> Vec<u8> {
        let mut block = vec![0xaa; BLOCK_BYTES];
        superblock.encode(&mut block).unwrap();
        block
    }

    /// Bytes with a checksum that fits, for what `encode` refuses to write.
    fn resealed(mut block: Vec<u8>) -> Vec<u8> {
        let sum = xxh3_64(&block[..BLOCK_BYTES - 8]);
        block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    #[test]
    fn every_field_comes_back() {
        let all = sample();
        assert_eq!(Superblock::decode(&encoded(&all)), Decoded::Good(Box::new(all)));
        let other = Superblock {
            volume_id: [9; 16],
            generation: 8,
            clean: false,
            geometry: Geometry {
                node_bytes: 4096,
                basement_bytes: 512,
                fanout_max: 4,
                log_bytes: LOG_BYTES_MIN,
                dicts: 8,
            },
            volume_bytes: 200 * 4096,
            log_offset: 100 * 4096,
            table_page_bytes: 4096,
            dicts: [DictRoot { slot: u32::MAX, generation: u32::MAX, applied_msn: COUNTER_MAX }; DICTS_MAX],
            table: TablePlace::new(&[Part { start_block: 199, len_blocks: 1 }], 4096, u64::MAX),
            log_start: LogStart { epoch: COUNTER_MAX, seq: COUNTER_MAX, position: LOG_BYTES_MIN - 4096 },
            next_msn: COUNTER_MAX,
        };
        assert_eq!(Superblock::decode(&encoded(&other)), Decoded::Good(Box::new(other)));
    }

    #[test]
    fn fields_stand_at_their_documented_places() {
        let block = encoded(&sample());
        assert_eq!(&block[..12], b"BetrFS\0\x01\x05\0\0\0");
        assert_eq!(&block[16..32], b"sixteen bytes id");
        assert_eq!(block[32..40], 7u64.to_le_bytes());
        assert_eq!(block[112..120], (40u64 * 4096).to_le_bytes());
        assert_eq!(block[136..140], 1u32.to_le_bytes());
        assert_eq!(block[4088..], xxh3_64(&block[..4088]).to_le_bytes());
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut block = encoded(&sample());
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            match Superblock::decode(&block) {
                Decoded::NotOurs => assert!(bit < 64),
                Decoded::Bad { .. } => assert!(bit >= 64),
                other => panic!("bit {bit}: {other:?}"),
            }
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_later_version_is_told_from_rot() {
        let mut block = encoded(&sample());
        block[8] = 6;
        assert!(matches!(Superblock::decode(&block), Decoded::Bad { .. }));
        assert_eq!(Superblock::decode(&resealed(block.clone())), Decoded::Newer { version: 6 });
        block[8] = 0;
        assert!(matches!(Superblock::decode(&resealed(block)), Decoded::Bad { .. }));
        assert_eq!(Superblock::decode(&vec![0; BLOCK_BYTES]), Decoded::NotOurs);
        assert_eq!(Superblock::decode(&encoded(&sample())[..4095]), Decoded::NotOurs);
    }

    #[test]
    fn senseless_fields_are_neither_written_nor_believed() {
        type Spoil = fn(&mut Superblock);
        let spoilers: &[Spoil] = &[
            |s| s.volume_bytes += 1,
            |s| s.volume_bytes = VOLUME_BYTES_MAX * 2,
            |s| s.log_offset = 3 * 4096,
            |s| s.log_offset += 8,
            |s| s.log_offset = u64::MAX - 4095,
            |s| s.geometry.log_bytes = 0,
            |s| s.geometry.log_bytes = u64::MAX - 4095,
            |s| s.geometry.log_bytes = 97 * 4096,
            |s| s.geometry.node_bytes = 0,
            |s| s.geometry.node_bytes = u32::MAX,
            |s| s.geometry.node_bytes = 68 * 4096 / 16 + 1,
            |s| s.geometry.basement_bytes = 0,
            |s| s.geometry.basement_bytes = 8193,
            |s| s.geometry.fanout_max = 3,
            |s| s.geometry.fanout_max = 257,
            |s| s.geometry.fanout_max = u32::MAX,
            |s| s.table_page_bytes = 4095,
            |s| s.table_page_bytes = 8192,
            |s| s.geometry.dicts = 0,
            |s| s.geometry.dicts = 9,
            |s| s.geometry.dicts = 2,
            |s| s.log_start.position = 32 * 4096,
            |s| s.log_start.position = 1,
            |s| s.log_start.seq = u64::MAX,
            |s| s.log_start.epoch = u64::MAX,
            |s| s.generation = u64::MAX,
            |s| s.next_msn = 5,
            |s| {
                s.next_msn = 0;
                s.dicts.iter_mut().for_each(|dict| dict.applied_msn = 0);
            },
            |s| s.table.offset += 1,
            |s| s.table.offset = 35 * 4096,
            |s| s.table.offset = 0,
            |s| s.table.offset = u64::MAX - 4095,
            |s| s.table.len = 0,
            |s| s.table.len = u32::MAX,
        ];
        for (i, spoil) in spoilers.iter().enumerate() {
            let mut spoiled = sample();
            spoil(&mut spoiled);
            let mut block = vec![0; BLOCK_BYTES];
            assert!(matches!(spoiled.encode(&mut block), Err(Error::BadGeometry(_))), "spoiler {i}");
        }
        // The same from the other side: each number of the block replaced by an extreme one.
        for at in (12..504).step_by(4).filter(|at| !(16..32).contains(at)) {
            for word in [0, 1, u32::MAX] {
                let mut block = encoded(&sample());
                block[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
                if let Decoded::Good(read) = Superblock::decode(&resealed(block.clone())) {
                    assert_eq!(encoded(&read), resealed(block), "word {word} at {at}");
                }
            }
        }
    }
}
