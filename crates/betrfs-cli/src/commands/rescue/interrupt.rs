//! The user's interruption of a rescue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure;

/// Not SIGHUP: nohup(1) has it ignored, and a handler would undo that.
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// The exit code.
const INTERRUPTED: i32 = 1;

/// Whether a signal has come. Before the copy begins the first signal ends the process with a sentence;
/// afterwards the copy ends itself at its next step. A second signal ends the process at once.
pub struct Interrupt {
    is_asked: Arc<AtomicBool>,
    copies: Arc<Mutex<bool>>,
}

impl Interrupt {
    /// Listens from now on; `volume` is the volume's name for the sentence.
    ///
    /// # Errors
    /// No thread or handler can be had.
    pub fn watch(volume: &str) -> io::Result<Interrupt> {
        let watched = Interrupt { is_asked: Arc::default(), copies: Arc::default() };
        for signal in SIGNALS {
            // In this order, so that the first signal sets what the second one finds.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&watched.is_asked))?;
            flag::register(signal, Arc::clone(&watched.is_asked))?;
        }
        let mut signals = Signals::new(SIGNALS)?;
        let sentence = format!("the rescue of {volume} was interrupted: nothing was copied yet");
        let copies = Arc::clone(&watched.copies);
        // The thread ends with the process.
        thread::Builder::new().name("betrfs-signals".into()).spawn(move || {
            let has_come = signals.forever().next().is_some();
            // Kept until the end: the copy must not begin after the sentence.
            let copies = copies.lock();
            if has_come && !*copies {
                failure::say(&sentence);
                std::process::exit(INTERRUPTED);
            }
        })?;
        Ok(watched)
    }

    /// From now on a signal is for the copy.
    pub fn begin_copy(&self) {
        *self.copies.lock() = true;
    }

    /// Whether the copy is to end.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}
