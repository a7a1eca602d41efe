//! Other programs with time limits, and data for them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use betree_sim::Rng;

/// A program with a time limit in seconds.
pub fn program<A: AsRef<OsStr>>(seconds_max: u32, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &seconds_max.to_string()]).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a program that must succeed; returns its output.
pub fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    // The beginning of the output of a failed diff or make is enough.
    let shown: String = stdout.chars().take(4000).collect();
    assert!(status.success(), "{command:?}: {status}\n{shown}\n{}", String::from_utf8_lossy(&stderr));
    stdout
}

/// Asserts that `betrfs check` finds nothing on a closed volume.
pub fn check_is_clean(volume: &Path) {
    let betrfs = Path::new(env!("CARGO_BIN_EXE_betrfs"));
    let told = succeed(&mut program(600, [betrfs.as_os_str(), "check".as_ref(), volume.as_os_str()]));
    assert!(told.contains("no problem found"), "{told}");
}

/// Unpacks a tar file into a directory, with the original times of directories.
pub fn unpack(tar: &Path, into: &Path) {
    let mut unpack = program(900, ["tar", "--extract", "--delay-directory-restore", "--file"]);
    succeed(unpack.arg(tar).arg("--directory").arg(into));
}

/// The tar file of a source tree: 5,000 files, or in the long suite Linux.
pub fn source_tar() -> PathBuf {
    let path = std::env::var_os("BETRFS_SOURCE_TAR").map(PathBuf::from);
    let path = path.expect("BETRFS_SOURCE_TAR names no tar file of a source tree; setup/test makes one");
    assert!(path.is_file(), "BETRFS_SOURCE_TAR: there is no {}", path.display());
    path
}

/// Incompressible bytes, a function of the seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A number that an environment variable may set.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
