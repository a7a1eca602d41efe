//! The log: to standard error, which for a server in the background is its log file; or, if it has none, to
//! the system's log.

use std::io::IsTerminal;

use syslog_tracing::{Facility, Options, Syslog};
use tracing::Level;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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

/// The variable that adds to the log: levels by target, as in `betree=info,betree::commit=trace`.
const VARIABLE: &str = "BETRFS_LOG";
/// The prefix of the targets of the engine's events. Each checkpoint has several.
const ENGINE: &str = "betree::";

/// Starts logging.
pub fn start(verbose: u8, place: Place) {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let (targets, refusal) = match targets(verbose, place, &asked) {
        Ok(targets) => (targets, None),
        Err(why) => (usual(verbose, place), Some(why)),
    };
    // By default a line that cannot be written is reported on standard error, which may panic.
    let log = tracing_subscriber::fmt().with_max_level(Level::TRACE).log_internal_errors(false);
    match (place, Syslog::new(c"betrfs", Options::LOG_PID, Facility::Daemon)) {
        // The system's log has times and levels of its own.
        (Place::System, Some(system)) => {
            let log = log.with_ansi(false).without_time().with_level(false).with_target(false);
            log.with_writer(system).finish().with(targets).init();
        }
        _ => {
            let log = log.with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
            log.finish().with(targets).init();
        }
    }
    if let Some(why) = refusal {
        tracing::warn!("{VARIABLE} is not used: {why}");
    }
}

/// The levels without the variable. The engine's events are logged with `--verbose --verbose` only.
fn usual(verbose: u8, place: Place) -> Targets {
    let level = match (place, verbose) {
        (Place::Command, 0) => Level::WARN,
        (Place::Command, 1) | (_, 0) => Level::INFO,
        _ => Level::DEBUG,
    };
    let targets = Targets::new().with_default(level);
    if verbose < 2 { targets.with_target(ENGINE, Level::WARN) } else { targets }
}

/// The usual levels with those that the variable asks for.
fn targets(verbose: u8, place: Place, asked: &str) -> Result<Targets, ParseError> {
    let usual = usual(verbose, place);
    if asked.is_empty() {
        return Ok(usual);
    }
    let asked: Targets = asked.parse()?;
    // Of two targets the longer one counts: a level for all, or for `betree`, is one for the engine, too.
    let for_betree = asked.iter().find(|(target, _)| ENGINE.starts_with(target)).map(|(_, level)| level);
    let for_engine = for_betree.or(asked.default_level()).map(|level| (ENGINE.to_owned(), level));
    let usual = match asked.default_level() {
        Some(level) => usual.with_default(level),
        None => usual,
    };
    Ok(usual.with_targets(for_engine).with_targets(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_adds_to_the_usual_levels() {
        let server = |asked: &str| targets(0, Place::File, asked).unwrap();
        let usual = server("");
        assert!(usual.would_enable("betrfs_fuse::mount", &Level::INFO));
        assert!(usual.would_enable("betree_std::watch", &Level::INFO));
        assert!(!usual.would_enable("betree::checkpoint", &Level::INFO));

        let all = server("betree=debug");
        assert!(all.would_enable("betree::flush", &Level::DEBUG));
        assert!(!all.would_enable("betree::commit", &Level::TRACE));
        assert!(all.would_enable("betrfs_fuse::mount", &Level::INFO));
        assert!(!all.would_enable("betrfs_fuse::mount", &Level::DEBUG));

        let everything = server("trace");
        assert!(everything.would_enable("betree::commit", &Level::TRACE));
        assert!(everything.would_enable("betrfs_fuse::mount", &Level::TRACE));

        let one = server("betree::evict=trace");
        assert!(one.would_enable("betree::evict", &Level::TRACE));
        assert!(!one.would_enable("betree::checkpoint", &Level::INFO));
        assert!(targets(0, Place::File, "betree=loud").is_err());
    }

    #[test]
    fn verbose_twice_shows_the_engine_too() {
        let of = |verbose| targets(verbose, Place::Command, "").unwrap();
        assert!(!of(1).would_enable("betree::recover", &Level::INFO));
        assert!(of(2).would_enable("betree::recover", &Level::INFO));
        assert!(of(2).would_enable("betree::flush", &Level::DEBUG));
    }
}
