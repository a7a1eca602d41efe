//! `betrfs mount`: mounts a volume.

mod background;
pub mod options;
mod remount;
mod signals;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree::{LogLoss, ReplayProgress};
use betree_std::FileDevice;
use betrfs::FormatOptions;
use betrfs_fuse::{Mount, MountError, MountOptions, Transport, abort_on_stray_panics, mount_point};
use options::Options;

use crate::commands::check::way_out;
use crate::commands::mkfs;
use crate::failure::{Failure, Kind, Outcome};
use crate::log::Place;
use crate::memory;
use crate::path::absolute;
use crate::replay;
use crate::size;
use crate::tags;

/// Mount a volume on a directory
#[derive(clap::Args)]
#[command(after_help = "\
Returns when the mount answers; the server goes on in the background. The mount of a server that was \
killed is replaced, and the volume recovered: on a terminal it shows how much of its log is replayed if that takes more \
than two seconds.

Examples:
  betrfs mount data.betrfs /mnt
  betrfs mount LABEL=photos /mnt                 the block device with that label
  betrfs mount data.betrfs /mnt --create 8G      makes the volume first if it does not exist
  betrfs mount data.betrfs /mnt --foreground     runs until the unmount, or Ctrl-C
  betrfs mount data.betrfs /mnt --metrics 9469   metrics on http://127.0.0.1:9469/metrics
To unmount: betrfs umount /mnt")]
pub struct Arguments {
    /// The volume's file or block device, or UUID=... or LABEL=... of a block device
    volume: PathBuf,
    /// The directory to mount it on
    dir: PathBuf,
    /// Stay in the foreground until the unmount
    #[arg(long)]
    foreground: bool,
    /// The memory for the tree's nodes, as in 256M or 2G; by default a quarter of the memory of the machine
    /// or the control group, from 64M to 1G
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    cache_size: Option<u64>,
    /// Make the volume with this size if it does not exist
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive)]
    create: Option<u64>,
    /// The log file of the server in the background; by default it logs to the system, by syslog(3)
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,
    /// Mount a volume whose log has lost durable changes, with what stands before them: those changes and all
    /// later ones are lost for ever (`betrfs check` names the place; copy the volume first)
    #[arg(long)]
    accept_log_loss: bool,
    /// Serve the metrics of `betrfs stats --format prometheus` as http://ADDRESS/metrics while it is mounted.
    /// A port alone is one of 127.0.0.1 (0: any free one, which `betrfs stats` tells); whoever reaches the
    /// address reads them
    #[arg(long, value_name = "ADDRESS", value_parser = options::parse_metrics)]
    metrics: Option<SocketAddr>,
    /// mount(8)'s options, separated by commas: ro, noatime, nosuid, nodev, noexec, noacl, discard, remount,
    /// cache_size=SIZE, metrics=ADDRESS
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<Options>,
    /// Flags of mount(8) for its helpers.
    #[command(flatten)]
    helper: HelperFlags,
    /// Be the server, and report on standard output when it is ready
    #[arg(long, hide = true)]
    server: bool,
    /// The volume is open as standard input, whatever its path leads to by now
    #[arg(long, hide = true, requires = "server")]
    volume_is_open: bool,
    /// Log to the system instead of standard error
    #[arg(long, hide = true)]
    to_syslog: bool,
    /// Report on standard output too how far the replay of the log is
    #[arg(long, hide = true, requires = "server")]
    replay_progress: bool,
}

/// The flags that mount(8) passes to its helpers.
#[derive(clap::Args)]
struct HelperFlags {
    /// Do everything but mount
    #[arg(short = 'f', hide = true)]
    fake: bool,
    /// Ignore unknown options
    #[arg(short = 's', hide = true)]
    sloppy: bool,
    /// Write no mtab; none is written anyway
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// As `-o ro`
    #[arg(short = 'r', hide = true)]
    read_only: bool,
    /// As `-o rw`
    #[arg(short = 'w', hide = true, conflicts_with = "read_only")]
    read_write: bool,
    /// The mount namespace, which mount(8) has entered
    #[arg(short = 'N', hide = true)]
    name_space: Option<OsString>,
    /// The type, always ours
    #[arg(short = 't', hide = true)]
    fs_type: Option<OsString>,
}

impl Arguments {
    /// The place of the log.
    pub fn log_place(&self) -> Place {
        match (self.server, self.to_syslog) {
            (false, _) => Place::Command,
            (true, false) => Place::File,
            (true, true) => Place::System,
        }
    }

    /// All options and flags, joined.
    fn all_options(&self) -> Result<Options, Failure> {
        let given = self.options.iter().map(|options| options.text.as_str());
        let flags = [(self.helper.read_only, "ro"), (self.helper.read_write, "rw")];
        let by_flags = flags.into_iter().filter_map(|(is_given, option)| is_given.then_some(option));
        let options = Options::joined(given.chain(by_flags)).map_err(|why| Failure::of(Kind::Usage, why))?;
        match options.unknown.first() {
            Some(option) if !self.helper.sloppy => {
                Err(Failure::of(Kind::Usage, format!("unknown mount option `{option}`")))
            }
            _ => Ok(options),
        }
    }
}

/// Variable by which tests choose the transport: `io_uring` or `device`.
const TRANSPORT: &str = "BETRFS_TRANSPORT";

/// Runs the command.
pub fn run(arguments: &Arguments, verbose: u8) -> Outcome {
    if arguments.server {
        return serve_in_background(arguments);
    }
    let options = arguments.all_options()?;
    if options.remount {
        return remount::run(arguments, &options);
    }
    if arguments.helper.fake {
        return Ok(());
    }
    if arguments.foreground {
        // May start the program anew, so that it comes before all else.
        background::set_allocator()?;
    }
    let path = tags::resolved(&arguments.volume)?;
    let is_missing = || path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if options.no_fail && arguments.create.is_none() && is_missing() {
        return Ok(());
    }
    let made = match arguments.create {
        Some(size) if !path.exists() => {
            // Checked first, so that no volume is made that cannot be mounted there.
            mount_point::examine(&absolute(&arguments.dir)?).map_err(MountError::from)?;
            Some(mkfs::make_new(&path, size, &FormatOptions::default())?)
        }
        _ => {
            mkfs::warn_if_open_to_others(&path);
            None
        }
    };
    if arguments.foreground {
        return serve(arguments, &path, made, replay::on_terminal(), || ());
    }
    background::start(arguments, &path, made, verbose)
}

/// Runs the server of a mount in the background; announces the outcome to its starter in one line.
fn serve_in_background(arguments: &Arguments) -> Outcome {
    rustix::process::setsid()?;
    // A working directory would keep its file system from being unmounted; all paths are absolute.
    std::env::set_current_dir("/")?;
    let announced = background::Announcement::new()?;
    let ready = announced.clone();
    let volume = if arguments.volume_is_open { background::volume(arguments).map(Some) } else { Ok(None) };
    let replay = arguments.replay_progress.then(|| announced.of_replay());
    let served =
        volume.and_then(|volume| serve(arguments, &arguments.volume, volume, replay, move || ready.ready()));
    if let Err(failure) = &served {
        announced.failed(failure);
        tracing::error!("{failure}");
    }
    served
}

/// Mounts and serves a volume: `volume`, or what is at the path. `replay` hears of the replay of its log.
fn serve(
    arguments: &Arguments,
    path: &Path,
    volume: Option<Arc<FileDevice>>,
    replay: Option<Arc<ReplayProgress>>,
    ready: impl FnOnce() + Send + 'static,
) -> Outcome {
    abort_on_stray_panics();
    let given = arguments.all_options()?;
    let chosen = given.cache_bytes.or(arguments.cache_size);
    let cache_bytes = chosen.unwrap_or_else(memory::default_cache_bytes);
    let options = MountOptions {
        volume: absolute(path)?,
        mount_point: absolute(&arguments.dir)?,
        cache_bytes: usize::try_from(cache_bytes)?,
        flags: given.flags,
        transport: transport()?,
        discard: given.discard.unwrap_or_default(),
        users_unmount: given.users_unmount,
        metrics: given.metrics.or(arguments.metrics),
        log_loss: if arguments.accept_log_loss { LogLoss::Accept } else { LogLoss::Refuse },
        acls: given.acls.unwrap_or_default(),
        user_clones: given.user_clones.unwrap_or_default(),
    };
    let mount = match volume {
        Some(volume) => Mount::of(volume, options, replay),
        None => Mount::new(options, replay),
    };
    let mount = mount.map_err(refused)?;
    signals::unmount_on_request(mount.own_mount().clone(), mount.freeze_ender())?;
    mount.serve(ready)?;
    std::io::stdout().flush().map_err(Failure::from)
}

/// The failure of a mount; of a volume that is damaged, with what to do about it.
fn refused(error: MountError) -> Failure {
    let way_out = match &error {
        MountError::Volume { source, .. } => way_out(source),
        _ => None,
    };
    let failure = Failure::from(error);
    match way_out {
        Some(way_out) => Failure::of(failure.kind(), format!("{failure}; {way_out}")),
        None => failure,
    }
}

fn transport() -> Result<Option<Transport>, Failure> {
    let chosen = std::env::var(TRANSPORT).ok().map(|name| name.parse()).transpose();
    chosen.map_err(|why: String| Failure::new(format!("{TRANSPORT}: {why}")))
}
