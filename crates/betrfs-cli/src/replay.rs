//! How far the replay of a log is, when a command or a mount opens a volume that was not closed.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use betree::ReplayProgress;

use crate::bar::LateBar;

/// A bar of the bytes of a log, which is drawn on a terminal once the replay has taken two seconds.
pub fn bar() -> LateBar {
    LateBar::new(
        "replaying the log [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    )
}

/// Shows a replay in this process; `None` if standard error is no terminal: then nobody looks at it, and the
/// log's headers need not be read for it.
pub fn on_terminal() -> Option<Arc<ReplayProgress>> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = Mutex::new(bar());
    Some(Arc::new(move |done, all| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.tell(done, all);
        if done >= all {
            // What comes next may have a bar of its own.
            bar.end();
        }
    }))
}
