//! Who may treat a tree as one: clone it, take a snapshot of it, empty it.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::Relaxed;

use betrfs::{Error, InodeId, Owned, User};
use rustix::io::Errno;

use super::{Answer, Caller, IntoAnswer, Server};
use crate::mount_info::MountEntry;

/// How often a tree is looked through while others bring foreign objects into it.
const TRIES: usize = 4;

/// What a caller may treat as one.
pub enum Rights {
    /// Everything.
    All,
    /// What belongs to this user as a whole.
    Owner(User),
}

impl Server {
    /// The rights of a caller.
    ///
    /// # Errors
    /// `EPERM` for callers that are not trusted, unless the mount allows each user the user's own.
    pub fn rights(&self, caller: Caller<'_>) -> Answer<Rights> {
        if caller.is_trusted() {
            return Ok(Rights::All);
        }
        match self.user_clones.load(Relaxed) {
            true => caller.user_and_groups().map(Rights::Owner).ok_or(Errno::PERM),
            false => Err(Errno::PERM),
        }
    }

    /// Looks a tree through for a user, and does something with it if all of it is the user's. It is looked
    /// through again if something may have come into it meanwhile that is not.
    ///
    /// # Errors
    /// `EPERM` if something in it is another's; `EAGAIN` if foreign objects keep coming or space is short.
    pub fn as_owner<T>(
        &self,
        tree: InodeId,
        user: &User,
        act: impl Fn(&Owned) -> betrfs::Result<T>,
    ) -> Answer<T> {
        for _ in 0..TRIES {
            match self.volume.owned_by(tree, user).and_then(|owned| act(&owned)) {
                Err(Error::Busy | Error::StateGivenUp) => {}
                done => return done.answer(),
            }
        }
        Err(Errno::AGAIN)
    }

    /// IOCTL: the path below an object of the first one that keeps a user from treating it as one; empty for
    /// the object itself. `ENODATA` where there is none.
    pub fn foreign(&self, node: InodeId, caller: Caller<'_>) -> Answer<Vec<u8>> {
        match self.rights(caller)? {
            Rights::All => Err(Errno::NODATA),
            Rights::Owner(user) => self.volume.foreign_in(node, &user).answer()?.ok_or(Errno::NODATA),
        }
    }

    /// `EBUSY` if something is mounted below a directory, as the server sees it. rmdir(2) refuses a mount
    /// point; who empties the directory above would get around that.
    pub fn refuse_mounts_below(&self, dir: InodeId) -> Answer<()> {
        let path = self.volume.path(dir).answer()?;
        let below = std::ffi::OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(&path));
        let place = self.identity.mount_point.join(below);
        let mounts = MountEntry::all().map_err(|_| Errno::IO)?;
        let is_below = |mount: &MountEntry| mount.path.starts_with(&place) && mount.path != place;
        if mounts.iter().any(is_below) { Err(Errno::BUSY) } else { Ok(()) }
    }
}
