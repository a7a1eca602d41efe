//! A panic must not leave a mount on which every process hangs.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::server::Answer;

thread_local! {
    static ANSWERING: Cell<bool> = const { Cell::new(false) };
}

/// Computes an answer; a panic in it becomes EIO.
pub fn answering<T>(what: &'static str, compute: impl FnOnce() -> Answer<T>) -> Answer<T> {
    ANSWERING.set(true);
    let answer = catch_unwind(AssertUnwindSafe(compute));
    ANSWERING.set(false);
    answer.unwrap_or_else(|_| {
        tracing::error!("a panic while answering {what}; the caller gets EIO");
        Err(Errno::IO)
    })
}

/// From now on, a panic of a server's thread outside [`answering`] ends the process: the thread would
/// be missing, and those whom it serves would wait for ever, while a dead mount answers ENOTCONN at
/// once and is replaced by the next one. For programs that are nothing but a server.
pub fn abort_on_stray_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // To standard error, and no matter if that takes nothing. A panic in here would end the process
        // whatever panicked before.
        report(panic);
        if serves(std::thread::current().name()) && !ANSWERING.get() {
            std::process::abort();
        }
    }));
}

/// Whether a thread of this name is one that a server cannot be without: those that answer, and those that
/// work in the background.
fn serves(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with("betrfs-"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    /// Where a process that is to panic is told in which way.
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
    fn no_thread_of_a_server_is_missed_in_silence() {
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
