use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use seeded::Rng;

use super::replay::End;
use super::writer::LogCounts;
use super::*;
use crate::error::{Error, Result};
use crate::format::superblock::LogStart;
use crate::io::Disk;
use crate::io::mem::MemDevice;
use crate::settings::ReplayProgress;
use crate::stall::Writes;

mod progress;
mod threads;
mod unreadable;

const ID: [u8; 16] = [3; 16];
const BLOCK: u64 = 4096;
const LOG_AREA: LogArea = LogArea { offset: 2 * BLOCK, len: 32 * BLOCK };
const START: LogStart = LogStart { epoch: 1, seq: 0, position: 0 };

#[derive(Clone, Debug, PartialEq)]
struct Written {
    first_msn: u64,
    changes: u32,
    bytes: Vec<u8>,
}

fn device() -> Arc<MemDevice> {
    MemDevice::new(36)
}

fn open(device: &Arc<MemDevice>, start: &LogStart) -> (Log, Arc<Disk>) {
    open_with(device, start, u64::MAX)
}

fn open_with(device: &Arc<MemDevice>, start: &LogStart, pending_bytes_max: u64) -> (Log, Arc<Disk>) {
    let disk = Arc::new(Disk::new(device.clone()));
    (Log::open_at(disk.clone(), LOG_AREA, &ID, start, pending_bytes_max), disk)
}

fn replayed(bytes: Vec<u8>, start: &LogStart) -> (End, Vec<Written>) {
    let mut all = Vec::new();
    let mut each = |first_msn, changes, bytes: &[u8]| -> Result<()> {
        all.push(Written { first_msn, changes, bytes: bytes.to_vec() });
        Ok(())
    };
    let end = replay(&Disk::new(MemDevice::holding(bytes)), LOG_AREA, &ID, start, None, &mut each).unwrap();
    (end, all)
}

fn record(bytes: &[u8]) -> Arc<Vec<u8>> {
    Arc::new(bytes.to_vec())
}

/// Appends a record that holds its MSN.
fn append(log: &Log, msn: u64) {
    log.append(msn, 1, &record(&msn.to_le_bytes())).unwrap();
}

fn msns(all: &[Written]) -> Vec<u64> {
    all.iter().map(|w| w.first_msn).collect()
}

/// Many laps with random sizes, checkpoints, crashes that keep any subset of unsynced blocks, and a new epoch
/// after each: a replay returns every durable record, and only a prefix of the others.
#[test]
fn random_laps_and_crashes_lose_nothing_durable() {
    let mut laps = 0;
    for seed in 0..40 {
        let mut dice = Rng::new(seed);
        let mut device = device();
        let mut start = LogStart { epoch: 1, seq: 0, position: BLOCK * dice.below_u64(32) };
        let (mut log, _) = open(&device, &start);
        let mut msn = 1;
        // All records since the durable start, and how many of them are durable.
        let mut all: Vec<Written> = Vec::new();
        let mut durable_msn = 0;
        for step in 0..400 {
            let case = std::format!("seed {seed} step {step}");
            match dice.below_u64(12) {
                0..6 if log.free_bytes() >= log.capacity_bytes() / 2 => {
                    let len = match dice.below_u64(4) {
                        0 => log.capacity_bytes() / 4 - 2 * BLOCK,
                        1 => 3 * BLOCK,
                        _ => 200,
                    };
                    let bytes = vec![msn as u8; dice.below_u64(len + 1) as usize];
                    let changes = 1 + dice.below_u64(5) as u32;
                    log.append(msn, changes, &record(&bytes)).unwrap();
                    all.push(Written { first_msn: msn, changes, bytes });
                    msn += u64::from(changes);
                }
                6 => log.write_out().unwrap(),
                7 | 8 => {
                    let upto = msn.saturating_sub(dice.below_u64(4));
                    assert!(log.sync_to(upto).unwrap());
                    assert!(all.last().is_none() || log.durable_msn() >= upto.min(msn - 1), "{case}");
                    durable_msn = log.durable_msn().max(durable_msn);
                }
                9 | 10 => {
                    // A checkpoint: everything below `applied` is elsewhere.
                    log.write_out().unwrap();
                    let first_unapplied = msn.saturating_sub(dice.below_u64(30));
                    start = log.start_for(first_unapplied);
                    log.trim_to(&start);
                    let (_, from_start) = replayed(device.bytes(), &start);
                    let kept = all.len() - from_start.len();
                    let ends = |w: &Written| w.first_msn + u64::from(w.changes) - 1;
                    assert!(all[..kept].iter().all(|w| ends(w) < first_unapplied), "{case}");
                    laps += kept;
                    all.drain(..kept);
                }
                11 if dice.below_u64(8) == 0 => {
                    let left = device.crashed_bytes(|| dice.below_u64(3) > 0);
                    let (end, read) = replayed(left.clone(), &start);
                    assert_eq!(read[..], all[..read.len()], "{case}");
                    assert!(end.lost.is_none(), "{case}: {:?}", end.lost);
                    let lost = all.get(read.len()).map_or(u64::MAX, |w| w.first_msn);
                    assert!(lost > durable_msn, "{case}: lost {lost} of {durable_msn}");
                    // Recovery applies the records, and the superblock begins a new epoch.
                    device = MemDevice::holding(left);
                    start = LogStart { epoch: start.epoch + 1, seq: 0, position: end.next.position };
                    (log, _) = open(&device, &start);
                    all.clear();
                    assert_eq!(replayed(device.bytes(), &start).1, [], "{case}: an older epoch");
                }
                _ => {}
            }
            // Nothing live was overwritten: all written records are there from the start on.
            let (end, read) = replayed(device.bytes(), &start);
            assert_eq!(read[..], all[..read.len()], "{case}");
            assert!(end.lost.is_none(), "{case}");
            let unwritten = all.len() - read.len();
            assert!(unwritten == 0 || log.pending_bytes() > 0, "{case}");
        }
    }
    assert!(laps > 1000, "the test has gone round often: {laps}");
}

#[test]
fn a_sync_costs_one_write_and_one_sync_and_a_second_nothing() {
    let device = device();
    let (log, disk) = open(&device, &START);
    let cost = |act: &dyn Fn()| {
        let before = disk.counts();
        act();
        let after = disk.counts();
        (after.writes - before.writes, after.syncs - before.syncs)
    };
    assert_eq!(cost(&|| assert!(log.sync_to(u64::MAX).unwrap())), (0, 0), "an empty log");
    (1..=10).for_each(|msn| append(&log, msn));
    assert_eq!(cost(&|| assert!(log.sync_to(4).unwrap())), (1, 1));
    assert_eq!(log.durable_msn(), 10, "all that was pending went with it");
    assert_eq!(cost(&|| assert!(log.sync_to(10).unwrap())), (0, 0));
    (11..=20).for_each(|msn| append(&log, msn));
    assert_eq!(cost(&|| log.write_out().unwrap()), (1, 0));
    assert_eq!((log.durable_msn(), log.pending_bytes()), (10, 0));
    assert_eq!(replayed(device.durable_bytes(), &START).1.len(), 10, "written is not durable");
    assert_eq!(cost(&|| log.write_out().unwrap()), (0, 0));
    assert_eq!(cost(&|| assert!(log.sync_to(15).unwrap())), (0, 1), "written already: only the sync");
    assert_eq!(cost(&|| assert!(log.sync_to(20).unwrap())), (0, 0));
    assert_eq!(log.counts(), LogCounts { segments: 2, bytes: 2 * BLOCK });
    assert_eq!(msns(&replayed(device.durable_bytes(), &START).1), (1..=20).collect::<Vec<_>>());
}

#[test]
fn pending_records_are_split_into_segments_but_no_record_is() {
    let device = device();
    let (log, disk) = open(&device, &START);
    let large = vec![7; 15_600];
    for msn in 1..=6 {
        let len = if msn == 3 { large.len() } else { 1500 };
        log.append(msn, 1, &record(&large[..len])).unwrap();
    }
    // A segment holds an eighth of the log area, four blocks: 1 + 2, 3, 4 + 5 + 6.
    assert!(log.sync_to(6).unwrap());
    assert_eq!((disk.counts().writes, disk.counts().syncs), (3, 1));
    let too_long = vec![8; 6 * BLOCK as usize];
    log.append(7, 1, &record(&too_long)).unwrap();
    assert!(log.sync_to(7).unwrap());
    assert_eq!(disk.counts().writes, 4);
    let (end, all) = replayed(device.durable_bytes(), &START);
    assert_eq!((end.segments, end.records, end.last_msn), (4, 7, 7));
    assert_eq!(all[6].bytes, too_long);
}

#[test]
fn a_full_log_is_an_error_and_not_overwritten() {
    let device = device();
    let (log, _) = open(&device, &START);
    for msn in 1..=17 {
        log.append(msn, 1, &record(&[msn as u8; 5000])).unwrap();
        assert_eq!(log.sync_to(msn), if msn <= 16 { Ok(true) } else { Err(Error::NoSpace) });
    }
    assert_eq!(log.durable_msn(), 16);
    assert_eq!(log.write_out(), Err(Error::NoSpace));
    assert_eq!(log.sync_to(16), Ok(true), "records that had room are durable");
    append(&log, 18);
    assert_eq!(log.sync_to(18), Err(Error::NoSpace));
    assert_eq!(msns(&replayed(device.bytes(), &START).1), (1..=16).collect::<Vec<_>>());
    let start = log.start_for(3);
    assert_eq!(start, LogStart { epoch: 1, seq: 2, position: 4 * BLOCK });
    log.trim_to(&start);
    assert!(log.sync_to(18).unwrap());
    assert_eq!(msns(&replayed(device.durable_bytes(), &start).1), (3..=18).collect::<Vec<_>>());
}

#[test]
fn the_start_is_the_oldest_segment_that_is_needed() {
    let device = device();
    let (log, _) = open(&device, &START);
    for msn in [1, 11, 21] {
        log.append(msn, 10, &record(b"ten")).unwrap();
        assert!(log.sync_to(msn).unwrap());
    }
    let seq = |msn| log.start_for(msn).seq;
    assert_eq!([0, 1, 10, 11, 20, 21, 30].map(seq), [0, 0, 0, 1, 1, 2, 2]);
    let next = LogStart { epoch: 1, seq: 3, position: 3 * BLOCK };
    assert_eq!(log.start_for(31), next);
    log.append(31, 1, &record(b"pending")).unwrap();
    assert_eq!(log.start_for(31), next, "where it will stand");
    let used = log.used_bytes();
    log.trim_to(&LogStart { epoch: 9, ..next });
    assert_eq!(log.used_bytes(), used, "a start of another epoch frees nothing");
    log.trim_to(&next);
    assert_eq!(log.used_bytes(), BLOCK);
    assert!(log.sync_to(31).unwrap());
    assert_eq!(msns(&replayed(device.bytes(), &next).1), [31]);
}

/// Five segments of one record each, all durable but the last.
fn five_segments() -> Arc<MemDevice> {
    let device = device();
    let (log, _) = open(&device, &START);
    for msn in 1..=5 {
        append(&log, msn);
        if msn < 5 {
            assert!(log.sync_to(msn).unwrap())
        } else {
            log.write_out().unwrap()
        };
    }
    device
}

#[test]
fn every_flip_ends_the_replay_there_and_rot_differs_from_a_torn_tail() {
    let whole = five_segments();
    for segment in 0..5 {
        for bit in (0..4096 * 8).step_by(61) {
            let device = MemDevice::holding(whole.bytes());
            device.flip((LOG_AREA.offset + segment * BLOCK) as usize * 8 + bit);
            let (end, all) = replayed(device.bytes(), &START);
            assert_eq!(msns(&all), (1..=segment).collect::<Vec<_>>(), "segment {segment} bit {bit}");
            let next = LogStart { epoch: 1, seq: segment, position: segment * BLOCK };
            assert_eq!((end.next, end.segments), (next, segment));
            // Segment 4 was written when 0 to 3 were durable; no segment proves that 4 was.
            match end.lost {
                Some(Error::Corrupt { offset, .. }) => {
                    assert!(segment < 4);
                    assert_eq!(offset, LOG_AREA.offset + segment * BLOCK);
                }
                other => assert_eq!((other, segment), (None, 4)),
            }
        }
    }
}

#[test]
fn a_hole_before_unsynced_segments_is_no_proof_of_rot() {
    let device = device();
    let (log, _) = open(&device, &START);
    for msn in 1..=4 {
        append(&log, msn);
        if msn == 1 {
            assert!(log.sync_to(1).unwrap())
        } else {
            log.write_out().unwrap()
        };
    }
    let mut nth = 0;
    let left = device.crashed_bytes(|| {
        nth += 1;
        nth > 1
    });
    let (end, all) = replayed(left, &START);
    assert_eq!((msns(&all), end.lost), (vec![1], None));
}

#[test]
fn neither_an_older_epoch_nor_another_volume_is_replayed() {
    let device = five_segments();
    let start = LogStart { epoch: 2, seq: 0, position: 0 };
    let (log, _) = open(&device, &start);
    append(&log, 100);
    assert!(log.sync_to(100).unwrap());
    let (end, all) = replayed(device.bytes(), &start);
    assert_eq!((msns(&all), end.lost), (vec![100], None), "segment 1 of epoch 1 follows and is not read");
    let mut none = |_, _, _: &[u8]| -> Result<()> { panic!("another volume's record") };
    let disk = Disk::new(device);
    assert_eq!(replay(&disk, LOG_AREA, &[4; 16], &start, None, &mut none).unwrap().next, start);
}

#[test]
fn after_a_failure_nothing_becomes_durable() {
    for failing_sync in [false, true] {
        let device = device();
        let (log, disk) = open(&device, &START);
        append(&log, 1);
        assert!(log.sync_to(1).unwrap());
        append(&log, 2);
        device.fail_writes(!failing_sync);
        device.fail_syncs(failing_sync);
        assert!(matches!(log.sync_to(2), Err(Error::Device(_))));
        device.fail_writes(false);
        device.fail_syncs(false);
        append(&log, 3);
        for msn in [2, 3] {
            assert!(matches!(log.sync_to(msn), Err(Error::ReadOnly { .. })));
        }
        assert!(matches!(log.write_out(), Err(Error::ReadOnly { .. })));
        assert_eq!((log.sync_to(1), log.durable_msn()), (Ok(true), 1));
        assert_eq!(msns(&replayed(device.durable_bytes(), &START).1), [1]);
        assert!(matches!(disk.sync(), Err(Error::ReadOnly { .. })), "the rest of the volume is closed too");
    }
}

#[test]
fn a_failure_elsewhere_on_the_volume_closes_the_log() {
    let device = device();
    let (log, disk) = open(&device, &START);
    append(&log, 1);
    log.write_out().unwrap();
    device.fail_syncs(true);
    assert!(disk.sync().is_err());
    device.fail_syncs(false);
    assert!(matches!(log.sync_to(1), Err(Error::ReadOnly { .. })));
    assert_eq!(log.durable_msn(), 0);
}

#[test]
fn too_many_pending_records_are_given_up_until_a_checkpoint_holds_them() {
    let device = device();
    let log = open_with(&device, &START, 3 * BLOCK).0;
    let append = |msn: u64, bytes: usize| log.append(msn, 1, &Arc::new(vec![msn as u8; bytes])).unwrap();
    append(1, 100);
    assert!(log.sync_to(1).unwrap());
    append(2, 2 * BLOCK as usize);
    append(3, 2 * BLOCK as usize);
    assert_eq!(log.pending_bytes(), 0, "the second was too much");
    append(4, 100);
    assert_eq!(log.pending_bytes(), 0, "a small one behind a gap is of no use either");
    assert!(!log.sync_to(4).unwrap());
    assert!(log.sync_to(1).unwrap(), "an earlier durable record is still durable");
    // A checkpoint captures 2 to 4; later records are kept, and wait for it.
    log.keep_again();
    append(5, 100);
    assert!(log.pending_bytes() > 0);
    assert!(!log.sync_to(5).unwrap());
    assert_eq!(log.durable_msn(), 1);
    let start = log.start_for(5);
    log.forget_before(5);
    log.trim_to(&start);
    assert_eq!(log.durable_msn(), 4);
    assert!(log.sync_to(5).unwrap());
    let written = replayed(device.durable_bytes(), &start).1;
    assert_eq!(msns(&written), [5], "nothing was written that has a gap before it");
}

/// A sync that waits for a checkpoint makes the next one wait for one too, if all that comes meanwhile is
/// given up.
#[test]
fn more_is_kept_while_syncs_come_often() {
    let max = 4 * BLOCK;
    let log = open_with(&device(), &START, max).0;
    let append = |msn: u64, bytes: u64| log.append(msn, 1, &Arc::new(vec![7; bytes as usize])).unwrap();
    // Nobody has synced: what is too much is given up, and nobody waits.
    append(1, max + BLOCK);
    assert!(log.pending_bytes() == 0 && !log.has_too_much_pending(Writes::Much));
    log.keep_again();
    log.forget_before(2);
    let under_way = log.begin_sync();
    append(2, max / 2);
    assert!(!log.has_too_much_pending(Writes::Much));
    append(3, max / 2 + BLOCK);
    assert!(log.pending_bytes() > max && log.has_too_much_pending(Writes::Much), "others wait");
    assert!(log.sync_to(3).unwrap());
    assert!(!log.has_too_much_pending(Writes::Much));
    append(4, 2 * max);
    assert_eq!(log.pending_bytes(), 0, "twice as much and more is given up");
    log.keep_again();
    log.forget_before(5);
    // What comes during a sync does not count as long ago.
    append(5, max - BLOCK);
    drop(under_way);
    append(6, max / 2);
    assert!(
        log.pending_bytes() > max && !log.has_too_much_pending(Writes::Much),
        "kept, and nobody would end a wait"
    );
    append(7, max / 2);
    assert_eq!(log.pending_bytes(), 0, "the last sync was long ago");
}

/// Beside a sync writers wait long before anything has to be given up, so that it has little to write.
#[test]
fn writers_wait_beside_a_sync_before_much_of_theirs_is_pending() {
    let log = open_with(&device(), &START, 64 << 20).0;
    let append = |msn: u64| log.append(msn, 1, &Arc::new(vec![7; 1 << 20])).unwrap();
    (1..=5).for_each(append);
    assert!(!log.has_too_much_pending(Writes::Much), "nobody syncs");
    let under_way = log.begin_sync();
    assert!(
        log.has_too_much_pending(Writes::Much) && log.pending_bytes() >= 5 << 20,
        "kept, and others wait"
    );
    assert!(!log.has_too_much_pending(Writes::Little), "up to half as much again");
    (6..=7).for_each(append);
    assert!(log.has_too_much_pending(Writes::Little), "all wait");
    drop(under_way);
    assert!(!log.has_too_much_pending(Writes::Little) && !log.has_too_much_pending(Writes::Much));
}

/// While syncs come often, the next one finds little to write, whatever others write meanwhile.
#[test]
fn writers_write_ahead_of_the_next_sync_while_syncs_come_often() {
    const MIB: u64 = 1 << 20;
    let device = MemDevice::new((2 + 128 * MIB / BLOCK) as usize);
    let disk = Arc::new(Disk::new(device));
    let log_area = LogArea { offset: 2 * BLOCK, len: 128 * MIB };
    let log = Log::open_at(disk.clone(), log_area, &ID, &START, 16 * MIB);
    let mut msn = 0;
    let mut append = |bytes: u64| {
        msn += 1;
        log.append(msn, 1, &Arc::new(vec![7; bytes as usize])).unwrap();
        msn
    };
    let sync = |msn: u64| {
        let _under_way = log.begin_sync();
        assert!(log.sync_to(msn).unwrap());
    };
    let writes = || log.counts().segments;
    let syncs = || disk.counts().syncs;
    // Nobody synced, then one did, and much came between that one and the next: nothing is written ahead.
    append(2 * MIB);
    log.write_ahead(Writes::Much);
    sync(append(1));
    let before = writes();
    (0..9).for_each(|_| _ = append(2 * MIB));
    log.write_ahead(Writes::Much);
    assert_eq!(writes(), before, "syncs are rare");
    log.keep_again();
    log.forget_before(append(1) + 1);
    sync(append(1));
    // The last two were close to each other.
    sync(append(1));
    let before = (writes(), syncs());
    append(MIB / 2);
    log.write_ahead(Writes::Much);
    assert_eq!(writes(), before.0, "little is pending");
    append(MIB);
    log.write_ahead(Writes::Little);
    assert_eq!(writes(), before.0, "who writes little leaves it to others");
    log.write_ahead(Writes::Much);
    assert_eq!((writes() - before.0, syncs(), log.pending_bytes()), (1, before.1, 0));
    let last = append(3 * MIB);
    log.write_ahead(Writes::Little);
    assert_eq!(log.pending_bytes(), 0, "but not all of it");
    let before = (writes(), syncs());
    sync(last);
    assert_eq!((writes(), syncs() - before.1), (before.0, 1), "the next sync finds nothing to write");
    // Long after the last one nothing is written ahead any more.
    (0..9).for_each(|_| _ = append(2 * MIB));
    let before = writes();
    log.write_ahead(Writes::Much);
    assert_eq!(writes(), before);
}

/// Random sizes under a small bound, syncs that need checkpoints, checkpoints during which more comes, and
/// crashes: records reported as durable are replayed, and a replay has no gap.
#[test]
fn random_gaps_lose_nothing_durable() {
    let (mut gaps, mut replays) = (0, 0);
    for seed in 0..40 {
        let mut dice = Rng::new(seed);
        let device = device();
        let log = open_with(&device, &START, BLOCK * dice.below_u64(6)).0;
        let (mut start, mut msn, mut durable_msn) = (START, 1, 0);
        let mut come = |log: &Log, dice: &mut Rng| {
            log.append(msn, 1, &record(&vec![7; dice.below_u64(2 * BLOCK) as usize])).unwrap();
            msn += 1;
            msn
        };
        for step in 0..300 {
            let case = std::format!("seed {seed} step {step}");
            match dice.below_u64(4) {
                0 | 1 => _ = come(&log, &mut dice),
                2 => {
                    let end = come(&log, &mut dice);
                    let is_durable = log.sync_to(end - 1).unwrap();
                    if is_durable {
                        durable_msn = end - 1;
                    } else {
                        gaps += 1;
                    }
                }
                _ => {
                    log.keep_again();
                    let first_unapplied = come(&log, &mut dice);
                    let first_unapplied = first_unapplied - 1;
                    (0..dice.below_u64(5)).for_each(|_| _ = come(&log, &mut dice));
                    if dice.below_u64(4) > 0 {
                        start = log.start_for(first_unapplied);
                        log.forget_before(first_unapplied);
                        log.trim_to(&start);
                        durable_msn = durable_msn.max(first_unapplied - 1);
                    }
                }
            }
            assert!(log.durable_msn() >= durable_msn, "{case}");
            let left = device.crashed_bytes(|| dice.below_u64(3) > 0);
            let read = msns(&replayed(left, &start).1);
            assert!(read.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{case}: {read:?}");
            assert!(read.first().is_none_or(|first| *first <= durable_msn + 1), "{case}: {read:?}");
            assert!(read.last().is_none_or(|last| *last >= durable_msn), "{case}: {read:?}");
            assert!(!read.is_empty() || start == log.start_for(durable_msn + 1), "{case}: nothing is left");
            replays += read.len();
        }
    }
    assert!(gaps > 500 && replays > 1000, "{gaps} gaps, {replays} records replayed");
}

#[test]
fn a_segment_that_found_the_disk_full_is_written_to_its_place_later() {
    let device = device();
    let (log, _) = open(&device, &START);
    append(&log, 1);
    assert!(log.sync_to(1).unwrap());
    device.fill_up(true);
    for msn in 2..6 {
        append(&log, msn);
        assert!(matches!(log.sync_to(msn), Err(Error::DeviceFull(_))), "{msn}");
        assert_eq!(msns(&replayed(device.durable_bytes(), &START).1), [1]);
    }
    assert!(log.sync_to(1).unwrap(), "it is still durable");
    device.fill_up(false);
    append(&log, 6);
    assert!(log.sync_to(6).unwrap());
    assert_eq!(msns(&replayed(device.durable_bytes(), &START).1), [1, 2, 3, 4, 5, 6]);
    assert_eq!(log.counts().segments, 3, "the first, the one that found no room, the rest");
}

#[test]
fn a_segment_that_found_the_disk_full_is_dropped_once_a_checkpoint_holds_it() {
    for is_over in [false, true] {
        let device = device();
        let (log, _) = open(&device, &START);
        device.fill_up(true);
        append(&log, 1);
        assert!(log.sync_to(1).is_err());
        append(&log, 2);
        let start = log.start_for(if is_over { 3 } else { 2 });
        log.forget_before(if is_over { 3 } else { 2 });
        log.trim_to(&start);
        device.fill_up(false);
        append(&log, 3);
        assert!(log.sync_to(3).unwrap());
        let left: &[u64] = if is_over { &[3] } else { &[2, 3] };
        assert_eq!(msns(&replayed(device.durable_bytes(), &start).1), left);
    }
}
