//! `betrfs get`: shows the properties of directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use betrfs::{Properties, PropertySource};
use betrfs_fuse::Errno;
use clap::ValueEnum;
use serde::Serialize;

use crate::commands::properties::{Name, Shown};
use crate::commands::stats;
use crate::failure::{Failure, Outcome, say};
use crate::format::{Format, print, print_json};
use crate::name;
use crate::path;
use crate::plain_text::on_one_line;

/// Show the properties of a directory on a mount, and where they are from
#[derive(clap::Args)]
#[command(after_help = "\
The source of a value is `local` if the directory has it of its own, `inherited from` the nearest directory above that \
has one, or `default`. `betrfs set --help` says what the properties mean.

Examples:
  betrfs get /mnt/build
  betrfs get -r /mnt noatime       also all directories below that have a value of their own
  betrfs get /mnt/build --format json")]
pub struct Arguments {
    /// Also the directories below it that have properties of their own; all others inherit theirs
    #[arg(short, long)]
    recursive: bool,
    /// The directory
    dir: PathBuf,
    /// This property alone
    name: Option<Name>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Where a value is from.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Default,
    Local,
    Inherited,
}

#[derive(Serialize)]
struct Value {
    value: String,
    source: Source,
    /// The directory that an inherited value is from.
    #[serde(flatten)]
    from: Option<name::Name>,
}

#[derive(Serialize)]
struct Directory {
    #[serde(flatten)]
    path: name::Name,
    properties: BTreeMap<&'static str, Value>,
}

#[derive(Serialize)]
struct Found {
    directories: Vec<Directory>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { recursive, dir, name, format } = arguments;
    let names = name.as_ref().map_or(Name::value_variants(), std::slice::from_ref);
    stats::approach(dir)?;
    let first = shown(dir, names, &properties_of(dir)?);
    let mut found = Found { directories: vec![first] };
    let mut missing = None;
    if *recursive {
        let top = fs::metadata(dir).map_err(|error| cannot_list(dir, &error))?;
        missing = below(dir, top.dev(), names, &mut found.directories)?;
    }
    if *format == Format::Json {
        print_json(&found)?;
        return missing.map_or(Ok(()), Err);
    }
    for Directory { path, properties } in &found.directories {
        if *recursive {
            print(format_args!("{}:", on_one_line(&path.to_string())))?;
        }
        for (name, Value { value, source, from }) in properties {
            let source = match (source, from) {
                (Source::Default, _) => "default".to_owned(),
                (Source::Local, _) => "local".to_owned(),
                (Source::Inherited, Some(from)) => {
                    format!("inherited from {}", on_one_line(&from.to_string()))
                }
                (Source::Inherited, None) => "inherited from above the mount point".to_owned(),
            };
            print(format_args!("{name:<12} {value:<8} {source}"))?;
        }
    }
    missing.map_or(Ok(()), Err)
}

/// Adds the directories below one that have one of these properties of their own, each before those in it.
/// Returns why some are missing, if any are: others go on.
fn below(
    dir: &Path,
    device: u64,
    names: &[Name],
    found: &mut Vec<Directory>,
) -> Result<Option<Failure>, Failure> {
    let mut waiting = subdirectories(dir, device)?;
    let mut missing = None;
    while let Some(dir) = waiting.pop() {
        // It may be gone by now.
        if !fs::symlink_metadata(&dir).is_ok_and(|now| now.is_dir() && now.dev() == device) {
            continue;
        }
        let seen = properties_of(&dir).and_then(|properties| Ok((properties, subdirectories(&dir, device)?)));
        let (properties, inside) = match seen {
            Ok(seen) => seen,
            Err(why) => {
                // The last one is told by the end of the command.
                if let Some(earlier) = missing.replace(why) {
                    say(&earlier.to_string());
                }
                continue;
            }
        };
        if names.iter().any(|name| name.shown(&properties).source == PropertySource::Own) {
            found.push(shown(&dir, names, &properties));
        }
        waiting.extend(inside);
    }
    Ok(missing)
}

/// The directories in a directory, but for other mounts: from the last name to the first.
fn subdirectories(dir: &Path, device: u64) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| cannot_list(dir, &error))? {
        let entry = entry.map_err(|error| cannot_list(dir, &error))?;
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && entry.metadata().is_ok_and(|found| found.dev() == device) {
            paths.push(entry.path());
        }
    }
    paths.sort_by(|one, other| other.cmp(one));
    Ok(paths)
}

fn shown(dir: &Path, names: &[Name], properties: &Properties) -> Directory {
    let value = |name: &Name| {
        let Shown { value, source } = name.shown(properties);
        let (source, from) = match source {
            PropertySource::Default => (Source::Default, None),
            PropertySource::Own => (Source::Local, None),
            PropertySource::Inherited { levels } => (Source::Inherited, above(dir, levels)),
        };
        let from = from.map(|from| name::Name::new("from", from));
        (name.word(), Value { value, source, from })
    };
    let path = name::Name::new("path", dir);
    Directory { path, properties: names.iter().map(value).collect() }
}

/// The path of the directory so many components further up; `None` if it is not on this mount, as where only
/// a part of the volume is mounted.
fn above(dir: &Path, levels: u32) -> Option<PathBuf> {
    let whole = dir.canonicalize().ok()?;
    let above = whole.ancestors().nth(levels.try_into().ok()?)?;
    let is_here = fs::metadata(above).ok()?.dev() == fs::metadata(&whole).ok()?.dev();
    is_here.then(|| above.to_owned())
}

fn properties_of(dir: &Path) -> Result<Properties, Failure> {
    betrfs_fuse::properties(dir).map_err(|error| {
        let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
            Some(Errno::NOTDIR) => "it is no directory".to_owned(),
            Some(Errno::LOOP) => path::LOOPS.to_owned(),
            _ => error.to_string(),
        };
        Failure::new(format!("cannot show the properties of {}: {why}", dir.display()))
    })
}

fn cannot_list(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot list {}: {error}", dir.display()))
}
