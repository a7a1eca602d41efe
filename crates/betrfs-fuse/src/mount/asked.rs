//! A mount as its control socket sees it.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use betree::{ScrubOptions, ScrubStep};
use betrfs::{QuotaLimits, Report, Scrubbed};
use rustix::fs::inotify;

use super::MountError;
use crate::closing::CloseState;
use crate::control::{BackupPart, Control, Order, Served};
use crate::file_map::MapExtent;
use crate::freeze::{End, FreezeError, Step};
use crate::layout::Layout;
use crate::loop_device;
use crate::mount_info::MountEntry;
use crate::mount_point::OwnMount;
use crate::protocol::FetchFile;
use crate::server::{Server, may_administer};
use crate::transport::{Connection, Transport};

/// Answers the control socket of a mount, whose name has the number `unique`, for a connection with this
/// file.
pub(super) fn listen(
    mount: &OwnMount,
    connection: &Connection,
    server: &Arc<Server>,
    fetch_file: &FetchFile,
    unique: u64,
    is_removed_for_all: bool,
) -> Result<Control, MountError> {
    let by_ring = connection.transport() == Transport::IoUring;
    let fetch_file = by_ring.then(|| mount.path().join(fetch_file.name()));
    let served = Asked {
        fetch_file,
        server: Arc::clone(server),
        mount: mount.clone(),
        is_removed_for_all,
        is_over: connection.is_over(),
    };
    Control::listen(mount.device(), unique, Arc::new(served))
        .map_err(|source| MountError::Io { doing: "listen on a socket", source })
}

/// A mount as its control socket sees it.
struct Asked<F> {
    server: Arc<Server>,
    mount: OwnMount,
    is_removed_for_all: bool,
    /// The file that the kernel must know while the volume stands still.
    fetch_file: Option<PathBuf>,
    is_over: F,
}

impl<F: Fn() -> bool + Send + Sync> Served for Asked<F> {
    fn status(&self) -> Vec<u8> {
        serde_json::to_vec(&self.server.status()).unwrap_or_default()
    }

    fn is_over(&self) -> bool {
        (self.is_over)()
    }

    fn close_state(&self) -> CloseState {
        self.server.close_state()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> betrfs::Result<Report> {
        let closing = || betrfs::Error::Engine(betree::Error::Interrupted);
        let checked = self.server.check(&mut |done, all| match self.server.is_closing() {
            true => ControlFlow::Break(()),
            false => progress(done, all),
        });
        // What was read while the volume was being closed says nothing about it.
        if self.server.is_closing() { Err(closing()) } else { checked }
    }

    fn scrub(
        &self,
        options: ScrubOptions,
        step: &mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    ) -> betrfs::Result<Scrubbed> {
        self.server.scrub(options, step)
    }

    fn backup(&self, take: &mut dyn FnMut(BackupPart<'_>) -> ControlFlow<()>) -> betrfs::Result<()> {
        self.server.backup(take)
    }

    fn layout(&self, cells_max: u32) -> betrfs::Result<Layout> {
        self.server.layout(cells_max)
    }

    fn map(&self, token: u64, offset: u64, len: u64) -> betrfs::Result<Vec<MapExtent>> {
        self.server.map(token, offset, len)
    }

    fn carry_out(
        &self,
        order: &Order,
        go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> betrfs::Result<u64> {
        let done = self.server.carry_out(order, go_on)?;
        if let Order::Resize(_) = order
            && let Err(error) = self.show_size()
        {
            tracing::warn!("the mount's loop device still shows the size of before: {error}");
        }
        Ok(done)
    }

    fn set_quota(
        &self,
        token: u64,
        limits: QuotaLimits,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> betrfs::Result<()> {
        self.server.set_quota(token, limits, go_on)
    }

    fn freeze(
        &self,
        time: Option<Duration>,
        tell: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<End, FreezeError> {
        // Over the freeze.
        let _held = self.fetch_file.as_deref().map(hold_in_kernel);
        self.server.freeze(time, tell)
    }

    fn thaw(&self, number: Option<u64>) -> bool {
        self.server.freezer().thaw(number)
    }

    fn await_thaw(&self) {
        self.server.freezer().await_thaw();
    }

    fn is_administrator(&self, process: u32) -> bool {
        may_administer(self.server.tasks(), process)
    }

    fn is_removed_for_all(&self) -> bool {
        self.is_removed_for_all
    }

    fn unmount(&self, number: u64) -> Result<(), String> {
        let shown = self.mount.path().display();
        if self.mount.number().map_err(|error| error.to_string())? != number {
            return Err(format!("its server removes the mount on {shown} alone"));
        }
        // Others' changes wait for the thaw, which is not this user's to decide.
        if self.server.freezer().frozen().is_some() {
            return Err(format!("{shown} is frozen"));
        }
        tracing::info!("unmounting {shown} for a user, as the option users allows");
        self.mount.unmount().map_err(|error| error.to_string())
    }
}

impl<F> Asked<F> {
    /// Has the loop device that stands for the volume's file show the file's size.
    fn show_size(&self) -> io::Result<()> {
        let all = MountEntry::all()?;
        let stand_ins =
            all.iter().filter(|mount| mount.device == self.mount.device() && mount.stands_for_file());
        stand_ins.map(|mount| &mount.source).take(1).try_for_each(|source| loop_device::take_size(source))
    }
}

/// Has the kernel know a file until the end of what is returned, without holding its mount.
fn hold_in_kernel(path: &Path) -> Option<OwnedFd> {
    let held = inotify::init(inotify::CreateFlags::CLOEXEC)
        .and_then(|watch| inotify::add_watch(&watch, path, inotify::WatchFlags::DELETE_SELF).map(|_| watch));
    held.inspect_err(|errno| {
        tracing::warn!("many changes at once may hold reads up: {}: {errno}", path.display())
    })
    .ok()
}
