//! Which pieces came of one another, so that a node's next extent keeps the blocks of older messages.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use betree_platform::sync::Mutex;

use super::OnDevice;
use crate::format::node::RunRef;
use crate::message::Msn;
use crate::space::Extent;

/// The last written piece of a lineage, in which each piece is the one before it with newer messages alone.
#[derive(Default)]
pub(super) struct Lineage(Mutex<Option<LastWritten>>);

#[derive(Clone)]
struct LastWritten {
    /// Pieces hold the extent; the lineage does not.
    extent: Weak<Extent>,
    runs: Vec<RunRef>,
    last_msn: Msn,
}

impl Lineage {
    /// A new lineage that begins with the last written of this one.
    pub fn fork(&self) -> Lineage {
        Lineage(Mutex::new(self.0.lock().clone()))
    }

    /// Notes where one of its pieces was written, and the piece's newest message.
    pub fn note(&self, at: &OnDevice, last_msn: Msn) {
        let mut last = self.0.lock();
        if last.as_ref().is_none_or(|last| last.last_msn <= last_msn) {
            let (extent, runs) = (Arc::downgrade(&at.extent), at.runs.clone());
            *last = Some(LastWritten { extent, runs, last_msn });
        }
    }

    /// The last written of its pieces and that piece's newest message, while any piece still holds the
    /// extent.
    pub fn last_written(&self) -> Option<(OnDevice, Msn)> {
        let last = self.0.lock();
        let LastWritten { extent, runs, last_msn } = last.as_ref()?;
        Some((OnDevice { extent: extent.upgrade()?, runs: runs.clone() }, *last_msn))
    }
}
