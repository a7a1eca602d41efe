//! A block that is unreadable or damaged is reported to readers of its contents, and to no other reader.

use betree_platform::BLOCK_BYTES;

use super::*;
use crate::error::{Error, Result};
use crate::key::Cut;

/// No node that is read whole with its header is larger, in bytes.
const SMALL_NODE_BLOCKS: u64 = 8;

/// A place on the device in a partition of a small interior child of the root, in a block without any of the
/// header, and the windows of all edges with messages in that block.
fn partition_of_small_node(env: &Env) -> (usize, Vec<(Cut, Cut)>) {
    let tree = tree(env);
    for (_, child) in interior_children(&tree) {
        let place = tree.table.lock().place(child.id).unwrap();
        let stored = |edge: &Edge| {
            let run = edge.partition.as_ref()?.stored()?.runs[0];
            Some(run.offset as usize..(run.offset + run.stored_len) as usize)
        };
        let behind_header = (place.header_len as usize).next_multiple_of(BLOCK_BYTES);
        let starts = child.edges().iter().filter_map(stored).map(|bytes| bytes.start);
        let Some(start) = starts.filter(|start| *start >= behind_header).min() else { continue };
        let block = start / BLOCK_BYTES * BLOCK_BYTES;
        let is_hit = |edge: &&Edge| {
            stored(edge).is_some_and(|bytes| bytes.start < block + BLOCK_BYTES && block < bytes.end)
        };
        let hit: Vec<_> =
            child.edges().iter().filter(is_hit).map(|edge| (edge.lo.clone(), edge.hi.clone())).collect();
        if place.extent.len_blocks() <= SMALL_NODE_BLOCKS && hit.len() < child.edges().len() {
            return (place.extent.place(start as u64) as usize, hit);
        }
    }
    panic!("no interior node has a partition in a block of its own");
}

/// Reads every key: in the windows at least one read fails, elsewhere none may.
fn assert_errors_only_in(env: &Env, windows: &[(Cut, Cut)], is_expected: impl Fn(&Error) -> bool) {
    let mut errors = 0;
    for number in 0..KEYS {
        let key = key(number);
        match env.get(D, &key) {
            Ok(found) => assert!(found == Some(value(number)), "key {number}"),
            Err(error) => {
                let is_in = windows.iter().any(|(lo, hi)| !lo.is_above(&key) && hi.is_above(&key));
                assert!(is_in && is_expected(&error), "key {number}: {error}");
                errors += 1;
            }
        }
    }
    assert!(errors > 0, "no read failed");
}

#[test]
fn a_damaged_partition_of_a_small_node_fails_only_reads_through_it() {
    let device = volume();
    let (place, windows) = partition_of_small_node(&open(&device));
    device.flip(place * 8);
    let env = open(&device);
    assert_errors_only_in(&env, &windows, |error| matches!(error, Error::Corrupt { .. }));
    assert!(!problems(&env).is_empty());
}

#[test]
fn an_unreadable_block_of_a_small_node_fails_only_reads_that_need_it() {
    let device = volume();
    let (place, windows) = partition_of_small_node(&open(&device));
    let block = place / BLOCK_BYTES * BLOCK_BYTES;
    device.fail_reads_of(block..block + BLOCK_BYTES);
    assert_errors_only_in(&open(&device), &windows, |error| matches!(error, Error::Device(_)));
}

#[test]
fn a_damaged_partition_of_the_root_does_not_prevent_opening() {
    let device = volume();
    let (place, window) = {
        let env = open(&device);
        put(&env, &key(0), &value(0));
        env.close().unwrap();
        let tree = tree(&env);
        let root = root(&tree);
        let edge = root.edges().iter().find(|edge| edge.partition.is_some()).unwrap();
        let run = edge.partition.as_ref().unwrap().stored().unwrap().runs[0];
        let place = tree.table.lock().place(root.id).unwrap().extent.place(u64::from(run.offset));
        (place as usize, (edge.lo.clone(), edge.hi.clone()))
    };
    device.flip(place * 8);
    let env = open(&device);
    assert_errors_only_in(&env, &[window], |error| matches!(error, Error::Corrupt { .. }));
    assert!(!problems(&env).is_empty());
}

/// Which basement of the only leaf has an unreadable block in its middle.
const ROTTEN_BASEMENT: usize = 7;

/// A volume of one long leaf with such a basement.
fn volume_with_rotten_basement() -> Arc<MemDevice> {
    let (device, env) = volume_with_long_leaf();
    let tree = tree(&env);
    let leaf = only_leaf(&tree);
    let run = leaf.basements()[ROTTEN_BASEMENT].piece.stored().unwrap().runs[0];
    // In the middle: the block belongs to no other basement.
    let block = (run.offset + run.stored_len / 2) as usize / BLOCK_BYTES * BLOCK_BYTES;
    let place = tree.table.lock().place(leaf.id).unwrap();
    let block = place.extent.place(block as u64) as usize;
    device.fail_reads_of(block..block + BLOCK_BYTES);
    device
}

#[test]
fn a_scan_returns_every_pair_before_an_unreadable_block() {
    let env = open(&volume_with_rotten_basement());
    let first = only_leaf(&tree(&env)).basements()[ROTTEN_BASEMENT].first.clone();
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    let mut scan = || -> Result<Option<Vec<u8>>> { Ok(cursor.next()?.map(|(key, _)| key.to_vec())) };
    let before = (0..KEYS_OF_LEAF).map(key).take_while(|key| *key < first).collect::<Vec<_>>();
    assert!(before.len() > 100);
    for key in before {
        assert_eq!(scan().unwrap(), Some(key));
    }
    assert!(matches!(scan(), Err(Error::Device(_))));
}

#[test]
fn an_unreadable_block_does_not_hide_its_neighbours() {
    let env = open(&volume_with_rotten_basement());
    let leaf = only_leaf(&tree(&env));
    let piece = |index: usize| leaf.basements()[index].piece.clone();
    let around = [piece(ROTTEN_BASEMENT - 1), piece(ROTTEN_BASEMENT + 1)];
    env.engine.store.load(&around).unwrap();
    assert!(around.iter().all(|piece| piece.is_resident()));
    let all = [piece(ROTTEN_BASEMENT - 2), piece(ROTTEN_BASEMENT)];
    assert!(matches!(env.engine.store.load(&all), Err(Error::Device(_))));
}

/// A volume with a damaged header of an interior child of the root, and the window of the edge to it.
fn volume_with_rotten_child() -> (Arc<MemDevice>, NodeId, Cut, Cut) {
    let device = volume();
    let (edge, place) = {
        let env = open(&device);
        let tree = tree(&env);
        let (edge, child) = interior_children(&tree).swap_remove(0);
        (edge, header_at(&tree, child.id))
    };
    device.flip(place * 8);
    (device, edge.child.unwrap(), edge.lo, edge.hi)
}

/// The rest of the volume keeps working, and a check reports the node.
fn assert_goes_on(env: &Env, id: NodeId, lo: &Cut, hi: &Cut) {
    env.checkpoint().unwrap();
    while env.run_due_work().unwrap() {}
    for number in 0..KEYS {
        let key = key(number);
        let is_gone = !lo.is_above(&key) && hi.is_above(&key);
        assert!(env.get(D, &key).unwrap() == (!is_gone).then(|| value(number)), "key {number}");
    }
    put(env, b"after", b"it goes on");
    env.checkpoint().unwrap();
    let (problems, name) = (problems(env), format!("node {id} has no references"));
    assert!(problems.iter().any(|problem| problem.starts_with(&name)), "{problems:?}");
}

#[test]
fn a_damaged_node_without_references_stays_in_the_table() {
    let (device, id, lo, hi) = volume_with_rotten_child();
    let env = open(&device);
    let mut batch = Batch::new();
    batch.delete_range(D, &lo, &hi);
    env.commit(&batch).unwrap();
    assert_goes_on(&env, id, &lo, &hi);
    env.close().unwrap();
    drop(env);
    // Each opening finds it again.
    let env = open(&device);
    assert_goes_on(&env, id, &lo, &hi);
}

#[test]
fn a_damaged_node_that_a_replay_would_free_does_not_prevent_opening() {
    let (device, id, lo, hi) = volume_with_rotten_child();
    let env = open(&device);
    let mut batch = Batch::new();
    batch.delete_range(D, &lo, &hi);
    // A batch with a clone is applied at replay, and frees the nodes that it leaves dead.
    batch.clone_range(D, &key(KEYS - 1), b"copy");
    env.commit(&batch).unwrap();
    env.sync().unwrap();
    let crashed = MemDevice::holding(device.durable_bytes());
    drop(env);
    let env = open(&crashed);
    assert_eq!(env.get(D, b"copy").unwrap(), Some(value(KEYS - 1)));
    assert_goes_on(&env, id, &lo, &hi);
}
