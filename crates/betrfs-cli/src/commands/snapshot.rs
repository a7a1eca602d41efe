//! `betrfs snapshot`: read-only copies of a directory.

pub mod listing;
mod retention;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use betrfs_fuse::{Errno, Restoration, RestoreError};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use rustix::fs::{AtFlags, Mode};
use serde::Serialize;

use crate::commands::{stats, usage};
use crate::failure::{Failure, Kind, Outcome, warn};
use crate::format::{Format, print, print_json, print_name};
use crate::name::{Name, NameList};
use crate::plain_text::on_one_line;
use crate::size;
use crate::{ownership, path};
use listing::{Snapshot, snapshots};
use retention::{Rule, Rules};

/// The beginning of the names of snapshots that were given none.
const AUTO: &str = "auto-";
/// The beginning of the names of snapshots that keep what a restore replaces. `prune --prefix auto-` leaves
/// them.
const BEFORE_RESTORE: &str = "before-restore-";
/// How many names are tried for one second.
const SAME_SECOND_MAX: u32 = 1000;

/// Make, list, restore and remove snapshots of a directory on a mount
#[derive(clap::Args)]
#[command(after_help = "\
A snapshot is a read-only copy of a directory, made at once whatever its size; only later changes take \
space. Its path is DIR/.betrfs-snapshots/NAME, which no listing shows; `mkdir` and `rmdir` there do the same, \
without data just written to mappings of files. \
Only root and the user who mounted the volume may make, restore or remove snapshots; with the mount option \
user_clone_allowed users may make some of directories that are theirs as a whole (see `betrfs clone --help`), and \
remove those that they have made. A directory with snapshots cannot \
be removed before them, but together with them: see `betrfs rm-tree --snapshots`.

Examples:
  betrfs snapshot create /mnt/tree monday
  betrfs snapshot create /mnt/tree          with the time as its name, as in auto-2026-11-25T10-50-00Z
  betrfs snapshot list -l /mnt/tree
  betrfs snapshot prune /mnt/tree --prefix auto- --keep-hourly 24 --keep-daily 7
  betrfs snapshot restore -n /mnt/tree monday
  betrfs snapshot restore /mnt/tree monday
  betrfs snapshot delete /mnt/tree monday")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make a snapshot of a directory
    Create {
        /// The directory
        dir: PathBuf,
        /// The snapshot's name; by default auto- and the time (UTC)
        name: Option<OsString>,
    },
    /// List the snapshots of a directory, one name per line
    List {
        /// The directory
        dir: PathBuf,
        /// With the time of making, the size, and the space that its removal would free
        #[arg(short, long)]
        long: bool,
        /// How to print it; JSON has all that `--long` shows
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Remove the snapshots that no rule keeps; at least one rule is needed
    Prune {
        /// The directory
        dir: PathBuf,
        #[command(flatten)]
        rules: Rules,
        /// Only snapshots whose names begin with this; the others stay, and count for no rule
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        prefix: OsString,
        /// Remove nothing: only say what would be removed
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Bring a directory back to a snapshot; its present state becomes another snapshot
    #[command(after_help = "\
Everything in the directory, and its own owner, permissions and extended attributes, become what they were in \
the snapshot, in one step: after a crash all of it has happened or nothing. The state before is kept as a \
snapshot, whose name is printed; where many files below have several names, a disk that is full or fails can put \
that off, until a later sync of the mount or the next mount: a warning says so. Programs that have files in it \
open keep them, without a name: what they write is lost when they close them. It is refused while something is \
mounted below the directory, and while a directory below it has snapshots of its own.")]
    Restore {
        /// The directory
        dir: PathBuf,
        /// The snapshot's name
        name: OsString,
        /// The snapshot that keeps the state before; by default before-restore- and the time (UTC)
        #[arg(long, value_name = "NAME")]
        keep_as: Option<OsString>,
        /// Change nothing: only say whether it can be done
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// How to print it
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Remove a snapshot with everything in it
    Delete {
        /// The directory
        dir: PathBuf,
        /// The snapshot's name
        name: OsString,
    },
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        Action::Create { dir, name } => create(dir, name.as_deref()),
        Action::List { dir, long, format } => list(dir, *long, *format),
        Action::Prune { dir, rules, prefix, dry_run, format } => prune(dir, rules, prefix, *dry_run, *format),
        Action::Restore { dir, name, keep_as, dry_run, format } => {
            restore(dir, name, keep_as.as_deref(), *dry_run, *format)
        }
        Action::Delete { dir, name } => {
            stats::approach(dir)?;
            delete(dir, checked(name)?)
        }
    }
}

fn create(dir: &Path, name: Option<&OsStr>) -> Outcome {
    stats::approach(dir)?;
    let mut names = Names::new(name, AUTO)?;
    let made = betrfs_fuse::write_back(dir).and_then(|()| betrfs_fuse::open_snapshots(dir));
    let made = made.and_then(|snapshots| {
        let mode = Mode::from_raw_mode(0o777);
        names.find(|name| Ok(rustix::fs::mkdirat(&snapshots, name, mode)?), is_taken)
    });
    let name = &names.current;
    let doing = format!("take the snapshot {} of", name.display());
    made.map_err(|error| {
        let is_refused = error.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::PERM);
        match is_refused.then(|| ownership::why_refused(dir)).flatten() {
            Some(why) => Failure::new(format!("cannot {doing} {}: {why}", dir.display())),
            None => refused(&doing, dir, &error),
        }
    })
}

/// Whether a name is taken.
fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// The name of a snapshot to be made: the one that was given, or of the present time, the first that is free.
struct Names {
    current: OsString,
    /// Of a name by time.
    stem: Option<String>,
}

impl Names {
    fn new(given: Option<&OsStr>, beginning: &str) -> Result<Names, Failure> {
        if let Some(given) = given {
            return Ok(Names { current: checked(given)?.to_owned(), stem: None });
        }
        let stem = format!("{beginning}{}", Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ"));
        Ok(Names { current: stem.clone().into(), stem: Some(stem) })
    }

    /// Makes a snapshot; where a name by time is taken, as `-2`, `-3` and so on behind it.
    fn find<T, E>(
        &mut self,
        make: impl Fn(&OsStr) -> Result<T, E>,
        is_taken: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut number = 1u32;
        loop {
            let made = make(&self.current);
            match &self.stem {
                Some(stem) if made.as_ref().is_err_and(&is_taken) && number < SAME_SECOND_MAX => {
                    number += 1;
                    self.current = format!("{stem}-{number}").into();
                }
                _ => return made,
            }
        }
    }
}

fn restore(dir: &Path, name: &OsStr, keep_as: Option<&OsStr>, dry_run: bool, format: Format) -> Outcome {
    #[derive(Serialize)]
    struct RestoreDone {
        dry_run: bool,
        #[serde(flatten)]
        restored: Name,
        #[serde(flatten)]
        kept_as: Name,
        #[serde(skip_serializing_if = "Option::is_none")]
        is_kept: Option<bool>,
    }
    let (name, mut names) = (checked(name)?, Names::new(keep_as, BEFORE_RESTORE)?);
    stats::approach(dir)?;
    let restored = |keep_as: &OsStr| {
        let prepared = Restoration::prepare(dir, name, keep_as)?;
        if dry_run { Ok(None) } else { prepared.carry_out().map(Some) }
    };
    let done = names.find(restored, |error| matches!(error, RestoreError::Os(error) if is_taken(error)));
    let keep_as = &names.current;
    let is_kept = done.map_err(|error| not_restored(dir, name, keep_as, &error))?;
    if is_kept == Some(false) {
        warn(&format!(
            "the disk is full or fails, and snapshot {} of the state before is not there yet: a later sync of the \
             mount makes it, or the next mount",
            keep_as.display()
        ));
    }
    match format {
        Format::Json => {
            let (restored, kept_as) = (Name::new("restored", name), Name::new("kept_as", keep_as));
            print_json(&RestoreDone { dry_run, restored, kept_as, is_kept })
        }
        Format::Text => {
            let (dir, shown, kept_as) = (dir.display(), name.display(), keep_as.display());
            print(on_one_line(&match is_kept {
                None => format!("would restore {dir} to {shown}, and keep its present state as {kept_as}"),
                Some(true) => {
                    format!("restored {dir} to {shown}; the state before is its snapshot {kept_as}")
                }
                Some(false) => format!("restored {dir} to {shown}; the state before becomes {kept_as}"),
            }))
        }
    }
}

fn not_restored(dir: &Path, name: &OsStr, keep_as: &OsStr, error: &RestoreError) -> Failure {
    let doing = format!("restore {} to its snapshot {}", dir.display(), name.display());
    let why = match error {
        RestoreError::HeldBelow(paths) => {
            let mut why = "directories below it have snapshots, which would lose them; remove those first \
                           (`betrfs snapshot delete`)"
                .to_owned();
            for path in paths {
                let held = dir.join(OsStr::from_bytes(path)).display().to_string();
                let _ = write!(why, "\n  {}", on_one_line(&held));
            }
            why
        }
        RestoreError::Os(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::EXIST) => format!("a snapshot {} exists: give another --keep-as", keep_as.display()),
            Some(Errno::DQUOT) => "the quota that it is in has no room for what was in the snapshot".to_owned(),
            Some(Errno::AGAIN) => path::CHANGED.to_owned(),
            Some(Errno::PERM) => {
                "only root and the user who mounted the volume may, and not if it is immutable or append-only \
                 (`lsattr -d` shows flags)"
                    .to_owned()
            }
            _ => why(error),
        },
        error @ (RestoreError::MountedBelow | RestoreError::NoSnapshot) => error.to_string(),
    };
    Failure::new(format!("cannot {doing}: {why}"))
}

fn delete(dir: &Path, name: &OsStr) -> Outcome {
    let refused = |error| not_deleted(dir, name, &error);
    delete_in(&betrfs_fuse::open_snapshots(dir).map_err(refused)?, dir, name)
}

/// Deletes a snapshot of a directory, given the opened directory of its snapshots.
fn delete_in(snapshots: &File, dir: &Path, name: &OsStr) -> Outcome {
    let removed = rustix::fs::unlinkat(snapshots, name, AtFlags::REMOVEDIR);
    removed.map_err(|error| not_deleted(dir, name, &error.into()))
}

fn not_deleted(dir: &Path, name: &OsStr, error: &io::Error) -> Failure {
    refused(&format!("delete the snapshot {} of", name.display()), dir, error)
}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    name: Name,
    made: Timestamp,
    #[serde(flatten)]
    usage: usage::Usage,
}

fn list(dir: &Path, long: bool, format: Format) -> Outcome {
    #[derive(Serialize)]
    struct List {
        snapshots: Vec<Listed>,
    }
    let (_, found) = found(dir)?;
    if format == Format::Text && !long {
        return found.iter().try_for_each(|snapshot| print_name(&snapshot.name));
    }
    let listed = found.iter().map(|Snapshot { name, made }| {
        let usage = usage::usage_of(&dir.join(OsStr::from_bytes(betrfs::SNAPSHOTS_NAME)).join(name))?;
        Ok(Listed { name: Name::new("name", name), made: *made, usage })
    });
    let snapshots = listed.collect::<Result<Vec<_>, Failure>>()?;
    if format == Format::Json {
        return print_json(&List { snapshots });
    }
    print(format_args!("{:<20} {:>12} {:>12}  name", "made", "stored", "freed"))?;
    snapshots.iter().try_for_each(|Listed { name, made, usage }| {
        let made = Zoned::new(*made, TimeZone::system()).strftime("%F %T").to_string();
        let (stored, freed) = (size::show(usage.stored_bytes), size::show(usage.freed_bytes));
        print(format_args!("{made:<20} {stored:>12} {freed:>12}  {}", on_one_line(&name.to_string())))
    })
}

fn prune(dir: &Path, rules: &Rules, prefix: &OsStr, dry_run: bool, format: Format) -> Outcome {
    #[derive(Serialize)]
    struct Kept {
        #[serde(flatten)]
        name: Name,
        made: Timestamp,
        rules: Vec<Rule>,
    }
    #[derive(Serialize)]
    struct Pruned {
        dry_run: bool,
        #[serde(flatten)]
        removed: NameList,
        kept: Vec<Kept>,
    }
    if !rules.keep_some() {
        let why = "give a rule that keeps some, as in --keep-daily 7: without one all snapshots would go";
        return Err(Failure::of(Kind::Usage, why));
    }
    // What is listed is deleted, whatever becomes of the directory's name meanwhile.
    let (opened, mut found) = found(dir)?;
    found.retain(|snapshot| snapshot.name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()));
    found.sort_by(|one, other| other.made.cmp(&one.made).then(other.name.cmp(&one.name)));
    let made: Vec<Timestamp> = found.iter().map(|snapshot| snapshot.made).collect();
    let mut pruned = Pruned { dry_run, removed: NameList::new("removed"), kept: Vec::new() };
    for (snapshot, rules) in found.iter().zip(rules.reasons(&made, &TimeZone::system())) {
        let name = snapshot.name.as_os_str();
        if !rules.is_empty() {
            pruned.kept.push(Kept { name: Name::new("name", name), made: snapshot.made, rules });
            continue;
        }
        if !dry_run {
            delete_in(&opened, dir, &snapshot.name)?;
        }
        if format == Format::Text {
            let done = if dry_run { "would remove" } else { "removed" };
            print(format_args!("{done} {}", on_one_line(&name.to_string_lossy())))?;
        }
        pruned.removed.values.push(name.to_owned());
    }
    if format == Format::Json { print_json(&pruned) } else { Ok(()) }
}

/// Opens the directory of a directory's snapshots, and lists these.
fn found(dir: &Path) -> Result<(File, Vec<Snapshot>), Failure> {
    stats::approach(dir)?;
    let found = betrfs_fuse::open_snapshots(dir).and_then(|opened| {
        let found = snapshots(&opened)?;
        Ok((opened, found))
    });
    found.map_err(|error| refused("list the snapshots of", dir, &error))
}

/// Checks a snapshot's name: a path would lead elsewhere.
fn checked(name: &OsStr) -> Result<&OsStr, Failure> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(name)), None) => Ok(name),
        _ => {
            let shown = name.display();
            Err(Failure::new(format!("`{shown}` is not the name of a snapshot: give one without `/`")))
        }
    }
}

fn refused(doing: &str, dir: &Path, error: &io::Error) -> Failure {
    let is_missing = error.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::NOENT);
    let why = match is_missing && dir.is_dir() {
        true if is_in_snapshot(dir) => "it is in a snapshot, and has no snapshots of its own".to_owned(),
        true => "it has no snapshot of that name".to_owned(),
        false => why(error),
    };
    Failure::new(format!("cannot {doing} {}: {why}", dir.display()))
}

/// Whether a directory is a snapshot, is in one, or has those of another.
fn is_in_snapshot(dir: &Path) -> bool {
    let snapshots = Component::Normal(OsStr::from_bytes(betrfs::SNAPSHOTS_NAME));
    dir.canonicalize().is_ok_and(|dir| dir.components().any(|component| component == snapshots))
}

fn why(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
        Some(Errno::NOTDIR) => "it is no directory".to_owned(),
        Some(Errno::EXIST) => "a snapshot with that name exists".to_owned(),
        Some(Errno::LOOP) => path::LOOPS.to_owned(),
        Some(Errno::DQUOT) => {
            "snapshots do not count for the quota that it is in, so that only root and the user who \
                               mounted the volume may make them there"
                .to_owned()
        }
        Some(Errno::PERM) => "only root and the user who mounted the volume may".to_owned(),
        _ => error.to_string(),
    }
}
