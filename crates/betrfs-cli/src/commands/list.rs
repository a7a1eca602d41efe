//! `betrfs list`: the mounts of this machine.

use std::time::SystemTime;

use betrfs_fuse::{ErrorStatus, MountEntry, Status};
use jiff::Timestamp;
use serde::Serialize;

use crate::commands::stats;
use crate::errors;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, print, print_json};
use crate::name::Name;
use crate::plain_text::on_one_line;
use crate::size;

/// List the volumes that are mounted on this machine
#[derive(clap::Args)]
#[command(after_help = "\
Asks the server of each mount for at most ten seconds. A server answers root and the user who mounted; of other mounts \
only volume and directory are known, and the state says why.

Example:
  betrfs list --format json")]
pub struct Arguments {
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A mount, as far as it is known.
#[derive(Serialize)]
pub struct Listed {
    /// The volume's file or block device.
    #[serde(flatten)]
    volume: Name,
    /// Where it is mounted.
    #[serde(flatten)]
    dir: Name,
    label: Option<String>,
    uuid: Option<String>,
    pid: Option<i32>,
    size_bytes: Option<u64>,
    used_bytes: Option<u64>,
    /// When it was mounted, in seconds since 1970-01-01 00:00 UTC.
    since: Option<i64>,
    metadata_copies: Option<u32>,
    /// What is counted on the volume.
    errors: Option<ErrorStatus>,
    /// `writable`, `frozen`, `device-full`, `read-only`, or why its server was not heard.
    state: String,
}

#[derive(Serialize)]
struct List {
    mounts: Vec<Listed>,
}

/// All mounts that are visible from here.
pub fn mounts() -> Result<Vec<Listed>, Failure> {
    let all = MountEntry::all().map_err(|error| Failure::new(format!("cannot list the mounts: {error}")))?;
    Ok(all.iter().filter(|mount| mount.is_betrfs()).map(listed).collect())
}

fn listed(mount: &MountEntry) -> Listed {
    let dir = Name::new("dir", &mount.path);
    match Status::ask(mount) {
        Ok(status) => Listed {
            volume: Name::new("volume", stats::volume_of(mount, &status)),
            dir,
            label: Some(status.label),
            uuid: Some(status.uuid),
            pid: Some(status.identity.pid),
            size_bytes: Some(status.room.total_bytes),
            used_bytes: Some(status.room.used_bytes()),
            since: now().map(|now| now.saturating_sub(status.uptime_seconds.try_into().unwrap_or(i64::MAX))),
            metadata_copies: status.metadata_copies,
            errors: Some(status.errors),
            state: status.state.is,
        },
        Err(why) => Listed {
            volume: Name::new("volume", mount.volume()),
            dir,
            label: None,
            uuid: None,
            pid: None,
            size_bytes: None,
            used_bytes: None,
            since: None,
            metadata_copies: None,
            errors: None,
            state: why.to_string(),
        },
    }
}

fn now() -> Option<i64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    since.as_secs().try_into().ok()
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let mounts = mounts()?;
    match arguments.format {
        Format::Json => print_json(&List { mounts }),
        Format::Text => lines(&mounts).iter().try_for_each(print),
    }
}

/// The errors of each mount that has had any.
pub fn errors_of(mounts: &[Listed]) -> impl Iterator<Item = String> + '_ {
    let of = |mount: &Listed| {
        let errors = mount.errors.as_ref().filter(|errors| !errors.is_none())?;
        Some(format!("{}: {}", mount.dir, errors::sentence(errors)))
    };
    mounts.iter().filter_map(of)
}

/// The mounts whose volumes keep more than one copy of metadata.
pub fn copies_of(mounts: &[Listed]) -> impl Iterator<Item = String> + '_ {
    let of = |mount: &Listed| {
        let copies = mount.metadata_copies.filter(|copies| *copies > 1)?;
        Some(format!("{}: {copies} of metadata", mount.dir))
    };
    mounts.iter().filter_map(of)
}

/// A line for each mount, under a heading.
pub fn lines(mounts: &[Listed]) -> Vec<String> {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size::show);
    let line = |mount: &Listed| {
        let pid = mount.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let since = mount.since.and_then(|since| Timestamp::from_second(since).ok());
        let since = since.map_or_else(|| "-".to_owned(), |since| since.strftime("%F %H:%M UTC").to_string());
        let place = on_one_line(&format!("{} on {}", mount.volume, mount.dir));
        format!(
            "{pid:>8}{:>12}{:>12}  {since:<21} {:<9} {place}",
            size(mount.size_bytes),
            size(mount.used_bytes),
            mount.state,
        )
    };
    let heading = format!(
        "{:>8}{:>12}{:>12}  {:<21} {:<9} volume and directory",
        "process", "size", "used", "since", "state"
    );
    std::iter::once(heading).chain(mounts.iter().map(line)).collect()
}
