//! `betrfs stats`: the counters of a live mount.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use betrfs_fuse::FS_TYPES;
use betrfs_fuse::mount_point::FoundMount;
use betrfs_fuse::{
    DataBytes, Latency, MountEntry, MountSettings, Order, ReadsNoted, ScrubStatus, Status, Unheard,
    VolumeState, metrics_page, shell_word,
};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::commands::{change, metadata_copies};
use crate::errors;
use crate::failure::{Failure, Outcome};
use crate::format::{print, print_for_programs, print_json};
use crate::name::{HexOf, Name};
use crate::size;
use crate::span;

/// Show what a live mount has done: kernel requests, tree queries, device I/O
#[derive(clap::Args)]
#[command(after_help = "\
Requests have the kernel's names, operations the library's: `queries` and `scans` count their reads of the \
tree (answers from memory need none), `commits` their changes. p50 to max are the times that the server took \
for half, 90, 99 and 99.9 in a hundred, and all of the requests since the mount (up to a sixteenth more), without \
their wait in the kernel. Errors are those since the volume was made, or since --reset-errors; the volume keeps them. \
A read counts each time that the device refuses it, damage each time that it is met. Only root and the user who mounted the volume \
may ask.

Examples:
  betrfs stats /mnt --format json
  betrfs stats /mnt --reset-errors
  betrfs stats /mnt --format prometheus > /var/lib/prometheus/node-exporter/mnt.prom")]
pub struct Arguments {
    /// The directory on which the volume is mounted
    dir: PathBuf,
    /// Begin to count errors anew, after they were printed
    #[arg(long)]
    reset_errors: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: StatsFormat,
}

/// The forms of counters on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum StatsFormat {
    /// For people
    #[default]
    Text,
    /// One JSON document, for programs
    Json,
    /// Metrics for Prometheus, for its node exporter's directory of text files for instance
    Prometheus,
}

/// The status for programs.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    status: &'a Status,
    #[serde(flatten)]
    volume: HexOf,
    #[serde(flatten)]
    mount_point: HexOf,
}

impl Document<'_> {
    fn new<'a>(mount: &MountEntry, status: &'a Status) -> Document<'a> {
        Document {
            status,
            volume: HexOf(Name::new("volume", volume_of(mount, status))),
            mount_point: HexOf(Name::new("mount_point", &mount.path)),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let dir = &arguments.dir;
    let mount = mount_at(dir)?;
    let status = Status::ask(&mount).map_err(|why| unheard(dir, &why))?;
    match arguments.format {
        StatsFormat::Text => print(told(&status)?.trim_end()),
        StatsFormat::Json => print_json(&Document::new(&mount, &status)),
        StatsFormat::Prometheus => print_for_programs(metrics_page(&status)?.trim_end()),
    }?;
    match arguments.reset_errors {
        true => change::by_server(&mount, &Order::ResetErrors).map(drop),
        false => Ok(()),
    }
}

/// The volume of a mount, byte for byte: a status has only text, but the kernel's list of mounts has it too.
pub fn volume_of(mount: &MountEntry, status: &Status) -> PathBuf {
    let (listed, told) = (mount.volume(), &status.identity.volume);
    if listed.to_string_lossy() == told.to_string_lossy() { listed } else { told.clone() }
}

/// The BetrFS mount at a directory.
pub fn mount_at(dir: &Path) -> Result<MountEntry, Failure> {
    let shown = dir.display();
    let found =
        MountEntry::at(dir).map_err(|error| Failure::new(format!("cannot examine {shown}: {error}")))?;
    found.filter(MountEntry::is_betrfs).ok_or_else(|| not_mounted(dir))
}

/// As [`mount_at`], for changes to the mount: they do not go by the path.
pub fn found_at(dir: &Path) -> Result<FoundMount, Failure> {
    let shown = dir.display();
    let found = FoundMount::at(dir);
    let found = found.map_err(|error| Failure::new(format!("cannot examine {shown}: {error}")))?;
    found.filter(|found| found.entry().is_betrfs()).ok_or_else(|| not_mounted(dir))
}

/// The failure for a path on which no BetrFS volume is mounted, with what was meant as far as that is known.
pub fn not_mounted(path: &Path) -> Failure {
    let shown = path.display();
    let hint = meant(path).unwrap_or_else(|| format!("`findmnt -t {}` lists all mounts", FS_TYPES.join(",")));
    Failure::new(format!("no BetrFS volume is mounted on {shown}: {hint}"))
}

/// The mount that a path on it, or its volume, stands for.
fn meant(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    if let Some(mount) =
        MountEntry::all().ok()?.into_iter().find(|mount| mount.is_betrfs() && mount.is_of(&path))
    {
        return Some(format!("it is the volume that is mounted on {}", mount.path.display()));
    }
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mount = MountEntry::of(place).ok().filter(MountEntry::is_betrfs)?;
    Some(format!("it is on the mount on {}", mount.path.display()))
}

/// The failure for a server that gave no answer.
pub fn unheard(dir: &Path, why: &Unheard) -> Failure {
    let (shown, word) = (dir.display(), shell_word(dir));
    Failure::new(match why {
        Unheard::Dead => format!(
            "the server of {shown} is dead: mount the volume again, or free the directory with `betrfs umount {word}`"
        ),
        Unheard::Silent { .. } => format!(
            "cannot ask the server of {shown}: {why}; let it go on (`kill -CONT`), or detach the mount with \
             `betrfs umount --lazy {word}`"
        ),
        _ => format!("cannot ask the server of {shown}: {why}"),
    })
}

/// Makes sure that the mount of a path answers and lets this process in.
pub fn approach(path: &Path) -> Outcome {
    betrfs_fuse::approach(path).map_err(|why| unheard(path, &why))
}

/// The seconds since a time, which is in seconds since 1970-01-01 00:00 UTC.
fn seconds_since(time: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now.saturating_sub(time.try_into().unwrap_or(0))
}

/// The last scrub in words.
fn told_of_scrub(scrub: &ScrubStatus) -> String {
    let ScrubStatus { state, written, read_bytes, problems, .. } = scrub;
    let ago = seconds_since(*written);
    format!("{state} {ago} s ago: {} read, {problems} problems found", size::show(*read_bytes))
}

/// The volume's state in words: whether it takes changes, and if not, since when and why.
pub fn told_of(state: &VolumeState) -> String {
    let since = |since: i64| format!(" for {} s", seconds_since(since));
    let why = state.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{}{}{why}", state.is, state.since.map(since).unwrap_or_default())
}

/// The settings of a mount that its server heeds, as options of mount(8).
fn told_of_settings(settings: &MountSettings) -> String {
    let MountSettings { fixed, changeable } = settings;
    let either = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    let times = match changeable.access_times {
        ReadsNoted::None => "noatime",
        ReadsNoted::Relative => "relatime",
        ReadsNoted::All => "strictatime",
    };
    let mut options = vec![either(fixed.read_only, "ro", "rw"), times];
    options.extend((!changeable.listings_count).then_some("nodiratime"));
    options.push(either(fixed.acl, "acl", "noacl"));
    options.push(either(fixed.discard, "discard", "nodiscard"));
    options.extend(changeable.user_clone_allowed.then_some("user_clone_allowed"));
    format!("{},cache_size={}", options.join(","), fixed.cache_bytes)
}

fn told(status: &Status) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let identity = &status.identity;
    writeln!(out, "volume       {}", identity.volume.display())?;
    if !status.label.is_empty() {
        writeln!(out, "label        {}", status.label)?;
    }
    writeln!(out, "uuid         {}", status.uuid)?;
    writeln!(out, "mounted on   {}", identity.mount_point.display())?;
    writeln!(out, "server       process {}, up {} s", identity.pid, status.uptime_seconds)?;
    writeln!(out, "requests by  {}", status.transport)?;
    if let Some(address) = &status.metrics {
        writeln!(out, "metrics      http://{address}/metrics")?;
    }
    if let Some(settings) = &status.settings {
        writeln!(out, "options      {}", told_of_settings(settings))?;
    }
    writeln!(out, "state        {}", told_of(&status.state))?;
    writeln!(out, "copies       {} of metadata", metadata_copies::shown(status.metadata_copies))?;
    if let Some(scrub) = &status.last_scrub {
        writeln!(out, "last scrub   {}", told_of_scrub(scrub))?;
    }
    for line in errors::table(&status.errors) {
        writeln!(out, "{line}")?;
    }
    write!(out, "\n{:<18}{:>12}{:>10}", "kernel requests", "count", "errors")?;
    writeln!(out, "{:>10}{:>10}{:>10}{:>10}{:>10}", "p50", "p90", "p99", "p99.9", "max")?;
    for (name, requests) in &status.requests {
        write!(out, "  {name:<16}{:>12}{:>10}", requests.count, requests.errors)?;
        if let Some(latency) = status.latencies.get(name) {
            let Latency { p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = *latency;
            for time_ns in [p50_ns, p90_ns, p99_ns, p999_ns, max_ns] {
                write!(out, "{:>10}", span::show(time_ns))?;
            }
        }
        writeln!(out)?;
    }
    let DataBytes { read_bytes, write_bytes } = status.data;
    writeln!(out, "  {:<16}{read_bytes:>12}  ({})", "bytes read", size::show(read_bytes))?;
    writeln!(out, "  {:<16}{write_bytes:>12}  ({})", "bytes written", size::show(write_bytes))?;
    writeln!(out, "\n{:<18}{:>12}{:>10}{:>10}{:>10}", "operations", "calls", "queries", "scans", "commits")?;
    for (name, cost) in &status.operations {
        writeln!(
            out,
            "  {name:<16}{:>12}{:>10}{:>10}{:>10}",
            cost.calls, cost.queries, cost.scans, cost.commits
        )?;
    }
    writeln!(out, "\nengine")?;
    for (name, count) in &status.engine {
        let note =
            if name.ends_with("_bytes") { format!("  ({})", size::show(*count)) } else { String::new() };
        writeln!(out, "  {name:<22}{count:>16}{note}")?;
    }
    Ok(out)
}
