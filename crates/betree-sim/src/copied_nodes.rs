//! Histories of volumes with two copies of interior nodes, of which one copy rots each time: nothing is lost.

use std::ops::ControlFlow;
use std::sync::Arc;

use betree::debug::Inspector;
use betree::{Env, FindingCode, NodeCopies, OnDamage, Options, ScrubFrom, ScrubOptions};
use betree_platform::{BLOCK_BYTES, Device};
use seeded::Rng;

use crate::append_capped::AppendCapped;
use crate::failure::Failure;
use crate::mem_device::MemDevice;
use crate::mix::Mix;
use crate::runner::Runner;
use crate::step::{Setup, Step, history_of_seed};

/// What histories with rotten copies have reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiesReached {
    /// Nodes of which a copy was damaged: the first, the second.
    pub damaged: [u64; 2],
    /// Second copies that were used.
    pub used: u64,
    /// Bad copies that a scrub has found.
    pub found: u64,
}

/// Takes the steps of a seed on a volume with two copies of nodes. In the middle and before the end it is
/// closed, a bit flips in one copy of each node that has two, and it is opened again: all contents are there.
/// In between and at last a scrub mends what is left, and in the end a check finds nothing.
///
/// # Errors
/// What was lost, or is wrong, as a sentence.
pub fn copied_nodes_history(seed: u64, steps: usize) -> Result<CopiesReached, String> {
    let (setup, steps) = history_of_seed(seed, steps, Mix::LAWS);
    // What is wrong is looked for at the end: until then a copy may be bad.
    let steps: Vec<Step> = steps.into_iter().filter(|step| !matches!(step, Step::Check)).collect();
    let told = |what: &'static str| move |failure: Failure| format!("{what}: {failure}");
    let device = Arc::new(MemDevice::new(setup.volume_bytes).which_seeks(setup.seeks));
    let mut reached = CopiesReached::default();
    let mut rng = Rng::new(seed);
    let mut runner = Runner::format(device.clone(), setup).map_err(told("format"))?;
    let chosen = runner.env().and_then(|env| Ok(env.set_node_copies(NodeCopies::Two)?));
    chosen.map_err(told("choose two copies"))?;
    let (before, after) = steps.split_at(steps.len() / 2);
    for part in [before, after] {
        runner.run(part).map_err(|(index, failure)| format!("step {index}: {failure}"))?;
        // A node whose copy is still bad would lose the other one too.
        reached.found += mended(runner.env().map_err(told("scrub"))?)?;
        runner.step(&Step::Checkpoint).map_err(told("checkpoint"))?;
        let closed = runner.env().and_then(|env| Ok(env.close()?));
        closed.map_err(told("close"))?;
        reached.used += runner.env().map_err(told("stats"))?.stats().copies_used;
        let history = runner.into_history();
        rot(&device, &setup, &mut rng, &mut reached)?;
        // It compares all contents.
        runner = Runner::open(device.clone(), setup, &history).map_err(told("open"))?;
        runner.compare_all().map_err(told("with a bad copy of each node"))?;
    }
    let env = Arc::clone(runner.env().map_err(told("scrub"))?);
    reached.found += mended(&env)?;
    reached.used += env.stats().copies_used;
    runner.check().map_err(told("mended"))?;
    runner.compare_all().map_err(told("mended"))?;
    Ok(reached)
}

/// Flips a bit in a block of one copy of each node that has two.
fn rot(
    device: &Arc<MemDevice>,
    setup: &Setup,
    rng: &mut Rng,
    reached: &mut CopiesReached,
) -> Result<(), String> {
    let options = Options::new(setup.cache_bytes, Arc::new(AppendCapped));
    let looked_at: Arc<dyn Device> = device.clone();
    let volume =
        Inspector::open(looked_at, options, &mut |_| ()).map_err(|error| format!("look: {error}"))?;
    for id in volume.ids() {
        let Some(node) = volume.node(id, &mut |_| ()).filter(|node| !node.copy.is_empty()) else { continue };
        let side = rng.below(2);
        let parts = if side == 0 { &node.extent } else { &node.copy };
        let blocks: Vec<u64> =
            parts.iter().flat_map(|p| p.start_block..p.start_block + p.len_blocks).collect();
        let offset = *rng.pick(&blocks) * BLOCK_BYTES as u64 + rng.below(BLOCK_BYTES / 16) as u64;
        device.rot(offset, rng.below(8) as u8);
        reached.damaged[side] += 1;
    }
    Ok(())
}

/// Has a scrub mend what it finds. Returns how many parts were bad.
fn mended(env: &Env) -> Result<u64, String> {
    let options = ScrubOptions { from: ScrubFrom::Start, on_damage: OnDamage::Mend };
    let mut found = Vec::new();
    let scrubbed = env.scrub(options, &mut |finding| found.push(finding), &mut |_| ControlFlow::Continue(()));
    scrubbed.map_err(|error| format!("scrub: {error}"))?;
    // Nodes that wait to be freed are not written anew.
    while env.run_due_work().map_err(|error| format!("work: {error}"))? {}
    match found.iter().find(|finding| finding.code != FindingCode::BadNodeCopy) {
        Some(other) => Err(format!("a scrub finds more than bad copies: {other}")),
        None => Ok(found.len() as u64),
    }
}
