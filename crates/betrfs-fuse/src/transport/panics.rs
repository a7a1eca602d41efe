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

/// From now on, a panic of a transport thread outside [`answering`] ends the process: the thread
/// would be missing and its caller would wait for ever, while a dead mount answers ENOTCONN at once
/// and is replaced by the next one. For programs that are nothing but a server.
pub fn abort_on_stray_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        tracing::error!("{panic}");
        let transport =
            std::thread::current().name().is_some_and(|name| name.starts_with(super::THREAD_NAME));
        if transport && !ANSWERING.get() {
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_answered_with_an_error() {
        let answer: Answer<u8> = answering("a test", || panic!("on purpose"));
        assert_eq!(answer, Err(Errno::IO));
        assert_eq!(answering("a test", || Ok(5)), Ok(5));
        assert!(!ANSWERING.get());
    }
}
