//! The flushing of all buffers beside writers: memtables come first, and it ends nevertheless.

use super::*;

/// The flushes that a drain does between two memtables, at most: each asks for room at least once.
const FLUSHES_IN_A_ROW: u64 = 16;

fn flushes(env: &Env) -> u64 {
    env.stats().flushes
}

/// Changes keys all over the tree, in a memtable that waits to arrive.
fn fill_a_memtable(env: &Env, round: u32) {
    let mut batch = Batch::new();
    (0..20).for_each(|number| batch.put(D, &key((round * 7 + number * 97) % KEYS), b"new"));
    env.commit(&batch).unwrap();
    env.engine.freeze(true);
}

#[test]
fn a_drain_gives_way_to_each_memtable_and_ends() {
    let device = volume();
    let env = open(&device);
    let whole = {
        let again = open(&MemDevice::holding(device.durable_bytes()));
        let before = flushes(&again);
        again.engine.drain(&mut Drain::default()).unwrap();
        flushes(&again) - before
    };
    assert!(whole > FLUSHES_IN_A_ROW, "{whole} flushes: too few to give way");
    let dict = env.engine.dicts.first().unwrap();
    let mut drain = Drain::default();
    let mut rounds = 0;
    loop {
        fill_a_memtable(&env, rounds);
        let before = flushes(&env);
        let gave_way = env.engine.drain_until_full(dict, &mut drain, &|| true).unwrap();
        let in_a_row = flushes(&env) - before;
        assert!(in_a_row <= FLUSHES_IN_A_ROW, "{in_a_row} flushes while a memtable waited");
        if !gave_way {
            break;
        }
        assert!(in_a_row > 0, "it goes on beside any number of writers");
        env.engine.absorb_all().unwrap();
        rounds += 1;
        assert!(u64::from(rounds) < whole, "it never ends");
    }
    assert!(rounds >= 2, "{rounds} memtables came in between");
    assert_eq!(problems(&env), Vec::<String>::new());
}

#[test]
fn what_a_drain_finds_pending_comes_to_the_leaves_though_others_write() {
    let device = volume();
    let env = open(&device);
    let used = |env: &Env| {
        while env.engine.free_one().unwrap() {}
        env.checkpoint().unwrap();
        env.checkpoint().unwrap();
        env.space().used_bytes
    };
    let before = used(&env);
    // A delete of nearly everything, of which nothing is noted.
    let mut batch = Batch::new();
    (20..KEYS).for_each(|number| batch.delete(D, &key(number)));
    env.commit(&batch).unwrap();
    to_root(&env);
    let dict = env.engine.dicts.first().unwrap();
    let mut drain = Drain::default();
    let mut round = 0;
    loop {
        put(&env, b"zz", b"new");
        env.engine.freeze(true);
        if !env.engine.drain_until_full(dict, &mut drain, &|| true).unwrap() {
            break;
        }
        env.engine.absorb_all().unwrap();
        round += 1;
        assert!(round < 10_000, "it never ends");
    }
    env.engine.absorb_all().unwrap();
    let after = used(&env);
    assert!(after < before / 4, "{before} bytes before, {after} after all was deleted");
}
