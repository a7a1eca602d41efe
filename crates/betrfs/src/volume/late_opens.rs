//! Openings of files that have lost their name after they had been looked up, as by a rename that replaces
//! them.
//!
//! A rename is atomic for whoever opens the name: at no moment may there seem to be no file of that name.
//! What was looked up and is then replaced could be kept until it is let go; but its blocks are in the way of
//! what comes to the name, which then is stored under an object id. Where names are looked up again
//! ([`OpenOptions::names_are_looked_up_again`](crate::OpenOptions)) an opening that comes late is refused
//! instead, and its second try finds the file that is there now. There is no third one: so for some time
//! after a refusal what loses its name is kept, as it always is elsewhere, and the second try succeeds even
//! if that is replaced as well.
//!
//! The same holds for what loses its name while it is open, after the last close: a look-up may be remembered
//! for ever, and space must not wait for that.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::Result;
use crate::names::Inode;
use crate::volume::Volume;

/// How long after a refusal the second try is waited for.
const SECOND_TRY_NS: i64 = 10 * 1_000_000_000;

impl Volume {
    /// Notes that an opening was refused because the file is gone.
    pub(super) fn refused_late_open(&self) {
        self.late_open_ns.store(self.platform.now_ns(), Relaxed);
    }

    /// The key of a file that a change by its name is for, which may come too late as well.
    pub(super) fn key_by_name(&self, inode: &Inode) -> Result<Vec<u8>> {
        inode.own_key().inspect_err(|_| self.refused_late_open())
    }

    /// Whether what has no name any more may still be opened by somebody who looked it up.
    pub(super) fn waits_for_openings(&self) -> bool {
        let since_ns = self.platform.now_ns().saturating_sub(self.late_open_ns.load(Relaxed));
        !self.names_are_looked_up_again || (0..SECOND_TRY_NS).contains(&since_ns)
    }
}
