//! Where the log goes: to standard error, which a server in the background has on its log file.

use std::io::IsTerminal;

use tracing::Level;

/// Starts logging; warnings always, and more the more often `--verbose` was given.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Of a line that cannot be written nobody can be told: that goes to standard error, and panics there.
        .log_internal_errors(false)
        .init();
}
