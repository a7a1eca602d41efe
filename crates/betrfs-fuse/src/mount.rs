//! A mount from beginning to end: open, mount, serve, close.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use betree_platform::Platform;
use betree_std::{FileDevice, OpenError, StdPlatform, TroubleLog, Workers, WorkersOptions};
use betrfs::{AccessTimes, OpenOptions, Volume};

use crate::closing::Closing;
use crate::control::Control;
use crate::mount_info::FS_TYPES;
use crate::mount_info::MountEntry;
use crate::mount_point::{self, Found, MountFlags, MountPointError, OwnMount};
use crate::protocol::Dispatch;
use crate::server::Server;
use crate::status::Identity;
use crate::transport::{Connection, SlowDevice, Transport, enable_io_uring};

/// How far the kernel reads ahead in a file that is read in order.
const READ_AHEAD_KIB: u32 = 1024;

/// How long a volume is waited for whose mount is gone, and which its server is still closing.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(10);

/// How many files a server can open beyond those that it has open when it begins to serve: for connections,
/// and for what it looks up.
const SPARE_FILES: usize = 8;

/// Opens a volume's file or block device. A volume that is in use and mounted nowhere is being closed as a
/// rule, or checked: that is waited for, ten seconds at most.
///
/// # Errors
/// As [`FileDevice::open`].
pub fn open_device(path: &Path) -> Result<FileDevice, OpenError> {
    let itself = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_mounted = || MountEntry::all().unwrap_or_default().iter().any(|mount| mount.is_of(&itself));
    FileDevice::open_waiting(path, CLOSING_TIME_MAX, || !is_mounted())
}

/// What to mount, where and how.
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
    /// How requests are to travel; by io_uring if that is possible where `None`.
    pub transport: Option<Transport>,
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
    /// What is on it.
    #[error("{}: {source}", .volume.display())]
    Volume {
        /// The volume's file or block device.
        volume: PathBuf,
        /// What is wrong with it.
        source: betrfs::Error,
    },
    /// The operating system.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A mounted volume that is not yet served: processes that use it wait until it is.
pub struct Mount {
    // In this order: where nobody answers, the mount can be taken away only when the connection is let go of.
    connection: Connection,
    control: Control,
    mount: Undone,
    closing: Arc<Closing>,
    options: MountOptions,
}

impl Mount {
    /// Opens the volume and mounts it. The mount of a server that died is replaced.
    ///
    /// # Errors
    /// [`MountError`], with what to do about it; nothing is mounted then.
    pub fn new(options: MountOptions) -> Result<Mount, MountError> {
        mount_point::examine(&options.mount_point)?;
        let device = Arc::new(open_device(&options.volume)?);
        let platform: Arc<dyn Platform> = Arc::new(StdPlatform::new());
        // The kernel keeps what was read: a second copy would only take memory and the time to make it.
        let open = OpenOptions {
            cache_bytes: options.cache_bytes,
            contents_bytes_max: 0,
            access_times: access_times(options.flags),
            listings_count: !options.flags.contains(MountFlags::NODIRATIME),
            watcher: Some(Arc::new(TroubleLog::of(options.volume.clone()))),
            names_are_looked_up_again: true,
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
        let volume = Arc::new(volume);
        let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default())
            .map_err(|source| MountError::Io { doing: "start threads", source })?;
        let identity = Identity {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            volume: options.volume.clone(),
            mount_point: options.mount_point.clone(),
        };
        let read_only = options.flags.contains(MountFlags::RDONLY);
        let closing = Arc::new(Closing::new(Arc::clone(&volume), Arc::clone(&device), workers));
        let server = Arc::new(Server::new(volume, identity, read_only, Arc::clone(&closing)));
        match connect(&options, &device, &server, platform.random_u64()) {
            Ok((connection, mount, control)) => {
                let mount = Undone { mount, is_over: false };
                Ok(Mount { connection, control, mount, closing, options })
            }
            Err(error) => {
                if let Err(error) = closing.outcome() {
                    tracing::error!("closing {}: {error}", options.volume.display());
                }
                Err(error)
            }
        }
    }

    /// What there is to unmount.
    pub fn own_mount(&self) -> &OwnMount {
        &self.mount.mount
    }

    /// Answers requests until it is unmounted, then closes the volume. `ready` is called once the
    /// mount has answered.
    ///
    /// # Errors
    /// [`MountError`]: the connection to the kernel broke, or the volume was not closed cleanly.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
        // What fails on the way drops these from the last to the first: whoever takes the mount away while
        // nobody answers must have let go of the connection.
        let Mount { closing, mut mount, control, connection, options } = self;
        let own_mount = mount.mount.clone();
        ensure_room_for_those_who_ask()
            .map_err(|source| MountError::Io { doing: "keep room for those who ask", source })?;
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
        // If it is there still, it goes before the volume is closed.
        drop(mount);
        let closed = closing.outcome();
        match &closed {
            Ok(()) => tracing::info!("{shown}: unmounted and closed"),
            Err(error) => tracing::error!("{shown}: unmounted, and not closed cleanly: {error}"),
        }
        control.tell(&closed);
        if greeter.join().is_err() {
            tracing::error!("the thread that announces the mount panicked");
        }
        closed.map_err(|source| MountError::Volume { volume: options.volume, source })?;
        served.map_err(|source| MountError::Io { doing: "go on talking to the kernel", source })
    }
}

/// Makes sure that a few more files can be opened: without that nobody who connects is heard.
fn ensure_room_for_those_who_ask() -> io::Result<()> {
    let open = || std::fs::File::open("/dev/null");
    std::iter::repeat_with(open).take(SPARE_FILES).collect::<io::Result<Vec<_>>>().map(drop)
}

/// The kernel leaves times of access to the server, whatever the mount's flags say of them.
fn access_times(flags: MountFlags) -> AccessTimes {
    if flags.contains(MountFlags::RDONLY) {
        AccessTimes::Never
    } else if flags.contains(MountFlags::STRICTATIME) {
        // As mount(2) has it, over `noatime` too.
        AccessTimes::Always
    } else if flags.contains(MountFlags::NOATIME) {
        AccessTimes::Never
    } else {
        AccessTimes::Relative
    }
}

/// A mount that goes with this value unless it is over: what is not served must not be left to those who
/// would wait for it.
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
    unique: u64,
) -> Result<(Connection, OwnMount, Control), MountError> {
    let MountOptions { mount_point, flags, transport, .. } = options;
    // Opening the volume may have taken long: what is there now counts. And below it there may be another.
    while mount_point::examine(mount_point)? == Found::DeadMount {
        tracing::info!("{} is the mount of a server that died; replacing it", mount_point.display());
        mount_point::detach(mount_point)?;
    }
    if *transport != Some(Transport::Device)
        && let Err(error) = enable_io_uring()
    {
        tracing::info!("the kernel is not asked to offer io_uring: {error}");
    }
    let (connection, mount) = mount_point::mount(device, mount_point, *flags)?;
    let dispatch = |sink, minor| Dispatch::start(Arc::clone(server), sink, minor);
    let greeted = Connection::greet(connection, *transport, dispatch)
        .map_err(|source| MountError::Io { doing: "greet the kernel", source })
        .and_then(|connection| {
            server.set_transport(connection.transport().name());
            let control = listen(&mount, &connection, server, unique)?;
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

fn listen(
    mount: &OwnMount,
    connection: &Connection,
    server: &Arc<Server>,
    unique: u64,
) -> Result<Control, MountError> {
    let server = Arc::clone(server);
    let status = move || serde_json::to_vec(&server.status()).unwrap_or_default();
    Control::listen(mount.device(), unique, status, connection.is_over())
        .map_err(|source| MountError::Io { doing: "listen on a socket", source })
}

/// Sets what can be set only once requests are answered, and says that they are.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_flags_say_which_accesses_count() {
        for (flags, times) in [
            (MountFlags::empty(), AccessTimes::Relative),
            (MountFlags::RELATIME, AccessTimes::Relative),
            (MountFlags::NODIRATIME, AccessTimes::Relative),
            (MountFlags::NOATIME, AccessTimes::Never),
            (MountFlags::STRICTATIME, AccessTimes::Always),
            (MountFlags::STRICTATIME | MountFlags::NOATIME, AccessTimes::Always),
            (MountFlags::STRICTATIME | MountFlags::RDONLY, AccessTimes::Never),
        ] {
            assert_eq!(access_times(flags), times, "{flags:?}");
        }
    }
}
