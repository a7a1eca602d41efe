//! `betrfs quota`: limits for what is below a directory.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betrfs::{InodeId, Quota, QuotaLimits};
use betrfs_fuse::{CheckError, Errno, Line, MountEntry, Quotas};
use serde::Serialize;

use crate::bar::LateBar;
use crate::commands::{layout, stats};
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::path;
use crate::plain_text::on_one_line;
use crate::size;

/// The template of the bar of what is counted: how much there is is not known before.
const COUNTING: &str = "counting what is there: {pos} {per_sec}";
/// How many quotas of a closed volume are read at once.
const PAGE: usize = 256;

/// Set, show, list or clear limits for what is below a directory
#[derive(clap::Args)]
#[command(after_help = "\
Everything below the directory counts: bytes of files as du(1) shows them (whole units of 512, holes and shared data \
not looked at), and objects: files, directories and others, a file with several names once. Attributes, names and \
snapshots do not count. What would grow over a limit fails with EDQUOT (`Disk quota exceeded`), before anything \
has changed. df(1) of the directory shows the limits as its size.

Quotas may be nested; each counts all that is below it. Nothing is moved between two quotas: rename(2) and link(2) \
give EXDEV, upon which mv(1) copies. A clone counts in full where it is made, and a clone of a directory with a quota \
has one of its own. A clone into a quota, and `rm-tree` and `snapshot restore` in one, read the records of what comes \
or goes, as find(1) would, unless it is a directory with a quota itself.

Only root and the user who mounted the volume may set, clear and list quotas; `get` is for all who may open \
the directory.

Examples:
  betrfs quota set /mnt/home/ada 10G --objects 1000000
  betrfs quota set /mnt/home/ada any      no limit of bytes; that of objects stays
  betrfs quota get /mnt/home/ada/mail
  betrfs quota list /mnt
  betrfs quota clear /mnt/home/ada")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Give a directory a quota, or its quota other limits
    #[command(after_help = "\
A limit that is not given stays as it is; a new quota has none. What is in the directory already is counted first, \
while others go on; a limit below that refuses growth alone. A directory is refused while a file in it has a name \
outside of it too. The first quota of a volume makes it one that versions of betrfs without quotas refuse.")]
    Set {
        /// The directory
        dir: PathBuf,
        /// The most bytes below it: a size, or `any`
        #[arg(value_parser = parse_bytes, required_unless_present = "objects")]
        bytes: Option<Limit>,
        /// The most objects below it: a number, or `any`
        #[arg(long, value_name = "N", value_parser = parse_objects)]
        objects: Option<Limit>,
    },
    /// Show the quota that a directory is in: its own, or else the nearest above
    Get {
        /// The directory
        dir: PathBuf,
        /// How to print the result
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// List the quotas of a directory on a mount and of all below it, or of a closed volume
    #[command(after_help = "\
It reads the records of everything below, as find(1) would.")]
    List {
        /// The directory, or the volume's file or block device
        #[arg(value_name = "DIR|VOLUME")]
        place: PathBuf,
        /// How to print the result
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Take a directory's quota away
    Clear {
        /// The directory
        dir: PathBuf,
    },
}

/// A limit; `None` for any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u64>);

fn parse_bytes(text: &str) -> Result<Limit, String> {
    if text == "any" { Ok(Limit(None)) } else { size::parse(text).and_then(limit) }
}

/// A limit of 0 would forbid what is there already; for other quotas 0 means that there is none.
fn limit(most: u64) -> Result<Limit, String> {
    match most {
        0 => Err("a limit of 0 would forbid all; no limit is `any`".to_owned()),
        _ => Ok(Limit(Some(most))),
    }
}

fn parse_objects(text: &str) -> Result<Limit, String> {
    match text {
        "any" => Ok(Limit(None)),
        // Not a sign, which the parser of numbers takes.
        _ if text.starts_with('+') => Err(format!("`{text}` is not a number of objects")),
        _ => text.parse().map_err(|_| format!("`{text}` is not a number of objects")).and_then(limit),
    }
}

/// A directory's quota.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    path: Name,
    used_bytes: u64,
    /// Null for no limit.
    limit_bytes: Option<u64>,
    used_objects: u64,
    /// Null for no limit.
    limit_objects: Option<u64>,
}

#[derive(Serialize)]
struct List {
    quotas: Vec<Shown>,
}

impl Shown {
    fn new(path: &Path, quota: &Quota) -> Shown {
        Shown {
            path: Name::new("path", path),
            used_bytes: quota.used.bytes,
            limit_bytes: quota.limits.bytes,
            used_objects: quota.used.objects,
            limit_objects: quota.limits.objects,
        }
    }

    fn limits(&self) -> [String; 2] {
        let shown = |limit: Option<String>| limit.unwrap_or_else(|| "any".to_owned());
        [shown(self.limit_bytes.map(size::show)), shown(self.limit_objects.map(|count| count.to_string()))]
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bytes, objects], used) = (self.limits(), size::show(self.used_bytes));
        write!(f, "directory  {}\nbytes      {used} of {bytes}\n", self.path)?;
        write!(f, "objects    {} of {objects}", self.used_objects)
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        Action::Set { dir, bytes, objects } => set(dir, *bytes, *objects),
        Action::Get { dir, format } => get(dir, *format),
        Action::List { place, format } => list(place, *format),
        Action::Clear { dir } => clear(dir),
    }
}

fn set(dir: &Path, bytes: Option<Limit>, objects: Option<Limit>) -> Outcome {
    stats::approach(dir)?;
    let refused = |error: &std::io::Error| refused("set a quota for", dir, error);
    let before = betrfs_fuse::quota(dir).map_err(|error| refused(&error))?;
    let own = before.filter(|quota| quota.levels_up == 0).map_or_else(QuotaLimits::default, |own| own.limits);
    let limits = QuotaLimits {
        bytes: bytes.map_or(own.bytes, |limit| limit.0),
        objects: objects.map_or(own.objects, |limit| limit.0),
    };
    let (open, token) = betrfs_fuse::quota_token(dir).map_err(|error| refused(&error))?;
    let mount = MountEntry::of(&open).map_err(|error| refused(&error))?;
    let line = Line::open(&mount).map_err(|why| stats::unheard(dir, &why))?;
    let mut bar = LateBar::new(COUNTING);
    bar.tell(0, u64::MAX);
    let set = line.set_quota(&mount, token, limits, &mut |counted| bar.tell(counted, u64::MAX));
    drop(bar);
    set.map_err(|error| match error {
        CheckError::Unheard(why) => stats::unheard(dir, &why),
        why => Failure::new(format!("cannot set a quota for {}: {why}", dir.display())),
    })
}

fn get(dir: &Path, format: Format) -> Outcome {
    stats::approach(dir)?;
    let shown = dir.display();
    let refused = |error: &std::io::Error| refused("show the quota of", dir, error);
    let quota = betrfs_fuse::quota(dir).map_err(|error| refused(&error))?;
    let quota =
        quota.ok_or_else(|| Failure::new(format!("{shown} is in no quota: `betrfs quota set` makes one")))?;
    let mut at = dir.canonicalize().map_err(|error| refused(&error))?;
    for _ in 0..quota.levels_up {
        at.pop();
    }
    let found = Shown::new(&at, &quota);
    if format == Format::Json { print_json(&found) } else { print(&found) }
}

fn list(place: &Path, format: Format) -> Outcome {
    let quotas = if place.is_dir() { below(place)? } else { of_volume(place)? };
    if format == Format::Json {
        return print_json(&List { quotas });
    }
    if quotas.is_empty() {
        return print(format_args!("{}: no quotas", place.display()));
    }
    print(format_args!("{:>12} {:>12} {:>12} {:>12}  directory", "bytes", "of", "objects", "of"))?;
    quotas.iter().try_for_each(|quota| {
        let ([bytes, objects], used) = (quota.limits(), size::show(quota.used_bytes));
        let path = on_one_line(&quota.path.to_string());
        print(format_args!("{used:>12} {bytes:>12} {:>12} {objects:>12}  {path}", quota.used_objects))
    })
}

/// The quotas of a directory on a mount and of those below it.
fn below(dir: &Path) -> Result<Vec<Shown>, Failure> {
    stats::approach(dir)?;
    let refused = |error: std::io::Error| refused("list the quotas of", dir, &error);
    let quotas = Quotas::below(dir).map_err(refused)?;
    quotas.map(|next| next.map(|(path, quota)| shown_below(dir, &path, &quota)).map_err(refused)).collect()
}

/// The quotas of a volume that is mounted nowhere.
fn of_volume(path: &Path) -> Result<Vec<Shown>, Failure> {
    layout::with_closed(path, |volume| {
        let (mut quotas, mut last): (Vec<Shown>, Option<Vec<u8>>) = (Vec::new(), None);
        loop {
            let page = volume.quotas_below(InodeId::ROOT, last.as_deref(), PAGE)?;
            let Some((path, _)) = page.last() else { return Ok(quotas) };
            last = Some(path.clone());
            quotas.extend(page.iter().map(|(path, quota)| shown_below(Path::new("/"), path, quota)));
        }
    })
}

fn shown_below(dir: &Path, path: &[u8], quota: &Quota) -> Shown {
    let at = if path.is_empty() { dir.to_owned() } else { dir.join(OsStr::from_bytes(path)) };
    Shown::new(&at, quota)
}

fn clear(dir: &Path) -> Outcome {
    stats::approach(dir)?;
    match betrfs_fuse::clear_quota(dir) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::new(format!("{} has no quota of its own", dir.display()))),
        Err(error) => Err(refused("clear the quota of", dir, &error)),
    }
}

fn refused(what: &str, dir: &Path, error: &std::io::Error) -> Failure {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTTY) => "it is on no BetrFS mount".to_owned(),
        Some(Errno::NOTDIR) => "it is no directory".to_owned(),
        Some(Errno::LOOP) => path::LOOPS.to_owned(),
        Some(Errno::PERM) => "only root and the user who mounted the volume may".to_owned(),
        Some(Errno::ROFS) => "it is in a snapshot, or on a mount for reading".to_owned(),
        Some(Errno::AGAIN) => path::CHANGED.to_owned(),
        Some(Errno::NAMETOOLONG) => "the path of a directory in it is too long".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(format!("cannot {what} {}: {why}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_sizes_numbers_or_any() {
        assert_eq!(parse_bytes("10G"), Ok(Limit(Some(10 << 30))));
        assert_eq!((parse_bytes("any"), parse_objects("any")), (Ok(Limit(None)), Ok(Limit(None))));
        assert!(parse_bytes("0").unwrap_err().contains("`any`"));
        for wrong in ["", "0", "-1", "+1", "1.5", "lots", "10G "] {
            assert!(parse_objects(wrong).is_err(), "{wrong}");
        }
        assert!(parse_bytes("-1").is_err() && parse_bytes("").is_err());
    }
}
