//! Runs of many seeds, and the report of one that failed.

use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

pub use seeded::{effort, is_long};

use crate::shrink::shrink_steps;
use crate::step::Step;

/// The time limit of shrinking.
const SHRINK_TIME: Duration = Duration::from_secs(30);
/// The time after which a seed counts as an endless loop.
const SEED_TIME: Duration = Duration::from_secs(60);

/// The number in an environment variable.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The seeds to try: the one in `BETRFS_SEED`, or the first `count`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("BETRFS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_GUARDED: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs `body`, which must neither panic nor run for ever. A panic becomes an error; an endless loop ends the
/// process with a message about `what`.
///
/// # Errors
/// Those of `body`, or where and why it panicked.
pub fn guarded(what: &str, body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_GUARDED.with(|guarded| *guarded.borrow()) {
                PANIC.with(|panic| *panic.borrow_mut() = Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(SEED_TIME) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: not done after {SEED_TIME:?}");
                std::process::abort();
            }
        });
        let was = IS_GUARDED.with(|guarded| guarded.replace(true));
        let result = catch_unwind(AssertUnwindSafe(body));
        IS_GUARDED.with(|guarded| guarded.replace(was));
        drop(done);
        result.unwrap_or_else(|_| {
            let told = PANIC.with(|panic| panic.borrow_mut().take());
            Err(format!("panic: {}", told.unwrap_or_default()))
        })
    })
}

/// Runs the history of a seed, and shrinks it if it fails.
///
/// # Errors
/// The report: the command that replays it, the shortest failing history, and the failure.
pub fn try_history(
    replay: &str,
    context: &dyn Debug,
    steps: &[Step],
    run: impl Fn(&[Step]) -> Result<(), String>,
) -> Result<(), String> {
    let attempt = |steps: &[Step]| guarded(replay, || run(steps));
    let Err(first) = attempt(steps) else { return Ok(()) };
    let short = shrink_steps(steps, SHRINK_TIME, |steps| attempt(steps).is_err());
    let last = attempt(&short).err().unwrap_or_else(|| "(not every time)".into());
    Err(format!(
        "{first}\n  replay: {replay}\n  on {context:?}\n  shrunk to {} of {} steps:\n{}  which fails so: {last}",
        short.len(),
        steps.len(),
        list_steps(&short)
    ))
}

/// Steps for a reader, one a line, with long lines and long lists cut.
pub fn list_steps(steps: &[Step]) -> String {
    const STEPS_MAX: usize = 40;
    const LINE_CHARS_MAX: usize = 300;
    let mut list = String::new();
    for step in steps.iter().take(STEPS_MAX) {
        let line = format!("{step:?}");
        let shown: String = line.chars().take(LINE_CHARS_MAX).collect();
        list.push_str(&format!("    {shown}{}\n", if shown.len() < line.len() { "…" } else { "" }));
    }
    if steps.len() > STEPS_MAX {
        list.push_str(&format!("    and {} more\n", steps.len() - STEPS_MAX));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_where() {
        assert_eq!(guarded("a", || Ok(())), Ok(()));
        assert_eq!(guarded("b", || Err("no".into())), Err("no".into()));
        let told = guarded("c", || panic!("the {} is wrong", "seam")).unwrap_err();
        assert!(told.contains("the seam is wrong") && told.contains("harness.rs"), "{told}");
    }

    #[test]
    fn a_failing_history_is_reported_short_and_with_its_command() {
        let steps: Vec<Step> = (0..50).map(Step::Pump).collect();
        let run = |steps: &[Step]| {
            let has = |n| steps.iter().any(|step| matches!(step, Step::Pump(times) if *times == n));
            assert!(!(has(7) && has(31)), "seven and thirty-one");
            Ok(())
        };
        let told = try_history("BETRFS_SEED=1 cargo test", &"a volume", &steps, run).unwrap_err();
        assert!(told.contains("shrunk to 2 of 50 steps:\n    Pump(7)\n    Pump(31)\n"), "{told}");
        assert!(told.contains("replay: BETRFS_SEED=1 cargo test"), "{told}");
        assert!(try_history("", &"", &steps[..30], run).is_ok());
    }

    #[test]
    fn long_lists_are_cut() {
        let list = list_steps(&vec![Step::Get(betree::DictId(0), vec![1; 1000]); 100]);
        assert!(list.ends_with("…\n    and 60 more\n") && list.len() < 20_000, "{list}");
    }
}
