//! `betrfs tree`: directories and snapshots with what they share and what they hold alone.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use crate::commands::snapshot::listing::snapshots;
use crate::commands::usage::{Usage, usage_of};
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::size;

/// The deepest level: each is a call within a call.
const LEVELS_MAX: i64 = 64;

/// Show directories and snapshots as a tree, each with its own and its shared bytes
#[derive(clap::Args)]
#[command(after_help = "\
`stored` is the size of everything below it on the volume: compressed, and shared data counted once. `shared` is the \
part that clones or snapshots have too; `own` is the rest, which its removal would free. So a fresh clone or snapshot \
shares everything. Each line is as of a moment of its own, and reads the headers of all nodes below: a tree of some \
levels reads them once for each level. Symbolic links and other mounts are not followed. Only root and the user who \
mounted the volume may ask.

Examples:
  betrfs tree /mnt
  betrfs tree -d 1 /mnt/home --format json")]
pub struct Arguments {
    /// A directory on a mount
    dir: PathBuf,
    /// How many levels below the directory are shown
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=LEVELS_MAX))]
    depth: u32,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What stands at a place of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Directory,
    Snapshot,
}

#[derive(Serialize)]
struct Place {
    #[serde(flatten)]
    name: Name,
    kind: Kind,
    /// When a snapshot was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<Timestamp>,
    #[serde(flatten)]
    usage: Usage,
    /// Snapshots, then directories, each in the order of their names.
    entries: Vec<Place>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let dir = &arguments.dir;
    let usage = usage_of(dir)?;
    let found = fs::metadata(dir).map_err(|error| cannot_list(dir, &error))?;
    if !found.is_dir() {
        return Err(Failure::new(format!("{} is no directory", dir.display())));
    }
    let entries = entries(dir, found.dev(), arguments.depth)?;
    let name = Name::new("name", dir);
    let tree = Place { name, kind: Kind::Directory, made: None, usage, entries };
    if arguments.format == Format::Json {
        return print_json(&tree);
    }
    print(format_args!("{:>12} {:>12} {:>12}", "stored", "shared", "own"))?;
    lines(&tree, "", "").iter().try_for_each(print)
}

fn cannot_list(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot list {}: {error}", dir.display()))
}

/// The snapshots of a directory and the directories in it, with what is below these. Those on other devices
/// are left out: they are other mounts.
fn entries(dir: &Path, device: u64, levels: u32) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    if levels == 0 {
        return Ok(places);
    }
    // There are none where they cannot be listed, as in a snapshot.
    let found = betrfs_fuse::open_snapshots(dir).and_then(|opened| snapshots(&opened));
    for snapshot in found.unwrap_or_default() {
        let path = dir.join(OsStr::from_bytes(betrfs::SNAPSHOTS_NAME)).join(&snapshot.name);
        let made = Some(snapshot.made);
        places.extend(place(&path, &snapshot.name, Kind::Snapshot, made, (device, levels - 1))?);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| cannot_list(dir, &error))? {
        let entry = entry.map_err(|error| cannot_list(dir, &error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    names.sort();
    for name in names {
        let path = dir.join(&name);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.dev() == device) {
            places.extend(place(&path, &name, Kind::Directory, None, (device, levels - 1))?);
        }
    }
    Ok(places)
}

/// A place of the tree; `None` if it is gone by now.
fn place(
    path: &Path,
    name: &OsStr,
    kind: Kind,
    made: Option<Timestamp>,
    (device, levels): (u64, u32),
) -> Result<Option<Place>, Failure> {
    let found = usage_of(path).and_then(|usage| {
        let name = Name::new("name", name);
        Ok(Place { name, kind, made, usage, entries: entries(path, device, levels)? })
    });
    match found {
        Err(_)
            if fs::symlink_metadata(path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) =>
        {
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The lines of a place and of all below it. `begin` is what stands before its name, `indent` before that of
/// its entries.
fn lines(place: &Place, begin: &str, indent: &str) -> Vec<String> {
    let Usage { stored_bytes, shared_bytes, freed_bytes } = place.usage;
    let [stored, shared, own] = [stored_bytes, shared_bytes, freed_bytes].map(size::show);
    let name = place.name.to_string().replace(char::is_control, "\u{fffd}");
    let made = place.made.map(|made| format!("  (snapshot, {made:.0})")).unwrap_or_default();
    let mut lines = vec![format!("{stored:>12} {shared:>12} {own:>12}  {begin}{name}{made}")];
    for (at, entry) in place.entries.iter().enumerate() {
        let is_last = at + 1 == place.entries.len();
        let (branch, below) = if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
        lines.extend(self::lines(entry, &format!("{indent}{branch}"), &format!("{indent}{below}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, made: Option<Timestamp>, entries: Vec<Place>) -> Place {
        let kind = if made.is_some() { Kind::Snapshot } else { Kind::Directory };
        let usage = Usage { stored_bytes: 3 << 20, shared_bytes: 2 << 20, freed_bytes: 1 << 20 };
        Place { name: Name::new("name", name), kind, made, usage, entries }
    }

    #[test]
    fn branches_lead_to_each_place() {
        let snapshot = place("monday", Some(Timestamp::UNIX_EPOCH), vec![]);
        let a = place("a", None, vec![snapshot, place("x\n", None, vec![])]);
        let told =
            lines(&place("/m", None, vec![a, place("b", None, vec![place("y", None, vec![])])]), "", "");
        let sizes = "     3.0 MiB      2.0 MiB      1.0 MiB  ";
        let names: Vec<&str> = told.iter().map(|line| line.strip_prefix(sizes).unwrap()).collect();
        let expected = [
            "/m",
            "├── a",
            "│   ├── monday  (snapshot, 1970-01-01T00:00:00Z)",
            "│   └── x\u{fffd}",
            "└── b",
            "    └── y",
        ];
        assert_eq!(names, expected);
    }
}
