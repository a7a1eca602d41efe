//! The binary under test for other users: where it was built may be a home directory.

use std::path::PathBuf;
use std::process::Command;

use crate::mounted::{Mounted, ok};

/// A copy of it beside a volume, made at the first call. cp(1) makes it: a child that another test starts
/// holds descriptors of this process until it executes, and what is open for writing cannot be executed.
pub fn program_beside(mounted: &Mounted) -> PathBuf {
    let program = mounted.volume.with_file_name("betrfs");
    if !program.exists() {
        ok(&Command::new("cp").arg(env!("CARGO_BIN_EXE_betrfs")).arg(&program).output().unwrap());
    }
    program
}
