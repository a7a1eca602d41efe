//! Memory that is there when it is touched.
//!
//! The host of a virtual machine takes back memory that has been free for some seconds, and gives it again when
//! it is touched: then touching it takes thirty to fifty times as long. What is measured would begin with that or
//! not by how long ago somebody else freed memory, and who asks for huge pages would have it more often.

use std::hint::black_box;
use std::process::Command;

use anyhow::{Context, Result};
use betree_std::ALLOCATOR;

use crate::tool;

/// By this option this program runs itself: an end gives all memory back to the kernel at once.
pub const OPTION: &str = "--touch";

/// Touches so much memory, in huge pages if there are, and frees it.
pub fn touch(bytes: u64) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(OPTION).arg(bytes.to_string()).envs(ALLOCATOR);
    tool::run(&mut command).map(drop).context("cannot touch the memory that there is to be")
}

/// The same in this process.
pub fn touch_here(bytes: u64) -> Result<()> {
    let bytes = usize::try_from(bytes)?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes)?;
    memory.resize(bytes, 1_u8);
    black_box(memory);
    Ok(())
}
