//! Runs a fuzz target: `cargo run -p betrfs-fuzz -- requests --seconds 3600`.

use std::process::ExitCode;
use std::time::Duration;

use betrfs_fuzz::TARGETS;
use betrfs_fuzz::runner::{folder, run};
use clap::Parser;

/// Changes inputs of a target's corpus at random, until one fails.
///
/// Example: betrfs-fuzz superblock --seconds 3600
#[derive(Parser)]
struct Arguments {
    /// superblock, log, page, header, run, image, pairs or requests
    target: String,
    /// Try the input of this seed alone
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Begin no input after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Write the inputs that the program makes into the corpus, and try none
    #[arg(long)]
    examples: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(target) = TARGETS.iter().find(|target| target.name == arguments.target) else {
        eprintln!("there is no target {}", arguments.target);
        return ExitCode::from(2);
    };
    if arguments.examples {
        for (number, bytes) in (target.examples)().into_iter().enumerate() {
            let path = folder(target).join(format!("{number:02}"));
            if let Err(error) = std::fs::write(&path, bytes) {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
        return ExitCode::SUCCESS;
    }
    let seeds = arguments.seed.map_or(arguments.from..u64::MAX, |seed| seed..seed.saturating_add(1));
    match run(target, seeds, Duration::from_secs(arguments.seconds)) {
        Ok(tried) => {
            println!("{}: {tried} inputs", target.name);
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("{what}");
            ExitCode::FAILURE
        }
    }
}
