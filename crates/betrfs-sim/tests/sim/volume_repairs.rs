//! Law: a check names what was lost, and a repair mends or says what it cannot. What it leaves is right or
//! was named, it can be taken back, and nothing is left of the damage once all files are removed.
#![allow(clippy::panic)]

use betree_sim::harness::{effort, seeds, setting};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

#[test]
fn what_a_repair_leaves_is_right_or_was_named() {
    let seeds = seeds(effort(300));
    let steps = setting("BETRFS_STEPS", 80) as usize;
    let run = Plan { trials: Trials::Repairs, seeds, steps, time: None }.run();
    if let Some(report) = run.failed {
        panic!("{report}");
    }
}

#[test]
fn histories_reach_repairs_of_all_kinds() {
    let reached = Plan { trials: Trials::Repairs, seeds: 0..400, steps: 80, time: None }.run().reached;
    for (what, least) in [
        ("repair: whole", 50),
        ("repair: nothing to mend", 20),
        ("repair: nothing that it may mend", 5),
        ("repair: refused", 5),
        ("repair: in part, safely", 1),
        ("repair: known damage outlives all files", 5),
        ("damage: unreadable parts", 5),
    ] {
        assert!(reached.of(what) >= least, "{what}: {}\n{reached}", reached.of(what));
    }
}
