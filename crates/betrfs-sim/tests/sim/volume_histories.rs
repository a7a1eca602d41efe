//! Laws: whatever is done to a volume, it equals the model; and whenever the power fails, it then equals a
//! state of the model that is not older than the last durable one.
#![allow(clippy::panic)]

use betree_sim::harness::{effort, seeds, setting};
use betrfs_sim::history::Trials;
use betrfs_sim::reached::Reached;
use betrfs_sim::runs::Plan;

const HISTORIES: u64 = 300;
const STEPS: u64 = 80;

fn run(trials: Trials) -> Reached {
    let seeds = seeds(effort(HISTORIES));
    let run = Plan { trials, seeds, steps: setting("BETRFS_STEPS", STEPS) as usize, time: None }.run();
    if let Some(report) = run.failed {
        panic!("{report}");
    }
    run.reached
}

#[test]
fn histories_of_all_operations_agree_with_the_model() {
    run(Trials::Operations);
}

#[test]
fn every_crash_leaves_a_state_that_is_not_older_than_the_last_durable_one() {
    run(Trials::Crashes);
}

/// A law says little about what its histories do not reach.
#[test]
fn histories_reach_crashes_of_all_kinds_and_lose_what_they_may_lose() {
    let plan = Plan { trials: Trials::Crashes, seeds: 0..300, steps: 80, time: None };
    let reached = plan.run().reached;
    // The library has its moments with the planted bugs.
    let synced_within = if cfg!(feature = "planted-bugs") { 15 } else { 0 };
    for (what, least) in [
        ("another program synced within an operation", synced_within),
        ("recovery", 100),
        ("crash in a recovery", 20),
        ("lost undurable states", 50),
        ("found a later state", 20),
        ("batches replayed", 50),
        ("snapshot", 80),
        ("exchange", 60),
        ("fallocate", 100),
        ("clone", 80),
        ("create unnamed", 40),
        ("set properties", 100),
        ("set quota", 80),
        ("clear quota", 20),
        ("refused by a quota", 40),
        ("objects found by number", 500),
        ("numbers of objects that are gone", 50),
    ] {
        assert!(reached.of(what) >= least, "{what}: {}\n{reached}", reached.of(what));
    }
}

#[test]
fn a_seed_stands_for_one_history_and_one_run() {
    for seed in 0..20 {
        let plan = |seed| Plan { trials: Trials::Crashes, seeds: seed..seed + 1, steps: 80, time: None };
        assert_eq!(plan(seed).run().reached, plan(seed).run().reached, "seed {seed}");
    }
}
