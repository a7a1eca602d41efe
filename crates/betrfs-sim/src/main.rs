//! Runs simulated histories: `cargo run -p betrfs-sim -- --volume --histories 1000`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;
use clap::Parser;

/// Runs histories from seeds, on a simulated disk and beside a model, until one fails.
///
/// Example: betrfs-sim --volume --for 1h
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// Run this seed alone
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Number of histories; without a number or a time 1,000
    #[arg(long, value_name = "N")]
    histories: Option<u64>,
    /// Number of steps of each history
    #[arg(long, value_name = "N", default_value_t = 80)]
    steps: usize,
    /// Begin no history after this time: 90s, 10m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
}

/// What the histories are of; without a choice, of a volume with power cuts.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Subject {
    /// A volume: operations and power cuts (the default)
    #[arg(long)]
    volume: bool,
    /// A volume: operations alone
    #[arg(long)]
    operations: bool,
    /// A volume: operations, power cuts and failing disks
    #[arg(long)]
    faults: bool,
    /// A volume: operations and power cuts, and at the end damage and a repair
    #[arg(long)]
    repairs: bool,
    /// A mount's protocol: a volume by requests as the kernel sends them, and power cuts
    #[arg(long)]
    protocol: bool,
    /// The dictionary engine below: laws and power cuts
    #[arg(long)]
    engine: bool,
}

/// The time that a text such as `90s` means.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let unit_secs = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("a time is a number and s, m or h".into()),
    };
    let number: u64 = number.parse().map_err(|error| format!("{number:?} is no number: {error}"))?;
    Ok(Duration::from_secs(number.saturating_mul(unit_secs)))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match (arguments.seed, arguments.histories, arguments.time) {
        (Some(seed), ..) => seed..seed.saturating_add(1),
        (None, None, Some(_)) => arguments.from..u64::MAX,
        (None, histories, _) => arguments.from..arguments.from.saturating_add(histories.unwrap_or(1000)),
    };
    let Subject { operations, faults, repairs, protocol, engine, .. } = arguments.subject;
    let trials = match (operations, faults, repairs, protocol) {
        (true, ..) => Trials::Operations,
        (_, true, ..) => Trials::Faults,
        (.., true, _) => Trials::Repairs,
        (.., true) => Trials::Protocol,
        _ => Trials::Crashes,
    };
    let begun = Instant::now();
    let plan = Plan { trials, seeds, steps: arguments.steps, time: arguments.time };
    let run = if engine { betrfs_sim::engine::run(&plan) } else { plan.run() };
    let secs = begun.elapsed().as_secs_f64();
    println!("{} histories in {secs:.1} s reached:\n{}", run.histories, run.reached);
    match run.failed {
        None => ExitCode::SUCCESS,
        Some(report) => {
            println!("{report}");
            ExitCode::FAILURE
        }
    }
}
