//! The file-system side of the mount: one method for each request, independent of the transport.
//!
//! The protocol decodes a request, calls a method here and encodes the answer. Decided here, because the
//! library leaves it open: the owner of a new object, the meaning of a request's flags, and the status for
//! `betrfs stats`.

mod belated_pages;
mod cached_pages;
mod caller;
mod directory;
pub mod error_log;
mod file;
mod inode;
mod inode_flags;
mod ioctl;
mod namespace;
mod owners;
mod properties;
mod quota;
mod readdirplus_policy;
mod writable_mappings;
mod xattr;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use betree::{NodeCopies, ScrubOptions, ScrubStep};
use betrfs::{Report, Scrubbed, Volume};
use rustix::io::Errno;

pub use self::caller::{Caller, ProcTasks, Tasks, may_administer};
use self::error_log::{ErrorLog, Saying};
pub use self::namespace::Found;
use crate::closing::{CloseState, Closing};
use crate::control::{BackupPart, Order};
use crate::counters::Counters;
use crate::errno::{errno, is_alarming, is_of_read_only};
use crate::freeze::{End, FreezeError, Freezer, Step};
use crate::layout::Layout;
use crate::mount_settings::{ChangeableSettings, FixedSettings, MountSettings};
use crate::status::{Identity, Status};

/// The answer to a request.
pub type Answer<T> = Result<T, Errno>;

/// What access control lists are good for on a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acls {
    /// Users are judged by them.
    #[default]
    Judge,
    /// They are not shown and cannot be changed; permission bits count.
    Ignored,
}

/// Who may clone, snapshot and remove trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserClones {
    /// Root and the user who mounted.
    #[default]
    Refused,
    /// Each user too, those that belong to the user as a whole ([`Volume::owned_by`]).
    Allowed,
}

/// Answers the requests of one mount.
pub struct Server {
    volume: Arc<Volume>,
    counters: Counters,
    identity: Identity,
    read_only: bool,
    acls: Acls,
    user_clones: AtomicBool,
    fixed_settings: OnceLock<FixedSettings>,
    closing: Arc<Closing>,
    freezer: Freezer,
    tasks: Arc<dyn Tasks>,
    transport: OnceLock<&'static str>,
    metrics: OnceLock<SocketAddr>,
    socket_name: OnceLock<String>,
    started: Instant,
    sources: ioctl::Sources,
    readdirplus_policy: readdirplus_policy::ReaddirplusPolicy,
    mappings: writable_mappings::WritableMappings,
    belated_pages: belated_pages::BelatedPages,
    pages: cached_pages::CachedPages,
}

impl Server {
    /// A server of an open volume. On a read-only mount the kernel itself refuses the changes it knows of.
    /// `tasks` knows the callers' rights.
    pub fn new(
        volume: Arc<Volume>,
        identity: Identity,
        read_only: bool,
        acls: Acls,
        closing: Arc<Closing>,
        tasks: Arc<dyn Tasks>,
    ) -> Server {
        Server {
            volume,
            counters: Counters::default(),
            identity,
            read_only,
            acls,
            user_clones: AtomicBool::new(UserClones::default() == UserClones::Allowed),
            fixed_settings: OnceLock::new(),
            closing,
            freezer: Freezer::default(),
            tasks,
            transport: OnceLock::new(),
            metrics: OnceLock::new(),
            socket_name: OnceLock::new(),
            started: Instant::now(),
            sources: ioctl::Sources::default(),
            readdirplus_policy: readdirplus_policy::ReaddirplusPolicy::default(),
            mappings: writable_mappings::WritableMappings::default(),
            belated_pages: belated_pages::BelatedPages::default(),
            pages: cached_pages::CachedPages::default(),
        }
    }

    /// The same server, with these rights of users.
    #[must_use]
    pub fn with_user_clones(self, user_clones: UserClones) -> Server {
        Server { user_clones: AtomicBool::new(user_clones == UserClones::Allowed), ..self }
    }

    /// Sets what is fixed at the mount, for [`status`](Server::status), once.
    pub fn set_fixed_settings(&self, settings: FixedSettings) {
        self.fixed_settings.get_or_init(|| settings);
    }

    /// The settings that a remount changes.
    fn changeable_settings(&self) -> ChangeableSettings {
        let (times, listings_count) = self.volume.access_times();
        let user_clone_allowed = self.user_clones.load(Relaxed);
        ChangeableSettings { access_times: times.into(), listings_count, user_clone_allowed }
    }

    /// Changes what a remount can change.
    fn change_settings(&self, settings: ChangeableSettings) {
        let ChangeableSettings { access_times, listings_count, user_clone_allowed } = settings;
        self.volume.set_access_times(access_times.into(), listings_count);
        self.user_clones.store(user_clone_allowed, Relaxed);
        tracing::info!("the settings of the mount are changed: {settings:?}");
    }

    /// Sets the transport's name for [`status`](Server::status), once.
    pub fn set_transport(&self, transport: &'static str) {
        self.transport.get_or_init(|| transport);
    }

    /// Sets the address of the metrics for [`status`](Server::status), once.
    pub fn set_metrics_address(&self, address: SocketAddr) {
        self.metrics.get_or_init(|| address);
    }

    /// Sets the name of the abstract socket on which this server answers commands, once.
    pub fn set_socket_name(&self, name: &str) {
        self.socket_name.get_or_init(|| name.to_owned());
    }

    /// The name of that socket, for clients that cannot find it among others.
    pub fn socket_name(&self) -> Answer<&[u8]> {
        self.socket_name.get().map(String::as_bytes).ok_or(Errno::NODATA)
    }

    /// DESTROY: the last request of a mount of a block device; umount(2) waits for its answer.
    pub fn destroy(&self) {
        self.end_freezes();
        self.closing.close();
    }

    /// The gate for requests that change something.
    pub fn freezer(&self) -> &Freezer {
        &self.freezer
    }

    /// Freezes the volume for some time, or until the thaw, in the calling thread.
    ///
    /// # Errors
    /// [`FreezeError`].
    pub fn freeze(
        &self,
        time: Option<Duration>,
        tell: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<End, FreezeError> {
        self.freezer.freeze(&self.volume, time, tell)
    }

    /// Ends a freeze and waits for its end: an unmount would wait for it.
    pub fn end_freeze(&self) {
        if self.freezer.thaw(None) {
            tracing::info!("thawing, as the mount is to end");
            self.freezer.await_thaw();
        }
    }

    /// As [`end_freeze`](Server::end_freeze), and no other begins: the close of the volume would wait for it.
    pub fn end_freezes(&self) {
        if self.freezer.end_for_good() {
            tracing::info!("thawing, as the mount has ended");
            self.freezer.await_thaw();
        }
    }

    /// What is known of the tasks that send requests.
    pub fn tasks(&self) -> &dyn Tasks {
        &*self.tasks
    }

    /// The counts of requests.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the volume is being closed, or is.
    pub fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    /// How far the close of the volume is.
    pub fn close_state(&self) -> CloseState {
        self.closing.state()
    }

    /// Checks the volume while it is used.
    ///
    /// # Errors
    /// The volume's.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> betrfs::Result<Report> {
        self.volume.check_in_use(progress)
    }

    /// Scrubs the volume while it is used; ends when the volume is closed.
    ///
    /// # Errors
    /// The volume's.
    pub fn scrub(
        &self,
        options: ScrubOptions,
        step: &mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    ) -> betrfs::Result<Scrubbed> {
        self.volume.scrub(options, &mut |made| match self.is_closing() {
            true => ControlFlow::Break(()),
            false => step(made),
        })
    }

    /// Reads the volume as of one moment, and calls `take` with its size and each piece.
    ///
    /// # Errors
    /// The volume's; [`betree::Error::Interrupted`] by `take`, or when the volume is closed.
    pub fn backup(&self, take: &mut dyn FnMut(BackupPart<'_>) -> ControlFlow<()>) -> betrfs::Result<()> {
        let mut backup = self.volume.backup()?;
        let (volume_bytes, all_bytes) = (backup.volume_bytes(), backup.bytes());
        let mut taken = take(BackupPart::Size { volume_bytes, all_bytes });
        while taken.is_continue() && !self.is_closing() {
            let Some((offset, bytes)) = backup.next_piece()? else { return Ok(()) };
            taken = take(BackupPart::Piece { offset, bytes });
        }
        Err(betree::Error::Interrupted.into())
    }

    /// Changes the volume itself; returns the bytes that a trim has discarded or that a volume has grown to,
    /// or the number of nodes that are left to be written anew, else 0. Calls `go_on` while a trim takes
    /// long, with the bytes of free space that it has been through, and with those of all; it may end it.
    ///
    /// # Errors
    /// The volume's; [`betrfs::Error::Invalid`] for a number of copies that there cannot be.
    pub fn carry_out(
        &self,
        order: &Order,
        go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> betrfs::Result<u64> {
        let env = self.volume.env();
        match order {
            Order::Label(label) => env.set_label(label)?,
            Order::Uuid(bytes) => env.set_uuid(betrfs::Uuid::from_bytes(*bytes))?,
            Order::ResetErrors => env.reset_errors()?,
            Order::Trim => return Ok(env.trim_while(go_on)?),
            Order::Resize(size) => return Ok(env.grow((*size).into())?),
            Order::MetadataCopies(count) => {
                env.set_node_copies(
                    NodeCopies::of_count(*count)
                        .ok_or(betrfs::Error::Invalid("there can be 1 or 2 copies"))?,
                )?;
            }
            Order::RenewMetadata => return Ok(env.renew_node_copies()?),
            Order::Settings(settings) => self.change_settings(*settings),
        }
        Ok(0)
    }

    /// What lies where on the volume, in at most `cells_max` cells.
    ///
    /// # Errors
    /// The volume's; [`betree::Error::Interrupted`] when the volume is closed.
    pub fn layout(&self, cells_max: u32) -> betrfs::Result<Layout> {
        Layout::of(&self.volume, cells_max, &mut || match self.is_closing() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    /// The status that `betrfs stats` shows.
    pub fn status(&self) -> Status {
        let transport = self.transport.get().copied().unwrap_or_default();
        let (volume, counters) = (&self.volume, &self.counters);
        let mut status = Status::of(&self.identity, transport, volume, counters, self.started.elapsed());
        if let Some(frozen) = self.freezer.frozen() {
            status.state = frozen.into();
        }
        status.metrics = self.metrics.get().map(SocketAddr::to_string);
        let settings =
            |fixed: &FixedSettings| MountSettings { fixed: *fixed, changeable: self.changeable_settings() };
        status.settings = self.fixed_settings.get().map(settings);
        status
    }

    /// Logs a failure, with the path of the object that it is about, or of a name in it.
    pub fn tell_failure(&self, node: betrfs::InodeId, name: Option<&[u8]>, failure: &str) {
        let Some(mut path) = self.volume.shown_name(node) else { return tracing::error!("{failure}") };
        if let Some(name) = name {
            path.extend((path != "/").then_some('/'));
            path.push_str(&String::from_utf8_lossy(name));
        }
        // Anybody may have chosen the name.
        let shown: String = path.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        tracing::error!("{shown}: {failure}");
    }

    /// The answer to a failed call; failures of the volume are logged too.
    fn refuse(error: &betrfs::Error) -> Errno {
        if is_alarming(error) {
            match ERROR_LOG.note(Instant::now()) {
                Saying::Line(0) => error_log::tell(error.to_string()),
                Saying::Line(before) => {
                    error_log::tell(format!("{error} (and {before} failures before it)"));
                }
                Saying::Nothing => {}
            }
        } else if let betrfs::Error::SearchGivenUp { .. } = error {
            tracing::warn!("{error}");
        } else if is_of_read_only(error) && ERROR_LOG.is_first_refusal() {
            tracing::error!("changes are refused from now on: {error}");
        }
        errno(error)
    }
}

/// One for the process, which serves one mount.
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
