//! Law: a view holds what a map of the batches before it holds, whatever is committed, flushed, cloned,
//! freed, evicted, written and checkpointed while it lives; and nothing of it is left when it has ended.

use betrfs_sim::harness::{seeds, setting, try_history};
use betrfs_sim::{Mix, history_of_seed, try_laws};

#[test]
fn views_agree_with_the_model_of_their_moment() {
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    for seed in seeds(setting("BETRFS_HISTORIES", 300)) {
        let (setup, steps) = history_of_seed(seed, steps_max, Mix::VIEWS);
        let replay = format!(
            "BETRFS_SEED={seed} BETRFS_STEPS={steps_max} cargo test -p betrfs-sim --test engine_views -- --nocapture"
        );
        if let Err(report) = try_history(&replay, &setup, &steps, |steps| try_laws(setup, steps)) {
            panic!("seed {seed}: {report}");
        }
    }
}
