//! Law: whatever a crash does to what was not synced, the volume opens; all that was synced is there,
//! of the rest a prefix, each batch whole; it is sound, takes new changes, and survives the next crash
//! as well. A crash of the recovery changes nothing of that.
#![allow(clippy::panic)]

use std::time::Duration;

use betrfs_sim::harness::{guarded, list_steps, setting};
use betrfs_sim::{CrashHistory, first_violation, shrink_steps};

fn replay_of(seed: u64, n: u64) -> String {
    format!(
        "BETRFS_SEED={seed} BETRFS_CRASH_AT={n} cargo test -p betrfs-sim --test engine_crashes -- --nocapture"
    )
}

fn trial(history: &CrashHistory, n: u64) -> Result<(), String> {
    guarded(&format!("a crash at call {n}"), || history.crash_at(n))
}

/// The shortest part of the history that fails at any of its calls.
fn shrunk(history: &CrashHistory) -> String {
    let fails_at = |before: &[_]| {
        let part = CrashHistory { before: before.to_vec(), ..history.clone() };
        let calls = part.calls().unwrap_or(0);
        (1..=calls).find_map(|n| trial(&part, n).err().map(|what| (n, what)))
    };
    let short = shrink_steps(&history.before, Duration::from_secs(60), |before| fails_at(before).is_some());
    let (n, what) = fails_at(&short).unwrap_or_default();
    format!(
        "  shrunk to {} steps:\n{}  cut at call {n}: {what}\n  and after the recovery:\n{}",
        short.len(),
        list_steps(&short),
        list_steps(&history.after)
    )
}

#[test]
fn every_crash_leaves_what_was_synced_and_a_prefix_of_the_rest() {
    let only = (setting("BETRFS_SEED", u64::MAX), setting("BETRFS_CRASH_AT", u64::MAX));
    let violation = if only == (u64::MAX, u64::MAX) {
        first_violation(setting("BETRFS_CRASHES", 400), &trial)
    } else {
        trial(&CrashHistory::of_seed(only.0), only.1).err().map(|what| (only.0, only.1, what))
    };
    if let Some((seed, n, what)) = violation {
        let history = CrashHistory::of_seed(seed);
        panic!(
            "seed {seed}, power cut at call {n}: {what}\n  replay: {}\n  on {:?}\n{}",
            replay_of(seed, n),
            history.setup,
            shrunk(&history)
        );
    }
}

#[test]
fn a_crash_right_after_format_leaves_an_empty_volume() {
    for seed in 0..50 {
        let history = CrashHistory { before: Vec::new(), ..CrashHistory::of_seed(seed) };
        if let Err(what) = trial(&history, 1) {
            panic!("seed {seed}: {what}");
        }
    }
}
