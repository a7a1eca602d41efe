//! `betrfs check`: reads and verifies a whole volume.

mod repair;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree::counted;
use betrfs::Volume;
use betrfs_fuse::{CheckError, CheckProblem, CheckReport, Line, MountEntry, is_damage, is_truncated};
use serde::Serialize;

use crate::commands::stats;
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::interruption::Interruption;
use crate::name::Name;
use crate::opening;
use crate::plain_text::on_one_line;
use crate::progress::Progress;
use repair::{Told, Wanted};

/// Check a volume: read all of it and verify it
#[derive(clap::Args)]
#[command(after_help = "\
Without a repair nothing is written: the log of a volume that was not closed is replayed in memory, and one that \
cannot be opened is checked as far as it can be read. So its file may be read-only. A mounted volume is named by its \
directory: its server checks it as of one moment, at low priority, while others go on; Ctrl-C ends that. Only root \
and the user who mounted it may. \
Every problem is one line on standard output, with its place, the files it makes unreadable in part, and its \
kind in brackets. Lines that begin with `not checked` name parts that could not be judged. What a repair has noted as lost is listed as \
known damage, and is no problem. \
A repair changes only what the rest of the volume settles. All changes are made in memory and checked; then they are \
written as one checkpoint, so that a crash leaves the volume as it was or repaired. \
Exit codes are those of fsck(8): 0 no problem, 1 all problems were mended, 4 problems are left (5: some were mended), \
8 the check failed, 16 the command line is wrong, 32 interrupted.

Examples:
  betrfs check data.betrfs    a volume that is not mounted
  betrfs check /mnt           a mounted one, while it is used
  betrfs check -p data.betrfs mend what takes nothing away, if it was not closed
  betrfs check --repair data.betrfs
                              show all that can be mended, and ask")]
pub struct Arguments {
    /// The volume's file or block device, or the directory on which it is mounted
    volume: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    wanted: Wanted,
    /// Tell of the progress on standard error even if that is no terminal, in lines
    #[arg(long)]
    progress: bool,
}

/// The result for programs, printed in any case.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    volume: Name,
    clean: bool,
    #[serde(flatten)]
    report: CheckReport,
    /// What a repair changed, or would have changed; of a check without one, null.
    repair: Option<Told<'a>>,
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
    let interruption = watch(arguments, &shown)?;
    // Asks no server; the path of a volume's file is no root of a mount.
    let mount = MountEntry::at(&arguments.volume).ok().flatten().filter(MountEntry::is_betrfs);
    if arguments.wanted.writes() {
        let repaired = match mount {
            Some(_) => Err(Failure::new(format!("{shown} is mounted: unmount it to repair the volume"))),
            None if arguments.volume.is_dir() => Err(stats::not_mounted(&arguments.volume)),
            None => repair::run(arguments, &shown, &interruption),
        };
        return repaired.unwrap_or_else(|failure| not_repaired(arguments, &shown, failure, &interruption));
    }
    let checked = match &mount {
        Some(mount) => check_mount(mount, arguments),
        None if arguments.volume.is_dir() => Err(stats::not_mounted(&arguments.volume)),
        None => examine(arguments, &shown),
    };
    let (checked, failure) = match checked {
        Ok(checked) => {
            let failure = verdict(&shown, &checked);
            (checked, failure)
        }
        Err(failure) => (Checked::default(), Some(failure)),
    };
    interruption.end();
    match arguments.format {
        Format::Json => print_json(&document(&arguments.volume, checked, failure.as_ref()))?,
        Format::Text => {
            if failure.is_none() {
                print(format_args!("{shown}: no problem found"))?;
            }
            print_problems(&shown, &checked.report)?;
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Has a signal end the check with a word. It writes nothing, and a repair one checkpoint: the process may
/// end anywhere.
fn watch(arguments: &Arguments, shown: &str) -> std::io::Result<Interruption> {
    let sentence = match arguments.wanted.writes() {
        false => format!("the check of {shown} was interrupted: nothing was written"),
        true => format!(
            "the repair of {shown} was interrupted: the volume is as it was or, if the end had been reached, as repaired"
        ),
    };
    let (volume, format) = (arguments.volume.clone(), arguments.format);
    Interruption::watch(sentence, move |sentence| {
        if format == Format::Json {
            // The exit code remains.
            let _ = print_json(&document(&volume, Checked::default(), Some(&Failure::new(sentence))));
        }
    })
}

/// Prints what is wrong with a volume that a repair could not begin with.
fn not_repaired(
    arguments: &Arguments,
    shown: &str,
    failure: Failure,
    interruption: &Interruption,
) -> Outcome {
    let is_damaged = failure.kind() == Kind::Damage;
    // A second failure would say no more than the first.
    let found = if is_damaged { examine(arguments, shown).unwrap_or_default() } else { Checked::default() };
    interruption.end();
    match arguments.format {
        Format::Json => {
            let error = Some(failure.to_string());
            print_json(&Document { error, ..document(&arguments.volume, found, Some(&failure)) })?;
        }
        Format::Text => print_problems(shown, &found.report)?,
    }
    Err(failure)
}

/// Has the server of a mount check its volume.
fn check_mount(mount: &MountEntry, arguments: &Arguments) -> Result<Checked, Failure> {
    let dir = &arguments.volume;
    let mut progress = Progress::of_check(arguments.progress);
    let line = Line::open(mount).map_err(|why| stats::unheard(dir, &why))?;
    let checked = line.check(mount, &mut |done, all| progress.tell(done, all));
    drop(progress);
    match checked {
        Ok(report) => Ok(Checked { report, refused: None }),
        Err(CheckError::Unheard(why)) => Err(stats::unheard(dir, &why)),
        Err(CheckError::Over) => Err(Failure::of(
            Kind::Interrupted,
            format!("the check of {} was interrupted: it was unmounted", dir.display()),
        )),
        Err(CheckError::Failed(why)) => Err(Failure::new(format!("cannot check {}: {why}", dir.display()))),
    }
}

fn examine(arguments: &Arguments, shown: &str) -> Result<Checked, Failure> {
    let device = betrfs_fuse::open_device_for_reading(&arguments.volume)?;
    let mut progress = Progress::of_check(arguments.progress);
    let options = opening::options();
    let examined = Volume::examine(Arc::new(device), options, &mut |done, all| progress.tell(done, all));
    drop(progress);
    let report = examined.map_err(|error| failed_with_way_out(shown, &error))?;
    Ok(Checked { refused: report.refused.clone(), report: report.into() })
}

/// What to do about a volume that cannot be opened.
pub const WAYS_OUT: &str =
    "`betrfs check -y` mends what can be mended, and `betrfs rescue` copies out what is left";

/// What to do about something that has no superblock.
const IF_IT_WAS_ONE: &str = "if it was one, `betrfs check -y` makes superblocks of what is left of it, and `betrfs rescue` copies that out";

/// What to do about a volume that cannot be opened, if there is anything that the error does not say.
pub fn way_out(error: &betrfs::Error) -> Option<&'static str> {
    match error {
        betrfs::Error::NotAVolume { why } if why == betree::NO_SUPERBLOCK => Some(IF_IT_WAS_ONE),
        error if is_damage(error) && !is_truncated(error) => Some(WAYS_OUT),
        _ => None,
    }
}

/// The failure of a volume that cannot be opened, with what to do about it.
fn failed_with_way_out(shown: &str, error: &betrfs::Error) -> Failure {
    let failure = failed(shown, error);
    match way_out(error) {
        Some(way_out) => Failure::of(failure.kind(), format!("{failure}; {way_out}")),
        None => failure,
    }
}

/// The failure of a volume that cannot be opened.
pub fn failed(shown: &str, error: &betrfs::Error) -> Failure {
    let sentence = format!("{shown}: {error}");
    if is_damage(error) { Failure::damage(sentence) } else { Failure::new(sentence) }
}

/// The outcome of the command for a report.
fn verdict(shown: &str, Checked { report, refused }: &Checked) -> Option<Failure> {
    let found = report.found();
    if let Some(failure) = of_later_version(shown, report) {
        return Some(failure);
    }
    match refused {
        None if found == 0 => None,
        Some(error) if found == 0 => Some(failed(shown, error)),
        None if report.of_later_version() > 0 => Some(Failure::damage(format!(
            "{shown} is damaged ({found} found), and has things that were made by a later version of betrfs: repair it \
             with that version"
        ))),
        None => Some(Failure::damage(format!(
            "{shown} is damaged ({found} found): `betrfs check --repair` mends what can be mended; copy the rest from a \
             mount of it to a new volume"
        ))),
        Some(error) => Some(Failure::damage(format!(
            "{shown} is damaged ({found} found) and cannot be mounted: {error}; {WAYS_OUT}"
        ))),
    }
}

/// The failure of a volume in which a later version made something, and nothing else is wrong. What that
/// needs, nobody here knows.
fn of_later_version(shown: &str, report: &CheckReport) -> Option<Failure> {
    let later = report.of_later_version();
    (later > 0 && later == report.found()).then(|| {
        Failure::new(format!(
            "{shown} has {} made by a later version of betrfs: use that version to check it",
            counted(later, "thing that was", "things that were")
        ))
    })
}

fn document(volume: &Path, checked: Checked, failure: Option<&Failure>) -> Document<'static> {
    let Checked { report, refused } = checked;
    let is_told = report.problems.is_empty();
    let refused = refused.as_ref().map(ToString::to_string);
    let is_told_only_there = |failure: &&Failure| is_told || failure.kind() == Kind::Other;
    let error = refused.or_else(|| failure.filter(is_told_only_there).map(ToString::to_string));
    Document { volume: Name::new("volume", volume), clean: failure.is_none(), report, repair: None, error }
}

/// Prints each problem, each range of known damage and each note as one line.
pub fn print_problems(shown: &str, report: &CheckReport) -> Outcome {
    for CheckProblem { what, code, .. } in report.problems.iter().chain(&report.known_damage) {
        print(format_args!("{shown}: {} [{code}]", on_one_line(what)))?;
    }
    if report.known_damage_more > 0 {
        print(format_args!(
            "{shown}: and {} not listed",
            counted(
                report.known_damage_more,
                "range of known damage more, which is",
                "ranges of known damage more, which are"
            )
        ))?;
    }
    for note in &report.notes {
        print(format_args!("{shown}: {}", on_one_line(note)))?;
    }
    if report.problems_more > 0 {
        let more = counted(report.problems_more, "problem more, which is", "problems more, which are");
        print(format_args!("{shown}: and {more} not listed"))?;
    }
    Ok(())
}
