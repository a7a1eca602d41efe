//! `betrfs check`: reads and verifies a whole volume.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use betree_std::StdPlatform;
use betrfs::{OpenOptions, Problem, Report, Volume};
use betrfs_fuse::is_damage;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};

/// Check a volume: read all of it and verify it
#[derive(clap::Args)]
#[command(after_help = "\
The volume must not be mounted. Changes in its log are replayed first, as by a mount. A volume that cannot \
be opened is checked as far as it can be read, and not changed. \
Every problem is one line on standard output, with its place, the files it makes unreadable in part, and its \
kind in brackets; the exit code is then 1. Lines that begin with `not checked` name parts that could not be judged.

Example:
  betrfs check data.betrfs")]
pub struct Arguments {
    /// The volume's file or block device
    volume: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The result for programs, printed in any case.
#[derive(Serialize)]
struct Document<'a> {
    volume: &'a str,
    clean: bool,
    problems: Vec<ProblemDocument<'a>>,
    problems_more: u64,
    notes: &'a [String],
    files: &'a BTreeSet<String>,
    files_more: u64,
    /// Why the volume or its device could not be opened, or closed at the end.
    error: Option<String>,
}

/// A problem for programs.
#[derive(Serialize)]
struct ProblemDocument<'a> {
    /// The kind of problem, by a name that does not change.
    code: &'a str,
    /// The damaged structure, and where it begins on the device in bytes.
    place: Option<&'static str>,
    offset: Option<u64>,
    files: &'a [String],
    what: &'a str,
}

impl ProblemDocument<'_> {
    fn of(problem: &Problem) -> ProblemDocument<'_> {
        let (place, offset) = (problem.place.as_ref(), problem.place.and_then(|place| place.offset()));
        let Problem { code, files, what, .. } = problem;
        ProblemDocument { code, place: place.map(|place| place.name()), offset, files, what }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let shown = arguments.volume.display().to_string();
    let (report, failure) = match examine(arguments, &shown) {
        Ok(report) => {
            let failure = verdict(&shown, &report);
            (report, failure)
        }
        Err(failure) => (Report::default(), Some(failure)),
    };
    match arguments.format {
        Format::Json => print_json(&document(&shown, &report, failure.as_ref()))?,
        Format::Text => print_lines(&shown, &report, failure.is_none())?,
    }
    failure.map_or(Ok(()), Err)
}

fn examine(arguments: &Arguments, shown: &str) -> Result<Report, Failure> {
    let device = betrfs_fuse::open_device(&arguments.volume)?;
    // Drawn on standard error, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("checking [{wide_bar}] {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    let options = OpenOptions::new(Arc::new(StdPlatform::new()));
    let examined = Volume::examine(Arc::new(device), options, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    examined.map_err(|error| failed(shown, &error))
}

/// The failure of a volume that cannot be opened.
pub fn failed(shown: &str, error: &betrfs::Error) -> Failure {
    let sentence = format!("{shown}: {error}");
    if is_damage(error) { Failure::damage(sentence) } else { Failure::new(sentence) }
}

/// The outcome of the command for a report.
fn verdict(shown: &str, report: &Report) -> Option<Failure> {
    let found = report.problems.len() as u64 + report.problems_more;
    match &report.refused {
        None if found == 0 => None,
        Some(error) if found == 0 => Some(failed(shown, error)),
        None => Some(Failure::damage(format!(
            "{shown} is damaged ({found} found): copy what can be read from a mount of it to a new volume"
        ))),
        Some(error) => Some(Failure::damage(format!(
            "{shown} is damaged ({found} found) and cannot be mounted: {error}"
        ))),
    }
}

fn document<'a>(shown: &'a str, report: &'a Report, failure: Option<&Failure>) -> Document<'a> {
    let is_told = report.problems.is_empty();
    let refused = report.refused.as_ref().map(ToString::to_string);
    Document {
        volume: shown,
        clean: failure.is_none(),
        problems: report.problems.iter().map(ProblemDocument::of).collect(),
        problems_more: report.problems_more,
        notes: &report.notes,
        files: &report.files,
        files_more: report.files_more,
        error: refused.or_else(|| failure.filter(|_| is_told).map(ToString::to_string)),
    }
}

fn print_lines(shown: &str, report: &Report, is_clean: bool) -> Outcome {
    if is_clean {
        print(format_args!("{shown}: no problem found"))?;
    }
    for problem in &report.problems {
        print(format_args!("{shown}: {problem}"))?;
    }
    for note in &report.notes {
        print(format_args!("{shown}: {note}"))?;
    }
    if report.problems_more > 0 {
        print(format_args!("{shown}: and {} problems more, which are not listed", report.problems_more))?;
    }
    Ok(())
}
