//! Messages wait beside the pairs of a basement that is not on the device, and more come while it is written.

use super::*;

fn append(env: &Env, number: u32, delta: &[u8]) {
    let mut batch = Batch::new();
    batch.upsert(D, &key(number), delta);
    env.commit(&batch).unwrap();
    env.engine.freeze(true);
    env.engine.absorb_all().unwrap();
    env.engine.drain(&mut Drain::default()).unwrap();
}

/// Writes all pairs of the leaf again, so that none of it is on the device.
fn renew(env: &Env) {
    let mut batch = Batch::new();
    (0..KEYS_OF_LEAF).for_each(|number| batch.put(D, &key(number), &value(number)));
    env.commit(&batch).unwrap();
    env.engine.freeze(true);
    env.engine.absorb_all().unwrap();
    env.engine.drain(&mut Drain::default()).unwrap();
    let leaf = only_leaf(&tree(env));
    assert!(leaf.basements().iter().all(|b| b.piece.stored().is_none() && !b.piece.has_messages()));
}

fn with_messages(env: &Env) -> usize {
    only_leaf(&tree(env)).basements().iter().filter(|basement| basement.piece.has_messages()).count()
}

#[test]
fn messages_that_come_during_a_folding_write_are_applied_once() {
    let (device, env) = volume_with_long_leaf();
    device.do_not_seek();
    renew(&env);
    let number = KEYS_OF_LEAF / 2;
    append(&env, number, b"1");
    assert_eq!(with_messages(&env), 1, "it waits beside the pairs");
    let mut committed = env.checkpoint.lock();
    let next_msn = committed.superblock.next_msn + u64::from(KEYS_OF_LEAF) + 1;
    let captured = env.engine.capture(next_msn);
    // Over the version that is being written.
    append(&env, number, b"2");
    let superblock = committed.superblock.clone();
    env.engine.write_checkpoint(&mut committed, captured, superblock, &|| ()).unwrap();
    drop(committed);
    append(&env, number, b"3");
    env.close().unwrap();
    let leaf = only_leaf(&tree(&env));
    let runs = leaf.basements().iter().map(|basement| basement.piece.stored().unwrap().runs.len());
    assert_eq!(runs.max(), Some(2), "the folded pairs keep their blocks, and are not written again");
    drop(env);
    let env = open(&device);
    let expected = [&value(number)[..], b"123"].concat();
    assert_eq!(env.get(D, &key(number)).unwrap().unwrap(), expected);
    assert_eq!(problems(&env), Vec::<String>::new());
}
