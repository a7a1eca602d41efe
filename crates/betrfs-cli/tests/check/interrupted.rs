//! Checks and repairs that meet SIGINT at work.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Sample, betrfs};
use crate::schemas::valid;

/// Interrupts a command once it has the volume open, and returns what it said. On a busy machine it may be
/// done before the signal is sent: then it begins anew.
fn interrupted(arguments: &[&str], volume: &Path) -> Output {
    let meets_it = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
        command.args(arguments).arg(volume).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let open_files = format!("/proc/{}/fd", child.id());
        let is_at_work = || {
            let files = fs::read_dir(&open_files).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == volume)
        };
        // The files of a process that has ended, and was not waited for, are gone.
        while Path::new(&open_files).exists()
            && fs::read_dir(&open_files).is_ok_and(|mut all| all.next().is_some())
        {
            if is_at_work() {
                break;
            }
        }
        for signal in [Signal::STOP, Signal::INT, Signal::CONT] {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        child.wait_with_output().unwrap()
    };
    std::iter::repeat_with(meets_it).take(50).find(|output| output.status.code() == Some(32)).unwrap()
}

#[test]
fn they_say_so_and_leave_the_volume_as_it_was_or_repaired() {
    let sample = Sample::new();
    let before = fs::read(&sample.path).unwrap();
    for (arguments, what) in [
        (["check", "-n"].as_slice(), "the check of"),
        (["check", "-n", "--format", "json"].as_slice(), "the check of"),
        (["check", "-f", "-p", "--format", "json"].as_slice(), "the repair of"),
        (["check", "-y"].as_slice(), "the repair of"),
    ] {
        let output = interrupted(arguments, &sample.path);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(what) && told.contains("was interrupted"), "{told}");
        match arguments.contains(&"json") {
            false => assert!(output.stdout.is_empty(), "{output:?}"),
            true => {
                let document: Value = serde_json::from_slice(&output.stdout).unwrap();
                valid("check", &document);
                assert_eq!(document["clean"], false);
                assert!(document["error"].as_str().unwrap().contains("was interrupted"), "{document}");
            }
        }
        // Nothing was wrong, so there was nothing to mend.
        assert!(fs::read(&sample.path).unwrap() == before);
    }
    assert!(betrfs(&["check", "-n"], &sample.path).status.success());
}
