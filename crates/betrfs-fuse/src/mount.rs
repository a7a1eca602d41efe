//! A mount from beginning to end: open, mount, serve, close.

mod asked;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use betree_platform::Platform;
use betree_std::{FileDevice, OpenError, StdPlatform, TroubleLog, Workers, WorkersOptions, Zstd};
use betrfs::{OpenMode, OpenOptions, Volume};

use asked::listen;

use crate::closing::Closing;
use crate::control::Control;
use crate::metrics_page::metrics_page;
use crate::metrics_server::MetricsServer;
use crate::mount_info::FS_TYPES;
use crate::mount_point::{self, Found, MountFlags, MountPointError, OwnMount};
use crate::mount_settings::{FixedSettings, ReadsNoted};
use crate::open_device::{open_device, open_device_for_reading, open_device_replacing};
use crate::protocol::{Dispatch, FetchFile};
use crate::server::{Acls, ProcTasks, Server, UserClones};
use crate::status::Identity;
use crate::transport::{Connection, SlowDevice, Transport, enable_io_uring};

/// The kernel's read-ahead in a file that is read in order.
const READ_AHEAD_KIB: u32 = 1024;

/// Files that a server must be able to open while it serves: for connections to the control socket, and for
/// reads of /proc.
const SPARE_FILES: usize = 8;

/// The volume, the mount point and how to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The volume's file or block device, as an absolute path.
    pub volume: PathBuf,
    /// The directory, as an absolute path.
    pub mount_point: PathBuf,
    /// The node cache's budget.
    pub cache_bytes: usize,
    /// mount(2)'s flags.
    pub flags: MountFlags,
    /// The transport; `None` for io_uring if that is possible.
    pub transport: Option<Transport>,
    /// What to do about a volume whose log has lost durable changes.
    pub log_loss: betree::LogLoss,
    /// What access control lists are good for.
    pub acls: Acls,
    /// Who may clone, snapshot and remove trees.
    pub user_clones: UserClones,
    /// Whether blocks that became free are discarded after each checkpoint.
    pub discard: bool,
    /// Whether any user may unmount it, as with `users` in /etc/fstab.
    pub users_unmount: bool,
    /// Where the metrics are served by HTTP, if anywhere; port 0 stands for any free one.
    pub metrics: Option<SocketAddr>,
}

/// Why a volume cannot be mounted, or was not closed well.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point.
    #[error(transparent)]
    MountPoint(#[from] MountPointError),
    /// The volume's file or block device.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// The volume on it.
    #[error("{}: {source}", .volume.display())]
    Volume {
        /// The volume's file or block device.
        volume: PathBuf,
        /// The library's error.
        source: betrfs::Error,
    },
    /// The address for the metrics.
    #[error("cannot serve metrics on {address}: {source}; give another address or port (`--metrics`)")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The operating system.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The action that failed.
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A mounted volume that is not yet served: its users wait until it is.
pub struct Mount {
    // In this order: without a server, the mount can be removed only after the connection is closed.
    connection: Connection,
    control: Control,
    metrics: Option<MetricsServer>,
    mount: Undone,
    server: Arc<Server>,
    closing: Arc<Closing>,
    options: MountOptions,
}

impl Mount {
    /// Opens the volume and mounts it. Replaces the mount of a server that died. `replay` hears how far the
    /// replay of the volume's log is.
    ///
    /// # Errors
    /// [`MountError`], with what to do about it; nothing is mounted then.
    pub fn new(
        options: MountOptions,
        replay: Option<Arc<betree::ReplayProgress>>,
    ) -> Result<Mount, MountError> {
        let found = mount_point::examine(&options.mount_point)?;
        let volume = &options.volume;
        let device = match &found {
            _ if is_read_only(options.flags) => open_device_for_reading(volume)?,
            Found::DeadMount(dead) => open_device_replacing(volume, dead.entry())?,
            Found::Directory => open_device(volume)?,
        };
        Mount::of(Arc::new(device), options, replay)
    }

    /// As [`new`](Mount::new), with an open device instead of what is at the volume's path.
    ///
    /// # Errors
    /// As `new`.
    pub fn of(
        device: Arc<FileDevice>,
        options: MountOptions,
        replay: Option<Arc<betree::ReplayProgress>>,
    ) -> Result<Mount, MountError> {
        // Before the volume is opened, which may take long and write.
        let listener = options.metrics.map(listen_for_metrics).transpose()?;
        let platform: Arc<dyn Platform> = Arc::new(StdPlatform::new());
        // The kernel caches contents: a second copy would cost memory and time.
        let open = OpenOptions {
            cache_bytes: options.cache_bytes,
            contents_bytes_max: 0,
            access_times: ReadsNoted::of(options.flags).into(),
            listings_count: !options.flags.contains(MountFlags::NODIRATIME),
            watcher: Some(Arc::new(TroubleLog::of(options.volume.clone()))),
            names_are_looked_up_again: true,
            log_loss: options.log_loss,
            discard: options.discard,
            zstd: Some(Arc::new(Zstd::default())),
            mode: if is_read_only(options.flags) { OpenMode::ReadOnly } else { OpenMode::ReadWrite },
            replay_progress: replay,
            ..OpenOptions::new(Arc::clone(&platform))
        };
        let began = Instant::now();
        let volume = Volume::open(Arc::new(SlowDevice(Arc::clone(&device))), open)
            .map_err(|source| MountError::Volume { volume: options.volume.clone(), source })?;
        tracing::info!(
            "{}: opened (format {}), {} batches of its log replayed, in {} ms",
            options.volume.display(),
            betree::FORMAT_VERSION,
            volume.env().replayed_batches(),
            began.elapsed().as_millis()
        );
        if let Some(loss) = volume.env().log_loss() {
            tracing::error!(
                "{}: changes that were durable are lost, as was accepted: {loss}",
                options.volume.display()
            );
        }
        let volume = Arc::new(volume);
        let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default())
            .map_err(|source| MountError::Io { doing: "start threads", source })?;
        let identity = Identity {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            volume: options.volume.clone(),
            mount_point: options.mount_point.clone(),
        };
        let read_only = is_read_only(options.flags);
        let closing = Arc::new(Closing::new(Arc::clone(&volume), Arc::clone(&device), workers));
        let tasks = Arc::new(ProcTasks);
        let server = Server::new(volume, identity, read_only, options.acls, Arc::clone(&closing), tasks);
        let server = Arc::new(server.with_user_clones(options.user_clones));
        server.set_fixed_settings(FixedSettings {
            read_only,
            acl: options.acls == Acls::Judge,
            discard: options.discard,
            cache_bytes: options.cache_bytes as u64,
        });
        let metrics = listener.map(|listener| serve_metrics(listener, &server)).transpose();
        let connected = metrics.and_then(|metrics| {
            let (connection, mount, control) = connect(&options, &device, &server, &*platform)?;
            Ok((connection, mount, control, metrics))
        });
        match connected {
            Ok((connection, mount, control, metrics)) => {
                let mount = Undone { mount, is_over: false };
                Ok(Mount { connection, control, metrics, mount, server, closing, options })
            }
            Err(error) => {
                if let Err(error) = closing.outcome() {
                    tracing::error!("closing {}: {error}", options.volume.display());
                }
                Err(error)
            }
        }
    }

    /// The mount, to unmount it.
    pub fn own_mount(&self) -> &OwnMount {
        &self.mount.mount
    }

    /// Ends a freeze, as the mount is to end.
    pub fn freeze_ender(&self) -> impl Fn() + Send + 'static {
        let server = Arc::clone(&self.server);
        move || server.end_freeze()
    }

    /// Answers requests until the unmount, then closes the volume. Calls `ready` once the mount answers.
    ///
    /// # Errors
    /// [`MountError`]: the connection to the kernel broke, or the volume was not closed cleanly.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
        // An error drops these from the last to the first: the connection must close before the mount is
        // removed, as nobody answers.
        let Mount { closing, server, mut mount, metrics, control, connection, options } = self;
        let own_mount = mount.mount.clone();
        ensure_spare_files()
            .map_err(|source| MountError::Io { doing: "keep descriptors for the control socket", source })?;
        let shown = options.volume.display().to_string();
        tracing::info!(
            "{shown}: mounted on {} by betrfs {}, as {}, requests by {}, with {} MiB for the cache",
            options.mount_point.display(),
            env!("CARGO_PKG_VERSION"),
            if own_mount.is_block() { FS_TYPES[0] } else { FS_TYPES[1] },
            connection.transport(),
            options.cache_bytes >> 20
        );
        let greeter = thread::Builder::new()
            .name("betrfs-greeter".into())
            .spawn(move || answer_once(&own_mount, ready))
            .map_err(|source| MountError::Io { doing: "start a thread", source })?;
        let broken = mount.mount.clone();
        let served = connection.serve(move || broken.abort());
        mount.is_over = served.is_ok();
        // If the mount is still there, it goes before the volume is closed.
        drop(mount);
        drop(metrics);
        server.end_freezes();
        let closed = closing.outcome();
        match &closed {
            Ok(()) => tracing::info!("{shown}: unmounted and closed"),
            Err(error) => tracing::error!("{shown}: unmounted, and not closed cleanly: {error}"),
        }
        control.await_reports();
        control.tell(&closed);
        if greeter.join().is_err() {
            tracing::error!("the thread that announces the mount panicked");
        }
        closed.map_err(|source| MountError::Volume { volume: options.volume, source })?;
        served.map_err(|source| MountError::Io { doing: "go on talking to the kernel", source })
    }
}

fn listen_for_metrics(address: SocketAddr) -> Result<TcpListener, MountError> {
    if !address.ip().is_loopback() {
        tracing::warn!("metrics on {address}: whoever reaches this address reads them");
    }
    TcpListener::bind(address).map_err(|source| MountError::Metrics { address, source })
}

fn serve_metrics(listener: TcpListener, server: &Arc<Server>) -> Result<MetricsServer, MountError> {
    let asked = Arc::clone(server);
    let page = move || metrics_page(&asked.status()).unwrap_or_default();
    let started = MetricsServer::start(listener, Arc::new(page)).and_then(|metrics| {
        let address = metrics.address()?;
        server.set_metrics_address(address);
        tracing::info!("metrics on http://{address}/metrics");
        Ok(metrics)
    });
    started.map_err(|source| MountError::Io { doing: "serve metrics", source })
}

/// Makes sure that [`SPARE_FILES`] more files can be opened: else no client of the control socket is heard.
fn ensure_spare_files() -> io::Result<()> {
    let open = || std::fs::File::open("/dev/null");
    std::iter::repeat_with(open).take(SPARE_FILES).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Whether nothing is to be written to the volume.
fn is_read_only(flags: MountFlags) -> bool {
    flags.contains(MountFlags::RDONLY)
}

/// A mount that is removed with this value unless it is over: a mount without a server would block its users.
struct Undone {
    mount: OwnMount,
    is_over: bool,
}

impl Drop for Undone {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = self.mount.detach()
        {
            tracing::warn!("{error}");
        }
    }
}

fn connect(
    options: &MountOptions,
    device: &FileDevice,
    server: &Arc<Server>,
    platform: &dyn Platform,
) -> Result<(Connection, OwnMount, Control), MountError> {
    let MountOptions { mount_point, flags, transport, acls, .. } = options;
    // Checked again, as opening the volume may have taken long. Below a dead mount there may be another.
    while let Found::DeadMount(dead) = mount_point::examine(mount_point)? {
        tracing::info!("{} is the mount of a server that died; replacing it", mount_point.display());
        dead.detach()?;
    }
    if *transport != Some(Transport::Device)
        && let Err(error) = enable_io_uring()
    {
        tracing::info!("cannot enable io_uring in the kernel: {error}");
    }
    let (connection, mount) = mount_point::mount(device, mount_point, *flags)?;
    let fetch_file = FetchFile::new(platform.random_u64());
    let dispatch = |sink, agreed| {
        let dispatch = Dispatch::start(Arc::clone(server), sink, agreed)?;
        Ok(dispatch.with_fetch_file(fetch_file.clone()))
    };
    let greeted = Connection::greet(connection, *transport, *acls, dispatch)
        .map_err(|source| MountError::Io { doing: "greet the kernel", source })
        .and_then(|connection| {
            server.set_transport(connection.transport().name());
            let control = {
                let unique = platform.random_u64();
                listen(&mount, &connection, server, &fetch_file, unique, options.users_unmount)?
            };
            if let Some(name) = control.name() {
                server.set_socket_name(name);
            }
            Ok((connection, control))
        });
    match greeted {
        Ok((connection, control)) => Ok((connection, mount, control)),
        Err(error) => {
            drop(Undone { mount, is_over: false });
            Err(error)
        }
    }
}

/// Waits for the first answer of the mount, sets the read-ahead, and calls `ready`.
fn answer_once(mount: &OwnMount, ready: impl FnOnce()) {
    match rustix::fs::statfs(mount.path()) {
        Ok(_) => {
            if let Err(error) = mount.set_read_ahead(READ_AHEAD_KIB) {
                tracing::info!("the kernel's read-ahead stays as it is: {error}");
            }
            ready();
        }
        Err(errno) => tracing::error!("{} does not answer: {errno}", mount.path().display()),
    }
}
