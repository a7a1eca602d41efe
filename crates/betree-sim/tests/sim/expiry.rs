//! Laws of values that expire: each reader, view and transaction sees what a map of the batches has that had
//! not expired at its own time, whatever leaves and sweeps have dropped; deltas find what had not expired
//! when they were made.

use betree_sim::harness::{effort, seeds, setting, try_history};
use betree_sim::{Mix, history_of_seed, try_laws};

#[test]
fn readers_agree_with_the_model_at_their_times() {
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    // Most of their steps are in the histories of `sim::views` too.
    for seed in seeds(effort(75)) {
        let (setup, steps) = history_of_seed(seed, steps_max, Mix::EXPIRY);
        let replay = format!(
            "BETRFS_SEED={seed} BETRFS_STEPS={steps_max} cargo test -p betree-sim --test sim expiry:: -- --nocapture"
        );
        if let Err(report) = try_history(&replay, &setup, &steps, |steps| try_laws(setup, steps)) {
            panic!("seed {seed}: {report}");
        }
    }
}
