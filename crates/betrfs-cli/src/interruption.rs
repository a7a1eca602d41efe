//! What a check or a scrub says when a signal interrupts it.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure;
use crate::helper::ExitCodes;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Work that may end anywhere, until its result is printed.
pub struct Interruption {
    /// Whether a signal ends the process at once.
    is_at_once: Arc<AtomicBool>,
    /// Whether the result is printed. Held while that is decided.
    has_result: Arc<Mutex<bool>>,
}

impl Interruption {
    /// Has the first signal print the sentence and, by `print_document`, what programs get for it; the
    /// process ends with the exit code for that. A second signal ends it at once.
    ///
    /// # Errors
    /// No thread or handler can be had.
    pub fn watch(
        sentence: String,
        print_document: impl FnOnce(&str) + Send + 'static,
    ) -> io::Result<Interruption> {
        let watched = Interruption { is_at_once: Arc::default(), has_result: Arc::default() };
        let code = i32::from(ExitCodes::CHECK.interrupted);
        for signal in SIGNALS {
            // In this order, so that the first signal sets what the second one finds.
            flag::register_conditional_shutdown(signal, code, Arc::clone(&watched.is_at_once))?;
            flag::register(signal, Arc::clone(&watched.is_at_once))?;
        }
        let mut signals = Signals::new(SIGNALS)?;
        let has_result = Arc::clone(&watched.has_result);
        // The thread ends with the process.
        thread::Builder::new().name("betrfs-signals".into()).spawn(move || {
            if signals.forever().next().is_none() {
                return;
            }
            // Not given back: a result comes too late.
            let has_result = has_result.lock();
            if !*has_result {
                if io::stderr().is_terminal() {
                    // Behind the bar. If standard error is closed, the exit code remains.
                    let _ = writeln!(io::stderr());
                }
                print_document(&sentence);
                failure::say(&sentence);
            }
            std::process::exit(code);
        })?;
        Ok(watched)
    }

    /// From now on a signal ends the process without a word: the result is about to be printed.
    pub fn end(&self) {
        *self.has_result.lock() = true;
        self.is_at_once.store(true, Ordering::Relaxed);
    }
}
