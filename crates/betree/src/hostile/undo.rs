//! The copies of the superblock around a repair and its undoing: what is the way back has both of its copies,
//! and nothing older is one.

use std::sync::Arc;
use std::vec::Vec;

use betree_platform::{BLOCK_BYTES, Device};

use super::image::Image;
use super::repair::{closed, open_as};
use super::{DICTS, options};
use crate::check::undo_repair;
use crate::env::Env;
use crate::format::superblock::slots;
use crate::io::Disk;
use crate::io::mem::MemDevice;
use crate::settings::{Geometry, OpenMode};

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

/// The other pair tells an older state, some of which may be written over: that is no want of superblocks.
#[test]
fn no_superblock_is_made_while_there_is_one_of_an_older_checkpoint() {
    let blocks = 4096;
    let device = MemDevice::new(blocks);
    // As mkfs makes them, so that its sizes are known without a superblock.
    Env::format(device.clone(), &Geometry::for_volume((blocks * BLOCK_BYTES) as u64, DICTS), [1; 16])
        .unwrap();
    let env = super::open(device.clone()).unwrap();
    super::fill(&env, 0..100);
    env.close().unwrap();
    drop(env);
    let newest = Image { bytes: device.bytes() }.superblock().generation;
    let older = copies_of(&device, newest - 1);
    assert_eq!(older.len(), 2);
    copies_of(&device, newest).into_iter().for_each(|at| lose_block(&device, at));
    let opened = Env::open_for_repair(device.clone(), options(), &mut |found| panic!("{found}"));
    assert!(opened.is_err());
    older.into_iter().for_each(|at| lose_block(&device, at));
    assert!(Env::open_for_repair(device, options(), &mut |_| ()).is_ok(), "without any, one is made");
}
