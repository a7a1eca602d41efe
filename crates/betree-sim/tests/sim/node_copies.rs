//! Laws of volumes with two copies of interior nodes: they are as others, and rot of one copy of each node
//! loses nothing.
#![allow(clippy::panic)]

use betree::NodeCopies;
use betree_sim::harness::{effort, guarded, seeds, try_history};
use betree_sim::{CopiesReached, Mix, copied_nodes_history, history_of_seed, try_laws_with};

const STEPS: usize = 200;

#[test]
fn random_histories_with_two_copies_agree_with_the_model() {
    for seed in seeds(effort(40)) {
        let (setup, steps) = history_of_seed(seed, STEPS, Mix::LAWS);
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim node_copies::");
        let run = |steps: &[_]| try_laws_with(setup, NodeCopies::Two, steps);
        if let Err(report) = try_history(&replay, &setup, &steps, run) {
            panic!("seed {seed}: {report}");
        }
    }
}

#[test]
fn rot_of_one_copy_of_each_node_loses_nothing() {
    let mut all = CopiesReached::default();
    let all_seeds = seeds(effort(40));
    for seed in all_seeds.clone() {
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim node_copies::");
        let ran = guarded(&replay, || {
            let reached = copied_nodes_history(seed, STEPS)?;
            all.damaged = [0, 1].map(|side| all.damaged[side] + reached.damaged[side]);
            all.used += reached.used;
            all.found += reached.found;
            Ok(())
        });
        if let Err(what) = ran {
            panic!("{what}\n  replay: {replay}");
        }
    }
    println!("{all:?}");
    if all_seeds.count() > 1 {
        let CopiesReached { damaged: [first, second], used, found } = all;
        assert!(first > 20 && second > 20 && used > 20 && found > 10, "{all:?}");
    }
}
