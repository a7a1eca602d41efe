//! Running other programs.

use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Runs a program to its end and returns its output.
///
/// # Errors
/// It cannot be run, or fails; then with its standard error.
pub fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", hint(&name)))?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed something that is not text"))
}

/// Runs a program and returns the number of lines that it printed. `found_none` is the exit code, if any,
/// that means it found nothing.
///
/// # Errors
/// It cannot be run, or fails.
pub fn count_lines(command: &mut Command, found_none: Option<i32>) -> Result<u64> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", hint(&name)))?;
    if !output.status.success() && output.status.code() != found_none {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
}

/// What a program printed and read, as counts.
#[derive(Debug)]
pub struct Counts {
    /// Lines printed.
    pub lines: u64,
    /// Bytes read by system calls, the start of its own program file included.
    pub read_bytes: u64,
}

/// As [`count_lines`], and counts the bytes that the program read.
///
/// # Errors
/// It cannot be run, or fails.
pub fn count_lines_and_reads(command: &mut Command, found_none: Option<i32>) -> Result<Counts> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", hint(&name)))?;
    let (mut printed, mut said) = (Vec::new(), Vec::new());
    let pipes = child.stdout.take().zip(child.stderr.take());
    let (mut stdout, mut stderr) = pipes.with_context(|| format!("{name} has no output"))?;
    std::thread::scope(|scope| {
        let errors = scope.spawn(|| stderr.read_to_end(&mut said));
        stdout.read_to_end(&mut printed)?;
        errors.join().unwrap_or(Ok(0))
    })?;
    // Read after its end and before it is reaped, when its counters are gone.
    let pid = Pid::from_child(&child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let io = std::fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero()));
    let status = child.wait()?;
    if !status.success() && status.code() != found_none {
        bail!("{name}: {status}: {}", String::from_utf8_lossy(&said).trim());
    }
    let io = io.context("cannot read the counters of a program")?;
    let read_bytes = io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    Ok(Counts {
        lines: printed.iter().filter(|byte| **byte == b'\n').count() as u64,
        read_bytes: read_bytes.context("the kernel does not count what a program reads")?,
    })
}

/// A program's name with its Debian package.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_by_a_program_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "a line\n".repeat(100_000)).unwrap();
        let all = count_lines_and_reads(Command::new("grep").arg("line").arg(&file), Some(1)).unwrap();
        assert!(all.lines == 100_000 && all.read_bytes >= 700_000, "{all:?}");
        let none = count_lines_and_reads(Command::new("grep").arg("other").arg(&file), Some(1)).unwrap();
        assert!(none.lines == 0 && none.read_bytes >= 700_000, "{none:?}");
        let mut first = Command::new("grep");
        let first = count_lines_and_reads(first.args(["-m", "1", "line"]).arg(&file), Some(1)).unwrap();
        assert!(first.lines == 1 && first.read_bytes < 500_000, "{first:?}");
        let missing =
            count_lines_and_reads(Command::new("grep").arg("x").arg(dir.path().join("no")), Some(1));
        assert!(missing.unwrap_err().to_string().contains("No such file"));
    }
}
