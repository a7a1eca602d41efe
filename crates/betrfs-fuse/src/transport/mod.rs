//! Requests and replies by the crate `fuser`; no other module names its types.

mod convert;
mod filesystem;
mod numbers;
mod panics;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{Config, InitFlags, KernelConfig, Session, SessionACL};

use crate::server::Server;
use filesystem::Transport;
pub use panics::abort_on_stray_panics;

/// Threads that answer requests. A request handed to the other CPU costs more than it gains, so
/// more of them make it slower.
const THREADS: usize = 2;
/// The largest write in one request.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// How many read-ahead requests may wait at once.
const BACKGROUND_MAX: u16 = 64;

/// A connection to the kernel that has been greeted and is not yet served.
pub struct Connection {
    session: Session<Transport>,
}

impl Connection {
    /// Takes over the descriptor of /dev/fuse that a mount was made with, and greets the kernel.
    pub fn greet(device: OwnedFd, server: Arc<Server>) -> io::Result<Connection> {
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        // Whom the kernel lets through is settled by the mount's options.
        let session = Session::from_fd(Transport::new(server), device, SessionACL::All, config)?;
        Ok(Connection { session })
    }

    /// Answers requests until the kernel ends the connection.
    pub fn serve(self) -> io::Result<()> {
        self.session.run()
    }
}

/// What is asked of the kernel; what it does not know is left out.
fn configure(config: &mut KernelConfig) {
    let wanted = InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_ATOMIC_O_TRUNC
        | InitFlags::FUSE_EXPLICIT_INVAL_DATA
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_ASYNC_DIO;
    if let Err(unknown) = config.add_capabilities(wanted) {
        tracing::info!("the kernel does not offer {unknown:?}");
        let known = wanted - unknown;
        if config.add_capabilities(known).is_err() {
            tracing::warn!("the kernel refuses {known:?}");
        }
    }
    let sizes = config
        .set_max_write(WRITE_BYTES_MAX)
        .and(config.set_max_background(BACKGROUND_MAX).map(u32::from).map_err(u32::from));
    if let Err(nearest) = sizes {
        tracing::warn!("the kernel's limit is {nearest}");
    }
}
