//! Law: an environment has the contents of a literal map of the same batches, whatever the shape of its tree,
//! the size of its cache and the order of background work; after all background work it is sound, and emptied
//! it returns all its space.

use betree_sim::harness::{effort, seeds, setting, try_history};
use betree_sim::{Mix, history_of_seed, try_laws};

/// Histories that found a bug, or a planted one, that all before them missed.
const FOUND: [u64; 3] = [630, 3643, 48_595];

#[test]
fn random_histories_agree_with_the_model() {
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    for seed in seeds(effort(300)).chain(FOUND) {
        let (setup, steps) = history_of_seed(seed, steps_max, Mix::LAWS);
        let replay = format!(
            "BETRFS_SEED={seed} BETRFS_STEPS={steps_max} cargo test -p betree-sim --test sim laws:: -- --nocapture"
        );
        if let Err(report) = try_history(&replay, &setup, &steps, |steps| try_laws(setup, steps)) {
            panic!("seed {seed}: {report}");
        }
    }
}
