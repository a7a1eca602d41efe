//! Helpers of mkfs(8), mount(8), umount(8) and fsck(8): the program's other names, their command lines, and
//! the exit codes expected of them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::failure::Kind;

/// The program's exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCodes {
    /// A volume was found damaged.
    pub damaged: u8,
    /// Anything else failed.
    pub failed: u8,
    /// The command line is wrong.
    pub usage: u8,
    /// The user lacks permission.
    pub permission: u8,
    /// The system is out of a resource.
    pub system: u8,
    /// The user interrupted it.
    pub interrupted: u8,
}

/// The exit code of a rescue that could not copy everything.
const MISSING: u8 = 4;

impl ExitCodes {
    /// The exit codes of fsck(8), which each check and each scrub has. Not 1 for damage: that would mean
    /// repaired damage.
    pub const CHECK: ExitCodes =
        ExitCodes { damaged: 4, failed: 8, usage: 16, permission: 8, system: 8, interrupted: 32 };

    /// The exit codes of a command line, of which the name of a helper's command is already a part.
    pub fn of_line(line: &[OsString]) -> ExitCodes {
        if line.get(1).is_some_and(|command| command == "check" || command == "scrub") {
            return ExitCodes::CHECK;
        }
        ExitCodes::of_program(line.first().map(OsString::as_os_str).unwrap_or_default())
    }

    /// The exit codes of the program under this name.
    fn of_program(program: &OsStr) -> ExitCodes {
        match helper_of(program) {
            Some("fsck") => ExitCodes::CHECK,
            Some("mount" | "umount") => {
                ExitCodes { damaged: 32, failed: 32, usage: 1, permission: 1, system: 2, interrupted: 8 }
            }
            _ => ExitCodes { damaged: 1, failed: 1, usage: 2, permission: 1, system: 1, interrupted: 1 },
        }
    }

    /// The code for a kind of failure.
    pub fn of_kind(&self, kind: Kind) -> u8 {
        match kind {
            Kind::Damage => self.damaged,
            Kind::Permission => self.permission,
            Kind::System => self.system,
            Kind::Interrupted => self.interrupted,
            Kind::Usage => self.usage,
            Kind::Other => self.failed,
            Kind::Missing => MISSING,
            // Bits of fsck(8).
            Kind::Mended => 1,
            Kind::MendedInPart => 1 | self.damaged,
        }
    }
}

/// File system types in the names of helpers: our own, and those that mount(8) finds in /proc/self/mountinfo.
const TYPES: [&str; 3] = ["betrfs", "fuse.betrfs", "fuseblk.betrfs"];

/// The program's names as a helper of mkfs(8), fsck(8), mount(8) and umount(8).
pub const HELPERS: [&str; 8] = [
    "mkfs.betrfs",
    "fsck.betrfs",
    "mount.betrfs",
    "mount.fuse.betrfs",
    "mount.fuseblk.betrfs",
    "umount.betrfs",
    "umount.fuse.betrfs",
    "umount.fuseblk.betrfs",
];

/// The first part of a helper's name: `mount` of `/sbin/mount.betrfs`.
fn helper_of(program: &OsStr) -> Option<&str> {
    let name = Path::new(program).file_name().and_then(OsStr::to_str)?;
    name.split_once('.').filter(|(_, fs_type)| TYPES.contains(fs_type)).map(|(helper, _)| helper)
}

/// Whether the program was started under the name by which mount(8) calls it.
pub fn is_of_mount() -> bool {
    std::env::args_os().next().is_some_and(|program| helper_of(&program) == Some("mount"))
}

/// Inserts the command that the program's name stands for into a command line.
pub fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_else(|| "betrfs".into());
    let rest: Vec<_> = arguments.collect();
    let (command, rest) = match command_of(&program) {
        // The other commands themselves accept the flags that they are passed.
        Some("check") => ("check", without(rest, &["-r", "-C"])),
        Some(command) => (command, rest),
        None => return std::iter::once(program).chain(rest).collect(),
    };
    [program, command.into()].into_iter().chain(rest).collect()
}

/// The command that a helper's name stands for.
pub fn command_of(program: impl AsRef<OsStr>) -> Option<&'static str> {
    match helper_of(program.as_ref())? {
        "mkfs" => Some("mkfs"),
        "mount" => Some("mount"),
        "umount" => Some("umount"),
        "fsck" => Some("check"),
        _ => None,
    }
}

/// Leaves out the flags that fsck(8) passes to every helper.
fn without(arguments: Vec<OsString>, flags: &[&str]) -> Vec<OsString> {
    arguments.into_iter().filter(|argument| !flags.iter().any(|flag| argument == flag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Vec<OsString> {
        command_line(arguments.iter().map(OsString::from))
    }

    #[test]
    fn each_helper_is_a_command() {
        for helper in HELPERS {
            assert_eq!(helper_of(helper.as_ref()), helper.split('.').next(), "{helper}");
            assert_ne!(line(&[helper, "v"])[1], "v", "{helper}");
        }
    }

    #[test]
    fn the_name_of_the_program_is_a_command() {
        assert_eq!(line(&["/sbin/mkfs.betrfs", "v"]), ["/sbin/mkfs.betrfs", "mkfs", "v"]);
        let mount = line(&["mount.betrfs", "v", "/mnt", "-n", "-t", "betrfs", "-o", "ro,noatime"]);
        assert_eq!(mount[..4], ["mount.betrfs", "mount", "v", "/mnt"]);
        assert_eq!(line(&["/sbin/umount.fuseblk.betrfs", "/mnt"])[1], "umount");
        assert_eq!(line(&["mount.fuse.betrfs", "v", "/mnt"])[1], "mount");
        assert_eq!(line(&["fsck.betrfs", "-a", "v"]), ["fsck.betrfs", "check", "-a", "v"]);
        assert_eq!(line(&["betrfs", "check", "-n", "v"]), ["betrfs", "check", "-n", "v"]);
        assert_eq!(line(&[]), ["betrfs"]);
    }

    #[test]
    fn fsck_and_mount_have_exit_codes_of_their_own() {
        let codes = |program: &str| {
            let ExitCodes { damaged, failed, usage, .. } = ExitCodes::of_program(program.as_ref());
            [damaged, failed, usage]
        };
        assert_eq!(codes("/usr/sbin/fsck.betrfs"), [4, 8, 16]);
        for program in ["mount.betrfs", "/sbin/mount.fuseblk.betrfs", "umount.fuse.betrfs"] {
            assert_eq!(codes(program), [32, 32, 1], "{program}");
            let of_kind = |kind| ExitCodes::of_program(program.as_ref()).of_kind(kind);
            assert_eq!(Kind::ALL.map(of_kind), [32, 1, 2, 8, 1, 32, 4, 1, 33], "{program}");
        }
        for program in ["betrfs", "mkfs.betrfs", "mount.ext4", "fsck.betrfs/betrfs", ""] {
            assert_eq!(codes(program), [1, 1, 2], "{program}");
        }
    }
}
