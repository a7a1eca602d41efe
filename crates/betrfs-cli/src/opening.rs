//! How commands open volumes that are mounted nowhere.

use std::sync::Arc;

use betree_std::{StdPlatform, Zstd};
use betrfs::OpenOptions;

use crate::replay;

/// The usual options, with zstd; a terminal shows how far the replay of the log is.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new(Arc::new(StdPlatform::new()));
    options.zstd = Some(Arc::new(Zstd::default()));
    options.replay_progress = replay::on_terminal();
    options
}
