//! Laws of views, transactions and ingests.
//!
//! A view holds what a map of the batches before it holds, whatever is committed, flushed, cloned, freed,
//! evicted, written and checkpointed while it lives; and nothing of it is left when it has ended. A
//! transaction reads its beginning with its own changes; it commits if nothing has changed that it depends
//! on, and not if the contents of that differ. An ingest is seen whole or not at all, also where others
//! change its range while it is made.

use betree_sim::harness::{effort, seeds, setting, try_history};
use betree_sim::{Mix, history_of_seed, try_laws};

/// Histories that have found a bug where those before them had not.
const FOUND: [u64; 3] = [199, 485, 643];

/// The report of the first history that breaks a law.
fn broken(mix: Mix) -> Option<String> {
    let steps_max = setting("BETRFS_STEPS", 200) as usize;
    seeds(effort(300)).chain(FOUND).find_map(|seed| {
        let (setup, steps) = history_of_seed(seed, steps_max, mix);
        let replay = format!(
            "BETRFS_SEED={seed} BETRFS_STEPS={steps_max} cargo test -p betree-sim --test sim views:: -- --nocapture"
        );
        let report = try_history(&replay, &setup, &steps, |steps| try_laws(setup, steps)).err()?;
        Some(format!("seed {seed}: {report}"))
    })
}

#[test]
fn views_agree_with_the_model_of_their_moment() {
    assert_eq!(broken(Mix::VIEWS).as_deref().unwrap_or_default(), "");
}

#[test]
fn ingests_agree_with_the_model_beside_views_and_transactions() {
    assert_eq!(broken(Mix::INGESTS).as_deref().unwrap_or_default(), "");
}

#[test]
fn transactions_agree_with_their_model() {
    assert_eq!(broken(Mix::TRANSACTIONS).as_deref().unwrap_or_default(), "");
}
