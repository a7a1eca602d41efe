//! What clones, renames and deletes of whole ranges cost, as counts: nothing that depends on how much
//! they hold.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry};
use betree_platform::Device;
use betrfs_sim::{Counts, MemDevice, Setup, format_env, open_env};

const D: DictId = DictId(0);
/// Nodes so small that the largest directory makes a tree of several levels.
const SETUP: Setup = Setup {
    geometry: Geometry {
        node_bytes: 8 << 10,
        basement_bytes: 2 << 10,
        fanout_max: 8,
        log_bytes: 4 << 20,
        dicts: 1,
    },
    cache_bytes: 1 << 20,
    volume_bytes: 256 << 20,
    seeks: true,
};
/// The directories, by how many entries they have.
const SIZES: [u32; 3] = [10, 1_000, 100_000];
/// Nodes that an operation may read, and that it may make the next checkpoint write: a path or two of
/// at most eight levels, and what is mended beside it.
const NODES_MAX: u64 = 40;

fn open(device: &Arc<MemDevice>) -> Env {
    open_env(&(Arc::clone(device) as Arc<dyn Device>), &SETUP).unwrap()
}

fn commit(env: &Env, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    env.throttle(batch.bytes()).unwrap();
    env.commit(&batch).unwrap();
}

fn dir(size: u32) -> Vec<u8> {
    format!("/dir{size}\0").into_bytes()
}

fn key(dir: &[u8], number: u32) -> Vec<u8> {
    [dir, format!("{number:08}").as_bytes()].concat()
}

/// A volume with the three directories.
fn volume() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(SETUP.volume_bytes));
    format_env(&(Arc::clone(&device) as Arc<dyn Device>), &SETUP).unwrap();
    let env = open(&device);
    for size in SIZES {
        let dir = dir(size);
        for number in 0..size {
            // In an order that is not the keys', so that buffers fill.
            let number = (u64::from(number) * 7919 % u64::from(size)) as u32;
            commit(&env, |batch| batch.put(D, &key(&dir, number), &number.to_be_bytes().repeat(6)));
        }
    }
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    device
}

fn count(env: &Env, dir: &[u8]) -> usize {
    let mut cursor = env.cursor(D, Cut::before(dir), Cut::after(dir));
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

fn assert_sound(env: &Env) {
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

/// What an operation on a volume that was just opened reads, and what it makes a checkpoint write.
fn costs(device: &Arc<MemDevice>, change: impl FnOnce(&mut Batch)) -> (Counts, Counts) {
    let env = open(device);
    env.checkpoint().unwrap();
    let before = device.counts();
    commit(&env, change);
    let read = device.counts().since(&before);
    let before = device.counts();
    env.checkpoint().unwrap();
    let written = device.counts().since(&before);
    while env.run_due_work().unwrap() {}
    env.close().unwrap();
    (read, written)
}

#[test]
fn a_clone_a_rename_and_a_delete_cost_the_same_whatever_they_hold() {
    let device = volume();
    for (index, size) in SIZES.into_iter().enumerate() {
        let source = dir(size);
        let (copy, moved) = (format!("/copy{index}\0").into_bytes(), format!("/moved{index}\0").into_bytes());
        let (read, written) = costs(&device, |batch| batch.clone_range(D, &source, &copy));
        assert!(
            read.reads <= 2 * NODES_MAX && written.writes <= NODES_MAX,
            "clone of {size}: {read:?} {written:?}"
        );
        let (read, written) = costs(&device, |batch| batch.rename_range(D, &copy, &moved));
        assert!(
            read.reads <= 2 * NODES_MAX && written.writes <= NODES_MAX,
            "rename of {size}: {read:?} {written:?}"
        );
        let env = open(&device);
        assert_eq!((count(&env, &source), count(&env, &copy)), (size as usize, 0), "{size}");
        assert_eq!(count(&env, &moved), size as usize);
        let value = env.get(D, &key(&moved, size / 2)).unwrap();
        assert_eq!(value, Some((size / 2).to_be_bytes().repeat(6)));
        drop(env);
        let (read, written) = costs(&device, |batch| {
            batch.delete_range(D, &Cut::before(moved.clone()), &Cut::after(moved.clone()))
        });
        assert!(
            read.reads <= 2 * NODES_MAX && written.writes <= NODES_MAX,
            "delete of {size}: {read:?} {written:?}"
        );
    }
    assert_sound(&open(&device));
}

#[test]
fn a_thousand_clones_of_one_directory_take_little_and_give_it_all_back() {
    let device = volume();
    let env = open(&device);
    let source = dir(100_000);
    let name = |number: u32| format!("/clone{number:04}\0").into_bytes();
    let settle = || {
        for _ in 0..3 {
            while env.run_due_work().unwrap() {}
            env.checkpoint().unwrap();
        }
    };
    // All that is pending carried down, as at the end.
    let carry_down = || {
        commit(&env, |batch| {
            batch.delete(D, b"/nothing");
            batch.mark_freeing(SETUP.volume_bytes);
        });
        env.reclaim().unwrap();
        settle();
    };
    carry_down();
    let used_before = env.space().used_bytes;
    commit(&env, |batch| batch.clone_range(D, &source, &name(0)));
    settle();
    let used_by_one = env.space().used_bytes;
    for number in 1..1000 {
        commit(&env, |batch| batch.clone_range(D, &source, &name(number)));
    }
    settle();
    let each = env.space().used_bytes.saturating_sub(used_by_one) / 999;
    assert!(each < 2048, "a clone takes {each} bytes");
    assert_eq!(count(&env, &name(500)), 100_000);
    // Each is its own.
    commit(&env, |batch| batch.put(D, &key(&name(7), 5), b"changed"));
    assert_eq!(env.get(D, &key(&name(8), 5)).unwrap(), Some(5u32.to_be_bytes().repeat(6)));
    assert_eq!(env.get(D, &key(&source, 5)).unwrap(), Some(5u32.to_be_bytes().repeat(6)));
    assert_eq!(env.get(D, &key(&name(7), 5)).unwrap(), Some(b"changed".to_vec()));
    assert_sound(&env);
    for number in 0..1000 {
        let name = name(number);
        commit(&env, |batch| batch.delete_range(D, &Cut::before(name.clone()), &Cut::after(name.clone())));
    }
    carry_down();
    assert_sound(&env);
    let used = env.space().used_bytes;
    assert!(used <= used_before + used_before / 32, "{used} bytes are used, before it was {used_before}");
    assert_eq!(count(&env, b"/clone"), 0);
    assert_eq!(count(&env, &source), 100_000);
}

/// What a scan reads on a volume that was just opened, in bytes.
fn scanned_bytes(device: &Arc<MemDevice>, dir: &[u8], entries: usize) -> u64 {
    let env = open(device);
    let before = device.counts();
    assert_eq!(count(&env, dir), entries);
    device.counts().since(&before).read_bytes
}

#[test]
fn a_scan_reads_no_more_after_a_clone_or_a_rename() {
    let device = volume();
    let size = 100_000;
    let (source, copy, moved) = (dir(size), b"/copy\0".to_vec(), b"/moved\0".to_vec());
    let before = scanned_bytes(&device, &source, size as usize);
    let change = |fill: &dyn Fn(&mut Batch)| {
        let env = open(&device);
        commit(&env, fill);
        while env.run_due_work().unwrap() {}
        env.close().unwrap();
    };
    let assert_as_before = |dir: &[u8]| {
        let now = scanned_bytes(&device, dir, size as usize);
        assert!(
            now <= before + before / 10,
            "{now} bytes for {:?}, before it was {before}",
            dir.escape_ascii()
        );
    };
    change(&|batch| batch.clone_range(D, &source, &copy));
    assert_as_before(&source);
    assert_as_before(&copy);
    change(&|batch| batch.rename_range(D, &copy, &moved));
    assert_as_before(&moved);
    // What is written to the copy makes its nodes its own, and leaves them as full.
    change(&|batch| {
        (0..size).step_by(100).for_each(|at| batch.put(D, &key(&moved, at), &at.to_be_bytes().repeat(6)))
    });
    assert_as_before(&source);
    assert_as_before(&moved);
}

#[test]
fn two_hundred_clones_of_clones_are_all_there() {
    let device = volume();
    let env = open(&device);
    let name = |number: u32| format!("/nested{number:03}\0").into_bytes();
    let mut source = dir(1_000);
    for number in 0..200 {
        commit(&env, |batch| batch.clone_range(D, &source, &name(number)));
        source = name(number);
        commit(&env, |batch| batch.put(D, &key(&source, 1_000_000 + number), b"own"));
        while number % 7 == 0 && env.run_due_work().unwrap() {}
    }
    for number in [0, 1, 99, 199] {
        assert_eq!(count(&env, &name(number)), 1_001 + number as usize, "{number}");
    }
    // However many clones of clones lie on the way, it is no longer than the tree is high.
    for number in 0..200 {
        let before = env.stats();
        assert!(env.get(D, &key(&name(number), 1_000_000)).unwrap().is_some());
        let after = env.stats();
        assert_eq!(after.point_queries - before.point_queries, 1);
        // Where nothing had to be read, it went down once.
        if after.device_reads == before.device_reads {
            let nodes = after.point_query_nodes - before.point_query_nodes;
            assert!(nodes <= after.height, "{nodes} nodes of {} levels for {number}", after.height);
        }
    }
    assert!(env.stats().height <= 8, "{} levels", env.stats().height);
    assert_sound(&env);
}

#[test]
fn a_volume_that_clones_fill_takes_deletes_and_gives_the_space_back() {
    let setup =
        Setup { geometry: Geometry { log_bytes: 1 << 20, ..SETUP.geometry }, volume_bytes: 8 << 20, ..SETUP };
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(setup.volume_bytes));
    format_env(&device, &setup).unwrap();
    let env = open_env(&device, &setup).unwrap();
    let source = dir(1_000);
    for number in 0..1_000 {
        commit(&env, |batch| batch.put(D, &key(&source, number), &number.to_be_bytes().repeat(6)));
    }
    let name = |number: u32| format!("/clone{number:05}\0").into_bytes();
    let mut made = 0;
    let refused = loop {
        let mut batch = Batch::new();
        batch.clone_range(D, &source, &name(made));
        match env.throttle(batch.bytes()).and_then(|()| env.commit(&batch)) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 50_000, "nothing ever fills it");
    };
    assert_eq!(refused, betree::Error::NoSpace);
    env.checkpoint().unwrap();
    assert_sound(&env);
    assert_eq!(count(&env, &name(made - 1)), 1_000);
    for number in 0..made {
        let name = name(number);
        commit(&env, |batch| batch.delete_range(D, &Cut::before(name.clone()), &Cut::after(name.clone())));
    }
    env.reclaim().unwrap();
    env.checkpoint().unwrap();
    commit(&env, |batch| batch.clone_range(D, &source, b"/again\0"));
    assert_eq!(count(&env, b"/again\0"), 1_000);
    assert_sound(&env);
}

#[test]
fn a_clone_whose_keys_would_be_too_long_is_refused_and_changes_nothing() {
    let device = volume();
    let env = open(&device);
    for size in [10, 1_000] {
        let source = dir(size);
        // What is known of the longest key below is a bound: the first is within it, the second is not
        // even with the eight bytes of a name behind it.
        let (fits, too_long) =
            (vec![b'p'; betree::KEY_BYTES_MAX - 32], vec![b'q'; betree::KEY_BYTES_MAX - 7]);
        let clone = |to: &[u8]| {
            let mut batch = Batch::new();
            batch.clone_range(D, &source, to);
            batch.put(D, b"/beside", &size.to_be_bytes());
            env.commit(&batch)
        };
        assert!(matches!(clone(&too_long), Err(betree::Error::KeyTooLong { .. })), "{size}");
        assert_eq!(env.get(D, b"/beside").unwrap(), None);
        assert_eq!(count(&env, &too_long), 0);
        clone(&fits).unwrap();
        assert_eq!(count(&env, &fits), size as usize);
        let mut back = Batch::new();
        back.delete(D, b"/beside");
        back.delete_range(D, &Cut::before(fits.clone()), &Cut::after(fits.clone()));
        env.commit(&back).unwrap();
    }
    assert_sound(&env);
}

#[test]
fn what_a_clone_shares_and_what_its_removal_frees_is_told() {
    let device = volume();
    let env = open(&device);
    let size = 100_000;
    let (source, copy) = (dir(size), b"/copy\0".to_vec());
    let usage = |dir: &[u8]| env.usage(D, &Cut::before(dir), &Cut::after(dir)).unwrap();
    let settle = || {
        while env.run_due_work().unwrap() {}
        env.checkpoint().unwrap();
        while env.run_due_work().unwrap() {}
        env.checkpoint().unwrap();
    };
    settle();
    let alone = usage(&source);
    assert!(
        alone.stored_bytes > u64::from(size) * 8 && alone.exclusive_bytes == alone.stored_bytes,
        "{alone:?}"
    );
    assert!(usage(&dir(1_000)).stored_bytes < alone.stored_bytes / 50);
    commit(&env, |batch| batch.clone_range(D, &source, &copy));
    settle();
    for shared in [usage(&source), usage(&copy)] {
        assert!(shared.stored_bytes.abs_diff(alone.stored_bytes) < alone.stored_bytes / 20, "{shared:?}");
        assert!(shared.exclusive_bytes < alone.stored_bytes / 20, "{shared:?}");
    }
    // Both together are theirs alone.
    let both = env.usage(D, &Cut::LOW, &Cut::HIGH).unwrap();
    assert_eq!(both.stored_bytes, both.exclusive_bytes);
    // What is changed in the copy is the copy's.
    for number in 0..size / 4 {
        commit(&env, |batch| batch.put(D, &key(&copy, number), &[number as u8; 24]));
    }
    settle();
    let changed = usage(&copy);
    assert!(changed.exclusive_bytes > alone.stored_bytes / 5, "{changed:?}");
    assert!(changed.exclusive_bytes < alone.stored_bytes / 2, "{changed:?}");
    let before = env.space().used_bytes;
    commit(&env, |batch| {
        batch.delete_range(D, &Cut::before(copy.clone()), &Cut::after(copy.clone()));
        batch.mark_freeing(SETUP.volume_bytes);
    });
    env.reclaim().unwrap();
    settle();
    let again = usage(&source);
    assert_eq!(again.exclusive_bytes, again.stored_bytes);
    // The source's nodes were rebuilt meanwhile, and are not as full.
    let freed = before - env.space().used_bytes + again.stored_bytes - alone.stored_bytes;
    assert!(
        freed.abs_diff(changed.exclusive_bytes) < changed.exclusive_bytes / 8,
        "{freed} bytes freed, {changed:?}, the source {alone:?} before and {again:?} after"
    );
}

#[test]
fn the_tree_stays_low_while_directories_come_and_go() {
    let device = volume();
    let env = open(&device);
    let mut rng = betrfs_sim::Rng::new(3);
    let name = |number: usize| format!("/c{number}\0").into_bytes();
    for number in 0..100 {
        commit(&env, |batch| batch.put(D, &key(&name(0), number), &[1; 40]));
    }
    let low = env.stats().height;
    let mut highest = 0;
    for round in 0..3_000u32 {
        let (from, to) = (rng.below(6), rng.below(6));
        if from == to {
            continue;
        }
        commit(&env, |batch| match rng.below(3) {
            0 => batch.clone_range(D, &name(from), &name(to)),
            1 => {
                batch.clone_range(D, &name(from), &name(to));
                batch.clone_range(D, &name(to), &name(from));
            }
            _ => {
                batch.rename_range(D, &name(from), &name(to));
                batch.clone_range(D, &name(to), &name(from));
            }
        });
        for _ in 0..rng.below(40) {
            let dir = name(rng.below(6));
            commit(&env, |batch| {
                batch.put(D, &key(&dir, rng.below(200) as u32), &round.to_be_bytes().repeat(9))
            });
        }
        if rng.below(3) == 0 {
            while env.run_due_work().unwrap() {}
        }
        highest = highest.max(env.stats().height);
    }
    assert_sound(&env);
    assert!(highest <= low + 4, "from {low} levels to {highest}");
}

/// Copies under ever new names, copies of those, renames of what they lie in: as many directories
/// are there at any time as were at the start.
#[test]
fn copies_under_new_names_that_come_and_go_leave_nothing_behind() {
    for fanout_max in [4, 16] {
        let geometry =
            Geometry { fanout_max, node_bytes: 16 << 10, basement_bytes: 4 << 10, ..SETUP.geometry };
        let setup = Setup { geometry, cache_bytes: 16 << 20, ..SETUP };
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(setup.volume_bytes));
        format_env(&device, &setup).unwrap();
        let env = open_env(&device, &setup).unwrap();
        let mut rng = betrfs_sim::Rng::new(5);
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
        // Beside what is there, what some rounds leave until they are cleared away together.
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
        // In an order that is not the keys', so that each takes a way of its own.
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
    // They go down together as buffers fill: each costs no write of a node of its own.
    assert!(written <= u64::from(dirs), "{written} writes for {dirs} deletes");
    // Two queries, and of each node on the way header, partition and again the header of one below.
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

/// Giving space back makes nodes of what clones show of others' interior nodes, and not of what lies below: of leaves
/// at their ends, which others share, no copy is made.
#[test]
fn clones_take_as_little_once_all_is_carried_down() {
    let device = volume();
    let env = open(&device);
    let source = dir(100_000);
    const CLONES: u32 = 300;
    let carry_down = || {
        commit(&env, |batch| {
            batch.delete(D, b"/nothing");
            batch.mark_freeing(SETUP.volume_bytes);
        });
        env.reclaim().unwrap();
        env.checkpoint().unwrap();
        env.space().used_bytes
    };
    let name = |number: u32| format!("/clone{number:04}\0").into_bytes();
    let alone = carry_down();
    // Each begins and ends within leaves that hold others' keys too.
    (0..CLONES).for_each(|number| commit(&env, |batch| batch.clone_range(D, &source, &name(number))));
    let cloned = carry_down();
    let each = cloned.saturating_sub(alone) / u64::from(CLONES);
    assert!(each < 2048, "a clone takes {each} bytes once all is carried down");
    commit(&env, |batch| batch.delete_range(D, &Cut::before(source.clone()), &Cut::after(source.clone())));
    for number in 1..CLONES {
        let name = name(number);
        commit(&env, |batch| batch.delete_range(D, &Cut::before(name.clone()), &Cut::after(name.clone())));
    }
    let left = carry_down();
    assert!(left < alone + alone / 50, "one of all is left, of {alone} bytes, and {left} are used");
    assert_eq!(count(&env, &name(0)), 100_000);
    commit(&env, |batch| batch.delete_range(D, &Cut::LOW, &Cut::HIGH));
    let left = carry_down();
    assert!(left < alone / 50, "nothing is left, and {left} bytes are used");
    assert_sound(&env);
}
