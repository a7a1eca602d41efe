//! The log: to standard error, which for a server in the background is its log file; or, if it has none, to
//! the system's log.

use std::io::IsTerminal;

use syslog_tracing::{Facility, Options, Syslog};
use tracing::Level;

/// The writer and the place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A command's, on standard error: warnings, and more with each `--verbose`.
    Command,
    /// A server's, in its file: also the few lines of a mount's life.
    File,
    /// A server's, by syslog(3), to the journal or another receiver; without a receiver it is lost.
    System,
}

/// Starts logging.
pub fn start(verbose: u8, place: Place) {
    let level = match (place, verbose) {
        (Place::Command, 0) => Level::WARN,
        (Place::Command, 1) | (_, 0) => Level::INFO,
        _ => Level::DEBUG,
    };
    // By default a line that cannot be written is reported on standard error, which may panic.
    let log = tracing_subscriber::fmt().with_max_level(level).log_internal_errors(false);
    match (place, Syslog::new(c"betrfs", Options::LOG_PID, Facility::Daemon)) {
        // The system's log has times and levels of its own.
        (Place::System, Some(system)) => {
            log.with_ansi(false)
                .without_time()
                .with_level(false)
                .with_target(false)
                .with_writer(system)
                .init();
        }
        _ => log.with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr).init(),
    }
}
