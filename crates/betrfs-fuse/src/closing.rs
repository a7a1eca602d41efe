//! The end of a served volume: closed and let go of, once, by whoever comes first.
//!
//! Where the kernel waits for it, that is the answer to DESTROY, so that the volume is free when umount(2)
//! returns; else it is the end of the connection.

use std::sync::Arc;

use betree_std::{FileDevice, Workers};
use betrfs::Volume;
use parking_lot::Mutex;

/// What there is to close.
pub struct Closing {
    volume: Arc<Volume>,
    device: Arc<FileDevice>,
    state: Mutex<State>,
}

enum State {
    Open(Workers),
    Closed(betrfs::Result<()>),
    /// And its outcome was taken.
    Done,
}

impl Closing {
    /// Of a volume on a device, for which these threads work.
    pub fn new(volume: Arc<Volume>, device: Arc<FileDevice>, workers: Workers) -> Closing {
        Closing { volume, device, state: Mutex::new(State::Open(workers)) }
    }

    /// Closes the volume and lets go of its device, unless that is done. Whoever comes meanwhile waits.
    pub fn close(&self) {
        let mut state = self.state.lock();
        if let State::Open(_) = *state {
            if let State::Open(workers) = std::mem::replace(&mut *state, State::Done) {
                workers.stop();
            }
            let closed = self.volume.close();
            if closed.is_err() {
                // The log takes less than a checkpoint.
                let _ = self.volume.sync();
            }
            // Whoever lets go of it last writes nothing to what others may have opened by then.
            self.volume.env().abandon();
            // Whoever opens the volume next may do so from here on.
            self.device.release();
            *state = State::Closed(closed);
        }
    }

    /// As [`close`](Closing::close); how it went, for the first who asks.
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
