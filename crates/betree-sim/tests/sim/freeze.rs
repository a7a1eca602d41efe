//! Freezes: a copy of the device of a frozen volume, taken in pieces between reads, opens without a replay
//! and has all that was committed before; nothing is written meanwhile, and nothing that came later is lost.
#![allow(clippy::panic)]

use betree_sim::harness::{effort, seeds, setting, try_history};
use betree_sim::{Mix, Step, history_of_seed, try_laws};

#[test]
fn copies_of_frozen_volumes_have_all_that_was_committed_before() {
    let mut frozen = 0;
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    // The copy of each freeze is opened, read and checked.
    let histories = effort(75);
    for seed in seeds(histories) {
        let (setup, steps) = history_of_seed(seed, steps_max, Mix::FREEZES);
        let replay = format!("BETRFS_SEED={seed} cargo test -p betree-sim --test sim freeze::");
        let tried = try_history(&replay, &setup, &steps, |steps| try_laws(setup, steps));
        if let Err(report) = tried {
            panic!("seed {seed}: {report}");
        }
        frozen += steps.iter().filter(|step| matches!(step, Step::Freeze(..))).count();
    }
    assert!(frozen >= seeds(histories).count(), "{frozen} freezes");
}
