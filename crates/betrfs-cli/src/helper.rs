//! The names and command lines by which mkfs(8), mount(8) and fsck(8) call a file system's helper, and the
//! exit codes that they expect of it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// How the program's end is told to whoever called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCodes {
    /// A volume was found damaged.
    pub damaged: u8,
    /// Anything else failed.
    pub failed: u8,
    /// The command line is wrong.
    pub usage: u8,
}

impl ExitCodes {
    /// Those of a program that was called so.
    pub fn of(program: &OsStr) -> ExitCodes {
        match name_of(program) {
            // 1 would be damage that is no more.
            FSCK => ExitCodes { damaged: 4, failed: 8, usage: 16 },
            _ => ExitCodes { damaged: 1, failed: 1, usage: 2 },
        }
    }
}

const FSCK: &str = "fsck.betrfs";

fn name_of(program: &OsStr) -> &str {
    Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The command line with the command that the program's name stands for.
pub fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_else(|| "betrfs".into());
    let rest = arguments.collect();
    let (command, rest) = match name_of(&program) {
        "mkfs.betrfs" => ("mkfs", rest),
        "mount.betrfs" => ("mount", without(rest, &["-n", "-s"], &["-t", "-N"])),
        FSCK => ("check", without(rest, &["-a", "-p", "-y", "-n", "-f", "-r", "-C"], &[])),
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

    #[test]
    fn fsck_has_exit_codes_of_its_own() {
        let codes = |program: &str| {
            let ExitCodes { damaged, failed, usage } = ExitCodes::of(program.as_ref());
            [damaged, failed, usage]
        };
        assert_eq!(codes("/usr/sbin/fsck.betrfs"), [4, 8, 16]);
        for program in ["betrfs", "mkfs.betrfs", "mount.betrfs", "fsck.betrfs/betrfs", ""] {
            assert_eq!(codes(program), [1, 1, 2], "{program}");
        }
    }
}
