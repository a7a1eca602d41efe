//! The copies of the superblock around a repair and its undoing: what is the way back has both of its copies,
//! and nothing older is one.

use std::sync::Arc;
use std::vec::Vec;

use betree_platform::{BLOCK_BYTES, Device};

use super::image::Image;
use super::repair::{closed, open_as};
use super::{GEOMETRY, options};
use crate::check::{FindingCode, undo_repair};
use crate::env::Env;
use crate::format::superblock::slots;
use crate::format::superblock::table_copy::TableCopy;
use crate::io::Disk;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, OpenMode};

/// The places of the good copies of a generation.
fn copies_of(device: &Arc<MemDevice>, generation: u64) -> Vec<u64> {
    let copies = slots::copies(&Disk::new(device.clone())).unwrap().into_iter();
    let of_it = copies.filter(|(_, found)| found.as_ref().is_ok_and(|copy| copy.generation == generation));
    of_it.map(|(at, _)| at).collect()
}

fn lose_block(device: &Arc<MemDevice>, at: u64) {
    device.write_at(at, &[0xa5; BLOCK_BYTES]).unwrap();
}

/// A volume, and the generation of its newest superblock.
fn sample() -> (Arc<MemDevice>, u64) {
    let image = closed();
    (image.device(), image.superblock().generation)
}

fn repair(device: &Arc<MemDevice>) {
    open_as(device, OpenMode::Repair).write_repair().unwrap();
}

#[test]
fn a_repair_and_its_undoing_write_what_they_leave_twice() {
    let (device, before) = sample();
    lose_block(&device, copies_of(&device, before)[0]);
    repair(&device);
    assert_eq!((copies_of(&device, before).len(), copies_of(&device, before + 1).len()), (2, 2));
    lose_block(&device, copies_of(&device, before + 1)[1]);
    assert_eq!(undo_repair(device.clone()), Ok(Some(before)));
    assert_eq!((copies_of(&device, before + 1).len(), copies_of(&device, before + 2).len()), (2, 2));
}

/// A write that was lost leaves a copy of the superblock before the repair. Much has changed since.
#[test]
fn a_copy_from_before_a_repair_is_no_way_back_once_the_volume_was_changed() {
    let (device, before) = sample();
    let at = copies_of(&device, before)[1];
    let mut copy = [0; BLOCK_BYTES];
    device.read_at(at, &mut copy).unwrap();
    repair(&device);
    super::open(device.clone()).unwrap().close().unwrap();
    device.write_at(at, &copy).unwrap();
    assert_eq!(copies_of(&device, before).len(), 1);
    let bytes = device.bytes();
    assert_eq!(undo_repair(device.clone()), Ok(None));
    assert!(device.bytes() == bytes, "something was written");
}

/// A closed volume with keys up to 200 in its newest checkpoint, and up to 100 in the one before; the
/// generation of the newest.
fn two_states() -> (Arc<MemDevice>, u64) {
    let device = MemDevice::new(4096);
    Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
    let env = super::open(device.clone()).unwrap();
    super::fill(&env, 0..100);
    env.checkpoint().unwrap();
    super::fill(&env, 100..200);
    env.close().unwrap();
    let newest = Image { bytes: device.bytes() }.superblock().generation;
    assert_eq!((copies_of(&device, newest - 1).len(), copies_of(&device, newest).len()), (2, 2));
    (device, newest)
}

fn all(env: &Env) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut pairs, mut cursor) = (Vec::new(), env.cursor(DictId(0), Cut::LOW, Cut::HIGH));
    while let Some((key, value)) = cursor.next().unwrap() {
        pairs.push((key.to_vec(), value.to_vec()));
    }
    pairs
}

/// Whichever pair is lost, a repair finds the newest state: by its node table, or in the pair that is left.
/// It writes all copies anew, and is taken back to what it found.
#[test]
fn of_a_lost_pair_a_repair_finds_the_newest_state_that_is_left() {
    for is_newest_lost in [false, true] {
        let (device, newest) = two_states();
        let before = all(&open_as(&device, OpenMode::ReadOnly));
        let lost = newest - u64::from(!is_newest_lost);
        copies_of(&device, lost).into_iter().for_each(|at| lose_block(&device, at));
        assert!(Env::open(device.clone(), options()).is_err());
        let bytes = device.bytes();
        let mut told = Vec::new();
        let env = Env::open_for_repair(device.clone(), options(), &mut |found| told.push(found)).unwrap();
        assert!(told.len() == 1 && told[0].code == FindingCode::LostSuperblocks, "{told:?}");
        let is_told = if is_newest_lost { "a newer checkpoint" } else { "no newer node table is found" };
        assert!(told[0].what.contains(is_told), "{told:?}");
        assert!(all(&env) == before && device.bytes() == bytes, "{told:?}");
        let repaired = env.write_repair().unwrap();
        drop(env);
        assert_eq!((copies_of(&device, repaired - 1).len(), copies_of(&device, repaired).len()), (2, 2));
        let env = open_as(&device, OpenMode::ReadOnly);
        assert_eq!(super::repair::problems(&env), []);
        assert!(all(&env) == before);
        drop(env);
        assert_eq!(undo_repair(device.clone()), Ok(Some(repaired - 1)));
        let env = super::open(device.clone()).unwrap();
        assert!(all(&env) == before);
        env.close().unwrap();
    }
}

/// If neither the newest superblock nor its node table is left, the older state stands, and the repair says
/// so. Blocks that were written over since are damage.
#[test]
fn without_a_newer_node_table_a_repair_takes_the_copies_that_are_left() {
    let (device, newest) = two_states();
    let image = Image { bytes: device.bytes() };
    copies_of(&device, newest).into_iter().for_each(|at| lose_block(&device, at));
    lose_block(&device, image.superblock().table.offset);
    let copy = TableCopy::of(&image.superblock()).unwrap();
    lose_block(&device, copy.parts[0].start_block * BLOCK_BYTES as u64);
    let mut told = Vec::new();
    let env = Env::open_for_repair(device.clone(), options(), &mut |found| told.push(found)).unwrap();
    assert!(told[0].what.contains("what a lost one after it had is missing"), "{told:?}");
    env.note_damage().unwrap();
    env.write_repair().unwrap();
    drop(env);
    let env = super::open(device).unwrap();
    env.close().unwrap();
}

/// A volume that was closed and opened again: the lost superblock of the opening has the log, which the
/// copies that are left know nothing of.
#[test]
fn the_log_behind_a_lost_superblock_of_an_opening_is_replayed() {
    let (device, closed) = two_states();
    let env = super::open(device.clone()).unwrap();
    super::fill(&env, 200..300);
    env.sync().unwrap();
    let before = all(&env);
    env.abandon();
    drop(env);
    let opened = Image { bytes: device.bytes() }.superblock().generation;
    assert_eq!(opened, closed + 1);
    copies_of(&device, opened).into_iter().for_each(|at| lose_block(&device, at));
    let env = Env::open_for_repair(device.clone(), options(), &mut |_| ()).unwrap();
    assert!(all(&env) == before);
    env.write_repair().unwrap();
    drop(env);
    assert!(all(&super::open(device).unwrap()) == before);
}
