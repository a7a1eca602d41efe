//! Seeds at which the simulators found a bug, in the product or in the model. A seed loses its meaning once
//! histories are drawn differently.
#![allow(clippy::panic)]

use betrfs_sim::history::Trials;
use betrfs_sim::runs::{Plan, Run};

const STEPS: usize = 80;

fn replay(trials: Trials, seeds: &[u64], run: impl Fn(&Plan) -> Run) {
    for seed in seeds {
        let run = run(&Plan { trials, seeds: *seed..seed + 1, steps: STEPS, time: None });
        if let Some(report) = run.failed {
            panic!("{report}");
        }
        assert_eq!(run.histories, 1, "seed {seed}");
    }
}

#[test]
fn recorded_seeds_of_the_engine_pass() {
    replay(
        Trials::Operations,
        &[
            // Renames there and back took away what was put between them: the model missed a conflict.
            1311,
            // A conflict with a deleted range named a key outside of what the transaction depends on.
            15_921_199,
        ],
        betrfs_sim::engine::run,
    );
}

#[test]
fn recorded_seeds_of_the_protocol_pass() {
    replay(
        Trials::Protocol,
        &[
            // A copy of nothing to a file that keeps its set-group-id bit changed its ctime, untold.
            2_003_380_198,
        ],
        Plan::run,
    );
}

#[test]
fn recorded_seeds_with_faults_pass() {
    replay(
        Trials::Faults,
        &[
            // A clone onto an empty file leaves the room that was set aside for it.
            5803,
        ],
        Plan::run,
    );
}
