//! The close of a served volume: done once, by the first caller.
//!
//! On a mount of a block device that is the answer to DESTROY, so that the volume is free when umount(2)
//! returns; on others the end of the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use betree_std::{FileDevice, Workers};
use betrfs::Volume;
use parking_lot::Mutex;

/// How far the close of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseState {
    /// It has not begun.
    Open,
    /// It writes.
    Writing {
        /// The bytes in memory that are not written yet.
        left_bytes: u64,
    },
    /// It is over.
    Closed,
}

/// A volume, with its device and its workers where it has its own, to be closed once.
pub struct Closing {
    volume: Arc<Volume>,
    device: Option<Arc<FileDevice>>,
    state: Mutex<State>,
    has_begun: AtomicBool,
    has_ended: AtomicBool,
}

enum State {
    Open(Option<Workers>),
    Closed(betrfs::Result<()>),
    /// Closed, and the outcome was taken.
    Done,
}

impl Closing {
    /// For a volume on a device; `workers` are its background threads.
    pub fn new(volume: Arc<Volume>, device: Arc<FileDevice>, workers: Workers) -> Closing {
        Closing::with(volume, Some(device), Some(workers))
    }

    /// For a volume whose device nobody else waits for, and whose background work the caller does.
    pub fn of(volume: Arc<Volume>) -> Closing {
        Closing::with(volume, None, None)
    }

    fn with(volume: Arc<Volume>, device: Option<Arc<FileDevice>>, workers: Option<Workers>) -> Closing {
        let (has_begun, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Closing { volume, device, state: Mutex::new(State::Open(workers)), has_begun, has_ended }
    }

    /// Whether the close has begun: what is read from the device from then on says nothing about the volume.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// How far it is.
    pub fn state(&self) -> CloseState {
        match (self.has_begun(), self.has_ended.load(Ordering::Acquire)) {
            (false, _) => CloseState::Open,
            (true, false) => CloseState::Writing { left_bytes: self.volume.env().stats().dirty_bytes },
            (true, true) => CloseState::Closed,
        }
    }

    /// Closes the volume and releases its device, unless that is done. Concurrent callers wait.
    pub fn close(&self) {
        self.has_begun.store(true, Ordering::Release);
        let mut state = self.state.lock();
        if let State::Open(_) = *state {
            if let State::Open(workers) = std::mem::replace(&mut *state, State::Done) {
                workers.into_iter().for_each(Workers::stop);
            }
            let closed = self.volume.close();
            if closed.is_err() {
                // The log needs less room than a checkpoint.
                let _ = self.volume.sync();
            }
            // The drop of the environment must write nothing: others may have opened the volume by then.
            self.volume.env().abandon();
            // From here on others can open the volume.
            self.device.iter().for_each(|device| device.release());
            *state = State::Closed(closed);
            self.has_ended.store(true, Ordering::Release);
        }
    }

    /// As [`close`](Closing::close); returns the outcome to the first caller, `Ok` to later ones.
    ///
    /// # Errors
    /// The volume's.
    pub fn outcome(&self) -> betrfs::Result<()> {
        self.close();
        match std::mem::replace(&mut *self.state.lock(), State::Done) {
            State::Closed(closed) => closed,
            State::Open(_) | State::Done => Ok(()),
        }
    }
}
