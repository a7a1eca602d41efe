//! Clones of clones: the tree stays low, and keys within their limit.

use betree::{Batch, Cut};

use super::{D, assert_sound, commit, count, dir, key, open, volume};

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
    // However many clones of clones are on the path, it is no longer than the tree is high.
    for number in 0..200 {
        let before = env.stats();
        assert!(env.get(D, &key(&name(number), 1_000_000)).unwrap().is_some());
        let after = env.stats();
        assert_eq!(after.point_queries - before.point_queries, 1);
        // If nothing had to be read, the query went down once.
        if after.device_reads == before.device_reads {
            let nodes = after.point_query_nodes - before.point_query_nodes;
            assert!(nodes <= after.height, "{nodes} nodes of {} levels for {number}", after.height);
        }
    }
    assert!(env.stats().height <= 8, "{} levels", env.stats().height);
    assert_sound(&env);
}

#[test]
fn a_clone_whose_keys_would_be_too_long_is_refused_and_changes_nothing() {
    let device = volume();
    let env = open(&device);
    for size in [10, 1_000] {
        let source = dir(size);
        // The engine knows a bound of the longest key below. With the first prefix the bound is within the
        // limit; the second is too long even with a name of eight bytes.
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
fn the_tree_stays_low_while_directories_come_and_go() {
    let device = volume();
    let env = open(&device);
    let mut rng = betree_sim::Rng::new(3);
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
