//! How far a check is, on standard error.

use std::io::Write;

use indicatif::ProgressBar;

use crate::bar;

/// A bar, drawn only if standard error is a terminal; and lines, if they are asked for.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    /// The tenths of the nodes told so far.
    tenths: u64,
}

impl Progress {
    /// No node is done yet.
    pub fn new(lines: bool) -> Progress {
        let bar = bar::styled(ProgressBar::new(0), "checking [{wide_bar}] {pos}/{len} {eta}");
        Progress { lines: lines && bar.is_hidden(), bar, tenths: 0 }
    }

    /// Tells that `done` of `all` nodes are done: a line for each tenth.
    pub fn tell(&mut self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        let tenths = done.saturating_mul(10).checked_div(all).unwrap_or(0);
        if self.lines && tenths > self.tenths {
            self.tenths = tenths;
            // If standard error is closed, the check goes on.
            let _ = writeln!(std::io::stderr(), "checked {done} of {all} nodes");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
