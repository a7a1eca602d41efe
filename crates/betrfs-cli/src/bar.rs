//! Bars that show how far a command is.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time for which nothing is shown of work that mostly takes less.
const QUIET: Duration = Duration::from_secs(2);

/// A bar on standard error, drawn only if that is a terminal; the template is one of indicatif.
pub fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A bar of bytes that is drawn on a terminal once the work has taken two seconds.
pub struct LateBar {
    bar: ProgressBar,
    began: Option<Instant>,
}

impl LateBar {
    /// Of work that has not begun; the template is one of indicatif.
    pub fn new(template: &str) -> LateBar {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        LateBar { bar: styled(bar, template), began: None }
    }

    /// Tells that `done` of `all` are done; `all` is 0 before the work begins.
    pub fn tell(&mut self, done: u64, all: u64) {
        if all == 0 {
            return;
        }
        let began = *self.began.get_or_insert_with(|| {
            self.bar.reset();
            Instant::now()
        });
        if self.bar.is_hidden() && began.elapsed() >= QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(all);
        self.bar.set_position(done);
    }

    /// Sets the words of a template with some.
    pub fn say(&self, words: String) {
        self.bar.set_message(words);
    }

    /// Prints lines above the bar.
    pub fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the bar away for good.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for LateBar {
    fn drop(&mut self) {
        self.end();
    }
}
