//! Volumes with two copies of interior nodes: each kind of repair mends a bad copy, and it hides no file.

use std::sync::Arc;

use betree::debug::Inspector;
use betree::{Geometry, NodeCopies};
use betree_platform::{BLOCK_BYTES, Device};
use betree_sim::MemDevice;
use betrfs::{FormatOptions, Mending, OpenOptions, Volume};

use crate::support::*;

const VOLUME_BYTES: u64 = 16 << 20;
const CACHE_BYTES: usize = 1 << 20;
const FILES: u32 = 1500;

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::new(TestPlatform::new()) }
}

fn contents(number: u32) -> Vec<u8> {
    seeded::bytes(u64::from(number), 0, 600)
}

/// A closed volume with files in trees of several levels.
fn volume() -> Arc<MemDevice> {
    let geometry = Geometry {
        node_bytes: 16 << 10,
        basement_bytes: 4 << 10,
        fanout_max: 4,
        log_bytes: 1 << 20,
        dicts: 4,
    };
    let device = Arc::new(MemDevice::new(VOLUME_BYTES));
    let options = options();
    let format =
        FormatOptions { geometry: Some(geometry), node_copies: NodeCopies::Two, ..FormatOptions::default() };
    Volume::format(device.clone(), &format, &*options.platform).unwrap();
    let volume = Volume::open(device.clone(), options).unwrap();
    for number in 0..FILES {
        volume.create_with(ROOT, name(number).as_bytes(), &new_file(), &contents(number)).unwrap();
        while volume.env().run_due_work().unwrap() {}
    }
    volume.close().unwrap();
    device
}

fn name(number: u32) -> String {
    format!("file {number}")
}

/// Flips a bit in the first copy of each node that has two. Returns how many these are.
fn rot(device: &Arc<MemDevice>) -> usize {
    let looked_at: Arc<dyn Device> = device.clone();
    let volume = Inspector::open(looked_at, Volume::engine_options(CACHE_BYTES), &mut |_| ()).unwrap();
    let nodes = volume.ids().into_iter().filter_map(|id| volume.node(id, &mut |_| ()));
    let copied: Vec<u64> =
        nodes.filter(|node| !node.copy.is_empty()).map(|node| node.extent[0].start_block).collect();
    copied.iter().for_each(|block| device.rot(block * BLOCK_BYTES as u64 + 20, 3));
    copied.len()
}

fn assert_all_are_there(device: &Arc<MemDevice>) {
    let volume = Volume::open(device.clone(), options()).unwrap();
    for number in (0..FILES).step_by(7) {
        let file = volume.lookup(ROOT, name(number).as_bytes()).unwrap().node;
        let mut found = Vec::new();
        volume.read(file, 0, 700, &mut found).unwrap();
        assert_eq!(found, contents(number));
    }
    volume.close().unwrap();
}

#[test]
fn a_bad_copy_is_told_and_mended_without_a_loss() {
    let device = volume();
    let copied = rot(&device);
    assert!(copied > 3, "{copied} nodes");
    let dyn_device: Arc<dyn Device> = device.clone();
    let report = Volume::examine(dyn_device.clone(), options(), &mut |_, _| ()).unwrap();
    let codes: Vec<&str> = report.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, vec!["bad-node-copy"; copied]);
    assert_all_are_there(&Arc::new(device.copy()));
    let repaired =
        Volume::repair(dyn_device.clone(), &options(), Mending::Safe, &mut |_| true, &mut |_, _| ());
    let repaired = repaired.unwrap();
    let mended: Vec<_> = repaired.mended.iter().map(|mended| (mended.code, mended.loses)).collect();
    assert_eq!(mended, [("bad-node-copy", false)]);
    assert_eq!(repaired.after.found(), 0);
    let report = Volume::examine(dyn_device, options(), &mut |_, _| ()).unwrap();
    assert_eq!(report.found(), 0, "{:?}", report.problems);
    assert_all_are_there(&device);
}
