//! The names and command lines by which mkfs(8), mount(8) and fsck(8) call a file system's helper.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The command line with the command that the program's name stands for.
pub fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_else(|| "betrfs".into());
    let rest = arguments.collect();
    let called = Path::new(&program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let (command, rest) = match called {
        "mkfs.betrfs" => ("mkfs", rest),
        "mount.betrfs" => ("mount", without(rest, &["-n", "-s"], &["-t", "-N"])),
        "fsck.betrfs" => ("check", without(rest, &["-a", "-p", "-y", "-n", "-f", "-r", "-C"], &[])),
        _ => return std::iter::once(program).chain(rest).collect(),
    };
    [program, command.into()].into_iter().chain(rest).collect()
}

/// Leaves out what helpers are given whatever the file system: flags, and flags with a value.
fn without(arguments: Vec<OsString>, flags: &[&str], valued: &[&str]) -> Vec<OsString> {
    let is_one_of = |argument: &OsString, list: &[&str]| list.iter().any(|flag| argument == flag);
    let mut kept = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        if is_one_of(&argument, valued) {
            rest.next();
        } else if !is_one_of(&argument, flags) {
            kept.push(argument);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Vec<OsString> {
        command_line(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_name_of_the_program_is_a_command() {
        assert_eq!(line(&["/sbin/mkfs.betrfs", "v"]), ["/sbin/mkfs.betrfs", "mkfs", "v"]);
        let mount = line(&["mount.betrfs", "v", "/mnt", "-n", "-t", "betrfs", "-o", "ro,noatime"]);
        assert_eq!(mount, ["mount.betrfs", "mount", "v", "/mnt", "-o", "ro,noatime"]);
        assert_eq!(line(&["fsck.betrfs", "-a", "v"]), ["fsck.betrfs", "check", "v"]);
        assert_eq!(line(&["betrfs", "check", "-n", "v"]), ["betrfs", "check", "-n", "v"]);
        assert_eq!(line(&[]), ["betrfs"]);
    }
}
