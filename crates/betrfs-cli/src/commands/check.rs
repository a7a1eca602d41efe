//! `betrfs check`: reads and verifies a whole volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree_std::StdPlatform;
use betrfs::{OpenOptions, Volume};
use betrfs_fuse::{CheckError, CheckProblem, CheckReport, Line, MountEntry, is_damage};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};

/// Check a volume: read all of it and verify it
#[derive(clap::Args)]
#[command(after_help = "\
Of a volume that is not mounted, changes in the log are replayed first, as by a mount; one that cannot be opened \
is checked as far as it can be read, and not changed. A mounted volume is named by its directory: its server \
checks it as of one moment, at low priority, while others go on; Ctrl-C ends that. Only root and the user who \
mounted it may. \
Every problem is one line on standard output, with its place, the files it makes unreadable in part, and its \
kind in brackets; the exit code is then 1. Lines that begin with `not checked` name parts that could not be judged.

Examples:
  betrfs check data.betrfs    a volume that is not mounted
  betrfs check /mnt           a mounted one, while it is used")]
pub struct Arguments {
    /// The volume's file or block device, or the directory on which it is mounted
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
    #[serde(flatten)]
    report: &'a CheckReport,
    /// Why the volume or its device could not be opened, or closed at the end; or why a mount gave no report.
    error: Option<String>,
}

/// The result of a check.
#[derive(Default)]
struct Checked {
    report: CheckReport,
    /// Why the volume cannot be opened or closed, if so.
    refused: Option<betrfs::Error>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let shown = arguments.volume.display().to_string();
    // Asks no server; the path of a volume's file is no root of a mount.
    let mount = MountEntry::at(&arguments.volume).ok().flatten().filter(MountEntry::is_betrfs);
    let checked = match &mount {
        Some(mount) => check_mount(mount, &arguments.volume),
        None => examine(arguments, &shown),
    };
    let (checked, failure) = match checked {
        Ok(checked) => {
            let failure = verdict(&shown, &checked);
            (checked, failure)
        }
        Err(failure) => (Checked::default(), Some(failure)),
    };
    match arguments.format {
        Format::Json => print_json(&document(&shown, &checked, failure.as_ref()))?,
        Format::Text => print_lines(&shown, &checked.report, failure.is_none())?,
    }
    failure.map_or(Ok(()), Err)
}

/// A bar on standard error, drawn only if that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("checking [{wide_bar}] {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}

/// Has the server of a mount check its volume.
fn check_mount(mount: &MountEntry, dir: &Path) -> Result<Checked, Failure> {
    let bar = bar();
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    let checked = line.check(mount, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    match checked {
        Ok(report) => Ok(Checked { report, refused: None }),
        Err(CheckError::Unheard(why)) => Err(stats::unheard(dir, &why)),
        Err(CheckError::Failed(why)) => Err(Failure::new(format!("cannot check {}: {why}", dir.display()))),
    }
}

fn examine(arguments: &Arguments, shown: &str) -> Result<Checked, Failure> {
    let device = betrfs_fuse::open_device(&arguments.volume)?;
    let bar = bar();
    let options = OpenOptions::new(Arc::new(StdPlatform::new()));
    let examined = Volume::examine(Arc::new(device), options, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = examined.map_err(|error| failed(shown, &error))?;
    Ok(Checked { refused: report.refused.clone(), report: report.into() })
}

/// The failure of a volume that cannot be opened.
pub fn failed(shown: &str, error: &betrfs::Error) -> Failure {
    let sentence = format!("{shown}: {error}");
    if is_damage(error) { Failure::damage(sentence) } else { Failure::new(sentence) }
}

/// The outcome of the command for a report.
fn verdict(shown: &str, Checked { report, refused }: &Checked) -> Option<Failure> {
    let found = report.found();
    match refused {
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

fn document<'a>(shown: &'a str, checked: &'a Checked, failure: Option<&Failure>) -> Document<'a> {
    let Checked { report, refused } = checked;
    let is_told = report.problems.is_empty();
    let refused = refused.as_ref().map(ToString::to_string);
    let error = refused.or_else(|| failure.filter(|_| is_told).map(ToString::to_string));
    Document { volume: shown, clean: failure.is_none(), report, error }
}

fn print_lines(shown: &str, report: &CheckReport, is_clean: bool) -> Outcome {
    if is_clean {
        print(format_args!("{shown}: no problem found"))?;
    }
    for CheckProblem { what, code, .. } in &report.problems {
        print(format_args!("{shown}: {what} [{code}]"))?;
    }
    for note in &report.notes {
        print(format_args!("{shown}: {note}"))?;
    }
    if report.problems_more > 0 {
        print(format_args!("{shown}: and {} problems more, which are not listed", report.problems_more))?;
    }
    Ok(())
}
