//! Commands that meet SIGINT at work.

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Interrupts a command once it is at work, and returns what it said. On a busy machine it may be done before
/// the signal is sent: then `begin` begins anew.
pub fn interrupted(begin: impl Fn() -> Command, is_at_work: impl Fn() -> bool) -> Output {
    let meets_it = || {
        let mut child = begin().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that fails before is never at work.
        let has_ended = loop {
            match child.try_wait().unwrap() {
                None if !is_at_work() => thread::sleep(Duration::from_millis(1)),
                ended => break ended.is_some(),
            }
        };
        // It stands still between two pieces, or within one, and finds the signal when it goes on.
        for signal in [Signal::STOP, Signal::INT, Signal::CONT].into_iter().filter(|_| !has_ended) {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        child.wait_with_output().unwrap()
    };
    std::iter::repeat_with(meets_it).take(20).find(|output| !output.status.success()).unwrap()
}
