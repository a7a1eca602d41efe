//! `betrfs kv FILE backup` and `check`: what is done with a whole store.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use betree_store::Store;
use indicatif::ProgressBar;

use super::reading;
use crate::bar::LateBar;
use crate::failure::{Failure, Outcome};
use crate::format::print;
use crate::size;

/// The templates of the bars.
const COMPACTING: &str =
    "compacting [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
const CHECKING: &str = "checking [{wide_bar}] {pos}/{len} {per_sec} {eta}";

/// Copies a store into a new file.
pub fn backup(path: &Path, to: &Path) -> Outcome {
    let store = reading().open(path)?;
    // Drawn on standard error, and only if that is a terminal.
    let bar = ProgressBar::new_spinner();
    let mut last = (0, 0);
    let done = store.backup(to, |at| {
        last = (at.pairs, at.bytes);
        bar.set_message(format!("{}: {}", at.dict, size::show(at.bytes)));
        bar.tick();
    });
    bar.finish_and_clear();
    done?;
    let (pairs, bytes) = last;
    print(format_args!("copied {pairs} pairs, {}, to {}", size::show(bytes), to.display()))
}

/// Rewrites a range of a dictionary.
pub fn compact(store: &Store, dict: &str, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Outcome {
    let dict = store.open_dict(dict)?;
    // About as much is written.
    let all_bytes = dict.estimate::<&[u8]>(range)?.stored_bytes;
    let mut bar = LateBar::new(COMPACTING);
    bar.tell(0, all_bytes);
    let done = dict.compact_while::<&[u8]>(range, |done| {
        bar.tell(done.written_bytes, all_bytes.max(done.written_bytes));
        ControlFlow::Continue(())
    });
    drop(bar);
    let done = done?;
    store.close()?;
    print(format_args!("wrote {}", size::show(done.written_bytes)))?;
    if done.shared > 0 {
        print(format_args!("what clones share was left as it is"))?;
    }
    Ok(())
}

/// Walks through everything in a store.
pub fn check(path: &Path) -> Outcome {
    let store = reading().open(path)?;
    let mut bar = LateBar::new(CHECKING);
    let findings = store.check_telling(&mut |done, all| bar.tell(done, all));
    drop(bar);
    let findings = findings?;
    for finding in &findings {
        print(format_args!("{finding}"))?;
    }
    match findings.len() {
        0 => print(format_args!("{}: no problem found", path.display())),
        1 => Err(Failure::new(format!("{} has a problem", path.display()))),
        problems => Err(Failure::new(format!("{} has {problems} problems", path.display()))),
    }
}
