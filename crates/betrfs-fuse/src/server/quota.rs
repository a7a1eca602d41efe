//! Requests about the quotas of directories.

use betrfs::{Error, InodeId, Quota, QuotaLimits};
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};

impl Server {
    /// IOCTL: the quota that a directory is in.
    pub fn quota(&self, node: InodeId) -> Answer<Quota> {
        self.volume.quota(node).answer()?.ok_or(Errno::NODATA)
    }

    /// IOCTL: gives a directory a quota. Returns the path of a file that keeps it from having one, if there
    /// is any: one with names outside too.
    pub fn set_quota(
        &self,
        node: InodeId,
        limits: QuotaLimits,
        caller: Caller<'_>,
    ) -> Answer<Option<String>> {
        self.may_administer(caller)?;
        match self.volume.set_quota(node, limits) {
            Err(Error::LinkedOutside { name }) => Ok(Some(name)),
            set => set.answer().map(|()| None),
        }
    }

    /// IOCTL: takes a directory's quota away.
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
