//! Laws of rot under an environment in use: readers get what is right or an error that names the damage;
//! what was accepted becomes durable, and is there when all has healed; and changes are refused only where
//! too much waits above something lost.
#![allow(clippy::panic)]

use std::time::Duration;

use betree_sim::harness::{effort, guarded, seeds};
use betree_sim::{RotReached, rot_history, rot_history_of_seed, shrink};

const STEPS: usize = 120;
const LINE_CHARS_MAX: usize = 300;
const SHRINK_SECS: u64 = 30;

#[test]
fn what_rots_in_use_is_told_and_takes_nothing_else_along() {
    let mut all = RotReached::default();
    let all_seeds = seeds(effort(60));
    for seed in all_seeds.clone() {
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim live_rot::");
        let (setup, kind, acts) = rot_history_of_seed(seed, STEPS);
        let ran = guarded(&replay, || {
            all.add(&rot_history(setup, kind, &acts)?);
            Ok(())
        });
        if let Err(what) = ran {
            let fails = |acts: &[_]| guarded(&replay, || rot_history(setup, kind, acts).map(drop)).is_err();
            let short = shrink(&acts, Duration::from_secs(SHRINK_SECS), fails);
            let last = rot_history(setup, kind, &short).err();
            let told = |act| format!("{act:?}").chars().take(LINE_CHARS_MAX).collect();
            let told: Vec<String> = short.iter().map(told).collect();
            panic!(
                "{what}\n  replay: {replay}\n  on {setup:?}, {kind:?}, shrunk to {} of {}:\n    {}\n  {last:?}",
                short.len(),
                acts.len(),
                told.join("\n    ")
            );
        }
    }
    println!("{all:?}");
    if all_seeds.count() == 1 {
        return;
    }
    assert!(all.rotten > 100 && all.unread > 100 && all.over_lost > 100, "{all:?}");
    assert!(all.refused_clones > 0 && all.read_only > 0 && all.healed > 10 && all.noted > 0, "{all:?}");
}

/// Histories in which queries of many keys read the same headers again and again, each for the others.
#[test]
fn many_keys_in_little_memory_are_read_in_the_end() {
    for seed in [742, 2086, 2098] {
        let (setup, kind, acts) = rot_history_of_seed(seed, STEPS);
        let ran = guarded(&format!("seed {seed}"), || rot_history(setup, kind, &acts).map(drop));
        assert_eq!(ran, Ok(()), "seed {seed}");
    }
}
