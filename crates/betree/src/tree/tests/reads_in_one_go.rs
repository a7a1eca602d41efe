//! Neighbouring pieces take one read.

use super::*;
use crate::cache::{Piece, RUNS_MAX};

fn basement(env: &Env, index: usize) -> Arc<Piece> {
    only_leaf(&tree(env)).basements()[index].piece.clone()
}

/// Reads basements. Returns the number of reads and their bytes.
fn cost_of_loading(env: &Env, basements: &[usize]) -> (u64, u64) {
    let pieces: Vec<_> = basements.iter().map(|index| basement(env, *index)).collect();
    assert!(pieces.iter().all(|piece| piece.evict()));
    let before = env.stats();
    env.engine.store.load(&pieces).unwrap();
    assert!(pieces.iter().all(|piece| piece.is_resident()));
    let after = env.stats();
    (after.device_reads - before.device_reads, after.device_read_bytes - before.device_read_bytes)
}

#[test]
fn a_disk_that_seeks_reads_over_gaps() {
    let (device, env) = volume_with_long_leaf();
    let (near, far, all) = ([1, 3], [1, 6, 11], (1..12).collect::<Vec<_>>());
    let all_bytes = cost_of_loading(&env, &all).1;
    assert_eq!(cost_of_loading(&env, &near).0, 1);
    assert_eq!(cost_of_loading(&env, &far), (1, all_bytes));
    device.do_not_seek();
    assert_eq!(cost_of_loading(&env, &near).0, 1);
    let (reads, bytes) = cost_of_loading(&env, &far);
    assert_eq!(reads, 3);
    assert!(bytes < all_bytes / 2, "{bytes} of {all_bytes} bytes");
}

/// The number of stored runs of each basement that has several.
fn runs(env: &Env) -> Vec<usize> {
    let leaf = only_leaf(&tree(env));
    let stored = leaf.basements().iter().map(|basement| basement.piece.stored().unwrap());
    stored.map(|stored| stored.runs.len()).filter(|runs| *runs > 1).collect()
}

/// The number of reads that it takes to bring a message to a leaf, none of it in memory, and to write the
/// leaf.
fn reads_for_flush(env: &Env) -> u64 {
    let leaf = only_leaf(&tree(env));
    assert!(leaf.basements().iter().all(|basement| basement.piece.evict()));
    let mut batch = Batch::new();
    batch.upsert(D, &key(KEYS_OF_LEAF / 2), b"!");
    env.commit(&batch).unwrap();
    let reads = env.stats().device_reads;
    env.engine.absorb_all().unwrap();
    env.engine.drain(&mut Drain::default()).unwrap();
    assert!(!Arc::ptr_eq(&only_leaf(&tree(env)), &leaf), "it has come to the leaf");
    env.checkpoint().unwrap();
    env.stats().device_reads - reads
}

#[test]
fn messages_are_added_to_an_unread_basement_until_it_has_many_runs() {
    let (device, env) = volume_with_long_leaf();
    device.do_not_seek();
    for stored in 2..=RUNS_MAX {
        assert_eq!((reads_for_flush(&env), runs(&env)), (0, Vec::from([stored])));
    }
    let reads = reads_for_flush(&env);
    assert!(reads > 0 && runs(&env).is_empty(), "{reads} reads, {:?}", runs(&env));
    assert_eq!((reads_for_flush(&env), runs(&env)), (0, Vec::from([2])));
    let expected = [&value(KEYS_OF_LEAF / 2)[..], "!".repeat(RUNS_MAX + 1).as_bytes()].concat();
    assert_eq!(env.get(D, &key(KEYS_OF_LEAF / 2)).unwrap().unwrap(), expected);
    assert_eq!(problems(&env), Vec::<String>::new());
    env.close().unwrap();
    let env = open(&device);
    assert_eq!(env.get(D, &key(KEYS_OF_LEAF / 2)).unwrap().unwrap(), expected);
}

#[test]
fn replaced_values_are_freed_where_space_is_short() {
    let (device, env) = volume_with_long_leaf();
    device.do_not_seek();
    reads_for_flush(&env);
    let drain = || {
        env.engine.drain(&mut Drain::default()).unwrap();
        env.checkpoint().unwrap();
    };
    drain();
    assert_eq!(runs(&env), [2], "with enough space the fold is left for later");
    let space = &env.engine.store.space;
    let most = space.free_blocks() - space.total_blocks() / 9;
    let taken = space.allocate(most, usize::MAX).unwrap();
    drain();
    assert_eq!(runs(&env), []);
    drop(taken);
    assert_eq!(problems(&env), Vec::<String>::new());
}
