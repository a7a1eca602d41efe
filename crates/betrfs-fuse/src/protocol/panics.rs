//! Panics: none may leave a mount on which processes hang.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::server::Answer;

thread_local! {
    static ANSWERING: Cell<bool> = const { Cell::new(false) };
}

/// Computes an answer; a panic in `compute` becomes EIO.
pub fn answering<T>(what: &'static str, compute: impl FnOnce() -> Answer<T>) -> Answer<T> {
    ANSWERING.set(true);
    let answer = catch_unwind(AssertUnwindSafe(compute));
    ANSWERING.set(false);
    answer.unwrap_or_else(|_| {
        tracing::error!("a panic while answering {what}; the caller gets EIO");
        Err(Errno::IO)
    })
}

/// From now on, a panic of a server's thread outside [`answering`] ends the process. Without the thread,
/// processes would wait for answers for ever; a dead mount answers ENOTCONN at once, and the next mount
/// replaces it. For programs that are a server and nothing else.
pub fn abort_on_stray_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Writes to standard error and ignores failures: a panic in the hook would end the process.
        report(panic);
        if serves(std::thread::current().name()) && !ANSWERING.get() {
            std::process::abort();
        }
    }));
}

/// Whether a thread of this name is a server's: one that answers, or works in the background.
fn serves(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with("betrfs-"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    /// Tells the child process of the test how to panic.
    const WAY: &str = "BETRFS_TEST_PANIC";

    #[test]
    fn a_stray_panic_ends_the_process_and_a_panic_while_answering_does_not() {
        if let Ok(way) = std::env::var(WAY) {
            abort_on_stray_panics();
            let panicking = move || match way.as_str() {
                "answering" => answering("a test", || panic!("on purpose")),
                _ => panic!("on purpose"),
            };
            let thread = thread::Builder::new().name("betrfs-work-0".into());
            let _: thread::Result<Answer<()>> = thread.spawn(panicking).unwrap().join();
            return;
        }
        let name = thread::current().name().unwrap().to_owned();
        let panic = |way| {
            let mut process = Command::new(std::env::current_exe().unwrap());
            process.args(["--exact", &name]).env(WAY, way).stdout(Stdio::null()).stderr(Stdio::null());
            process.status().unwrap()
        };
        assert!(panic("answering").success());
        assert_eq!(panic("stray").signal(), Some(libc::SIGABRT));
    }

    #[test]
    fn all_threads_of_a_server_are_recognized() {
        for name in ["betrfs-fuse-0", "betrfs-fuse-dev", "betrfs-work-1", "betrfs-timer", "betrfs-signals"] {
            assert!(serves(Some(name)), "{name}");
        }
        assert!(!serves(Some("main")) && !serves(None));
    }

    #[test]
    fn a_panic_is_answered_with_an_error() {
        let answer: Answer<u8> = answering("a test", || panic!("on purpose"));
        assert_eq!(answer, Err(Errno::IO));
        assert_eq!(answering("a test", || Ok(5)), Ok(5));
        assert!(!ANSWERING.get());
    }
}
