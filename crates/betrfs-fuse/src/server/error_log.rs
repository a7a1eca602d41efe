//! What of failed requests goes to the log: trouble with the volume, in a bounded number of lines, for
//! whoever meets a damaged file may meet it a thousand times a second.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many lines in so long a time.
const LINES_MAX: u32 = 10;
const TIME: Duration = Duration::from_secs(10);

/// The failures that were told lately.
#[derive(Default)]
pub struct ErrorLog(Mutex<State>);

#[derive(Default)]
struct State {
    began: Option<Instant>,
    told: u32,
    passed_over: u64,
    read_only_told: bool,
}

/// What is to be said of a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Saying {
    /// It, and that so many before were passed over.
    Line(u64),
    /// Nothing.
    Nothing,
}

impl ErrorLog {
    /// Takes note of a failure at a moment.
    pub fn note(&self, now: Instant) -> Saying {
        let mut state = self.0.lock();
        if state.began.is_none_or(|began| now.saturating_duration_since(began) >= TIME) {
            (state.began, state.told) = (Some(now), 0);
        }
        if state.told == LINES_MAX {
            state.passed_over += 1;
            return Saying::Nothing;
        }
        state.told += 1;
        Saying::Line(std::mem::take(&mut state.passed_over))
    }

    /// Whether this is the first time that changes are refused, which is told once.
    pub fn is_first_refusal(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().read_only_told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_a_few_lines_and_their_number_is_told() {
        let error_log = ErrorLog::default();
        let start = Instant::now();
        let lines = (0..1000).filter(|_| error_log.note(start) != Saying::Nothing).count();
        assert_eq!(lines, LINES_MAX as usize);
        assert_eq!(error_log.note(start + TIME), Saying::Line(1000 - u64::from(LINES_MAX)));
        assert_eq!(error_log.note(start + TIME), Saying::Line(0));
        assert!(error_log.is_first_refusal() && !error_log.is_first_refusal());
    }
}
