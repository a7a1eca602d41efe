//! Law: a kernel that keeps what the server allows it to keep never remembers anything that is not true,
//! whatever is done to the volume by its requests, and a crash loses nothing durable.
#![allow(clippy::panic)]

use betree_sim::harness::{effort, seeds, setting};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

#[test]
fn what_the_kernel_remembers_is_true() {
    let seeds = seeds(effort(300));
    let steps = setting("BETRFS_STEPS", 80) as usize;
    let run = Plan { trials: Trials::Protocol, seeds, steps, time: None }.run();
    if let Some(report) = run.failed {
        panic!("{report}");
    }
}

/// A law says little about what its histories do not reach.
#[test]
fn histories_reach_notices_refusals_and_crashes() {
    let reached = Plan { trials: Trials::Protocol, seeds: 0..150, steps: 80, time: None }.run().reached;
    for (what, least) in [
        ("recovery", 100),
        ("lost undurable states", 50),
        ("provoke", 150),
        ("shrink", 80),
        ("clone onto", 80),
        ("remove below", 100),
        ("list on", 150),
        ("notice", 1000),
        ("name from memory", 5000),
        ("read from memory", 5),
        ("listing from memory", 10),
        ("inode forgotten", 500),
    ] {
        assert!(reached.of(what) >= least, "{what}: {}\n{reached}", reached.of(what));
    }
}

#[test]
fn a_seed_stands_for_one_history_and_one_run() {
    for seed in 0..20 {
        let plan = |seed| Plan { trials: Trials::Protocol, seeds: seed..seed + 1, steps: 80, time: None };
        assert_eq!(plan(seed).run().reached, plan(seed).run().reached, "seed {seed}");
    }
}
