//! The space that clones take, and the space that their removal returns.

use std::sync::Arc;

use betree::{Batch, Cut, Geometry};
use betree_platform::Device;
use betree_sim::{MemDevice, Setup, format_env, open_env};

use super::{D, SETUP, assert_sound, commit, count, dir, key, open, volume};

#[test]
fn a_thousand_clones_of_one_directory_take_little_and_return_it_all() {
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
    // Flushes all pending messages, as after a long time.
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
    // Each clone has its own changes.
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

#[test]
fn a_volume_full_of_clones_allows_deletes_and_returns_the_space() {
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
fn usage_reports_what_a_clone_shares_and_its_removal_frees() {
    let device = volume();
    let env = Arc::new(open(&device));
    let size = 100_000;
    let (source, copy) = (dir(size), b"/copy\0".to_vec());
    let usage = |dir: &[u8]| env.view().usage(D, &Cut::before(dir), &Cut::after(dir)).unwrap();
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
    // No other range shares the nodes of both together.
    let both = env.view().usage(D, &Cut::LOW, &Cut::HIGH).unwrap();
    assert_eq!(both.stored_bytes, both.exclusive_bytes);
    // Changes in the copy belong to the copy alone.
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
    // The source's nodes were rebuilt meanwhile, and are less full.
    let freed = before - env.space().used_bytes + again.stored_bytes - alone.stored_bytes;
    assert!(
        freed.abs_diff(changed.exclusive_bytes) < changed.exclusive_bytes / 8,
        "{freed} bytes freed, {changed:?}, the source {alone:?} before and {again:?} after"
    );
}

/// Reclaiming space gives clones nodes of their own in place of windows onto others' interior nodes, but not
/// below: no copy is made of a leaf at a clone's end that others share.
#[test]
fn clones_take_as_little_once_all_is_flushed() {
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
    // Each begins and ends inside leaves with others' keys.
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
    // The node table has grown, and is stored twice.
    assert!(left < alone / 30, "nothing is left, and {left} bytes of {alone} are used");
    assert_sound(&env);
}
