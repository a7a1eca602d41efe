//! Bars that show how far a command is.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, drawn only if that is a terminal; the template is one of indicatif.
pub fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
