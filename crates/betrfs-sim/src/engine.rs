//! The engine's own histories, which stand in `betree-sim`: laws without crashes, then a crash at one of the
//! calls of another history.

use std::time::Instant;

use betree_sim::harness::guarded;
use betree_sim::{CrashHistory, Mix, Rng, history_of_seed, try_laws};

use crate::runs::{Plan, Run};

/// Runs the seeds of a plan on the engine up to the first that fails.
pub fn run(plan: &Plan) -> Run {
    let begun = Instant::now();
    let mut run = Run::default();
    for seed in plan.seeds.clone() {
        if plan.time.is_some_and(|time| begun.elapsed() >= time) {
            break;
        }
        let name = format!("seed {seed} of the engine");
        if let Err(what) =
            guarded(&name, || laws(seed, plan.steps)).and_then(|()| guarded(&name, || crash(seed)))
        {
            run.failed = Some(format!(
                "{name}: {what}\n  replay: cargo run -p betrfs-sim -- --engine --seed {seed} --steps {}",
                plan.steps
            ));
            return run;
        }
        run.histories += 1;
        run.reached.note("engine: history of laws");
        run.reached.note("engine: crash");
    }
    run
}

fn laws(seed: u64, steps: usize) -> Result<(), String> {
    let mix = match seed % 3 {
        0 => Mix::LAWS,
        1 => Mix::VIEWS,
        _ => Mix::TRANSACTIONS,
    };
    let (setup, steps) = history_of_seed(seed, steps, mix);
    try_laws(setup, &steps)
}

/// Cuts the power at one call of the history of a seed.
fn crash(seed: u64) -> Result<(), String> {
    let history = CrashHistory::of_seed(seed);
    let calls = history.calls()?.max(1);
    let call = 1 + Rng::new(seed).below_u64(calls);
    history.crash_at(call).map_err(|what| format!("crash at call {call}: {what}"))
}
