//! Law: a disk that fails is an error, never a panic and never wrong data; what was made durable is there
//! once the volume is opened on a sound disk. Where stored data are lost, what can be read is right, and a
//! check finds what cannot.
#![allow(clippy::panic)]

use betree_sim::harness::{effort, seeds, setting};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

#[test]
fn a_failing_disk_is_an_error_and_loses_nothing_durable() {
    let seeds = seeds(effort(300));
    let run =
        Plan { trials: Trials::Faults, seeds, steps: setting("BETRFS_STEPS", 80) as usize, time: None }.run();
    if let Some(report) = run.failed {
        panic!("{report}");
    }
}

#[test]
fn histories_reach_faults_of_all_kinds_and_go_on() {
    let reached = Plan { trials: Trials::Faults, seeds: 0..400, steps: 80, time: None }.run().reached;
    for (what, least) in [
        ("failed by a fault", 100),
        ("fault while opening", 5),
        ("opened anew after a failure", 5),
        ("went on once there was room", 2),
        ("damage: not opened", 2),
        ("damage: nothing lost", 20),
        ("damage: unreadable parts", 2),
        ("fault: slow call", 10),
    ] {
        assert!(reached.of(what) >= least, "{what}: {}\n{reached}", reached.of(what));
    }
}
