//! The laws: sentences that hold for every history.

use std::sync::Arc;

use betree::{Cut, DictId, NodeCopies};

use crate::failure::Failure;
use crate::harness::setting;
use crate::mem_device::MemDevice;
use crate::model::Edit;
use crate::runner::Runner;
use crate::step::{Setup, Step};

/// The share of a volume that its node table may take.
const TABLE_PART: u64 = 64;

/// Runs a history beside the model, then drains, reopens and empties the volume.
///
/// # Errors
/// The first law that does not hold, as a sentence.
pub fn try_laws(setup: Setup, steps: &[Step]) -> Result<(), String> {
    try_laws_with(setup, NodeCopies::One, steps)
}

/// As [`try_laws`], of a volume with so many copies of interior nodes.
///
/// # Errors
/// As there.
pub fn try_laws_with(setup: Setup, copies: NodeCopies, steps: &[Step]) -> Result<(), String> {
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let told = |what: &'static str| move |e: Failure| format!("{what}: {e}");
    let mut runner = Runner::format(device, setup).map_err(told("format"))?;
    if copies == NodeCopies::Two {
        let chosen = runner.env().and_then(|env| Ok(env.set_node_copies(copies)?));
        chosen.map_err(told("choose two copies"))?;
    }
    let free_at_first = runner.env().map_err(told("space"))?.space().free_bytes;
    let after_each = setting("BETRFS_CHECK_EACH_STEP", 0) != 0;
    for (i, step) in steps.iter().enumerate() {
        let mut all = runner.step(step);
        if after_each {
            all = all.and_then(|()| runner.check()).and_then(|()| runner.compare_all());
        }
        all.map_err(|e| format!("step {i}: {e}"))?;
    }
    runner.compare_all().map_err(told("after the last step"))?;
    runner.drain().map_err(told("draining"))?;
    runner.compare_all().map_err(told("drained"))?;
    // Without views `check` accounts for each block: nothing that they held is left.
    runner.end_views().map_err(told("views, drained"))?;
    runner.check().map_err(told("drained"))?;
    runner.step(&Step::Reopen).map_err(told("reopening"))?;
    runner.compare_all().map_err(told("reopened"))?;
    runner.check().map_err(told("reopened"))?;

    let everything =
        (0..setup.geometry.dicts).map(|dict| Edit::DeleteRange(DictId(dict), Cut::LOW, Cut::HIGH)).collect();
    runner.step(&Step::Commit(everything)).map_err(told("deleting everything"))?;
    runner.drain().map_err(told("draining the deletion"))?;
    for _ in 0..2 {
        runner.step(&Step::Checkpoint).map_err(told("checkpoint of nothing"))?;
    }
    runner.compare_all().map_err(told("emptied"))?;
    runner.check().map_err(told("emptied"))?;
    let free_at_last = runner.env().map_err(told("space"))?.space().free_bytes;
    // `check` has accounted for each block. Only the node table may stay: it keeps the pages of its largest
    // size.
    if free_at_last + setup.volume_bytes / TABLE_PART < free_at_first {
        return Err(format!("emptied: {free_at_last} bytes free, {free_at_first} before the first put"));
    }
    Ok(())
}
