//! Runs of many seeds, and the report of one that failed.

use std::ops::Range;
use std::time::{Duration, Instant};

use betree_sim::harness::guarded;
use betree_sim::shrink;

use crate::history::{History, Trials};
use crate::reached::Reached;
use crate::step::Step;

/// The time limit of shrinking.
const SHRINK_TIME: Duration = Duration::from_secs(30);

/// Which seeds to run, and how long their histories are.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the histories may meet.
    pub trials: Trials,
    /// The seeds.
    pub seeds: Range<u64>,
    /// Number of steps of each history.
    pub steps: usize,
    /// After this time no further seed is begun.
    pub time: Option<Duration>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// Number of histories.
    pub histories: u64,
    /// What they reached.
    pub reached: Reached,
    /// The report of the first that failed.
    pub failed: Option<String>,
}

impl Plan {
    /// The first seed that fails, and how.
    pub fn first_failure(&self) -> Option<(u64, String)> {
        self.seeds.clone().find_map(|seed| {
            let history = History::of_seed(seed, self.steps, self.trials);
            try_steps(&history, &history.steps).err().map(|what| (seed, what))
        })
    }

    /// Runs the seeds up to the first that fails.
    pub fn run(&self) -> Run {
        let begun = Instant::now();
        let mut run = Run::default();
        for seed in self.seeds.clone() {
            if self.time.is_some_and(|time| begun.elapsed() >= time) {
                break;
            }
            let history = History::of_seed(seed, self.steps, self.trials);
            match try_steps(&history, &history.steps) {
                Ok(reached) => run.reached.join(&reached),
                Err(what) => {
                    run.failed = Some(self.report(&history, &what));
                    return run;
                }
            }
            run.histories += 1;
        }
        run
    }

    /// The report of a history that failed: the command that replays it, and its shortest part that fails.
    fn report(&self, history: &History, what: &str) -> String {
        let short = shrink(&history.steps, SHRINK_TIME, |steps| try_steps(history, steps).is_err());
        let last = try_steps(history, &short).err().unwrap_or_else(|| "(not every time)".into());
        let steps = words(&short);
        format!(
            "seed {}: {what}\n  replay: {}\n  on {:?}\n  shrunk to {} of {} steps:\n{steps}  which fails so: {last}",
            history.seed,
            self.replay(history.seed),
            history.setup,
            short.len(),
            history.steps.len(),
        )
    }

    fn replay(&self, seed: u64) -> String {
        let trials = match self.trials {
            Trials::Operations => "--operations",
            Trials::Crashes => "--volume",
            Trials::Faults => "--faults",
            Trials::Repairs => "--repairs",
            Trials::Protocol => "--protocol",
        };
        format!("cargo run -p betrfs-sim -- {trials} --seed {seed} --steps {}", self.steps)
    }
}

/// Takes steps on the volume of a history, which may panic.
///
/// # Errors
/// The failure, or where and why it panicked.
pub fn try_steps(history: &History, steps: &[Step]) -> Result<Reached, String> {
    let mut reached = Reached::default();
    guarded(&format!("seed {}", history.seed), || {
        reached = history.run(steps)?;
        Ok(())
    })?;
    Ok(reached)
}

/// Steps in words, one a line.
pub fn words(steps: &[Step]) -> String {
    steps.iter().enumerate().map(|(number, step)| format!("    {number}: {step}\n")).collect()
}
