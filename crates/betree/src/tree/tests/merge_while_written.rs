//! A partition whose messages were mostly overwritten has its runs merged while a checkpoint writes it.

use super::*;
use crate::key::Cut;
use crate::store::ReadScope;

/// The whole tree is the root.
const ONE_NODE: Geometry = Geometry { node_bytes: 256 << 10, ..GEOMETRY };
const PAIRS: u32 = 40;

/// Commits, and flushes to the root: little for each child.
fn bring(env: &Env, number: u32, value: &[u8]) {
    put(env, &key(number), value);
    to_root(env);
}

fn append(env: &Env, delta: &[u8]) {
    let mut batch = Batch::new();
    batch.upsert(D, b"log", delta);
    env.commit(&batch).unwrap();
    to_root(env);
}

/// The newest message of each run in which the root's partition is stored.
fn last_msns(env: &Env) -> Vec<u64> {
    let tree = tree(env);
    let id = root(&tree).id;
    let place = tree.table.lock().place(id).unwrap();
    let root = env.engine.store.read_node(id, &place, ReadScope::Header, None).unwrap();
    let stored = root.edges()[0].partition.as_ref().unwrap().stored().unwrap();
    stored.runs.iter().map(|run| run.last_msn).collect()
}

#[test]
fn a_partition_merged_while_it_is_written_is_stored_once() {
    let device = formatted(&ONE_NODE);
    device.do_not_seek();
    let env = open(&device);
    let mut changes = 0;
    for number in 0..PAIRS {
        bring(&env, number, &value(number).repeat(10));
        changes += 1;
    }
    env.checkpoint().unwrap();
    assert_eq!(last_msns(&env), [changes]);
    for number in 0..PAIRS {
        bring(&env, number, b"short");
        changes += 1;
    }
    append(&env, b"1,");
    changes += 1;
    let (tree, mut committed) = (tree(&env), env.checkpoint.lock());
    let captured = env.engine.capture(changes + 1);
    assert!(tree.shrink(&root(&tree), 0).unwrap(), "the rest was overwritten");
    let superblock = committed.superblock.clone();
    env.engine.write_checkpoint(&mut committed, captured, superblock, &|| ()).unwrap();
    drop(committed);
    assert_eq!(last_msns(&env), [PAIRS.into(), changes], "only the new messages were written");
    env.checkpoint().unwrap();
    assert_eq!(last_msns(&env), [changes]);
    env.close().unwrap();
    drop(env);

    let env = open(&device);
    append(&env, b"2,");
    // A read of the whole partition as one run merges it.
    let partition = root(&super::tree(&env)).edges()[0].partition.clone().unwrap();
    env.engine.store.run(&partition).unwrap();
    drop(partition);
    env.close().unwrap();
    assert!(last_msns(&env).is_sorted_by(|older, newer| older < newer), "{:?}", last_msns(&env));
    drop(env);
    let env = open(&device);
    assert_eq!(env.get(D, b"log").unwrap().as_deref(), Some(&b"1,2,"[..]));
    let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
    let mut pairs = 0;
    while cursor.next().unwrap().is_some() {
        pairs += 1;
    }
    assert_eq!(pairs, PAIRS + 1);
    assert_eq!(problems(&env), Vec::<String>::new());
}
