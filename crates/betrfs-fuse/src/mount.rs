//! A mount from beginning to end: open, mount, serve, close.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use betree_sys::Home;
use betrfs::{AccessTimes, OpenOptions, Volume};
use betrfs_host::{FileDevice, OpenError, StdHome, Workers, WorkersOptions};

use crate::closing::Closing;
use crate::farewell::Farewell;
use crate::mount_point::{self, Found, MountFlags, MountPointError, OwnMount};
use crate::server::Server;
use crate::status::Identity;
use crate::transport::{Connection, SlowDevice, Transport, enable_io_uring};

/// How far the kernel reads ahead in a file that is read in order.
const READ_AHEAD_KIB: u32 = 1024;

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
    closing: Arc<Closing>,
    connection: Connection,
    mount: OwnMount,
    farewell: Farewell,
    options: MountOptions,
}

impl Mount {
    /// Opens the volume and mounts it. The mount of a server that died is replaced.
    ///
    /// # Errors
    /// [`MountError`], with what to do about it; nothing is mounted then.
    pub fn new(options: MountOptions) -> Result<Mount, MountError> {
        mount_point::examine(&options.mount_point)?;
        let device = Arc::new(FileDevice::open(&options.volume)?);
        let home: Arc<dyn Home> = Arc::new(StdHome::new());
        let farewell = Farewell::listen(home.random_u64())
            .map_err(|source| MountError::Io { doing: "listen on a socket", source })?;
        // The kernel keeps what was read: a second copy would only take memory and the time to make it.
        let open = OpenOptions {
            cache_bytes: options.cache_bytes,
            contents_bytes_max: 0,
            access_times: access_times(options.flags),
            listings_count: !options.flags.contains(MountFlags::NODIRATIME),
            ..OpenOptions::new(home)
        };
        let volume = Volume::open(Arc::new(SlowDevice(Arc::clone(&device))), open)
            .map_err(|source| MountError::Volume { volume: options.volume.clone(), source })?;
        let volume = Arc::new(volume);
        let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default())
            .map_err(|source| MountError::Io { doing: "start threads", source })?;
        let identity = Identity {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            volume: options.volume.clone(),
            mount_point: options.mount_point.clone(),
            farewell: farewell.name().to_owned(),
        };
        let read_only = options.flags.contains(MountFlags::RDONLY);
        let closing = Arc::new(Closing::new(Arc::clone(&volume), Arc::clone(&device), workers));
        let server = Arc::new(Server::new(volume, identity, read_only, Arc::clone(&closing)));
        match connect(&options, &device, &server) {
            Ok((connection, mount)) => Ok(Mount { closing, connection, mount, farewell, options }),
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
        &self.mount
    }

    /// Answers requests until it is unmounted, then closes the volume. `ready` is called once the
    /// mount has answered.
    ///
    /// # Errors
    /// [`MountError`]: the connection to the kernel broke, or the volume was not closed cleanly.
    pub fn serve(self, ready: impl FnOnce() + Send + 'static) -> Result<(), MountError> {
        let Mount { closing, connection, mount, farewell, options } = self;
        let greeter = thread::Builder::new()
            .name("betrfs-greeter".into())
            .spawn(move || answer_once(&mount, ready))
            .map_err(|source| MountError::Io { doing: "start a thread", source })?;
        let served = connection.serve();
        let closed = closing.outcome();
        farewell.tell(&closed);
        if greeter.join().is_err() {
            tracing::error!("the thread that announces the mount panicked");
        }
        closed.map_err(|source| MountError::Volume { volume: options.volume, source })?;
        served.map_err(|source| MountError::Io { doing: "go on talking to the kernel", source })
    }
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

fn connect(
    options: &MountOptions,
    device: &FileDevice,
    server: &Arc<Server>,
) -> Result<(Connection, OwnMount), MountError> {
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
    match Connection::greet(connection, server, *transport) {
        Ok(connection) => Ok((connection, mount)),
        Err(source) => {
            if let Err(error) = mount.detach() {
                tracing::warn!("{error}");
            }
            Err(MountError::Io { doing: "greet the kernel", source })
        }
    }
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
