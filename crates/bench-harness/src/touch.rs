//! Memory that the host has already given to this virtual machine.
//!
//! A host takes back memory that was free for some seconds, and returns it at the next touch, which then
//! takes thirty to fifty times as long. Without a touch in advance, a measurement's time would depend on how
//! long ago another program freed memory, and programs with huge pages would pay more often.

use std::hint::black_box;
use std::process::Command;

use anyhow::{Context, Result};
use betree_std::ALLOCATOR;

use crate::tool;

/// The option by which this program runs itself; the end of that process frees all of the memory at once.
pub const OPTION: &str = "--touch";

/// Touches `bytes` of memory, in huge pages if there are any, and frees them.
///
/// # Errors
/// There is too little memory.
pub fn touch(bytes: u64) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(OPTION).arg(bytes.to_string()).envs(ALLOCATOR);
    tool::run(&mut command).map(drop).context("cannot touch the memory of the limit")
}

/// [`touch`] in this process.
///
/// # Errors
/// There is too little memory.
pub fn touch_here(bytes: u64) -> Result<()> {
    let bytes = usize::try_from(bytes)?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes)?;
    memory.resize(bytes, 1_u8);
    black_box(memory);
    Ok(())
}
