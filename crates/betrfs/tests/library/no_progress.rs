//! Repairs that uncover problems. They are given up if as many of the same kinds are left, or something is of
//! a later version.

use std::sync::Arc;

use betree::debug::{Inspector, Owner};
use betree::{Batch, DictId, Env};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::MemDevice;
use betrfs::{Mending, Repair, Report, Volume};

use crate::support::*;

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);

/// A closed volume in which `change` was made of pairs, before many more came.
fn sample(change: impl FnOnce(&mut Batch)) -> Disk {
    let disk = Disk::of_tiny_nodes(64 << 20);
    let volume = disk.open();
    let dir = mkdir(&volume, ROOT, "d").node;
    for file in [mkfile(&volume, dir, "f").node, mkfile(&volume, ROOT, "!").node] {
        volume.write(file, 0, &[1; 10_000]).unwrap();
    }
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
        let is_written = repair.generation.is_some();
        let is_tried = !repair.before.is_of_later_version();
        assert_eq!(repair.mended.is_empty(), !is_written, "{repair:#?}");
        assert_eq!(repair.given_up > 0, !is_written && is_tried, "{repair:#?}");
        assert!(is_written || bytes(&device) == before, "something was written");
        assert!(is_written || !is_fewer(&repair) || repair.after.is_of_later_version(), "{repair:#?}");
        all.push(repair);
    }
    all
}

fn bytes(device: &MemDevice) -> Vec<u8> {
    let mut all = vec![0; device.len() as usize];
    device.read_at(0, &mut all).unwrap();
    all
}

fn is_fewer(repair: &Repair) -> bool {
    repair.after.found() < repair.before.found()
}

fn lost_blocks(report: &Report) -> usize {
    report.problems.iter().filter(|problem| problem.code == "lost-block").count()
}

/// A block that the file in the directory has, and one of the first file of all.
const BLOCK: &[u8] = b"\0d\0\0f\0\0\0\0\0\0\0\0\x01";
const OTHER_BLOCK: &[u8] = b"\0\0!\0\0\0\0\0\0\0\0\x01";

/// Below the lost node is a file without one of its blocks; beside it is a file of which the same was found
/// before, or none. The repair mends what it uncovers.
#[test]
fn what_a_repair_uncovers_is_mended_too() {
    for lost_before in [0, 1] {
        let disk = sample(|batch| {
            batch.delete(DATA, BLOCK);
            if lost_before > 0 {
                batch.delete(DATA, OTHER_BLOCK);
            }
        });
        let repairs = repairs_of_interior_nodes(&disk, DATA);
        let mends =
            |repair: &Repair| repair.mended.iter().filter(|mended| mended.code == "lost-block").count();
        let uncovers =
            |repair: &Repair| lost_blocks(&repair.before) == lost_before && mends(repair) > lost_before;
        let uncovering: Vec<_> = repairs.iter().filter(|repair| uncovers(repair)).collect();
        assert!(!uncovering.is_empty(), "{repairs:#?}");
        for repair in uncovering {
            assert!(repair.generation.is_some() && repair.after.found() == 0, "{repair:#?}");
        }
    }
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
