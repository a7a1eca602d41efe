//! How far a check or a scrub is, on standard error.

use std::io::Write;

use indicatif::ProgressBar;

use crate::bar;
use crate::size;

/// The work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Counted in nodes.
    Check,
    /// Counted in bytes.
    Scrub,
}

/// A bar, drawn only if standard error is a terminal; and lines, if they are asked for.
pub struct Progress {
    work: Work,
    bar: ProgressBar,
    lines: bool,
    /// The tenths told so far.
    tenths: u64,
}

impl Progress {
    /// Of a check: no node is done yet.
    pub fn of_check(lines: bool) -> Progress {
        Progress::of(Work::Check, "checking [{wide_bar}] {pos}/{len} {per_sec} {eta}", lines)
    }

    /// Of a scrub: no byte is done yet.
    pub fn of_scrub(lines: bool) -> Progress {
        Progress::of(
            Work::Scrub,
            "scrubbing [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
            lines,
        )
    }

    fn of(work: Work, template: &str, lines: bool) -> Progress {
        let bar = bar::styled(ProgressBar::new(0), template);
        Progress { work, lines: lines && bar.is_hidden(), bar, tenths: 0 }
    }

    /// Tells that `done` of `all` are done: a line for each tenth.
    pub fn tell(&mut self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        let tenths = done.saturating_mul(10).checked_div(all).unwrap_or(0);
        if self.lines && tenths > self.tenths {
            self.tenths = tenths;
            let line = match self.work {
                Work::Check => format!("checked {done} of {all} nodes"),
                Work::Scrub => format!("scrubbed {} of {}", size::show(done), size::show(all)),
            };
            // If standard error is closed, the work goes on.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
