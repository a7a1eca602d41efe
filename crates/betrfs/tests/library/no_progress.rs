//! Repairs that are given up: what they mend uncovers as many problems, or something of a later version.

use std::sync::Arc;

use betree::debug::{Inspector, Owner};
use betree::{Batch, DictId, Env};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::MemDevice;
use betrfs::{Mending, Repair, Volume};

use crate::support::*;

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);

/// A closed volume in which `change` was made of pairs, before many more came.
fn sample(change: impl FnOnce(&mut Batch)) -> Disk {
    let disk = Disk::of_tiny_nodes(64 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    let file = mkfile(&volume, dir, "f").node;
    volume.write(file, 0, &[1; 10_000]).unwrap();
    volume.close().unwrap();
    drop(volume);
    let env = Env::open(disk.device.clone(), Volume::engine_options(4 << 20)).unwrap();
    let mut batch = Batch::new();
    change(&mut batch);
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);
    let volume = disk.open();
    for number in 0..1500 {
        let file = mkfile(&volume, ROOT, &format!("{number}")).node;
        if number < 60 {
            volume.write(file, 0, &seeded_bytes(number, 30_000)).unwrap();
        }
        while volume.env().run_due_work().unwrap() {}
    }
    volume.close().unwrap();
    drop(volume);
    disk
}

fn seeded_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = betree_sim::Rng::new(seed);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Loses each interior node of a dictionary, one in each of these volumes, and repairs that.
fn repairs_of_interior_nodes(disk: &Disk, dict: DictId) -> Vec<Repair> {
    let options = || Volume::engine_options(4 << 20);
    let inspector = Inspector::open(disk.device.clone(), options(), &mut |found| panic!("{found}")).unwrap();
    let mut all = Vec::new();
    for owned in inspector.map() {
        let Owner::Node(id) = owned.owner else { continue };
        let header = inspector.node(id, &mut |_| ()).and_then(|node| node.header);
        if !header.is_some_and(|header| header.origin.dict == dict.0 && header.height > 0) {
            continue;
        }
        let device = Arc::new(disk.device.copy());
        device.write_at(owned.blocks.start_block * BLOCK_BYTES as u64, &[7; BLOCK_BYTES]).unwrap();
        let before = bytes(&device);
        let repair =
            Volume::repair(device.clone(), &disk.options, Mending::All, &mut |_| true, &mut |_, _| ());
        let repair = repair.unwrap();
        let may_be_written =
            repair.after.found() < repair.before.found() && !repair.after.is_of_later_version();
        assert_eq!(repair.generation.is_some(), may_be_written, "{repair:#?}");
        assert_eq!(repair.mended.is_empty(), !may_be_written, "{repair:#?}");
        assert!(may_be_written || bytes(&device) == before, "something was written");
        all.push(repair);
    }
    all
}

fn bytes(device: &MemDevice) -> Vec<u8> {
    let mut all = vec![0; device.len() as usize];
    device.read_at(0, &mut all).unwrap();
    all
}

/// Below the lost node is a file without one of its blocks, which nothing mends.
#[test]
fn a_repair_that_leaves_as_many_problems_as_it_found_is_not_written() {
    let disk = sample(|batch| batch.delete(DATA, b"\0d\0\0f\0\0\0\0\0\0\0\0\x01"));
    let repairs = repairs_of_interior_nodes(&disk, DATA);
    let uncovers = |repair: &Repair| {
        let had = repair.before.problems.iter().any(|problem| problem.code == "lost-block");
        let has = repair.after.problems.iter().any(|problem| problem.code == "lost-block");
        !had && has && repair.given_up > 0
    };
    assert!(repairs.iter().any(uncovers), "{repairs:#?}");
}

/// Below the lost node is a key of a later version.
#[test]
fn a_repair_that_uncovers_something_of_a_later_version_is_not_written() {
    let disk = sample(|batch| batch.put(META, b"\x06later", b"x"));
    let repairs = repairs_of_interior_nodes(&disk, META);
    let uncovers = |repair: &Repair| {
        !repair.before.is_of_later_version() && repair.after.is_of_later_version() && repair.given_up > 0
    };
    assert!(repairs.iter().any(uncovers), "{repairs:#?}");
}
