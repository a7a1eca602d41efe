//! Failures of the volume in the log: a bounded number of lines, because a program may meet a damaged file
//! a thousand times a second.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// At most this many lines in each [`TIME`].
const LINES_MAX: u32 = 10;
const TIME: Duration = Duration::from_secs(10);

thread_local! {
    /// While a request is answered: the line about it, which is logged with the name of what it is about.
    static LINE: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

/// Logs a failure: at once, or at the end of the [request](of_request) that is being answered.
pub fn tell(line: String) {
    LINE.with_borrow_mut(|told| match told {
        Some(told) => *told = Some(line),
        None => tracing::error!("{line}"),
    });
}

/// Answers a request; the line about its failure comes back too, if there is one.
pub fn of_request<T>(answer: impl FnOnce() -> T) -> (T, Option<String>) {
    LINE.set(Some(None));
    let answer = answer();
    (answer, LINE.take().flatten())
}

/// Counts of failures that were logged or left out.
#[derive(Default)]
pub struct ErrorLog(Mutex<State>);

#[derive(Default)]
struct State {
    began: Option<Instant>,
    told: u32,
    passed_over: u64,
    read_only_told: bool,
}

/// Whether to log a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Saying {
    /// Log it, with the number of failures left out before it.
    Line(u64),
    /// Do not log it.
    Nothing,
}

impl ErrorLog {
    /// Counts a failure at the moment `now` and decides whether to log it.
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

    /// Whether this is the first call: that changes are refused is logged once.
    pub fn is_first_refusal(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().read_only_told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_make_a_few_lines_and_a_count() {
        let error_log = ErrorLog::default();
        let start = Instant::now();
        let lines = (0..1000).filter(|_| error_log.note(start) != Saying::Nothing).count();
        assert_eq!(lines, LINES_MAX as usize);
        assert_eq!(error_log.note(start + TIME), Saying::Line(1000 - u64::from(LINES_MAX)));
        assert_eq!(error_log.note(start + TIME), Saying::Line(0));
        assert!(error_log.is_first_refusal() && !error_log.is_first_refusal());
    }
}
