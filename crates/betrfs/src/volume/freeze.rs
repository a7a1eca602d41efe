//! A volume that stands still, so that others can copy the device below it.
//!
//! What callers change waits in the engine. What the volume changes by itself, for callers that only read or
//! let go of something, must not: it is put off.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::{Condvar, Mutex};

use crate::error::Result;
use crate::names::Inode;
use crate::volume::Volume;

/// The changes that the volume makes by itself: deletions of unlinked files, and times of access of inodes
/// that leave memory.
#[derive(Default)]
pub(super) struct OwnChanges {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    is_stopped: bool,
    /// The number of those under way.
    going: usize,
    /// Inodes without a holder, which are to be looked at again.
    put_off: Vec<Arc<Inode>>,
}

/// A change under way, until it is dropped.
pub(super) struct Going<'o>(&'o OwnChanges);

impl OwnChanges {
    /// Begins a change that can be left out for now; `None` if it must be. It may begin others.
    pub fn begin(&self) -> Option<Going<'_>> {
        let mut state = self.state.lock();
        (!state.is_stopped).then(|| {
            state.going += 1;
            Going(self)
        })
    }

    /// As [`begin`](OwnChanges::begin); if the change must be left out, the inode is put off.
    pub fn begin_with(&self, inode: &Arc<Inode>) -> Option<Going<'_>> {
        let mut state = self.state.lock();
        if state.is_stopped {
            state.put_off.push(inode.clone());
            return None;
        }
        state.going += 1;
        Some(Going(self))
    }

    /// Lets none begin any more, and waits for those under way; `false` if another thread has done so.
    fn stop(&self) -> bool {
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.is_stopped, true) {
            return false;
        }
        while state.going > 0 {
            state = self.ended.wait(state);
        }
        true
    }

    /// Lets them begin again; returns what was put off.
    fn go_on(&self) -> Vec<Arc<Inode>> {
        let mut state = self.state.lock();
        state.is_stopped = false;
        core::mem::take(&mut state.put_off)
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        let Going(changes) = self;
        changes.state.lock().going -= 1;
        changes.ended.notify_all();
    }
}

impl Volume {
    /// Makes the volume stand still while `while_frozen` runs: the device holds all that was done before,
    /// times of access too, as after a [`close`](Volume::close), and nothing is written to it. Whoever only
    /// reads, opens or lets go of something goes on; changes wait until the end, with the locks that they
    /// have: a caller whose readers are not to wait for these holds changes back before. A crash meanwhile
    /// leaves a volume that was closed cleanly.
    ///
    /// `None`, and nothing has happened, while another thread freezes the volume or writes a checkpoint
    /// ([`Env::freeze`](betree::Env::freeze)). [`prepare_freeze`](Volume::prepare_freeze) leaves little to
    /// write while changes wait already.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, b"text")?.node;
    /// let read = volume.freeze(|| {
    ///     let mut bytes = Vec::new();
    ///     volume.read(file, 0, 100, &mut bytes).map(|()| bytes)
    /// })?;
    /// assert_eq!(read.transpose()?.as_deref(), Some(&b"text"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Env::freeze`](betree::Env::freeze).
    pub fn freeze<T>(&self, while_frozen: impl FnOnce() -> T) -> Result<Option<T>> {
        self.put_access_times();
        if !self.own_changes.stop() {
            return Ok(None);
        }
        let done = self.env.freeze(while_frozen);
        for inode in self.own_changes.go_on() {
            self.closed(&inode);
        }
        Ok(done?)
    }

    /// Writes what a [`freeze`](Volume::freeze) would have to, while others go on.
    ///
    /// # Errors
    /// As [`Env::checkpoint`](betree::Env::checkpoint). A volume that takes no changes is none here.
    pub fn prepare_freeze(&self) -> Result<()> {
        self.put_access_times();
        Ok(self.env.checkpoint_if_open()?)
    }
}
