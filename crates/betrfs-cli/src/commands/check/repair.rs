//! `betrfs check --repair`, `-p`, `-y` and `--undo`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use betree::{FindingCode, counted};
use betree_std::FileDevice;
use betrfs::{Mended, Mending, Repair, Volume};
use betrfs_fuse::{CheckReport, is_damage, is_truncated};
use serde::Serialize;

use super::{Arguments, Document, failed, failed_with_way_out, print_problems};
use crate::commands::mkfs::before;
use crate::failure::{Failure, Kind, Outcome};
use crate::format::{Format, print, print_json};
use crate::interruption::Interruption;
use crate::name::Name;
use crate::opening;
use crate::plain_text::on_one_line;
use crate::progress::Progress;

/// What a check may do about problems.
#[derive(clap::Args)]
pub struct Wanted {
    /// Mend what can be mended without guessing. Asks on a terminal before anything is written; without one
    /// it does what takes nothing away
    #[arg(long)]
    repair: bool,
    /// Mend without asking what takes nothing away. A volume that was closed is not read
    #[arg(short = 'p', visible_short_alias = 'a', conflicts_with = "yes")]
    preen: bool,
    /// Mend without asking all that can be mended. What it takes away is listed first
    #[arg(short = 'y')]
    yes: bool,
    /// With -y: give up the names that were lost. Where they may have been is nothing from then on, new ones
    /// can be made there, and directories count what is left. Files of which data are left get their names
    /// back, with a new record, and for root alone
    #[arg(long, requires = "yes")]
    accept_name_loss: bool,
    /// Write nothing, as without any option
    #[arg(short = 'n', conflicts_with_all = ["repair", "preen", "yes", "undo"])]
    nothing: bool,
    /// With -p: read the volume even if it was closed
    #[arg(short = 'f')]
    force: bool,
    /// Take the last repair back. Possible until the volume is mounted for writing
    #[arg(long, conflicts_with_all = ["repair", "preen", "yes", "format"])]
    undo: bool,
}

impl Wanted {
    /// Whether anything may be written.
    pub fn writes(&self) -> bool {
        self.repair || self.preen || self.yes || self.undo
    }
}

/// A change as programs get it.
#[derive(Serialize)]
struct Change<'a> {
    code: &'a str,
    loses: bool,
    what: &'a str,
}

/// The repair as programs get it.
#[derive(Serialize)]
pub struct Told<'a> {
    /// Whether the changes were written.
    written: bool,
    changes: Vec<Change<'a>>,
    /// The problems that are left with these changes.
    left: CheckReport,
}

/// Repairs a volume, or takes a repair back; returns the outcome of the command once it has printed its
/// result.
///
/// # Errors
/// Nothing was printed.
pub fn run(arguments: &Arguments, shown: &str, interruption: &Interruption) -> Result<Outcome, Failure> {
    let wanted = &arguments.wanted;
    if wanted.undo {
        return undo(arguments, shown).map(Ok);
    }
    if wanted.preen && !wanted.force && was_closed(arguments, shown)? {
        interruption.end();
        let note = "it was closed, and is not read (-f reads it)";
        return Ok(match arguments.format {
            Format::Text => print(format_args!("{shown}: {note}")),
            Format::Json => print_json(&unread(arguments, note)),
        });
    }
    let device = Arc::new(betrfs_fuse::open_device(&arguments.volume)?);
    let is_asked =
        !wanted.yes && !wanted.preen && arguments.format == Format::Text && io::stdin().is_terminal();
    let mending = match (wanted.yes || is_asked, wanted.accept_name_loss) {
        (false, _) => Mending::Safe,
        (true, false) => Mending::All,
        (true, true) => Mending::AllAndLostNames,
    };
    let mut progress = Progress::of_check(arguments.progress);
    let mut told: Outcome = Ok(());
    let open = device.clone();
    let mut consent = |repair: &Repair| {
        told = list(arguments.format, shown, repair)
            .and_then(|()| refuse_what_is_of_others(&open, shown, repair));
        told.is_ok() && (!is_asked || ask(shown))
    };
    let options = opening::options();
    let repaired =
        Volume::repair(device, &options, mending, &mut consent, &mut |done, all| progress.tell(done, all));
    drop(progress);
    told?;
    let repair = repaired.map_err(|error| match mending {
        Mending::Safe => failed_with_way_out(shown, &error),
        Mending::All | Mending::AllAndLostNames if is_damage(&error) && !is_truncated(&error) => {
            Failure::damage(format!(
                "{shown}: {error}; no repair mends that: `betrfs rescue` copies out what is left"
            ))
        }
        Mending::All | Mending::AllAndLostNames => failed(shown, &error),
    })?;
    let verdict = verdict(shown, &repair);
    interruption.end();
    match arguments.format {
        Format::Json => print_json(&document(arguments, &repair, verdict.as_ref()))?,
        Format::Text if repair.before.found() == 0 && repair.mended.is_empty() => {
            print(format_args!("{shown}: no problem found"))?;
            print_problems(shown, &repair.before.clone().into())?;
        }
        // The list was printed before anything was written.
        Format::Text if !repair.mended.is_empty() => {}
        Format::Text => print_problems(shown, &repair.before.clone().into())?,
    }
    Ok(verdict.map_or(Ok(()), Err))
}

/// Refuses a device whose superblocks are lost because others have taken it since: what is left of a volume
/// there is not in use any more.
fn refuse_what_is_of_others(device: &FileDevice, shown: &str, repair: &Repair) -> Outcome {
    if !repair.mended.iter().any(|mended| mended.code == FindingCode::LostSuperblocks.name()) {
        return Ok(());
    }
    match before::of_others(device) {
        Some(found) => Err(Failure::new(format!("{shown} {found}: nothing was written"))),
        None => Ok(()),
    }
}

/// Whether the volume was closed by its last user, and its superblocks and its size let it be mounted.
fn was_closed(arguments: &Arguments, shown: &str) -> Result<bool, Failure> {
    let device = Arc::new(betrfs_fuse::open_device_for_reading(&arguments.volume)?);
    let copies =
        betree::debug::superblocks(device, &mut |_| ()).map_err(|error| failed(shown, &error.into()))?;
    Ok(copies.refused.is_none() && copies.current.is_ok_and(|superblock| superblock.clean))
}

fn undo(arguments: &Arguments, shown: &str) -> Outcome {
    let device = Arc::new(betrfs_fuse::open_device(&arguments.volume)?);
    match betree::undo_repair(device).map_err(|error| failed(shown, &error.into()))? {
        Some(_) => print(format_args!(
            "{shown}: the repair is taken back: all is as it was before, but its superblocks are whole"
        )),
        None => Err(Failure::new(format!(
            "{shown}: there is no repair to take back: none was made since it was mounted for writing"
        ))),
    }
}

/// Prints the problems and the changes, those first that take something away.
fn list(format: Format, shown: &str, repair: &Repair) -> Outcome {
    if format == Format::Json {
        return Ok(());
    }
    print_problems(shown, &repair.before.clone().into())?;
    let (losing, keeping): (Vec<_>, Vec<_>) = repair.mended.iter().partition(|mended| mended.loses);
    for Mended { what, code, .. } in losing {
        print(format_args!("{shown}: takes away: {} [{code}]", on_one_line(what)))?;
    }
    for Mended { what, code, .. } in keeping {
        print(format_args!("{shown}: mends: {} [{code}]", on_one_line(what)))?;
    }
    Ok(())
}

/// Asks on the terminal; anything but a yes is a no.
fn ask(shown: &str) -> bool {
    let asked = write!(io::stderr(), "{shown}: write these changes? [y/N] ");
    let mut answer = String::new();
    let is_read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).is_ok();
    is_read && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn verdict(shown: &str, repair: &Repair) -> Option<Failure> {
    let (found, left) = (repair.before.found(), repair.after.found());
    let changes = counted(repair.mended.len() as u64, "change", "changes");
    // Known damage is no problem, though the caller may have it mended.
    if found == 0 && repair.mended.is_empty() && repair.given_up == 0 {
        return None;
    }
    let back = "`betrfs check --undo` takes it back until it is mounted";
    let is_open = repair.after.refused.is_none();
    if repair.before.is_of_later_version() || repair.after.is_of_later_version() {
        return Some(Failure::new(format!(
            "{shown} has things that were made by a later version of betrfs: repair it with that version; nothing was \
             written"
        )));
    }
    let in_vain = match repair.in_vain.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "; {} nothing, for a check asks for them again, which is a mistake of this program: {} [{}]",
            counted(repair.in_vain.len() as u64, "change mends", "changes mend"),
            first.what,
            first.code
        ),
    };
    Some(match repair.generation {
        None if repair.given_up > 0 || !repair.in_vain.is_empty() => Failure::damage(format!(
            "{shown} is damaged ({found} found), and nothing was written, because with all changes {} \
             left{in_vain}; `betrfs rescue` copies out what can be read",
            counted(left, "problem is", "problems are")
        )),
        None => Failure::damage(format!("{shown} is damaged ({found} found), and nothing was written")),
        Some(_) if left == 0 && is_open => {
            Failure::of(Kind::Mended, format!("{shown} was damaged and is repaired ({changes}): {back}"))
        }
        Some(_) => {
            let mut text = format!(
                "{shown} is repaired in part ({changes}, {} left)",
                counted(left, "problem", "problems")
            );
            if let Some(refused) = &repair.after.refused {
                text +=
                    &format!(", and cannot be mounted ({refused}): `betrfs rescue` copies out what is left");
            }
            Failure::of(Kind::MendedInPart, format!("{text}{in_vain}: {back}"))
        }
    })
}

/// The document of a volume that was not read.
fn unread(arguments: &Arguments, note: &str) -> Document<'static> {
    let report = CheckReport { notes: vec![note.to_owned()], ..CheckReport::default() };
    let volume = Name::new("volume", &arguments.volume);
    Document { volume, clean: true, report, repair: None, error: None }
}

fn document<'a>(arguments: &Arguments, repair: &'a Repair, verdict: Option<&Failure>) -> Document<'a> {
    let changes = repair.mended.iter();
    let changes =
        changes.map(|Mended { code, loses, what, .. }| Change { code, loses: *loses, what }).collect();
    let told = Told { written: repair.generation.is_some(), changes, left: repair.after.clone().into() };
    Document {
        volume: Name::new("volume", &arguments.volume),
        clean: verdict.is_none(),
        report: repair.before.clone().into(),
        repair: Some(told),
        error: match repair.generation {
            Some(_) => repair.after.refused.as_ref().map(ToString::to_string),
            // Why nothing was written, though changes were made in memory, or not even these.
            None => verdict
                .filter(|failure| repair.given_up > 0 || failure.kind() == Kind::Other)
                .map(ToString::to_string),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::ExitCodes;

    #[test]
    fn what_cannot_be_mounted_after_a_repair_is_repaired_in_part() {
        let mut repair = Repair::default();
        repair.before.problems_more = 3;
        repair.generation = Some(7);
        let said =
            |repair: &Repair| verdict("v", repair).map(|failure| (failure.kind(), failure.to_string()));
        let (kind, text) = said(&repair).unwrap();
        assert!(kind == Kind::Mended && text.starts_with("v was damaged and is repaired"), "{text}");
        repair.after.refused = Some(betrfs::Error::NotFound);
        let (kind, text) = said(&repair).unwrap();
        assert!(kind == Kind::MendedInPart && text.contains("cannot be mounted"), "{text}");
        assert!(text.contains("betrfs rescue"), "{text}");
    }

    #[test]
    fn what_mends_nothing_is_told_with_the_exit_bit_of_problems_that_are_left() {
        let mut repair = Repair::default();
        repair.before.problems_more = 2;
        repair.after.problems_more = 2;
        repair.given_up = 1;
        let said = |repair: &Repair| {
            let failure = verdict("v", repair).unwrap();
            (ExitCodes::CHECK.of_kind(failure.kind()), failure.to_string())
        };
        let (code, text) = said(&repair);
        assert_eq!(code, 4);
        assert!(text.contains("nothing was written, because with all changes 2 problems are left"), "{text}");
    }
}
