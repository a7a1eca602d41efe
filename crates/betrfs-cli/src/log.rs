//! Where the log goes: to standard error, which a server in the background has on its log file; or, where it
//! has none, to the system's log.

use std::io::IsTerminal;

use syslog_tracing::{Facility, Options, Syslog};
use tracing::Level;

/// Whose log it is, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A command's, on standard error: warnings, and more the more often `--verbose` was given.
    Command,
    /// A server's, in its file: the few lines of a mount's life, too.
    File,
    /// A server's, in the journal or whatever else takes what is sent to syslog(3); where nothing does,
    /// nowhere.
    System,
}

/// Starts logging.
pub fn start(verbose: u8, place: Place) {
    let level = match (place, verbose) {
        (Place::Command, 0) => Level::WARN,
        (Place::Command, 1) | (_, 0) => Level::INFO,
        _ => Level::DEBUG,
    };
    // Of a line that cannot be written nobody can be told: that goes to standard error, and panics there.
    let log = tracing_subscriber::fmt().with_max_level(level).log_internal_errors(false);
    match (place, Syslog::new(c"betrfs", Options::LOG_PID, Facility::Daemon)) {
        // It has times and levels of its own.
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
