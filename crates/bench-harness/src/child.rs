//! Work in a process of its own: the running program starts itself again. The task travels as JSON to its
//! standard input, the result as JSON to its standard output.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use betree_std::ALLOCATOR;
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::teardown::Teardown;

/// Starts the running program with one argument, the name of the work.
///
/// # Errors
/// It cannot be started.
pub fn start(name: &str) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(command.arg(name).envs(ALLOCATOR).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Sends a task to a child and waits for its result.
///
/// # Errors
/// The child fails, or its output is no result.
pub fn finish<R: DeserializeOwned>(
    mut child: Child,
    task: &impl Serialize,
    teardown: &Teardown,
) -> Result<R> {
    let pid = Pid::from_child(&child);
    teardown.started(pid);
    let sent = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(&serde_json::to_vec(task)?).map_err(anyhow::Error::from));
    let output = child.wait_with_output();
    teardown.ended(pid);
    let output = output?;
    ensure!(output.status.success(), "the child ended with {}", output.status);
    sent.transpose()?;
    serde_json::from_slice(&output.stdout).context("the child's result is not readable")
}

/// In the child: does the task on standard input and prints its result.
///
/// # Errors
/// Those of the work, or the task is not readable.
pub fn serve<T: DeserializeOwned, R: Serialize>(work: impl FnOnce(T) -> Result<R>) -> Result<()> {
    let task = serde_json::from_reader(io::stdin()).context("the task is not readable")?;
    Ok(serde_json::to_writer(io::stdout(), &work(task)?)?)
}
