//! Directories made and removed in great numbers leave nothing behind.

use std::sync::Arc;

use betree::{Cut, Geometry};
use betree_platform::Device;
use betree_sim::{MemDevice, Setup, format_env, open_env};

use super::{D, SETUP, assert_sound, commit, count, dir, key, open};

/// Copies under ever new names, copies of these, and renames of the directories above them; the number of
/// directories stays the same.
#[test]
fn copies_under_new_names_that_come_and_go_leave_nothing_behind() {
    for fanout_max in [4, 16] {
        let geometry =
            Geometry { fanout_max, node_bytes: 16 << 10, basement_bytes: 4 << 10, ..SETUP.geometry };
        let setup = Setup { geometry, cache_bytes: 16 << 20, ..SETUP };
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(setup.volume_bytes));
        format_env(&device, &setup).unwrap();
        let env = open_env(&device, &setup).unwrap();
        let mut rng = betree_sim::Rng::new(5);
        let within = |above: &str, at: usize| format!("{above}dir{}\0x{}\0", at % 3, at / 3).into_bytes();
        let mut names: Vec<String> = (0..4).map(|number| format!("/{number}\0")).collect();
        for name in &names {
            for at in 0..12 {
                commit(&env, |batch| batch.put(D, &within(name, at), &[at as u8; 3000]));
            }
        }
        env.checkpoint().unwrap();
        let (low, used) = (env.stats().height, env.space().used_bytes);
        let (mut highest, mut most_used) = (0, 0);
        for round in 0..5_000u32 {
            let from = names[rng.below(names.len())].clone();
            let (new, gone) = (format!("/{} {round}\0", round % 3), rng.below(names.len()));
            commit(&env, |batch| match rng.below(4) {
                0 | 1 => {
                    batch.clone_range(D, from.as_bytes(), new.as_bytes());
                    let gone = std::mem::replace(&mut names[gone], new);
                    batch.delete_range(D, &Cut::before(gone.clone()), &Cut::after(gone));
                }
                2 => {
                    let [from, to] = [&from, &names[gone]].map(|name| format!("{name}dir{}\0", rng.below(3)));
                    batch.clone_range(D, from.as_bytes(), to.as_bytes());
                }
                _ => {
                    batch.rename_range(D, from.as_bytes(), new.as_bytes());
                    names.iter_mut().filter(|name| **name == from).for_each(|name| name.clone_from(&new));
                }
            });
            for _ in 0..rng.below(6) {
                let key = within(&names[rng.below(names.len())], rng.below(12));
                let value = round.to_be_bytes().repeat(rng.below(700));
                commit(&env, |batch| batch.put(D, &key, &value));
            }
            if rng.below(20) == 0 {
                while env.run_due_work().unwrap() {}
            }
            if round % 100 == 0 {
                env.checkpoint().unwrap();
                most_used = most_used.max(env.space().used_bytes);
            }
            highest = highest.max(env.stats().height);
        }
        assert_sound(&env);
        let what = format!("at a fan-out of {fanout_max}, from {low} levels and {used} bytes");
        assert!(highest <= low + 8, "{what} to {highest} levels");
        // Besides the present data, the remains of some rounds until they are cleared away together.
        assert!(most_used <= used * 32, "{what} to {most_used} bytes");
        commit(&env, |batch| {
            batch.delete(D, b"/nothing");
            batch.mark_freeing(SETUP.volume_bytes);
        });
        env.reclaim().unwrap();
        while env.run_due_work().unwrap() {}
        env.checkpoint().unwrap();
        let (now, used_now) = (env.stats().height, env.space().used_bytes);
        assert!(now <= low + 4 && used_now <= used * 2, "{what} to {now} levels and {used_now} bytes");
        assert_sound(&env);
    }
}

#[test]
fn a_flood_of_range_deletes_stays_cheap_and_slows_nobody() {
    let device = Arc::new(MemDevice::new(SETUP.volume_bytes));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), &SETUP).unwrap();
    let env = open(&device);
    let small_dir = |number: u32| format!("/flood\0{number:06}\0").into_bytes();
    let dirs = 60_000u32;
    for number in 0..dirs {
        let name = small_dir(number);
        commit(&env, |batch| (0..3).for_each(|entry| batch.put(D, &key(&name, entry), b"a small file")));
        if number % 100 == 0 {
            while env.run_due_work().unwrap() {}
        }
    }
    env.checkpoint().unwrap();
    let (height, used_full) = (env.stats().height, env.space().used_bytes);
    let begin = device.counts();
    let mut worst_query = (0, 0);
    for turn in 0..dirs {
        // In an order unlike the keys', so that each delete takes its own path.
        let number = (u64::from(turn) * 7919 % u64::from(dirs)) as u32;
        let name = small_dir(number);
        commit(&env, |batch| batch.delete_range(D, &Cut::before(name.clone()), &Cut::after(name.clone())));
        if turn % 100 == 0 {
            while env.run_due_work().unwrap() {}
        }
        if turn % 1000 == 500 {
            let (before, reads) = (env.stats(), device.counts().reads);
            let next = small_dir((u64::from(turn + 1) * 7919 % u64::from(dirs)) as u32);
            assert!(env.get(D, &key(&next, 1)).unwrap().is_some());
            assert_eq!(env.get(D, &key(&name, 1)).unwrap(), None);
            let nodes = env.stats().point_query_nodes - before.point_query_nodes;
            worst_query = worst_query.max((device.counts().reads - reads, nodes));
        }
    }
    let written = device.counts().since(&begin).writes;
    // They are flushed together as partitions fill: none costs a write of a node of its own.
    assert!(written <= u64::from(dirs), "{written} writes for {dirs} deletes");
    // Two queries, each with header and partition of every node on the path, and once more the header of one
    // below.
    let (reads, nodes) = worst_query;
    assert!(reads <= 4 * height && nodes <= 6 * height, "{reads} reads, {nodes} nodes of {height} levels");
    assert_eq!(count(&env, b"/flood\0"), 0);
    while env.run_due_work().unwrap() {}
    env.checkpoint().unwrap();
    let used = env.space().used_bytes;
    assert!(used <= used_full / 4, "{used} bytes are used, with the directories it was {used_full}");
    assert_sound(&env);
}

#[test]
fn a_replay_of_copies_that_came_and_went_needs_no_more_room_than_they_did() {
    let setup = Setup { volume_bytes: 24 << 20, cache_bytes: 64 << 20, ..SETUP };
    let device = Arc::new(MemDevice::new(setup.volume_bytes));
    let dyn_device: Arc<dyn Device> = device.clone();
    format_env(&dyn_device, &setup).unwrap();
    let env = open_env(&dyn_device, &setup).unwrap();
    let source = dir(1_000);
    for number in 0..1_000 {
        commit(&env, |batch| batch.put(D, &key(&source, number), &number.to_be_bytes().repeat(6)));
    }
    env.checkpoint().unwrap();
    let name = |number: u32| format!("/copy{number:05}\0").into_bytes();
    let before = env.stats().checkpoints;
    let copies = 2_000;
    for number in 0..copies {
        commit(&env, |batch| batch.clone_range(D, &source, &name(number)));
        commit(&env, |batch| batch.put(D, &key(&name(number), 500), b"changed"));
        let gone = name(number.saturating_sub(10));
        commit(&env, |batch| batch.rename_range(D, &gone, b"/gone\0"));
        if number % 10 == 0 {
            while env.run_due_work().unwrap() {}
            env.sync().unwrap();
        }
    }
    env.sync().unwrap();
    assert_eq!(env.stats().checkpoints, before, "all of it is to be replayed");
    let used = env.space().used_bytes;
    // As after the death of the process.
    env.abandon();
    drop(env);
    let env = open_env(&dyn_device, &setup).unwrap();
    let replayed = env.space().used_bytes;
    assert!(replayed <= used + (1 << 20), "{replayed} bytes are used after the replay, before it {used}");
    assert_eq!(count(&env, &name(copies - 1)), 1_000);
    assert_eq!(count(&env, b"/gone\0"), 1_000);
    assert_sound(&env);
}
