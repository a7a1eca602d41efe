//! How commands open volumes that are mounted nowhere.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use betree::{Error, State, Watcher};
use betree_std::{StdPlatform, Zstd};
use betrfs::OpenOptions;

use crate::replay;

/// The usual options, with zstd; a terminal shows how far the replay of the log is.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new(Arc::new(StdPlatform::new()));
    options.zstd = Some(Arc::new(Zstd::default()));
    options.replay_progress = replay::on_terminal();
    options.watcher = Some(Arc::new(WallClock));
    options
}

/// The time of errors that are counted. Commands tell of troubles by their outcome.
struct WallClock;

impl Watcher for WallClock {
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn state_changed(&self, _: &State) {}

    fn work_failed(&self, _: &Error) {}

    fn copy_used(&self, _: &Error) {}
}
