//! `betrfs top`: what a mount does now.

mod between;
mod document;
mod frame;
mod screen;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use betrfs_fuse::{MountEntry, Status};

use self::between::{Between, Sample};
use self::document::Document;
use self::screen::{Screen, Wish};
use crate::commands::stats;
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;

/// Watch what a live mount does: requests, their times, device I/O, cache, log, checkpoints
#[derive(clap::Args)]
#[command(after_help = "\
Shows the rates between two questions to the server, and asks again at each interval; `q` ends it, any other key asks \
at once. Where standard input or output is no terminal, it prints the first interval and ends. p50 and p99 are \
the times of the server for requests of the interval. Amplification is what was written to the device for each byte \
that users wrote to files by requests. `--once --format json` prints the same as a document, in bytes and nanoseconds; \
`betrfs stats` has all counters. Only root and the user who \
mounted the volume may ask.

Examples:
  betrfs top /mnt
  betrfs top /mnt --once --interval 10           ten seconds, as text
  betrfs top /mnt --once --format json")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// Seconds between two questions to the server, from 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_interval)]
    interval: Duration,
    /// Print one interval and end, also at a terminal
    #[arg(long)]
    once: bool,
    /// How to print it; JSON only with --once
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=3600.0).contains(seconds));
    let wrong = || format!("`{text}` is not a number of seconds from 0.1 to 3600");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.format == Format::Json && !arguments.once {
        let why = "a document has one measurement: give --once with --format json";
        return Err(Failure::of(Kind::Usage, why));
    }
    let mount = stats::mount_at(&arguments.dir)?;
    let mut before = sample(&mount)?;
    let is_watched = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if arguments.once || !is_watched {
        std::thread::sleep(arguments.interval);
        let now = sample(&mount)?;
        return match arguments.format {
            Format::Text => print(frame::lines(&before, &now, arguments.interval).join("\n")),
            Format::Json => {
                let volume = Name::new("volume", stats::volume_of(&mount, &now.status));
                let dir = Name::new("dir", &mount.path);
                print_json(&Document::new(volume, dir, &Between::new(&before, &now)))
            }
        };
    }
    let mut screen = Screen::open()?;
    screen.show(&[format!("the first interval, {} s", arguments.interval.as_secs_f64())])?;
    while screen.wait(arguments.interval)? == Wish::GoOn {
        let now = sample(&mount)?;
        screen.show(&frame::lines(&before, &now, arguments.interval))?;
        before = now;
    }
    Ok(())
}

fn sample(mount: &MountEntry) -> Result<Sample, Failure> {
    let status = Status::ask(mount).map_err(|why| stats::unheard(&mount.path, &why))?;
    Ok(Sample { status, at: Instant::now() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds_within_bounds() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("3600"), Ok(Duration::from_secs(3600)));
        for wrong in ["", "0", "0.05", "3601", "-1", "nan", "inf", "soon"] {
            assert!(parse_interval(wrong).unwrap_err().contains("0.1 to 3600"), "{wrong}");
        }
    }
}
