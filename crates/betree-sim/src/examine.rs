//! What tests ask of an environment at their end: whether it is sound, and how much it takes.

use betree::{Env, Result};

/// The sentences of the problems that a check finds.
///
/// # Errors
/// Those of the check.
pub fn problems(env: &Env) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ())?;
    Ok(problems)
}

/// The bytes used once everything is done that is due.
///
/// # Errors
/// Those of work and checkpoints.
pub fn settled_bytes(env: &Env) -> Result<u64> {
    while env.run_due_work()? {}
    // The second frees what only the first one's predecessor named.
    (0..2).try_for_each(|_| env.checkpoint())?;
    Ok(env.space().used_bytes)
}
