//! `betrfs scrub`: reads and verifies all that a mounted volume has stored.

use std::path::{Path, PathBuf};

use betree::{FindingCode, OnDamage, ScrubFrom, ScrubOptions};
use betrfs_fuse::{CheckError, Line, ScrubReport, ScrubRequest};
use serde::Serialize;

use crate::commands::check::print_problems;
use crate::commands::stats;
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::interruption::Interruption;
use crate::name::Name;
use crate::progress::Progress;
use crate::size;

/// Read all that a mounted volume has stored, and compare it with its checksums
#[derive(clap::Args)]
#[command(after_help = "\
The mount's server reads superblocks, node table and nodes past its cache, each block once, at low priority and a \
bounded rate, while others go on. It finds what the disk has lost before somebody needs it; whether names, data and \
counts fit together is for `betrfs check`. \
Ctrl-C or an unmount interrupts it, and --resume goes on from there, even after the next mount. `betrfs stats` shows \
the record of the last scrub. Only root and the user who mounted the volume may scrub it. \
Problems are listed and exit codes are as by `betrfs check`: 0 no problem, 1 all problems were mended, 4 problems are \
left (5: some were mended), 8 the scrub failed, 16 the command line is wrong, 32 interrupted.

Examples:
  betrfs scrub /mnt
  betrfs scrub /mnt --rate 200M --resume
                              go on with one that was interrupted, up to 200 MiB a second")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// The most bytes to read in a second
    #[arg(long, default_value = "50M", value_parser = size::parse_positive)]
    rate: u64,
    /// Go on where the last scrub was interrupted; begin anew if it was not
    #[arg(long)]
    resume: bool,
    /// Write anew what has a good copy: superblocks and parts of the node table
    #[arg(long)]
    repair: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Tell of the progress on standard error even if that is no terminal, in lines
    #[arg(long)]
    progress: bool,
}

/// The result for programs, printed in any case.
#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    volume: Name,
    clean: bool,
    /// What was found; null if the scrub failed.
    #[serde(flatten)]
    scrubbed: Option<ScrubReport>,
    /// Why the scrub failed, if so.
    error: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let shown = arguments.dir.display().to_string();
    // The server notices that nobody listens any more.
    let (dir, format) = (arguments.dir.clone(), arguments.format);
    let interruption = Interruption::watch(interrupted(&shown), move |sentence| {
        if format == Format::Json {
            // The exit code remains.
            let _ = print_json(&document(&dir, None, Some(&Failure::new(sentence))));
        }
    })?;
    let (scrubbed, failure) = match scrub(arguments) {
        Ok(scrubbed) => {
            let failure = verdict(&shown, &scrubbed, arguments.repair);
            (Some(scrubbed), failure)
        }
        Err(failure) => (None, Some(failure)),
    };
    interruption.end();
    match (arguments.format, &scrubbed) {
        (Format::Json, _) => print_json(&document(&arguments.dir, scrubbed, failure.as_ref()))?,
        (Format::Text, Some(ScrubReport { report, scrub })) => {
            if failure.is_none() {
                print(format_args!("{shown}: no problem found in {}", size::show(scrub.read_bytes)))?;
            }
            print_problems(&shown, report)?;
        }
        (Format::Text, None) => {}
    }
    failure.map_or(Ok(()), Err)
}

fn document(dir: &Path, scrubbed: Option<ScrubReport>, failure: Option<&Failure>) -> Document {
    let error = failure.filter(|_| scrubbed.is_none()).map(ToString::to_string);
    Document { volume: Name::new("volume", dir), clean: failure.is_none(), scrubbed, error }
}

fn interrupted(shown: &str) -> String {
    format!("the scrub of {shown} was interrupted: `--resume` goes on from there")
}

/// Has the server of a mount scrub its volume.
fn scrub(arguments: &Arguments) -> Result<ScrubReport, Failure> {
    let Arguments { dir, rate, resume, repair, progress, .. } = arguments;
    let mount = stats::mount_at(dir)?;
    let from = if *resume { ScrubFrom::LastStop } else { ScrubFrom::Start };
    let mut progress = Progress::of_scrub(*progress);
    let line = Line::open(&mount).map_err(|why| stats::unheard(dir, &why))?;
    let on_damage = if *repair { OnDamage::Mend } else { OnDamage::Tell };
    let request = ScrubRequest { bytes_per_second: *rate, options: ScrubOptions { from, on_damage } };
    line.scrub(&mount, request, &mut |done, all| progress.tell(done, all)).map_err(|error| match error {
        CheckError::Unheard(why) => stats::unheard(dir, &why),
        CheckError::Over => Failure::of(Kind::Interrupted, interrupted(&dir.display().to_string())),
        CheckError::Failed(why) => Failure::new(format!("cannot scrub {}: {why}", dir.display())),
    })
}

/// The outcome of the command for a report.
fn verdict(shown: &str, ScrubReport { report, scrub }: &ScrubReport, repairs: bool) -> Option<Failure> {
    let copied = [FindingCode::BadCopy, FindingCode::BadNodeCopy, FindingCode::BadSuperblock];
    let has_copies = |code: &str| copied.iter().any(|copied| copied.name() == code);
    let copied = report.problems.iter().filter(|problem| has_copies(&problem.code)).count() as u64;
    let mended = if repairs { copied } else { 0 };
    let more = "`betrfs check` of the unmounted volume reads all of it";
    let is_complete = scrub.state == "complete";
    let failure = match scrub.problems {
        0 if is_complete => return None,
        0 => Failure::of(Kind::Interrupted, interrupted(shown)),
        found if mended == found => Failure::of(
            Kind::Mended,
            match found {
                1 => format!("{shown} was damaged: 1 found, and written anew from a good copy"),
                _ => format!("{shown} was damaged: {found} found, all written anew from good copies"),
            },
        ),
        found if mended > 0 => Failure::of(
            Kind::MendedInPart,
            format!(
                "{shown} is damaged ({found} found, {mended} of them written anew from good copies): {more}"
            ),
        ),
        found if copied == found => Failure::damage(format!(
            "{shown} is damaged ({found} found), and all has a good copy: `betrfs scrub --repair` writes it anew"
        )),
        found => Failure::damage(format!("{shown} is damaged ({found} found): {more}")),
    };
    Some(match (scrub.problems, is_complete) {
        (0, _) | (_, true) => failure,
        _ => Failure::of(failure.kind(), format!("{failure}; and {}", interrupted(shown))),
    })
}
