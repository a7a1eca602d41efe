//! Running other programs.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a program to its end and gives what it printed; a failure says what it said.
pub fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", hint(&name)))?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed what is no text"))
}

/// Runs a program and gives how many lines it printed. `found_none` is the exit code, if any, that
/// means there was nothing to print.
pub fn count_lines(command: &mut Command, found_none: Option<i32>) -> Result<u64> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", hint(&name)))?;
    if !output.status.success() && output.status.code() != found_none {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
}

/// A program's name with the package that has it.
fn hint(name: &str) -> String {
    let package = match name {
        "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" | "btrfs" => "btrfs-progs",
        "losetup" | "mount" => "mount",
        "xz" => "xz-utils",
        "tar" | "find" | "grep" => "tar findutils grep",
        "git" | "rsync" => "git rsync",
        _ => return name.to_owned(),
    };
    format!("{name} (Debian: apt-get install {package})")
}
