//! The space of what was deleted comes back without a drain of everything, and step by step.

use super::*;
use crate::key::Cut;

const BIG: u32 = 3;

/// An environment with a small cache whose leaves are larger than it.
fn larger_than_memory(device: &Arc<MemDevice>) -> Env {
    let options = Options::new(512 << 10, Arc::new(Append));
    let env = Env::open(device.clone(), Options { compression: Compression::None, ..options }).unwrap();
    for number in 0..KEYS {
        put(&env, &key(number), &value(number).repeat(BIG as usize));
        while env.run_due_work().unwrap() {}
    }
    env.checkpoint().unwrap();
    env
}

fn used_after_checkpoints(env: &Env) -> u64 {
    (0..3).for_each(|_| {
        while env.run_due_work().unwrap() {}
        env.checkpoint().unwrap();
    });
    env.space().used_bytes
}

fn delete(env: &Env, lo: u32, hi: u32, known_bytes: u64) {
    let mut batch = Batch::new();
    batch.delete_range(D, &Cut::before(key(lo)), &Cut::before(key(hi)));
    batch.mark_freeing(known_bytes);
    env.commit(&batch).unwrap();
}

#[test]
fn one_range_that_is_known_to_hide_much_is_reclaimed_at_once() {
    let device = formatted(&GEOMETRY);
    let env = larger_than_memory(&device);
    let before = used_after_checkpoints(&env);
    let known_bytes = u64::from(KEYS - 20) * value(0).len() as u64 * u64::from(BIG);
    assert!(known_bytes > env.space().free_bytes / 32, "{known_bytes} bytes: too little");
    delete(&env, 20, KEYS, known_bytes);
    let after = used_after_checkpoints(&env);
    assert!(after < before / 4, "{before} bytes were used, {after} after nearly all was deleted");
}

/// Beside writers whose memtables fill one after the other, nobody is ever idle.
#[test]
fn what_hides_much_is_reclaimed_beside_memtables_that_wait() {
    let device = formatted(&GEOMETRY);
    let env = larger_than_memory(&device);
    let known_bytes = u64::from(KEYS - 20) * value(0).len() as u64 * u64::from(BIG);
    delete(&env, 20, KEYS, known_bytes);
    let mut number = KEYS;
    let mut fill = || {
        while !env.engine.dicts.iter().any(|dict| dict.is_full()) {
            put(&env, &key(number), &value(number));
            number += 1;
        }
    };
    let dead = || env.engine.dicts.iter().map(|dict| dict.dead.lock().len()).sum::<usize>();
    fill();
    assert!(env.engine.is_much_hidden() && dead() == 0);
    assert!(env.run_due_work().unwrap());
    assert!(!env.engine.is_much_hidden(), "a memtable came first");
    let before = dead();
    assert!(before > 8, "{before} nodes are dead");
    for _ in 0..before {
        fill();
        assert!(env.run_due_work().unwrap());
    }
    assert!(dead() < before / 4, "{} of {before} dead nodes wait for an idle moment", dead());
}

/// What is reclaimed along the bounds leaves parts of leaves hidden.
#[test]
fn what_stays_hidden_beside_bounds_comes_back_when_the_space_is_asked_for() {
    let device = formatted(&GEOMETRY);
    let env = larger_than_memory(&device);
    let before = used_after_checkpoints(&env);
    let files = 16;
    let keys = KEYS / files;
    for file in 0..files {
        delete(&env, file * keys, (file + 1) * keys, u64::from(keys * BIG) * value(0).len() as u64);
        while file % 8 == 7 && env.run_due_work().unwrap() {}
    }
    let between = used_after_checkpoints(&env);
    assert!(between > before / 4, "{before} bytes were used, {between} after all was deleted");
    env.reclaim().unwrap();
    let after = used_after_checkpoints(&env);
    assert!(after < before / 32, "{before} bytes were used, {between} after all was deleted, then {after}");
}

#[test]
fn one_range_that_hides_little_waits_for_others() {
    let device = formatted(&GEOMETRY);
    let env = larger_than_memory(&device);
    let before = used_after_checkpoints(&env);
    let (flushes, known_bytes) = (env.stats().flushes, value(0).len() as u64 * u64::from(BIG) * 150);
    assert!(known_bytes < env.space().free_bytes / 32 && known_bytes >= 4 * u64::from(GEOMETRY.node_bytes));
    delete(&env, 1000, 1150, known_bytes);
    let after = used_after_checkpoints(&env);
    assert!(after + known_bytes / 2 > before, "{before} bytes were used, {after} afterwards");
    // The memtable to the root, in as few steps as that takes.
    assert!(env.stats().flushes - flushes <= 4);
}

#[test]
fn who_waits_for_room_waits_for_enough_and_not_for_the_whole_drain() {
    let device = formatted(&GEOMETRY);
    let env = larger_than_memory(&device);
    let mut batch = Batch::new();
    (0..KEYS).filter(|number| number % 3 > 0).for_each(|number| batch.delete(D, &key(number)));
    env.commit(&batch).unwrap();
    to_root(&env);
    let steps = || env.stats().checkpoints;
    let (before, free) = (steps(), env.space().free_bytes);
    env.give_space_back(&|| steps() > before).unwrap();
    assert_eq!(steps() - before, 1, "a step is one checkpoint");
    assert!(env.reclaiming.lock().is_some(), "the rest is left to others");
    // Background work goes on with it, a step at a time.
    let before = steps();
    assert!(env.give_back_in_background().unwrap());
    assert_eq!(steps() - before, 1);
    while env.give_back_in_background().unwrap() {}
    assert!(env.reclaiming.lock().is_none());
    used_after_checkpoints(&env);
    let freed = env.space().free_bytes - free;
    let deleted = u64::from(KEYS) * 2 / 3 * value(0).len() as u64 * u64::from(BIG);
    assert!(freed > deleted / 2, "{freed} bytes came back of {deleted}");
}

#[test]
fn a_drain_that_nothing_is_new_for_does_nothing() {
    let device = formatted(&GEOMETRY);
    let env = larger_than_memory(&device);
    env.give_space_back(&|| false).unwrap();
    let before = env.stats().checkpoints;
    env.give_space_back(&|| false).unwrap();
    assert_eq!(env.stats().checkpoints, before);
    put(&env, b"k", b"news");
    env.give_space_back(&|| false).unwrap();
    assert!(env.stats().checkpoints > before);
}

#[test]
fn clones_of_what_fits_into_a_leaf_or_two_stay_shared() {
    let device = formatted(&LONG_LEAVES);
    let options = Options { compression: Compression::None, ..Options::new(4 << 20, Arc::new(Append)) };
    let env = Env::open(device, options).unwrap();
    // Neighbours on both sides.
    let names = [&b"aa"[..], b"src", b"zz"];
    for (name, number) in names.iter().flat_map(|name| (0..400).map(move |number| (name, number))) {
        put(&env, &[name, &key(number)[..]].concat(), &value(number).repeat(BIG as usize));
    }
    let clones = 10;
    for number in 0..clones {
        let copy = [b"clone", &key(number)[..]].concat();
        let mut batch = Batch::new();
        batch.clone_range(D, b"src", &copy);
        env.commit(&batch).unwrap();
        put(&env, &[&copy[..], b"own"].concat(), b"of the clone");
    }
    let before = used_after_checkpoints(&env);
    env.give_space_back(&|| false).unwrap();
    let after = used_after_checkpoints(&env);
    let one_bytes = 400 * value(0).len() as u64 * u64::from(BIG);
    assert!(after < before + one_bytes, "{before} bytes were used, {after} after a drain");
    // With the others gone, a drain frees what they alone had.
    for number in 1..clones {
        let copy = [b"clone", &key(number)[..]].concat();
        let mut batch = Batch::new();
        batch.delete_range(D, &Cut::before(copy.as_slice()), &Cut::before([&copy[..], &[0xff]].concat()));
        env.commit(&batch).unwrap();
    }
    env.give_space_back(&|| false).unwrap();
    let last = used_after_checkpoints(&env);
    assert!(last <= after, "{after} bytes were used, {last} after the clones were deleted");
    assert_eq!(problems(&env), Vec::<String>::new());
}
