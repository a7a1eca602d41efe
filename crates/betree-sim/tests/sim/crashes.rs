//! Law: whatever a crash does to unsynced writes, the volume opens; it has everything synced and a prefix of
//! the other batches, each whole; it is sound, takes new changes, and survives the next crash as well. A
//! crash of the recovery changes none of that.
#![allow(clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use betree::{Env, Error};
use betree_platform::Device;
use betree_sim::harness::{effort, guarded, list_steps, setting};
use betree_sim::{CrashHistory, ModelEnv, SimDisk, first_violation, format_env, open_env, shrink_steps};

fn replay_of(seed: u64, n: u64) -> String {
    format!(
        "BETRFS_SEED={seed} BETRFS_CRASH_AT={n} cargo test -p betree-sim --test sim crashes:: -- --nocapture"
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
        first_violation(effort(400), &trial)
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

/// A crash law says little about logs, clones in them, their wrapping and kept blocks unless its histories
/// have them often.
#[test]
fn the_histories_log_much_wrap_the_log_and_keep_blocks() {
    let (mut logging, mut wrapping, mut with_clones, mut keeping) = (0, 0, 0, 0);
    for seed in 0..24 {
        let history = CrashHistory::of_seed(seed);
        let stats = history.stats().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let clones = format!("{:?}", history.before).contains("clone(");
        logging += u32::from(stats.log_writes >= 4);
        with_clones += u32::from(stats.log_writes >= 4 && clones);
        wrapping += u32::from(stats.log_write_bytes > history.setup.geometry.log_bytes);
        keeping += u32::from(stats.kept_bytes > 0);
    }
    println!("of 24: {logging} log, {with_clones} of these clone, {wrapping} wrap, {keeping} keep blocks");
    assert!(logging >= 8, "{logging} of 24 histories write to the log");
    assert!(with_clones >= 4, "{with_clones} of 24 write to the log, and clone");
    assert!(wrapping >= 2, "{wrapping} of 24 write more than their logs hold");
    assert!(keeping >= 2, "{keeping} of 24 have nodes that keep blocks");
}

/// Transactions that are open when the power fails, too: there are up to four at any time.
#[test]
fn the_histories_commit_transactions() {
    let commits = |seed| {
        CrashHistory::of_seed(seed).transaction_commits().unwrap_or_else(|what| panic!("seed {seed}: {what}"))
    };
    let committed: Vec<u64> = (0..24).map(commits).collect();
    assert!(committed.iter().filter(|count| **count >= 3).count() >= 5, "{committed:?}");
}

#[test]
fn a_crash_while_formatting_leaves_an_empty_volume_or_none() {
    for seed in 0..20 {
        let setup = CrashHistory::of_seed(seed).setup;
        for n in 1.. {
            let disk = Arc::new(SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks));
            disk.cut_power_at(n);
            let device: Arc<dyn Device> = disk.clone();
            let is_done = format_env(&device, &setup).is_ok();
            if !disk.is_cut() {
                assert!(is_done && n > 4, "seed {seed}: formatted in {n} calls");
                break;
            }
            assert!(!is_done, "seed {seed}: formatted although the power was cut at call {n}");
            let found: Arc<dyn Device> = Arc::new(disk.crash(seed << 16 | n));
            let is_empty = |env: &Env| {
                let read = ModelEnv::read(env, setup.geometry.dicts).unwrap_or_else(|e| panic!("{e}"));
                read.difference(&ModelEnv::new(setup.geometry.dicts)).is_none()
            };
            match open_env(&found, &setup) {
                Ok(env) => assert!(is_empty(&env), "seed {seed}, call {n}"),
                // A superblock that was cut short looks like one that rotted.
                Err(Error::NotAVolume { .. } | Error::Corrupt { .. }) => {}
                Err(error) => panic!("seed {seed}, call {n}: {error}"),
            }
            format_env(&found, &setup).unwrap_or_else(|e| panic!("seed {seed}, call {n}: {e}"));
            let env = open_env(&found, &setup).unwrap_or_else(|e| panic!("seed {seed}, call {n}: {e}"));
            assert!(is_empty(&env), "seed {seed}, call {n}, formatted again");
        }
    }
}
