//! Requests about the quotas of directories.

use std::ops::ControlFlow;

use betrfs::{Error, InodeId, Quota, QuotaLimits};
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};
use crate::freeze::Effect;

impl Server {
    /// IOCTL: the quota that a directory is in.
    pub fn quota(&self, node: InodeId) -> Answer<Quota> {
        self.volume.quota(node).answer()?.ok_or(Errno::NODATA)
    }

    /// Gives a directory that was registered as a source, with a permit, a quota. Calls `go_on` with the
    /// number of records that were counted; it may end it.
    ///
    /// # Errors
    /// The volume's; [`betrfs::Error::Invalid`] for a token that is not known, or no longer.
    pub fn set_quota(
        &self,
        token: u64,
        limits: QuotaLimits,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> betrfs::Result<()> {
        let node = self.source(token)?;
        self.must_be_permitted(node, token).map_err(|_| Error::Invalid("its token has no permit"))?;
        let _passed = self.freezer.pass(Effect::Change);
        self.may_change().map_err(|_| Error::Invalid("the mount is for reading"))?;
        self.volume.set_quota_while(node, limits, go_on)
    }

    /// A change: takes a directory's quota away.
    pub fn clear_quota(&self, node: InodeId, caller: Caller<'_>) -> Answer<()> {
        self.may_administer(caller)?;
        self.volume.clear_quota(node).answer()
    }

    /// IOCTL: the first directory with a quota behind a path, with its path: of those below a directory, and
    /// itself.
    pub fn next_quota(
        &self,
        node: InodeId,
        after: Option<&[u8]>,
        caller: Caller<'_>,
    ) -> Answer<(Vec<u8>, Quota)> {
        if !caller.is_trusted() {
            // It reads all records below, whoever they belong to.
            return Err(Errno::PERM);
        }
        self.volume.quotas_below(node, after, 1).answer()?.pop().ok_or(Errno::NODATA)
    }

    fn may_administer(&self, caller: Caller<'_>) -> Answer<()> {
        if !caller.is_trusted() {
            return Err(Errno::PERM);
        }
        self.may_change()
    }
}
