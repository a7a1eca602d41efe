//! The blocks that a node reuses of the nodes that it is made of.

use super::*;
use crate::space::Extent;

/// The extents of all leaves, from left to right.
fn extents(env: &Env) -> Vec<Arc<Extent>> {
    let tree = tree(env);
    let leaves = root(&tree).edges().iter().filter_map(|edge| edge.child).collect::<Vec<_>>();
    leaves.iter().map(|id| tree.table.lock().place(*id).unwrap().extent).collect()
}

/// Puts every eighth key of the leaf again, with a value of another size.
fn grow(env: &Env, times: usize) {
    let mut batch = Batch::new();
    let numbers = (0..KEYS_OF_LEAF).step_by(8);
    numbers.for_each(|number| batch.put(D, &key(number), &value(number).repeat(times)));
    env.commit(&batch).unwrap();
    env.engine.freeze(true);
    env.engine.absorb_all().unwrap();
    env.engine.drain(&mut Drain::default()).unwrap();
}

fn expect_grown(env: &Env, times: usize) {
    for number in 0..KEYS_OF_LEAF {
        let times = if number.is_multiple_of(8) { times } else { 1 };
        assert_eq!(env.get(D, &key(number)).unwrap().unwrap(), value(number).repeat(times), "{number}");
    }
}

#[test]
fn the_halves_of_a_leaf_keep_its_blocks_on_a_device_that_does_not_seek() {
    let written = |seeks: bool| {
        let (device, env) = volume_with_long_leaf();
        if !seeks {
            device.do_not_seek();
        }
        // As if messages had mostly brought new keys so far.
        env.engine.dicts.first().unwrap().merge_yield.note(1, 1, LONG_LEAVES.node_bytes);
        let leaf_bytes = extents(&env).iter().map(|extent| extent.len_blocks() * 4096).sum::<u64>();
        let before = env.stats().device_write_bytes;
        grow(&env, 4);
        env.checkpoint().unwrap();
        assert!(extents(&env).len() > 1, "it was split");
        assert_eq!(problems(&env), Vec::<String>::new());
        env.close().unwrap();
        // The node table's extents are accepted only if no two share a block.
        expect_grown(&open(&device), 4);
        (env.stats().device_write_bytes - before, leaf_bytes)
    };
    let ((kept, leaf_bytes), (whole, _)) = (written(false), written(true));
    assert!(whole > leaf_bytes, "{whole} bytes written of a leaf of {leaf_bytes}");
    // An eighth of the pairs, four times as large, and the basements at the cut and at the end.
    assert!(kept < leaf_bytes * 7 / 8, "{kept} bytes written of a leaf of {leaf_bytes}");
}

#[test]
fn blocks_named_by_a_checkpoint_in_flight_are_not_inherited() {
    let (device, env) = volume_with_long_leaf();
    device.do_not_seek();
    let old = only_leaf(&tree(&env)).id;
    let mut batch = Batch::new();
    // A new leaf has copies of the basements of the old leaf, which stays where it is, behind windows.
    batch.clone_range(D, b"k0", b"z");
    env.commit(&batch).unwrap();
    let mut committed = env.checkpoint.lock();
    let superblock = committed.superblock.clone();
    let captured = env.engine.capture(superblock.next_msn + 1);
    // The old leaf is freed while it is being written.
    env.engine.drain(&mut Drain::default()).unwrap();
    while env.engine.free_one().unwrap() {}
    assert!(!tree(&env).table.lock().holds(old));
    env.engine.write_checkpoint(&mut committed, captured, superblock, &|| ()).unwrap();
    drop(committed);
    let crashed = MemDevice::holding(device.durable_bytes());
    drop(env);
    // The node table's extents are accepted only if no two share a block.
    let env = open(&crashed);
    assert_eq!(problems(&env), Vec::<String>::new());
}

#[test]
fn a_clone_of_a_part_of_a_leaf_reads_only_the_basements_at_its_bounds() {
    let (_device, env) = volume_with_long_leaf();
    let leaf = only_leaf(&tree(&env));
    assert!(leaf.basements().iter().all(|basement| basement.piece.evict()));
    let before = env.stats().device_read_bytes;
    let mut batch = Batch::new();
    // The keys from k0000 to k0999.
    batch.clone_range(D, b"k0", b"z");
    env.commit(&batch).unwrap();
    let read_bytes = env.stats().device_read_bytes - before;
    let leaf_bytes = leaf.basements().iter().map(|basement| basement.piece.raw_bytes() as u64).sum::<u64>();
    assert!(read_bytes > 0 && read_bytes < leaf_bytes / 4, "{read_bytes} bytes read of {leaf_bytes}");
    for number in 0..1000 {
        let copy = [b"z", &key(number)[2..]].concat();
        assert_eq!(env.get(D, &copy).unwrap().unwrap(), value(number), "{number}");
    }
    assert_eq!(problems(&env), Vec::<String>::new());
}
