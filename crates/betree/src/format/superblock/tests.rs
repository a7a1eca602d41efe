use std::vec;

use xxhash_rust::xxh3::xxh3_64;

use super::raw::TAIL_BYTES_MAX;
use super::*;
use crate::format::superblock::identity::{LABEL_BYTES_MAX, MADE_BY_BYTES_MAX, UPSERT_NAME_BYTES_MAX};

fn tail(values: &[(u16, &[u8])]) -> TaggedTail {
    let mut tail = TaggedTail::default();
    assert!(values.iter().all(|(tag, value)| tail.set(*tag, value)));
    tail
}

/// A valid one with a different number in every field.
pub(super) fn sample() -> Superblock {
    let mut dicts = [DictRoot::default(); DICTS_MAX];
    for (i, dict) in (1..).zip(dicts.iter_mut().take(3)) {
        *dict = DictRoot { slot: i, generation: 10 + i, applied_msn: 100 + u64::from(i) };
    }
    Superblock {
        identity: Identity {
            volume_id: *b"sixteen bytes id",
            uuid: uuid::Builder::from_random_bytes(*b"another sixteen.").into_uuid(),
            label: "Über 9".into(),
            made_ns: -3,
            made_by: "a test".into(),
        },
        features: Features { compat: 5, ro_compat: 6, incompat: 0 },
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
        upserts: ["block", "append", ""]
            .map(|name| UpsertId { name: name.into(), version: name.len() as u32 })
            .into(),
        table: TablePlace::new(
            &[BlockRange { start_block: 40, len_blocks: 1 }, BlockRange { start_block: 60, len_blocks: 1 }],
            5000,
            0x1122_3344_5566_7788,
        ),
        log_start: LogStart { epoch: 3, seq: 12, position: 5 * 4096 },
        next_msn: 2000,
        tail: tail(&[(3, b"three"), (9, b"")]),
    }
}

fn encoded(superblock: &Superblock) -> Vec<u8> {
    let mut block = vec![0xaa; BLOCK_BYTES];
    superblock.encode(&mut block).unwrap();
    block
}

/// A block with a fitting checksum, for contents that `encode` refuses to write.
fn resealed(mut block: Vec<u8>) -> Vec<u8> {
    let sum = xxh3_64(&block[..BLOCK_BYTES - 8]);
    block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    block
}

#[test]
fn every_field_is_read_back() {
    let all = sample();
    assert_eq!(Superblock::decode(&encoded(&all)), Decoded::Good(Box::new(all.clone())));
    let other = Superblock {
        identity: Identity {
            volume_id: [9; 16],
            uuid: uuid::Uuid::max(),
            label: "x".repeat(LABEL_BYTES_MAX),
            made_ns: i64::MAX,
            made_by: "y".repeat(MADE_BY_BYTES_MAX),
        },
        features: Features { compat: u64::MAX, ro_compat: u64::MAX, incompat: 0 },
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
        upserts: vec![UpsertId { name: "z".repeat(UPSERT_NAME_BYTES_MAX), version: u32::MAX }; DICTS_MAX],
        table: TablePlace::new(&[BlockRange { start_block: 199, len_blocks: 1 }], 4096, u64::MAX),
        log_start: LogStart { epoch: COUNTER_MAX, seq: COUNTER_MAX, position: LOG_BYTES_MIN - 4096 },
        next_msn: COUNTER_MAX,
        tail: tail(&[(0, &vec![7; TAIL_BYTES_MAX - 4])]),
    };
    assert_eq!(Superblock::decode(&encoded(&other)), Decoded::Good(Box::new(other.clone())));
}

#[test]
fn fields_stand_at_their_documented_places() {
    let block = encoded(&sample());
    assert_eq!(&block[..12], b"BetrFS\0\x01\x06\0\0\0");
    assert_eq!(&block[16..32], b"sixteen bytes id");
    assert_eq!(block[32..40], 7u64.to_le_bytes());
    assert_eq!(block[112..120], (40u64 * 4096).to_le_bytes());
    assert_eq!(block[136..140], 1u32.to_le_bytes());
    assert_eq!(block[504..528], [5u64, 6, 0].map(u64::to_le_bytes).concat());
    assert_eq!(block[528..544], *sample().identity.uuid.as_bytes());
    assert_eq!(block[544..552], (-3i64).to_le_bytes());
    assert_eq!(&block[552..562], b"\x05\0\0\0\x05block");
    assert_eq!(&block[808..815], b"\x06a test");
    assert_eq!(&block[840..848], "\x07Über 9".as_bytes());
    assert_eq!(&block[1096..1107], b"\x0d\0\x03\0\x05\0three");
    assert_eq!(block[4088..], xxh3_64(&block[..4088]).to_le_bytes());
}

#[test]
fn every_flipped_bit_is_found() {
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
fn other_versions_and_unknown_features_differ_from_damage() {
    for version in [1, 2, 3, 4, 5, 7, 255] {
        let mut block = encoded(&sample());
        block[8] = version;
        assert!(matches!(Superblock::decode(&block), Decoded::Bad { .. }));
        let version = u32::from(version);
        assert_eq!(Superblock::decode(&resealed(block)), Decoded::OfVersion { version });
    }
    let mut block = encoded(&sample());
    block[8] = 0;
    assert!(matches!(Superblock::decode(&resealed(block)), Decoded::Bad { .. }));
    // Bit 0 is known damage, bit 1 pairs that ask for a compression, bit 2 nodes with two copies.
    for bit in 4..64 {
        let mut block = encoded(&sample());
        block[520 + bit / 8] = 1 << (bit % 8);
        assert_eq!(Superblock::decode(&resealed(block)), Decoded::Incompatible { bits: 1 << bit });
    }
    assert_eq!(Superblock::decode(&vec![0; BLOCK_BYTES]), Decoded::NotOurs);
    assert_eq!(Superblock::decode(&encoded(&sample())[..4095]), Decoded::NotOurs);
}

#[test]
fn senseless_fields_are_neither_written_nor_read() {
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
        |s| s.identity.label = "x".repeat(LABEL_BYTES_MAX + 1),
        |s| s.identity.label = "a\nb".into(),
        |s| s.identity.made_by = "y".repeat(MADE_BY_BYTES_MAX + 1),
        |s| s.upserts[0].name = "z".repeat(UPSERT_NAME_BYTES_MAX + 1),
        |s| s.upserts.push(UpsertId::default()),
        |s| s.tail = tail(&[(0, &[7; TAIL_BYTES_MAX - 3])]),
    ];
    for (i, spoil) in spoilers.iter().enumerate() {
        let mut spoiled = sample();
        spoil(&mut spoiled);
        let mut block = vec![0; BLOCK_BYTES];
        let refused = spoiled.encode(&mut block);
        assert!(matches!(refused, Err(Error::BadGeometry(_) | Error::BadIdentity(_))), "spoiler {i}");
    }
    // The same from the other side: each number of the block is replaced by an extreme one.
    for at in (12..1120).step_by(4).filter(|at| !(16..32).contains(at)) {
        for word in [0, 1, u32::MAX] {
            let mut block = encoded(&sample());
            block[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
            if let Decoded::Good(read) = Superblock::decode(&resealed(block.clone())) {
                assert_eq!(encoded(&read), resealed(block), "word {word} at {at}");
            }
        }
    }
}
