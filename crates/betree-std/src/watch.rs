//! Messages about the troubles of an environment in the program's log.

use std::path::PathBuf;

use betree::{Error, State, Watcher};
use betree_platform::Platform;

use crate::platform::StdPlatform;

/// Logs each trouble of a volume once.
#[derive(Debug)]
pub struct TroubleLog {
    volume: PathBuf,
    platform: StdPlatform,
}

impl TroubleLog {
    /// The log of the volume in a file or block device.
    pub fn of(volume: PathBuf) -> TroubleLog {
        TroubleLog { volume, platform: StdPlatform::new() }
    }
}

impl Watcher for TroubleLog {
    fn now_ns(&self) -> i64 {
        self.platform.now_ns()
    }

    fn state_changed(&self, state: &State) {
        let volume = self.volume.display();
        match state {
            State::Writable => tracing::info!("{volume}: there is room again, and all data is written"),
            State::DeviceFull(trouble) => tracing::error!(
                "{volume}: {}: nothing becomes durable until there is room, and then it goes on by itself",
                trouble.why
            ),
            State::ReadOnly(trouble) => {
                tracing::error!(
                    "{volume}: read-only until it is opened anew, because of this: {}",
                    trouble.why
                );
            }
        }
    }

    fn work_failed(&self, error: &Error) {
        tracing::error!("{}: background work skipped unreadable data: {error}", self.volume.display());
    }

    fn copy_used(&self, error: &Error) {
        tracing::warn!("{}: {error}; its second copy was read instead", self.volume.display());
    }
}
