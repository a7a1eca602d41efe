//! Whether the disks that power cuts leave hold what the program had been told.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree_sim::SimDisk;
use betree_std::StdPlatform;
use betrfs::{OpenOptions, Report, Volume};

use crate::disk_log::{DiskLog, PowerCut};
use crate::tree::Tree;

const CACHE_BYTES: usize = 16 << 20;

/// Which cuts are tried.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Every how many calls.
    pub every: usize,
    /// The number of fates of unsynced writes at each.
    pub fates: u64,
}

/// What was seen in all images.
#[derive(Debug, Default)]
pub struct Seen {
    /// The number of disks that were opened.
    pub images: usize,
    /// Those that held an older state than the program had reached.
    pub older: usize,
    /// Those with writes that had not been synced.
    pub unsynced: usize,
    /// The states that were found.
    pub states: BTreeSet<usize>,
}

/// What a disk holds after a power cut, checked.
///
/// # Errors
/// It cannot be opened or read, or a check finds something.
pub fn recovered(image: SimDisk) -> Result<Tree, String> {
    let platform = Arc::new(StdPlatform::new());
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::new(platform) };
    let volume = Volume::open(Arc::new(image), options).map_err(|error| error.to_string())?;
    let report = volume.check(&mut |_, _| ()).map_err(|error| error.to_string())?;
    // Notes may be of a superblock's copy that was being written.
    if (Report { notes: Vec::new(), ..report.clone() }) != Report::default() {
        return Err(format!("a check finds {report:?}"));
    }
    let tree = Tree::of_volume(&volume);
    volume.env().abandon();
    tree
}

/// Opens the disks that power cuts leave: each must hold one of the states from the last one of which the
/// program was told that it is durable to the last one that it may have reached.
///
/// # Errors
/// The first disk that does not, in words.
pub fn judge(log: &DiskLog, states: &[Tree], plan: Plan) -> Result<Seen, String> {
    let (mut seen, mut wrong, mut cuts) = (Seen::default(), None, 0);
    log.replay(|cut| {
        cuts += 1;
        if wrong.is_some() || cuts % plan.every != 0 {
            return;
        }
        let fates = if cut.is_pending { plan.fates } else { 1 };
        for fate in 0..fates {
            match judge_image(cut, fate, states) {
                Ok(state) => {
                    seen.images += 1;
                    seen.unsynced += usize::from(cut.is_pending);
                    seen.older += usize::from(state < cut.begun && states[state] != states[cut.begun]);
                    seen.states.insert(state);
                }
                Err(what) => {
                    wrong.get_or_insert(format!("cut after event {}, fate {fate}: {what}", cut.at));
                }
            }
        }
    });
    wrong.map_or(Ok(seen), Err)
}

fn judge_image(cut: &PowerCut<'_>, fate: u64, states: &[Tree]) -> Result<usize, String> {
    let found = recovered(cut.disk.crash((cut.at as u64) << 8 | fate))?;
    let begun = cut.begun.min(states.len() - 1);
    let possible = cut.durable..=begun;
    possible.clone().rev().find(|state| states[*state] == found).ok_or_else(|| {
        format!(
            "it holds none of the states {possible:?}; beside the durable one: {}; beside the last one: {}",
            found.difference(&states[cut.durable]),
            found.difference(&states[begun])
        )
    })
}
