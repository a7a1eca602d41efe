//! Openings of files that lost their name after they were looked up, for example by a rename that replaced
//! them.
//!
//! A rename is atomic for a program that opens the name: at no moment may the name seem to be missing. A file
//! that was looked up and then replaced could be kept until it is released, but its blocks occupy the keys of
//! the new file, which is then stored under an object id. Where names are looked up again
//! ([`OpenOptions::names_are_looked_up_again`](crate::OpenOptions)) a late opening is refused instead, and
//! its second try finds the new file. There is no third try: for some time after a refusal, files that lose
//! their names are kept, as they always are elsewhere, and the second try succeeds even if the new file is
//! replaced as well.
//!
//! The same holds, after its last close, for a file that lost its name while it was open: a look-up may be
//! remembered for ever, and its space must not wait for that.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::Result;
use crate::names::Inode;
use crate::volume::Volume;

/// How long a second try is waited for after a refusal.
const SECOND_TRY_NS: i64 = 10 * 1_000_000_000;

impl Volume {
    /// Notes that an opening was refused because the file is gone.
    pub(super) fn refused_late_open(&self) {
        self.late_open_ns.store(self.platform.now_ns(), Relaxed);
    }

    /// The key of a file for a change by its name, which may come too late as well.
    pub(super) fn key_by_name(&self, inode: &Inode) -> Result<Vec<u8>> {
        inode.own_key().inspect_err(|_| self.refused_late_open())
    }

    /// Whether a program that looked up a file without a name may still open it.
    pub(super) fn waits_for_openings(&self) -> bool {
        let since_ns = self.platform.now_ns().saturating_sub(self.late_open_ns.load(Relaxed));
        !self.names_are_looked_up_again || (0..SECOND_TRY_NS).contains(&since_ns)
    }
}
