//! The terminal: a screen of its own, keys without Enter, and both as they were at the end.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

// Control sequences of ECMA-48, and of xterm for the other screen.
const OTHER_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const FIRST_SCREEN: &str = "\x1b[?25h\x1b[?1049l";
const TO_THE_TOP: &str = "\x1b[H";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// Ctrl-C, which is a key here.
const INTERRUPT: u8 = 3;
/// The size of a terminal that does not know it: columns, lines.
const SIZE: (usize, usize) = (80, 24);

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The next frame.
    GoOn,
    /// The end.
    End,
}

/// A terminal in use; the drop gives it back as it was.
pub struct Screen {
    before: Termios,
    is_ended: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal of standard input and output.
    ///
    /// # Errors
    /// The operating system's; the terminal is as before.
    pub fn open() -> io::Result<Screen> {
        let is_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&is_ended))?;
        }
        let before = tcgetattr(io::stdin())?;
        let mut now = before.clone();
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Flush, &now)?;
        let screen = Screen { before, is_ended };
        put(OTHER_SCREEN)?;
        Ok(screen)
    }

    /// Shows lines in place of those before, as much of them as fits.
    ///
    /// # Errors
    /// The operating system's.
    pub fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_col.into(), size.ws_row.into()));
        let size = size.ok().filter(|(columns, rows)| *columns > 0 && *rows > 0);
        put(&page(lines, size.unwrap_or(SIZE)))
    }

    /// Waits for a key, or for the end of an interval.
    ///
    /// # Errors
    /// The operating system's.
    pub fn wait(&mut self, interval: Duration) -> io::Result<Wish> {
        let until = Instant::now() + interval;
        loop {
            if self.is_ended.load(Ordering::Relaxed) {
                return Ok(Wish::End);
            }
            let left = until.saturating_duration_since(Instant::now());
            let limit = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let stdin = io::stdin();
            let mut keys = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut keys, Some(&limit)) {
                Ok(0) => return Ok(Wish::GoOn),
                Ok(_) => return wish(&stdin),
                // A signal, which may be that of the end.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nowhere to report a failure to.
        let _ = put(FIRST_SCREEN);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// The wish behind keys that were pressed.
fn wish(stdin: &io::Stdin) -> io::Result<Wish> {
    let mut keys = [0; 64];
    // Past the library's buffer, which could hold back what the next call of poll(2) waits for.
    let count = rustix::io::read(stdin, &mut keys)?;
    let pressed = keys.get(..count).unwrap_or_default();
    // None: the terminal is gone.
    let ends = pressed.is_empty() || pressed.iter().any(|key| [b'q', b'Q', INTERRUPT].contains(key));
    Ok(if ends { Wish::End } else { Wish::GoOn })
}

/// The bytes that show as many lines as fit, in place of what was there.
fn page(lines: &[String], (columns, rows): (usize, usize)) -> String {
    let shown = lines.iter().take(rows).map(|line| {
        let line: String = line.chars().take(columns).collect();
        format!("{line}{CLEAR_REST_OF_LINE}")
    });
    format!("{TO_THE_TOP}{}{CLEAR_BELOW}", shown.collect::<Vec<_>>().join("\r\n"))
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_no_more_than_fits() {
        let lines = ["µs and more", "b", "c"].map(str::to_owned);
        assert_eq!(page(&lines, (4, 2)), "\x1b[Hµs a\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(page(&lines[1..2], (80, 24)), "\x1b[Hb\x1b[K\x1b[J");
    }
}
