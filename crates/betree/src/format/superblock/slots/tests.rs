use std::sync::Arc;
use std::vec;

use betree_platform::Device;

use super::super::tests::sample;
use super::*;
use crate::io::mem::MemDevice;

const SIZE: usize = 100;

fn generation(generation: u64) -> Superblock {
    Superblock { generation, ..sample() }
}

/// A device that `format` and then stores up to generation `last` have written.
fn volume(last: u64) -> (Arc<MemDevice>, Disk) {
    let device = MemDevice::new(SIZE);
    let disk = Disk::new(device.clone());
    format(&disk, &sample()).unwrap();
    for g in 2..=last {
        store(&disk, &generation(g)).unwrap();
    }
    (device, disk)
}

fn rot(device: &MemDevice, slot: usize) {
    device.flip(slot * BLOCK_BYTES * 8 + 8 * 100);
}

fn loaded(disk: &Disk) -> u64 {
    load(disk).unwrap().superblock.generation
}

#[test]
fn mkfs_fills_all_slots_and_a_store_costs_two_writes_and_two_syncs() {
    let (_, disk) = volume(1);
    let first = load(&disk).unwrap();
    assert_eq!((first.superblock.clone(), first.bad_slots.len()), (generation(1), 0));
    let before = disk.counts();
    store(&disk, &generation(2)).unwrap();
    first.repair_slots(&disk).unwrap();
    let after = disk.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (2, 2));
    assert_eq!(loaded(&disk), 2);
}

/// The progress of a store before the crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Whole,
    FirstTorn,
    FirstWritten,
    SecondTorn,
}

/// Every history of four stores with crashes, an opening after each crash, and damage to every subset of
/// slots after the last: the loaded superblock is never older than one loaded before; without damage one
/// always loads; one damaged slot after a complete store loses nothing.
#[test]
fn crashes_and_rot_never_bring_back_an_older_generation() {
    let ends = [Ends::Whole, Ends::FirstTorn, Ends::FirstWritten, Ends::SecondTorn];
    for history in 0..4usize.pow(4) {
        let history: Vec<Ends> = (0..4).map(|i| ends[history / 4usize.pow(i) % 4]).collect();
        let (device, disk) = volume(1);
        let mut believed = 1;
        for (i, &end) in history.iter().enumerate() {
            let next = believed + 1;
            let pair = pair_of(next);
            store_until(&device, &disk, next, end);
            let last = i + 1 == history.len();
            if end == Ends::Whole {
                believed = next;
            } else if !last {
                let found = load(&disk).unwrap();
                let whole_copy = end != Ends::FirstTorn;
                assert_eq!(found.superblock.generation, if whole_copy { next } else { believed });
                believed = found.superblock.generation;
                found.repair_slots(&disk).unwrap();
                let slots = pair_of(believed);
                assert!(
                    load(&disk).unwrap().bad_slots.iter().all(|b| b.offset / 8192 != slots as u64 / 2),
                    "{history:?}: {pair}"
                );
            }
        }
        let before = device.bytes();
        for rotten in 0..16usize {
            let device = MemDevice::holding(before.clone());
            for slot in (0..4).filter(|s| rotten & 1 << s != 0) {
                rot(&device, slot);
            }
            let result = load(&Disk::new(device));
            let case = std::format!("{history:?}, rotten {rotten:04b}");
            match &result {
                Ok(found) => {
                    assert!(found.superblock.generation >= believed, "{case}");
                    let is_out_of_date = |bad: &BadSlot| bad.why.contains("out of date");
                    assert!(!found.bad_slots.iter().any(is_out_of_date), "{case}");
                }
                Err(Error::Corrupt { what: "superblock", offset, .. }) => {
                    assert!(offset % 4096 == 0 && *offset < BYTES, "{case}");
                    assert_ne!(rotten, 0, "{case}: a crash alone");
                }
                Err(other) => panic!("{case}: {other}"),
            }
            if history.last() == Some(&Ends::Whole) && rotten.count_ones() == 1 {
                let found = result.unwrap_or_else(|e| panic!("{case}: {e}"));
                assert_eq!(found.superblock.generation, believed, "{case}");
                assert!(found.bad_slots.iter().any(|b| rotten & 1 << (b.offset / 4096) != 0), "{case}");
            } else if rotten & 3 << pair_of(believed) == 3 << pair_of(believed) {
                let newer_copy = believed + 1;
                match result {
                    Ok(found) => assert_eq!(found.superblock.generation, newer_copy, "{case}"),
                    Err(e) => assert!(matches!(e, Error::Corrupt { .. }), "{case}: {e}"),
                }
            }
        }
    }
}

/// A disk that acknowledges writes and loses them leaves copies that no crash leaves.
#[test]
fn a_copy_whose_writes_were_lost_is_bad() {
    for slot in 0..4 {
        let (device, disk) = volume(5);
        let mut old = vec![0; BLOCK_BYTES];
        device.read_at(offset_of(slot), &mut old).unwrap();
        let bad_after = |newest: u64| {
            store(&disk, &generation(newest)).unwrap();
            device.write_at(offset_of(slot), &old).unwrap();
            let found = load(&disk).unwrap();
            assert_eq!(found.superblock.generation, newest);
            assert!(found.bad_slots.iter().all(|bad| bad.is_rotten && !bad.may_be_torn));
            found.bad_slots.into_iter().map(|bad| bad.offset).collect::<Vec<_>>()
        };
        // Beside the newest one, a crash may have kept one copy from being written once.
        let is_of_4 = slot / 2 == pair_of(4) / 2;
        assert_eq!([6, 7].map(bad_after).map(|bad| bad.len()), [0, usize::from(is_of_4)], "{slot}");
        assert_eq!([8, 9].map(bad_after), [vec![offset_of(slot)], vec![offset_of(slot)]]);
        [10, 11].iter().for_each(|newest| store(&disk, &generation(*newest)).unwrap());
        assert!(load(&disk).unwrap().bad_slots.is_empty());
    }
}

fn store_until(device: &MemDevice, disk: &Disk, g: u64, end: Ends) {
    let mut block = vec![0; BLOCK_BYTES];
    generation(g).encode(&mut block).unwrap();
    let pair = pair_of(g) * BLOCK_BYTES;
    // The first half of the block is new, the second is old: the checksum does not fit.
    let torn = &block[..512];
    match end {
        Ends::Whole => store(disk, &generation(g)).unwrap(),
        Ends::FirstTorn => device.poke(pair, torn),
        Ends::FirstWritten => device.poke(pair, &block),
        Ends::SecondTorn => {
            device.poke(pair, &block);
            device.poke(pair + BLOCK_BYTES, torn);
        }
    }
}

#[test]
fn a_lost_pair_is_an_error_and_not_passed_over() {
    for last in [4, 5] {
        for pair in [0, 2] {
            let (device, disk) = volume(last);
            rot(&device, pair);
            rot(&device, pair + 1);
            let Err(Error::Corrupt { offset, len, .. }) = load(&disk) else { panic!("{last} {pair}") };
            assert_eq!((offset, len), (pair as u64 * 4096, 8192));
        }
    }
}

#[test]
fn a_lost_copy_is_reported_and_repaired() {
    for slot in 0..4 {
        for unreadable in [false, true] {
            let (device, disk) = volume(5);
            if unreadable {
                device.fail_reads_of(slot * 4096..slot * 4096 + 1);
            } else {
                rot(&device, slot);
            }
            let found = load(&disk).unwrap();
            assert_eq!(found.superblock, generation(5));
            assert_eq!(found.bad_slots.len(), 1);
            assert_eq!(found.bad_slots[0].offset, slot as u64 * 4096);
            let before = disk.counts().writes;
            found.repair_slots(&disk).unwrap();
            assert_eq!(disk.counts().writes - before, u64::from(slot >= 2), "only its own pair");
            if !unreadable {
                assert_eq!(load(&disk).unwrap().bad_slots.is_empty(), slot >= 2);
            }
        }
    }
}

#[test]
fn a_device_without_a_volume_differs_from_a_lost_volume() {
    let not_a_volume = |disk: &Disk, part: &str| match load(disk) {
        Err(Error::NotAVolume { why }) => assert!(why.contains(part), "{why}"),
        other => panic!("{other:?}"),
    };
    not_a_volume(&Disk::new(MemDevice::new(3)), "fewer");
    not_a_volume(&Disk::new(MemDevice::new(SIZE)), "no superblock");
    let (device, disk) = volume(5);
    let truncated = load(&Disk::new(MemDevice::holding(device.bytes()[..99 * 4096].to_vec()))).unwrap_err();
    let (volume_bytes, device_bytes) = (100 * 4096, 99 * 4096);
    assert_eq!(truncated, Error::Truncated { volume_bytes, device_bytes });
    for slot in 0..4 {
        rot(&device, slot);
    }
    assert!(matches!(load(&disk), Err(Error::Corrupt { offset: 0, .. })));
    for only in [0, 1] {
        erase(&disk).unwrap();
        not_a_volume(&disk, "no superblock");
        store(&disk, &generation(only)).unwrap();
        not_a_volume(&disk, "mkfs did not finish");
    }
    device.fail_reads_of(0..4 * 4096);
    assert!(matches!(load(&disk), Err(Error::Device(_))));
}

#[test]
fn a_newer_format_in_any_slot_is_reported() {
    for slot in 0..4 {
        let (device, disk) = volume(5);
        let mut block = device.bytes()[slot * 4096..][..4096].to_vec();
        block[8] = 9;
        let sum = xxhash_rust::xxh3::xxh3_64(&block[..4088]);
        block[4088..].copy_from_slice(&sum.to_le_bytes());
        device.poke(slot * 4096, &block);
        assert_eq!(load(&disk).err(), Some(Error::NewerFormat { found: 9, known: VERSION }));
    }
}

#[test]
fn copies_that_contradict_each_other_are_refused() {
    let spoiled: [fn(&mut Superblock); 2] = [|s| s.next_msn += 1, |s| s.identity.volume_id[0] ^= 1];
    for spoil in spoiled {
        let (device, disk) = volume(5);
        let mut other = generation(5);
        spoil(&mut other);
        let mut block = vec![0; BLOCK_BYTES];
        other.encode(&mut block).unwrap();
        device.poke(3 * 4096, &block);
        assert!(matches!(load(&disk), Err(Error::Corrupt { .. })));
    }
    let (device, disk) = volume(5);
    let bytes = device.bytes();
    device.poke(0, &bytes[2 * 4096..3 * 4096]);
    let found = load(&disk).unwrap();
    assert!(found.bad_slots[0].why.contains("wrong slot"));
}

#[test]
fn a_failed_store_closes_the_disk() {
    let (device, disk) = volume(5);
    device.fail_syncs(true);
    assert!(matches!(store(&disk, &generation(6)), Err(Error::Device(_))));
    device.fail_syncs(false);
    let first_copy = |bytes: &[u8]| Superblock::decode(&bytes[..4096]);
    assert_eq!(first_copy(&device.bytes()), Decoded::Good(Box::new(generation(6))));
    assert_eq!(device.bytes()[4096..], device.durable_bytes()[4096..], "copy B waits for copy A");
    assert!(matches!(store(&disk, &generation(6)), Err(Error::ReadOnly { .. })));
    let crashed = Disk::new(MemDevice::holding(device.durable_bytes()));
    assert_eq!(loaded(&crashed), 5);
}
