//! The file-system side of the mount: one method a request, and nothing of how requests travel.
//!
//! A transport turns what it reads into a call here and the answer into bytes. What the library's
//! calls do not settle by themselves is settled here: who a new object belongs to, what a request's
//! flags mean, and the status that the mount's root answers.

mod cached_pages;
mod caller;
mod directory;
mod error_log;
mod file;
mod inode;
mod ioctl;
mod namespace;
mod readdirplus_policy;
mod writable_mappings;
mod xattr;

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use betrfs::Volume;
use rustix::io::Errno;

pub use self::caller::Caller;
use self::error_log::{ErrorLog, Saying};
use crate::closing::Closing;
use crate::counters::Counters;
use crate::errno::{errno, is_alarming, is_of_read_only};
use crate::status::{Identity, Status};

/// What a request is answered with.
pub type Answer<T> = Result<T, Errno>;

/// Answers the requests of one mount.
pub struct Server {
    volume: Arc<Volume>,
    counters: Counters,
    identity: Identity,
    read_only: bool,
    closing: Arc<Closing>,
    transport: OnceLock<&'static str>,
    started: Instant,
    sources: ioctl::Sources,
    readdirplus_policy: readdirplus_policy::ReaddirplusPolicy,
    mappings: writable_mappings::WritableMappings,
    pages: cached_pages::CachedPages,
}

impl Server {
    /// A server of an open volume. Of a mount that is read-only the kernel refuses what it knows to be a
    /// change.
    pub fn new(volume: Arc<Volume>, identity: Identity, read_only: bool, closing: Arc<Closing>) -> Server {
        Server {
            volume,
            counters: Counters::default(),
            identity,
            read_only,
            closing,
            transport: OnceLock::new(),
            started: Instant::now(),
            sources: ioctl::Sources::default(),
            readdirplus_policy: readdirplus_policy::ReaddirplusPolicy::default(),
            mappings: writable_mappings::WritableMappings::default(),
            pages: cached_pages::CachedPages::default(),
        }
    }

    /// Notes, once, by which transport requests travel, for [`status`](Server::status).
    pub fn set_transport(&self, transport: &'static str) {
        self.transport.get_or_init(|| transport);
    }

    /// DESTROY: the kernel's last request, at the end of a mount of a block device, for whose answer
    /// umount(2) waits.
    pub fn destroy(&self) {
        self.closing.close();
    }

    /// The counts of requests.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What `betrfs stats` shows.
    pub fn status(&self) -> Status {
        let transport = self.transport.get().copied().unwrap_or_default();
        Status::of(&self.identity, transport, &self.volume, &self.counters, self.started.elapsed())
    }

    /// The answer to a failed call; trouble with the volume goes to the log as well.
    fn refuse(error: &betrfs::Error) -> Errno {
        if is_alarming(error) {
            match ERROR_LOG.note(Instant::now()) {
                Saying::Line(0) => tracing::error!("{error}"),
                Saying::Line(before) => tracing::error!("{error} (and {before} failures before it)"),
                Saying::Nothing => {}
            }
        } else if is_of_read_only(error) && ERROR_LOG.is_first_refusal() {
            tracing::error!("changes are refused from now on: {error}");
        }
        errno(error)
    }
}

/// A process serves one mount.
static ERROR_LOG: LazyLock<ErrorLog> = LazyLock::new(ErrorLog::default);

/// Turns a library result into an answer.
trait IntoAnswer<T> {
    fn answer(self) -> Answer<T>;
}

impl<T> IntoAnswer<T> for betrfs::Result<T> {
    fn answer(self) -> Answer<T> {
        self.map_err(|error| Server::refuse(&error))
    }
}
