//! Crashes: cuts the power in the middle of histories, and checks the recovered volume.

use std::sync::Arc;

use betree::Stats;
use betree_platform::Device;
use seeded::Rng;

use crate::failure::Failure;
use crate::history::History;
use crate::mix::Mix;
use crate::runner::{Runner, open_env};
use crate::sim_disk::SimDisk;
use crate::step::{Setup, Step, history_of_seed};

/// Steps before the power cut; a history of a long log has more, so that the log wraps.
const STEPS_BEFORE: usize = 40;
const LONG_STEPS_BEFORE: usize = 160;
/// Many of these are within transactions, and write nothing.
const TRANSACTION_STEPS_BEFORE: usize = 200;
/// Steps on the recovered volume, which crashes again.
const STEPS_AFTER: usize = 12;
/// The last call at which the second crash may come.
const SECOND_CUT_MAX: usize = 24;
/// The last call at which a recovery may crash: of a short one, or of one that writes checkpoints while it
/// replays.
const RECOVERY_CUTS_MAX: [usize; 2] = [8, 80];
/// The number of crashes of a history, each at another call.
const CRASHES_PER_HISTORY: u64 = 16;
/// Kinds of histories come in turns of so many seeds.
const KINDS: u64 = 8;

/// A history with the steps after its crash.
#[derive(Clone, Debug)]
pub struct CrashHistory {
    /// The seed, which also decides the effect of each crash.
    pub seed: u64,
    /// Shape and size of the volume.
    pub setup: Setup,
    /// The steps until the power fails.
    pub before: Vec<Step>,
    /// The steps after the recovery.
    pub after: Vec<Step>,
}

impl CrashHistory {
    /// The history of a seed.
    pub fn of_seed(seed: u64) -> CrashHistory {
        let (mix, steps) = match seed % KINDS {
            1 | 5 => (Mix::LONG_LOG, LONG_STEPS_BEFORE),
            2 | 6 => (Mix::INGEST_CRASHES, STEPS_BEFORE),
            4 | 7 => (Mix::TRANSACTION_CRASHES, TRANSACTION_STEPS_BEFORE),
            _ => (Mix::CRASHES, STEPS_BEFORE),
        };
        let (setup, mut before) = history_of_seed(seed, steps + STEPS_AFTER, mix);
        let after = before.split_off(steps);
        CrashHistory { seed, setup, before, after }
    }

    /// Crashes the history of a seed at some of its calls; returns the first call after which the recovery is
    /// wrong, and how.
    pub fn violation_of_seed(
        seed: u64,
        trial: &dyn Fn(&CrashHistory, u64) -> Result<(), String>,
    ) -> Option<(u64, String)> {
        let history = CrashHistory::of_seed(seed);
        let calls = match history.calls() {
            Ok(calls) => calls,
            Err(what) => return Some((0, what)),
        };
        spread(calls, &mut Rng::new(seed)).into_iter().find_map(|n| Some((n, trial(&history, n).err()?)))
    }

    /// The number of calls that change the disk without a crash: the power can fail at each.
    ///
    /// # Errors
    /// The history fails without a crash.
    pub fn calls(&self) -> Result<u64, String> {
        let (disk, mut runner) = self.format()?;
        let formatted = disk.changing_calls();
        run_whole(&mut runner, &self.before)?;
        Ok(disk.changing_calls() - formatted)
    }

    /// The statistics of the engine without a crash, since the volume was last opened.
    ///
    /// # Errors
    /// The history fails without a crash.
    pub fn stats(&self) -> Result<Stats, String> {
        let (_, mut runner) = self.format()?;
        run_whole(&mut runner, &self.before)?;
        runner.env().map(|env| env.stats()).map_err(|e| e.to_string())
    }

    /// How many transactions commit changes without a crash.
    ///
    /// # Errors
    /// The history fails without a crash.
    pub fn transaction_commits(&self) -> Result<u64, String> {
        let (_, mut runner) = self.format()?;
        run_whole(&mut runner, &self.before)?;
        Ok(runner.transaction_commits())
    }

    /// Cuts the power at call `n` and checks all promises about the recovered volume, with a crash of the
    /// recovery and a second crash later.
    ///
    /// # Errors
    /// The first promise that does not hold.
    pub fn crash_at(&self, n: u64) -> Result<(), String> {
        let mut rng = Rng::new(self.seed ^ n.rotate_left(32));
        let (disk, runner) = self.format()?;
        disk.cut_power_at(n);
        let history =
            run_until_cut(&disk, runner, &self.before).map_err(|e| format!("before the crash: {e}"))?;
        let mut found = disk.crash(rng.next_u64());
        if rng.percent(50) {
            found = self.crash_recovery(found, &mut rng)?;
        }
        let (disk, runner) = self.recover(found, &history).map_err(|e| format!("after the crash: {e}"))?;

        disk.cut_power_at(rng.between(1, SECOND_CUT_MAX) as u64);
        let history =
            run_until_cut(&disk, runner, &self.after).map_err(|e| format!("between the crashes: {e}"))?;
        let found = disk.crash(rng.next_u64());
        let (_, mut runner) =
            self.recover(found, &history).map_err(|e| format!("after the second crash: {e}"))?;
        let last = |e: Failure| format!("on the volume recovered twice: {e}");
        runner.run(&self.after).map_err(|(i, e)| format!("step {i} on the volume recovered twice: {e}"))?;
        runner.drain().map_err(last)?;
        runner.step(&Step::Reopen).map_err(last)?;
        runner.compare_all().map_err(last)?;
        runner.check().map_err(last)
    }

    fn format(&self) -> Result<(Arc<SimDisk>, Runner), String> {
        let disk = Arc::new(SimDisk::new(self.setup.volume_bytes).which_seeks(self.setup.seeks));
        let runner = Runner::format(Arc::clone(&disk) as Arc<dyn Device>, self.setup);
        runner.map(|runner| (disk, runner)).map_err(|e| format!("format: {e}"))
    }

    /// Opens the disk, with a power cut during the recovery, and returns the disk after that.
    fn crash_recovery(&self, found: SimDisk, rng: &mut Rng) -> Result<SimDisk, String> {
        let disk = Arc::new(found);
        let cut_max = *rng.pick(&RECOVERY_CUTS_MAX);
        disk.cut_power_at(rng.between(1, cut_max) as u64);
        let device = Arc::clone(&disk) as Arc<dyn Device>;
        match open_env(&device, &self.setup) {
            Err(error) if !disk.is_cut() => Err(format!("after the crash: the engine failed: {error}")),
            Ok(env) => {
                env.abandon();
                Ok(disk.crash(rng.next_u64()))
            }
            Err(_) => Ok(disk.crash(rng.next_u64())),
        }
    }

    fn recover(&self, found: SimDisk, history: &History) -> Result<(Arc<SimDisk>, Runner), Failure> {
        let disk = Arc::new(found);
        let runner = Runner::open(Arc::clone(&disk) as Arc<dyn Device>, self.setup, history)?;
        runner.check()?;
        Ok((disk, runner))
    }
}

fn run_whole(runner: &mut Runner, steps: &[Step]) -> Result<(), String> {
    runner.run(steps).map_err(|(i, e)| format!("without a crash, step {i}: {e}"))
}

/// Takes the steps up to the power cut, if it comes, and returns the acknowledged commits.
fn run_until_cut(disk: &SimDisk, mut runner: Runner, steps: &[Step]) -> Result<History, String> {
    match runner.run(steps) {
        Err((_, Failure::Engine(_))) if disk.is_cut() => {}
        Err((i, failure)) => return Err(format!("step {i}: {failure}")),
        Ok(()) => {}
    }
    Ok(runner.into_history())
}

/// Crashes histories of one seed after the other, each at some of its calls, `crashes` times in all. Returns
/// the first wrong recovery: seed, call and failure.
pub fn first_violation(
    crashes: u64,
    trial: &dyn Fn(&CrashHistory, u64) -> Result<(), String>,
) -> Option<(u64, u64, String)> {
    (0..crashes.div_ceil(CRASHES_PER_HISTORY)).find_map(|seed| {
        let (n, what) = CrashHistory::violation_of_seed(seed, trial)?;
        Some((seed, n, what))
    })
}

/// Some of a number of calls, each from another part.
fn spread(calls: u64, rng: &mut Rng) -> Vec<u64> {
    let parts = calls.min(CRASHES_PER_HISTORY);
    let first = |part: u64| part * calls / parts + 1;
    (0..parts).map(|part| rng.between(first(part) as usize, first(part + 1) as usize - 1) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_are_spread_over_all_calls() {
        assert_eq!(spread(0, &mut Rng::new(1)), []);
        assert_eq!(spread(3, &mut Rng::new(1)), [1, 2, 3]);
        let met: std::collections::BTreeSet<u64> =
            (0..1000).flat_map(|seed| spread(100, &mut Rng::new(seed))).collect();
        assert_eq!(met, (1..=100).collect());
        assert!((0..100).all(|seed| spread(100, &mut Rng::new(seed)).len() as u64 == CRASHES_PER_HISTORY));
    }
}
