//! Giving up what cannot be read, so that a clone in the log can be made.

use hashbrown::HashSet;

use crate::check::{Finding, all_unreadable, children};
use crate::engine::Engine;
use crate::error::Result;

/// Puts known damage in the place of everything in the trees that cannot be read, in memory alone, and calls
/// `tell` with each.
///
/// `false`, without a change, if nodes below lost ones would be found again. They are worth more than the
/// rest of the log, and they come back only when the replay is over: deltas behind the clone would change
/// values older than those that their writers saw.
///
/// # Errors
/// Those of the device that are no damage.
pub(super) fn give_up_unreadable(engine: &Engine, tell: &mut dyn FnMut(Finding)) -> Result<bool> {
    engine.assign_all_unowned()?;
    let structures = engine.lock_structures();
    if children::are_found(engine, &structures)? {
        return Ok(false);
    }
    all_unreadable(engine, &structures)?.into_iter().for_each(tell);
    let mut seen = HashSet::new();
    for dict in &engine.dicts {
        engine.tree_of(dict).note_damage(&mut seen)?;
    }
    Ok(true)
}
